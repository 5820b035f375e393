"""One running pod that another node takes, and whose leaving makes room for a waiting pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.snapshot import Int64s
from flowcore.diagnosis.fixes.waiting_pods import Judge, Wanted
from flowcore.filters import node_resources_fit, run_filters
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.policies import Policy
from flowcore.model.running_pods import RunningPod
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
