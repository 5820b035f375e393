"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from thalweg.doctor.confinement import confinement
from thalweg.doctor.facts import Facts
from thalweg.doctor.findings import CheckResult
from thalweg.doctor.governed import policies
from thalweg.doctor.installation import api_server, crd, operator_version, rights, second_scheduler
from thalweg.doctor.kube_scheduler import certificates, extender, gang_scheduling, node_sample
from thalweg.doctor.liveness import clock, gates, lease, served
from thalweg.doctor.visibility import view, waits

CHECKS: Final[tuple[Callable[[Facts], Iterator[CheckResult]], ...]] = (
    api_server, operator_version, second_scheduler, crd, rights, confinement, lease, clock, policies, gates, served,
    waits, view, extender, certificates, node_sample, gang_scheduling,
)  # fmt: skip


def judge(facts: Facts) -> list[CheckResult]:
    """The findings of all checks."""
    return [finding for check in CHECKS for finding in check(facts)]
