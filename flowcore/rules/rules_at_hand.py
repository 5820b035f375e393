"""Whether the rules of a pod can be looked at within an answer to kube-scheduler, which lasts no longer for that.

Which running pods a rule counts is known once somebody has asked; before that all kinds of pods are searched. A pod
whose rules need that waits for a round, as one with many rules does. Then they are read beside the answers, one at a
time, so that the next such pod waits no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.inter_pod_constraints import EACH_NODE, InterPodConstraints
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodMatch, SpreadMatch
from flowcore.rules.topology.domain_limits import limit_match

#: Rules of a pod.
MOST_RULES = 8
#: Kinds of pods that are searched, and nodes whose labels are read.
MOST_KINDS, MOST_NODES = 1000, 1000
#: What is remembered to be read.
_MOST_WANTED = 64

#: What is read of running pods for a rule, or a label of all nodes.
Reading = PodMatch | str


def lacking(rules: InterPodConstraints, namespace: str, index: PodIndex, table: NodeTable) -> Sequence[Reading] | None:
    """What the rules of a pod in a namespace read that is not at hand; None: there are more of them than one reads."""
    if _count(rules) > MOST_RULES:
        return None
    lacks: list[Reading] = [each for each in _matches(rules, namespace) if not index.is_at_hand(each, MOST_KINDS)]
    if len(table.nodes) > MOST_NODES:
        lacks += sorted(key for key in set(_keys(rules)) - {"", EACH_NODE} if not table.has_column(key))
    return lacks


class RulesToRead:
    """What was not at hand for answers, in the order in which it is read."""

    def __init__(self) -> None:
        self._wanted: dict[Reading, None] = {}

    def want(self, readings: Sequence[Reading]) -> None:
        """Takes what is to be read; no more than so much."""
        for reading in readings[: _MOST_WANTED - len(self._wanted)]:
            self._wanted[reading] = None

    def read_one(self, index: PodIndex, table: NodeTable) -> None:
        """Reads what was wanted first and is not at hand by now."""
        while self._wanted:
            wanted = next(iter(self._wanted))
            del self._wanted[wanted]
            if isinstance(wanted, str):
                if not table.has_column(wanted):
                    table.column(wanted)
                    return
            elif not index.is_at_hand(wanted, MOST_KINDS):
                index.matching_pods(wanted)
                return


def _count(rules: InterPodConstraints) -> int:
    pod_affinity = len(rules.affinity) + len(rules.anti_affinity) + len(rules.preferred)
    return pod_affinity + len(rules.spread) + len(rules.soft_spread) + len(rules.limits)


def _matches(rules: InterPodConstraints, namespace: str) -> Iterator[PodMatch]:
    """Which pods they count."""
    if rules.affinity:
        yield AffinityMatch(rules.affinity)
    yield from (AffinityMatch((term,)) for term in rules.anti_affinity)
    yield from (AffinityMatch((each.term,)) for each in rules.preferred)
    yield from (SpreadMatch(namespace, each.selector) for each in (*rules.spread, *rules.soft_spread))
    yield from (limit_match(limit) for limit in rules.limits)


def _keys(rules: InterPodConstraints) -> Iterator[str]:
    """The topology keys in whose domains they count."""
    yield from (term.topology_key for term in (*rules.affinity, *rules.anti_affinity))
    yield from (each.term.topology_key for each in rules.preferred)
    yield from (each.topology_key for each in (*rules.spread, *rules.soft_spread))
    yield from (limit.topology_key for limit in rules.limits)
