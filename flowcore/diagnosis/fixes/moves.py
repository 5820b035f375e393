"""One running pod that another node takes, and whose leaving makes room for a waiting pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowcore.cluster.cluster import Cluster
from flowcore.diagnosis.fixes.waiting_pods import Judge, Wanted
from flowcore.model.policies import Policy
from flowcore.scenario.changes import MovePod

#: Nodes on which pods are looked at, and pods for which another node is looked for.
_MAX_NODES, _MAX_PODS = 48, 24


def moves(
    wanted: Wanted,
    judge: Judge,
    cluster: Cluster,
    policies: dict[str, Policy],
    leaving: Collection[str],
    may_name: object = None,
) -> Iterator[MovePod]:
    """Moves of one pod each, the pod of the lowest priority and least usage first."""
