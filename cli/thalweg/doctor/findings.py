"""What a check finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The result of a check."""

    OK = "OK"
    #: It works, but something may surprise.
    WARN = "WARN"
    #: It does not work.
    FAIL = "FAIL"
    #: The check could not be made, or does not apply.
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report.

    Attributes:
        check: name of the check.
        sentence: what was found.
        advice: what to do, a command where there is one; "" where nothing is to be done.
    """

    check: str
    verdict: Verdict
    sentence: str
    advice: str = ""


def exit_code(findings: Iterable[CheckResult], *, strict: bool) -> int:
    """1 if a check failed, else 0; ``strict``: warnings count as failures."""
    failures = {Verdict.FAIL, Verdict.WARN} if strict else {Verdict.FAIL}
    return int(any(each.verdict in failures for each in findings))
