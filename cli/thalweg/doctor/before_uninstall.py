"""Whether Thalweg can be removed and nothing waits for it afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.scheduler_users.reading import SchedulerUsers
from thalweg.scheduler_users.users import what_becomes

_CHECK: Final = "before-uninstall"
_ADVICE: Final = "thalweg uninstall --list; then docs/how-to/remove-thalweg.md, step 0"


def before_uninstall(users: SchedulerUsers) -> Iterator[CheckResult]:
    """What still names a scheduler of Thalweg, and what becomes of it."""
    for gap in users.gaps:
        yield CheckResult(_CHECK, Verdict.SKIP, gap)
    for sentence in what_becomes(users.users, users.served):
        yield CheckResult(_CHECK, Verdict.WARN, sentence, _ADVICE)
    gated = sum(user.gated for user in users.users)
    if gated:
        said = f"{gated:,} {'pod is' if gated == 1 else 'pods are'} behind Thalweg's scheduling gate."
        yield CheckResult(_CHECK, Verdict.WARN, said, "thalweg uninstall opens these gates: run it before the CRDs go")
    if not users.users and not users.gaps:
        yield CheckResult(_CHECK, Verdict.OK, f"Nothing names a scheduler of Thalweg ({', '.join(users.served)}).")
