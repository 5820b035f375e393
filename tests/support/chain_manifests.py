"""A cluster in which two pods leave one after the other, so that a large one comes."""

from __future__ import annotations

from typing import Any

from support.cli import node, pod

_POLICY: dict[str, Any] = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "own"},
    "spec": {
        "selects": {"podSelector": {}},
        "rescheduling": {"mode": "Act", "minAge": "0s"},
    },
}


def chain_of_moves() -> list[dict[str, Any]]:
    """The pod ``db`` of b goes to c, then ``web`` of a to b; then ``large`` has room on a."""
    running = []
    for name, cpu, place in (("db", "1", "b"), ("web", "2", "a")):
        made = pod(name, cpu, nodeName=place, schedulerName="thalweg", status={"phase": "Running"})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-1", "uid": name, "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
        running.append(made)
    large = pod("large", "4", schedulerName="thalweg")
    return [_POLICY, node("a", "4"), node("b", "2"), node("c", "1"), *running, large]
