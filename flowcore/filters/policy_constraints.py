"""PolicyConstraints: what the policy that governs a pod demands across pods. Not a filter of kube-scheduler's.

It comes after those of kube-scheduler: where both reject a node, their reason is the one that is given.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters import node_affinity
from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.neighbours import Described, Kind, Neighbours
from flowcore.model.rules import Limit, Rules
from flowcore.model.snapshot import Int64s, NodeTable

NAME = "PolicyConstraints"


def contradictory(rules: Rules, table: NodeTable) -> tuple[Rejection, ...]:
    """Every node, for a pod that can never be placed by the words of its policy."""
    if not rules.contradiction:
        return ()
    reason = f"node(s) are ruled out by a contradiction: {rules.contradiction}"
    return (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)


def nodes_reads(kind: Kind) -> Reads | None:
    """The nodes that constraints leave to the kind."""
    only_on = () if kind.rules is None else kind.rules.only_on
    if not only_on:
        return None
    keys = {requirement.key for each in only_on for requirement in each.nodes.requirements}
    return Reads(only_on, labels=tuple(sorted(keys)))


def nodes_rejections(kind: Kind, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that a constraint does not leave to the kind."""
    found = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    for each in kind.rules.only_on if kind.rules is not None else ():
        others = ~node_affinity.meets_all(each.nodes.requirements, table) & ~decided
        found.append(Rejection(f"node(s) are not among those of {each.constraint}", others))
        decided |= others
    return tuple(found)


def reads(kind: Kind, neighbours: Neighbours) -> Reads | None:
    """The limits, whether each counts the kind itself, and the pods that they count."""
    limits = () if kind.rules is None else kind.rules.limits
    if not limits:
        return None
    return Reads(
        of_class=(limits, tuple(counts_itself(limit, kind, neighbours) for limit in limits)),
        crowds=tuple(neighbours.crowd(description(limit)) for limit in limits),
        labels=tuple(sorted({limit.topology_key for limit in limits if limit.topology_key})),
    )


def rejections(kind: Kind, neighbours: Neighbours, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes where one more of the kind would be too many for a limit; a node is given the reason of its first one."""
    found = []
    decided = np.zeros(len(table.nodes), dtype=np.bool_)
    for limit in kind.rules.limits if kind.rules is not None else ():
        key = limit.topology_key
        if key:
            lacking = (table.column(key).codes < 0) & ~decided
            found.append(Rejection(f"node(s) have no label {key} ({limit.constraint})", lacking))
            decided |= lacking
        itself = int(counts_itself(limit, kind, neighbours))
        full = (_counts(limit, neighbours, table) + itself > limit.most) & ~decided
        found.append(Rejection(reason(limit), full))
        decided |= full
    return tuple(found)


def reason(limit: Limit) -> str:
    """Why a node is not good enough."""
    if not limit.most:
        return f"node(s) are closed by {limit.constraint} (no other group in the same {limit.topology_key})"
    where = f"per {limit.topology_key}" if limit.topology_key else "in the cluster"
    return f"node(s) are full by {limit.constraint} (at most {limit.most} {where})"


def description(limit: Limit) -> Described:
    """The pods that a limit counts."""
    return Described(limit.selectors, limit.namespaces)


def counts_itself(limit: Limit, kind: Kind, neighbours: Neighbours) -> bool:
    """Whether a limit counts the pod that has it."""
    return description(limit).includes(kind, neighbours.namespaces)


def _counts(limit: Limit, neighbours: Neighbours, table: NodeTable) -> Int64s:
    """int64[N]: how many pods a limit counts in each node's domain."""
    positions, pods = neighbours.crowd(description(limit)).on(table.index)
    if not limit.topology_key:
        return np.full(len(table.nodes), int(pods.sum()), dtype=np.int64)
    column = table.column(limit.topology_key)
    counts: Int64s = np.zeros(len(column.values) + 1, dtype=np.int64)  # the last entry is for nodes without the label
    np.add.at(counts, column.codes[positions], pods)
    return counts[column.codes]
