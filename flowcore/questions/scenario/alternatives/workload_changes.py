"""Two plans side by side, by workload: pods of one workload that exchange their nodes are no change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class WorkloadCount(msgspec.Struct, frozen=True, rename="camel"):
    """The pods of a workload once a plan is carried out.

    Attributes:
        pods: all of them.
        placed: those with a node.
        moved: of these, those that ran on another node before the plan.
        evicted: those that ran before the plan and have no node.
    """

    pods: int = 0
    placed: int = 0
    moved: int = 0
    evicted: int = 0

    @property
    def waiting(self) -> int:
        """How many of its pods have no node."""
        return self.pods - self.placed


class WorkloadChange(msgspec.Struct, frozen=True, rename="camel"):
    """What two plans make of a workload.

    Attributes:
        workload: ``kind/namespace/name`` (flowcore/model/workloads.py).
        before, after: in the first plan and in the second.
    """

    workload: str
    before: WorkloadCount
    after: WorkloadCount

    @property
    def namespace(self) -> str:
        """Namespace of the workload."""
        return self.workload.split("/")[1]

    @property
    def gained(self) -> int:
        """How many pods fewer wait in the second plan; negative: how many more."""
        return self.before.waiting - self.after.waiting

    @property
    def lost(self) -> int:
        """How many pods more wait in the second plan."""
        return max(0, -self.gained)


def workload_changes(
    workloads: Mapping[str, str], ran: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> list[WorkloadChange]:
    """The workloads that the two plans treat differently, those that lose most first.

    Args:
        workloads: of all pods, by key.
        ran: node of each pod that ran before both plans, by key.
        before, after: node of each pod once the plan is carried out, by key; "": it waits.
    """
    counts_before, counts_after = (_counts(workloads, ran, nodes) for nodes in (before, after))
    none = WorkloadCount()
    changes = (
        WorkloadChange(name, counts_before.get(name, none), counts_after.get(name, none))
        for name in dict.fromkeys((*counts_before, *counts_after))
    )
    return sorted(
        (change for change in changes if change.before != change.after),
        key=lambda change: (change.gained, change.workload),
    )


def _counts(workloads: Mapping[str, str], ran: Mapping[str, str], nodes: Mapping[str, str]) -> dict[str, WorkloadCount]:
    by_workload: dict[str, list[int]] = {}
    for key, node in nodes.items():
        count, old = by_workload.setdefault(workloads[key], [0, 0, 0, 0]), ran.get(key, "")
        count[0] += 1
        count[1] += bool(node)
        count[2] += bool(node and old and node != old)
        count[3] += bool(old and not node)
    return {name: WorkloadCount(*counts) for name, counts in by_workload.items()}
