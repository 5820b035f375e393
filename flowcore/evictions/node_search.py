"""Where the next pods of one demand go, and who leaves there for them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from flowcore.classes import VerdictCache
from flowcore.cluster.snapshot import Bools, Int64s
from flowcore.evictions.eligibility import Eligibility, PossibleEviction
from flowcore.evictions.fit_checks import FilteredFit, FitCheck, ResourceFit, is_plain
from flowcore.evictions.state import EvictionState
from flowcore.evictions.victims import Victims, choose_victims
from flowcore.filters.node_resources_fit import count_fitting
from flowcore.problem.demands import Demand

#: Nodes that are looked at one by one for a plain demand, and for one that every filter must judge.
_MAX_NODES, _MAX_FILTERED_NODES = 2_000, 48


class NodeSearch:
    """Where the next pods of one demand go."""

    def __init__(self, state: EvictionState, number: int, cache: VerdictCache, nodes: Bools | None) -> None:
        self._state, self.number = state, number
        self._demand: Demand = state.demands[number]
        group = self._demand.group
        self.priority = group.pod_class.priority
        self._plain = is_plain(group.pod_class, group.signature, state.snapshot())
        self.fit_check: FitCheck = (
            ResourceFit(state, self._demand) if self._plain else FilteredFit(state, self._demand, cache)
        )
        self._possible = self.fit_check.possible if nodes is None else self.fit_check.possible & nodes
        self._heap: list[tuple[tuple[float, ...], int, Victims]] = []
        self._version: dict[int, int] = {}
        self._stale: set[int] = set()
        self._looked_at: set[int] = set()
        #: Nodes that are not in the heap yet, by the lowest priority that must leave; None: not computed.
        self._tiers: list[tuple[int, list[int]]] | None = None

    def with_room(self) -> int:
        """The node that takes the next pod with nobody else leaving, the one with the least room to spare; -1: none."""
        if not self._plain:
            for node in self.nodes_to_look_at(np.zeros_like(self._state.free)):
                if self.fit_check.fits(node, ()):
                    return node
            return -1
        requests = self._demand.requests
        asked = requests > 0
        enough = self._possible & (self._state.free[:, asked] >= requests[asked]).all(axis=1)
        nodes = np.nonzero(enough)[0]
        if not len(nodes):
            return -1
        # FitCheck that is free now first: then the pod waits for nobody.
        now = (self._state.free_now[nodes][:, asked] >= requests[asked]).all(axis=1)
        cost = self._demand.arc[nodes] + self._demand.first_increase[nodes]
        return int(nodes[np.lexsort((cost, ~now))[0]])

    def nodes_to_look_at(self, usage: Int64s) -> list[int]:
        """Nodes that may take a pod once residents with this usage have left, int64[N, R]; the likeliest first."""
        requests = self._demand.requests
        asked = requests > 0
        free = self._state.free[:, asked] + usage[:, asked]
        nodes = np.nonzero(self._possible & (free >= requests[asked]).all(axis=1))[0]
        missing = np.maximum(requests[asked] - self._state.free[nodes][:, asked], 0)
        share = (missing / np.maximum(requests[asked], 1)).max(axis=1, initial=0.0)
        limit = _MAX_NODES if self._plain else _MAX_FILTERED_NODES
        chosen: list[int] = nodes[np.argsort(share, kind="stable")][:limit].tolist()
        return chosen

    def changed(self, nodes: Iterable[int]) -> None:
        """What was found on these nodes does not hold any more; where more than resources decides, nor on any other."""
        for node in nodes if self._plain else tuple(self._looked_at):
            self._version[node] = self._version.get(node, 0) + 1
            self._stale.add(node)

    def best(self, eligibility: Eligibility, count: int) -> Victims | None:
        """The node and victims that cost least for each pod, of up to ``count`` pods; None: nobody's leaving helps."""
        if self._tiers is None:
            self._tiers = self._nodes_by_priority()
        for node in sorted(self._stale):
            self._push(eligibility, node, count)
        self._stale.clear()
        while self._heap or self._tiers:
            # A node of a later tier loses pods of that priority at least.
            if self._tiers and (not self._heap or self._heap[0][0][0] >= self._tiers[0][0]):
                _, nodes = self._tiers.pop(0)
                self._looked_at.update(nodes)
                for node in nodes:
                    self._push(eligibility, node, count)
                continue
            _, version, found = heapq.heappop(self._heap)
            if version != self._version.get(found.node, 0):
                continue
            if found.count <= count and self._holds(found):
                return found
            self._push(eligibility, found.node, count)
        return None

    def _holds(self, found: Victims) -> bool:
        state = self._state
        needed: dict[str, int] = {}
        for at in found.members:
            if at in state.leaving:
                return False
            for budget in state.residents.pods[at].budgets:
                needed[budget] = needed.get(budget, 0) + 1
        return all(state.budgets[budget] >= number for budget, number in needed.items())

    def _push(self, eligibility: Eligibility, node: int, count: int) -> None:
        choices = eligibility.evictions(node, self.priority)
        if not choices:
            return
        residents = self._state.residents
        found = choose_victims(residents, self.fit_check, node, choices)
        if found is None:
            return
        options = [found]
        if count > 1 and self._plain:
            most = self._most(node, choices[0], count)
            if most > 1:
                shared = choose_victims(residents, self.fit_check, node, choices, most)
                if shared is not None:
                    options.append(shared)
        best = min(options, key=lambda each: (each.key[:3], -each.count, each.key))
        heapq.heappush(self._heap, ((*best.key[:3], -best.count, best.key[3], node), self._version.get(node, 0), best))

    def _most(self, node: int, evictions: Sequence[PossibleEviction], count: int) -> int:
        """How many pods fit on a node if everybody of a choice leaves, ``count`` at most."""
        free = self._state.free[node].copy()
        for eviction in evictions:
            for at in eviction.here:
                free += self._state.residents.usage[at]
        return min(count, int(count_fitting(self._demand.requests, free[np.newaxis])[0]))

    def _nodes_by_priority(self) -> list[tuple[int, list[int]]]:
        """The lowest priority up to which pods must leave for one of the demand's, and the nodes where that suffices.

        Resources alone decide that, so it is a lower bound.
        """
        residents, state = self._state.residents, self._state
        mask = residents.evictable & (residents.priorities < self.priority)
        mask[list(state.leaving)] = False
        usage = np.zeros_like(state.free)
        tiers: list[tuple[int, list[int]]] = []
        seen: set[int] = set()
        for priority in np.unique(residents.priorities[mask]).tolist():
            chosen = np.nonzero(mask & (residents.priorities == priority))[0]
            np.add.at(usage, residents.nodes[chosen], residents.usage[chosen])
            nodes = [node for node in self.nodes_to_look_at(usage) if node not in seen]
            seen.update(nodes)
            if nodes:
                tiers.append((priority, nodes))
        return tiers
