"""Gathers, judges and prints."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rich.text import Text
from thalweg_operator.api.client import connect
from thalweg_operator.api.json_reading import UnreadableJson
from thalweg_operator.errors import ConnectionLost, Refused

from thalweg.doctor.before_uninstall import before_uninstall
from thalweg.doctor.cluster_reader import Examination
from thalweg.doctor.confinement import confinement
from thalweg.doctor.facts import Facts
from thalweg.doctor.findings import CheckResult, Verdict, exit_code
from thalweg.doctor.gather import gather
from thalweg.doctor.governed import policies
from thalweg.doctor.hyper_nodes import hyper_nodes
from thalweg.doctor.installation import api_server, crd, operator_version, rights, second_scheduler
from thalweg.doctor.kube_scheduler import certificates, extender, gang_scheduling, node_sample
from thalweg.doctor.liveness import clock, gates, lease, served
from thalweg.doctor.visibility import view, waits
from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.scheduler_users.reading import SchedulerUsers, read_scheduler_users
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.documents import print_document
from thalweg.terminal.logs import set_up_logging
from thalweg.terminal.printable import printable
from thalweg.terminal.tables import print_table
from thalweg.terminal.telling import tell_error

#: Connections to the API server at a time.
_CONNECTIONS = 8
_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red", Verdict.SKIP: "dim"}

#: All checks, in the order of the report.
_CHECKS: Final[tuple[Callable[[Facts], Iterator[CheckResult]], ...]] = (
    api_server, operator_version, second_scheduler, crd, rights, confinement, lease, clock, policies, gates, served,
    waits, view, extender, certificates, node_sample, gang_scheduling, hyper_nodes,
)  # fmt: skip


def judge(facts: Facts) -> list[CheckResult]:
    """The findings of all checks."""
    return [finding for check in _CHECKS for finding in check(facts)]


def run_doctor(
    kubeconfig: Path | None, context: str | None, request: Examination, output: str, *, strict: bool, uninstall: bool
) -> None:
    """Examines a cluster. Exit code 1: a check failed; 2: the API server cannot be used.

    Args:
        uninstall: whether to say what waits for ever after Thalweg is removed.
    """
    set_up_logging("text", "critical")
    kubeconfig, source = resolve_kubeconfig(kubeconfig, context)
    try:
        facts, users = asyncio.run(_gather(kubeconfig, context, request, uninstall=uninstall))
    except (ConnectionLost, Refused, UnreadableJson) as error:
        tell_error(f"cannot use the API server ({source}): {error}")
        sys.exit(2)
    findings = [*judge(facts), *(() if users is None else before_uninstall(users))]
    if output != "table":
        print_document(findings, output)
    else:
        _print(findings)
    sys.exit(exit_code(findings, strict=strict))


async def _gather(
    kubeconfig: Path | None, context: str | None, request: Examination, *, uninstall: bool
) -> tuple[Facts, SchedulerUsers | None]:
    async with connect(kubeconfig, _CONNECTIONS, context=context) as api_client:
        facts = await gather(api_client, request)
        return facts, await read_scheduler_users(api_client) if uninstall else None


def _print(findings: list[CheckResult]) -> None:
    console = stdout_console()
    rows = ((each.check, Text(str(each.verdict), _COLOURS[each.verdict]), _finding(each)) for each in findings)
    print_table(console, ("CHECK", "RESULT", "FINDING"), rows)
    counts = Counter(each.verdict for each in findings)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]))


def _finding(finding: CheckResult) -> Text:
    advice = ("\n", (f"→ {printable(finding.advice)}", "bold")) if finding.advice else ()
    return Text.assemble(printable(finding.sentence), *advice)
