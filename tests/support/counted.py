"""All that a cluster has counted of its pods, as values: two clusters with the same pods have the same."""

from __future__ import annotations

from typing import Any

import msgspec

from flowcore.cluster.cluster import Cluster


def counted(cluster: Cluster) -> dict[str, Any]:
    """Pods, those that wait, gangs, and every sum and index of them."""
    uses = {name: use.to_usage(name) for name, use in cluster.occupancy.usage.items()}
    amounts = {name: tuple(sorted(each for each in use.amounts if each[1])) for name, use in uses.items()}
    return {
        "pods": cluster.pods,
        "waiting": cluster.waiting,
        "usage": {name: msgspec.structs.replace(use, amounts=amounts[name]) for name, use in uses.items()},
        "signatures": cluster.occupancy.pod_index.copy_counts(),
        "populations": {of: (each.placed, each.waiting) for of, each in cluster.populations.items()},
        "priorities": (cluster.bound_priorities, cluster.waiting_by_priority),
        "claims": (cluster.storage._wanted_claims, cluster._claiming),
        "numa": (cluster.numa.waiting, cluster.numa._recent),
        "gangs": {key: (cluster.gangs.state(key), cluster.gangs.members(key)) for key in cluster.gangs._members},
        "registered": cluster.gangs._pods,
    }
