"""The counts of a round as its placements raise them, and what they allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.rules.topology.affinity import min_pods
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import UNLIMITED, Cap, remaining, within_limit
from flowcore.rules.topology.round_constraints.constraints import TopologyConstraints

#: Where more domains than this changed, all nodes are looked at again at once.
_MAX_INCREMENTAL_DOMAINS = 16


@dataclass(slots=True, eq=False)
class _AllowedNodes:
    """What ``DomainCounts.allowed`` knows of a group, for each counter that its rules read.

    Attributes:
        parts: bool[N], nodes that this counter does not forbid.
        seen: how much of the counter's log the parts take into account.
        minimums: pods in the emptiest domain of a spread, 0 for other rules.
        affinity_met: whether any pod matches the group's affinity terms.
        result: bool[N], where all parts are true; the part itself where there is one only.
    """

    parts: list[Bools]
    seen: list[int]
    minimums: list[int]
    affinity_met: bool
    result: Bools


class DomainCounts:
    """The counters of a round as its placements raise them."""

    def __init__(self) -> None:
        self._counts: dict[DomainCounter, Int64s] = {}
        #: Domains in the order in which they were raised.
        self._logs: dict[DomainCounter, list[int]] = {}
        self._allowed: dict[TopologyConstraints, _AllowedNodes] = {}

    def copy(self) -> DomainCounts:
        """An independent copy."""
        copied = DomainCounts()
        copied._counts = {counter: counts.copy() for counter, counts in self._counts.items()}
        copied._logs = {counter: log.copy() for counter, log in self._logs.items()}
        return copied

    def increment(self, constraints: TopologyConstraints, node: int, pods: int) -> None:
        """Adds ``pods`` pods of the group on a node."""
        for counter in constraints.increments:
            if counter.counted_nodes[node]:
                domain = int(counter.domains.codes[node])
                self._writable_counts(counter)[domain] += pods
                self._logs[counter].append(domain)

    def increment_all(self, constraints: TopologyConstraints, nodes: Int64s, pods: Int64s) -> None:
        """The same for int64[K] nodes and pods."""
        for counter in constraints.increments:
            here = counter.counted_nodes[nodes]
            if here.any():
                domains = counter.domains.codes[nodes[here]]
                np.add.at(self._writable_counts(counter), domains, pods[here])
                self._logs[counter] += np.unique(domains).tolist()

    def _writable_counts(self, counter: DomainCounter) -> Int64s:
        counts = self._counts.get(counter)
        if counts is None:
            counts = self._counts[counter] = counter.initial.copy()
            self._logs[counter] = []
        return counts

    def of(self, counter: DomainCounter) -> Int64s:
        """int64[D + 1]: how many pods it counts in each domain now."""
        return self._counts.get(counter, counter.initial)

    def version(self, counters: Iterable[DomainCounter]) -> tuple[int, ...]:
        """Changes whenever one of these counters does."""
        return tuple(len(self._logs.get(counter, ())) for counter in counters)

    def added(self, counter: DomainCounter) -> Int64s:
        """int64[N]: how many counted pods the round has put into each node's domain."""
        added: Int64s = (self.of(counter) - counter.initial)[counter.domains.codes]
        return added

    def allowed(self, constraints: TopologyConstraints) -> Bools:
        """bool[N]: nodes that no rule between pods forbids the next pod of the group.

        Only domains that were raised since the last call are computed again, where that is enough. Each call returns
        the same array, updated.
        """
        known = self._allowed.get(constraints)
        if known is None or known.affinity_met != self._affinity_met(constraints):
            known = self._allowed[constraints] = self._compute_allowed(constraints)
            return known.result
        for index, counter in enumerate(constraints.reads):
            log = self._logs.get(counter, ())
            raised = set(log[known.seen[index] :])
            if not raised:
                continue
            known.seen[index] = len(log)
            allowed_domains, minimum = self._allowed_domains(constraints, index)
            if minimum != known.minimums[index] or len(raised) > _MAX_INCREMENTAL_DOMAINS:
                known.minimums[index] = minimum
                np.take(allowed_domains, counter.domains.codes, out=known.parts[index])
                if len(known.parts) > 1:
                    np.logical_and.reduce(known.parts, out=known.result)
                continue
            for domain in raised:
                nodes = counter.domains.nodes(domain)
                if not len(nodes) or known.parts[index][nodes[0]] == allowed_domains[domain]:
                    continue
                known.parts[index][nodes] = allowed_domains[domain]
                if len(known.parts) > 1:
                    known.result[nodes] = np.logical_and.reduce([term[nodes] for term in known.parts])
        return known.result

    def blocked(self, constraints: TopologyConstraints) -> Bools:
        """bool[N]: nodes that anti-affinity or a cap closes to the group for good: no placement opens them again."""
        closed = np.zeros(len(constraints.reads[0].counted_nodes), dtype=np.bool_)
        for counter in constraints.anti_affinity:
            closed |= self.occupied(counter)
        for cap in constraints.caps:
            closed |= (self.cap_room(cap) == 0)[cap.counter.domains.codes]
        return closed

    def cap_room(self, cap: Cap) -> Int64s:
        """int64[D + 1]: how many pods that have the limit each domain takes now in a row."""
        return cap.remaining(self.of(cap.counter))

    def occupied(self, counter: DomainCounter) -> Bools:
        """bool[N]: nodes in a domain that has a counted pod."""
        return (self.of(counter) > 0)[counter.domains.codes]

    def _compute_allowed(self, constraints: TopologyConstraints) -> _AllowedNodes:
        answers = [self._allowed_domains(constraints, index) for index in range(len(constraints.reads))]
        parts = [
            allowed[counter.domains.codes] for (allowed, _), counter in zip(answers, constraints.reads, strict=True)
        ]
        seen = [len(self._logs.get(counter, ())) for counter in constraints.reads]
        result = parts[0] if len(parts) == 1 else np.logical_and.reduce(parts)
        minimums = [minimum for _, minimum in answers]
        return _AllowedNodes(parts, seen, minimums, self._affinity_met(constraints), result)

    def _allowed_domains(self, constraints: TopologyConstraints, index: int) -> tuple[Bools, int]:
        """bool[D + 1]: domains that one of the counters read does not forbid; pods in the emptiest one of a spread."""
        counts = self.of(constraints.reads[index])
        if index < len(constraints.anti_affinity):
            return within_limit(counts, 0, 0), 0
        index -= len(constraints.anti_affinity)
        if index < len(constraints.affinity):
            allowed = counts >= self._min_pods(constraints)
            allowed[-1] = False
            return allowed, 0
        index -= len(constraints.affinity)
        if index >= len(constraints.spreads):
            return constraints.caps[index - len(constraints.spreads)].allowed_domains(counts), 0
        spread = constraints.spreads[index]
        minimum = spread.global_minimum(counts)
        return spread.allowed_domains(counts, minimum), minimum

    def _affinity_met(self, constraints: TopologyConstraints) -> bool:
        return any(self.of(counter).any() for counter in constraints.affinity)

    def _min_pods(self, constraints: TopologyConstraints) -> int:
        return min_pods(met=self._affinity_met(constraints), self_affinity=constraints.self_affinity)

    def is_first_pod(self, constraints: TopologyConstraints) -> bool:
        """Whether the next pod of the group would be the first that its affinity terms match."""
        return constraints.self_affinity and not self._affinity_met(constraints)

    def first_pod_nodes(self, constraints: TopologyConstraints, fit_counts: Int64s, pods: int) -> Bools:
        """bool[N]: where the first pod of a group with affinity to itself leaves most of the others a place.

        Args:
            fit_counts: int64[N], how many pods of the group each node takes.
            pods: how many there are. Domains with room for all of them are as good as any other.
        """
        good = fit_counts > 0
        for counter in constraints.affinity:
            fits = counter.domains.totals(np.minimum(fit_counts, pods))[:-1]
            enough = np.append(fits >= min(pods, fits.max(initial=0)), False)  # no label, no place
            good &= enough[counter.domains.codes]
        return good if good.any() else fit_counts > 0

    def max_pods(self, constraints: TopologyConstraints) -> Int64s:
        """int64[N]: how many pods of the group each node takes in a row before a rule forbids the next."""
        max_pods = np.where(self.allowed(constraints), UNLIMITED, 0)
        for counter in constraints.anti_affinity:
            if counter in constraints.increments:
                max_pods = np.where(counter.counted_nodes, np.minimum(max_pods, 1), max_pods)
        for spread in constraints.spreads:
            counter = spread.counter
            if counter in constraints.increments:
                most = spread.max_pods(self.of(counter))[counter.domains.codes]
                max_pods = np.where(counter.counted_nodes, np.minimum(max_pods, most), max_pods)
        for cap in constraints.caps:
            max_pods = np.minimum(max_pods, self.cap_room(cap)[cap.counter.domains.codes])
        return max_pods

    def max_pods_at(self, constraints: TopologyConstraints, node: int, limit: int) -> int:
        """``max_pods`` of one node; counts no further than ``limit``."""
        if not self._allows(constraints, node):
            return 0
        max_pods = limit
        if max_pods > 1 and any(
            counter.counted_nodes[node] and counter in constraints.increments for counter in constraints.anti_affinity
        ):
            max_pods = 1
        for spread in constraints.spreads if max_pods > 1 else ():
            counter = spread.counter
            if counter.counted_nodes[node] and counter in constraints.increments:
                most = spread.max_pods(self.of(counter))
                max_pods = min(max_pods, int(most[counter.domains.codes[node]]))
        for cap in constraints.self_caps if max_pods > 1 else ():
            if cap.counter.domains.labelled[node]:
                max_pods = min(max_pods, int(remaining(cap.max_per_domain, self._at(cap.counter, node))))
        return max_pods

    def _allows(self, constraints: TopologyConstraints, node: int) -> bool:
        """``allowed`` for one node."""
        for counter in constraints.anti_affinity:
            if not within_limit(self._at(counter, node), 0, 0):
                return False
        if constraints.affinity:
            needed = self._min_pods(constraints)
            for counter in constraints.affinity:
                if not counter.domains.labelled[node] or self._at(counter, node) < needed:
                    return False
        for spread in constraints.spreads:
            if not spread.counter.domains.labelled[node]:
                return False
            minimum = spread.global_minimum(self.of(spread.counter))
            if not spread.allows(self._at(spread.counter, node), minimum):
                return False
        return all(
            cap.allows(self._at(cap.counter, node)) if cap.counter.domains.labelled[node] else cap.is_partial
            for cap in constraints.caps
        )

    def _at(self, counter: DomainCounter, node: int) -> int:
        """Pods in a node's domain."""
        pods: int = self.of(counter)[counter.domains.codes[node]]
        return pods
