"""Arcs of a policy's network that have as many units as they let in, and where."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.inter_pod_constraints import EACH_NODE, MaxPerDomain
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.lists import listed
from flowcore.rules.topology.domain_limits import limit_counter

#: Places that are named one by one.
_FEW = 3


def full_arcs(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each limit of a pod that is reached somewhere after the plan, with the places."""
    after, rules = pod.plan.result.after, pod.unplaced.pod.signature.constraints
    for limit in () if rules is None else rules.limits:
        counter = limit_counter(limit, after.pod_index, after.table)
        domains = counter.domains
        full = np.unique(domains.codes[domains.labelled & (counter.initial_by_node >= limit.max_pods)]).tolist()
        has = [f"{_place(limit, each, after.table)} has {counter.initial[each]} of {limit.max_pods}" for each in full]
        if has:
            more = [f"{len(has) - _FEW} more are full"] if len(has) > _FEW else []
            yield f"{limit.constraint} is full: {listed([*has[:_FEW], *more])}."


def _place(limit: MaxPerDomain, domain: int, table: NodeTable) -> str:
    if limit.topology_key == EACH_NODE:
        return table.nodes[domain].name
    return table.column(limit.topology_key).values[domain] if limit.topology_key else "the cluster"
