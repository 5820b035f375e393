"""All pods of a class at once, one class after the other: what one-by-one scheduling would do, over arrays.

A class's pods go to its cheapest slots, as many as it has pods; since slots of a node rise in cost, that is what
placing them one after the other gives. So the work follows classes and their pods' nodes, not pods times nodes. Where
rules between pods keep a class's pods apart, each placement decides where the next may go: then they go one a domain at
a time, or as many as a policy's constraint lets into each.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.capped_greedy import capped_greedy, cheapest_per_domain
from flowcore.planning.methods.cheapest_of_kinds import CheapestOfKinds
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.waiting import WaitPrices
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.round_constraints.rising_price import Minimum, RisingPrice

#: With at most this many domains the cheapest node of each is looked for; with more, the cheapest nodes of all.
_FEW_DOMAINS = 64
#: What a class prefers among the pods of the round is looked at so often at most in each of its turns.
_MAX_SOFT_COST_UPDATES = 256
_NOBODY_WAITS: WaitPrices = {}


def greedy(
    cost_matrix: CostMatrix,
    order: Iterable[tuple[int, int]],
    capacity: Plan,
    shadow_prices: Float64s | None = None,
    *,
    packed: bool = False,
    wait_prices: WaitPrices = _NOBODY_WAITS,
) -> list[Commit]:
    """Commits into ``capacity`` one class after the other.

    Args:
        cost_matrix: the demands, and where they stood when the round began.
        order: demand and how many of its pods, in turn; a demand may come several times.
            Where rules may open a node to a class only later (a pod that it wants to be near of, a domain that is no
            longer too full), those of its pods that found none have another turn after all the others, for as long as
            any pod finds one.
        shadow_prices: float64[N, R], what a unit of each resource of a node costs others: a class prefers nodes where
            what it takes is worth little. None: nothing.
        packed: classes that close domains to others close as few as will do, whatever their nodes cost.
        wait_prices: demands whose pods are left out where that is cheaper than every node.
    """
    commits: list[Commit] = []
    candidates: dict[int, CandidateNodes] = {}
    own_costs: dict[int, OwnCosts] = {}
    entries = [(demand, count) for demand, count in order if count > 0]
    while entries:
        before = len(commits)
        retries: dict[int, int] = {}
        for demand, count in entries:
            candidate = candidates.get(demand)
            if candidate is None:
                candidate = candidates[demand] = CandidateNodes(
                    cost_matrix,
                    demand,
                    capacity,
                    shadow_prices,
                    own_costs,
                    packed=packed,
                    wait_prices=wait_prices.get(demand),
                )
            placed, may_retry = candidate.place(count)
            commits += placed
            if may_retry:
                retries[demand] = retries.get(demand, 0) + may_retry
        entries = list(retries.items()) if len(commits) > before else []
    return commits


class OwnCosts:
    """What the next pod of a kind of demands costs on each node beside what it prefers of others; infinite: no room."""

    def __init__(self, demand: Demand, least_arc: Int64s, capacity: Plan, resource_cost: Float64s | None) -> None:
        self._demand, self._capacity = demand, capacity
        self._arc = least_arc.astype(np.float64)
        for part in demand.claims.parts:
            self._arc += part.begun
        if resource_cost is not None:
            self._arc += resource_cost
        self._cost = np.where(demand.counts > 0, self._arc + demand.first_increase, np.inf)
        self._seen_changes = 0

    def now(self) -> Float64s:
        """float64[N]; each call returns the same array, updated."""
        demand, capacity = self._demand, self._capacity
        if self._seen_changes != capacity.changes:
            nodes = capacity.changed_since(self._seen_changes)
            nodes = nodes[demand.counts[nodes] > 0]
            self._seen_changes = capacity.changes
            self._cost[nodes] = np.inf
            nodes = nodes[capacity.has_room_at(demand, nodes)]
            self._cost[nodes] = self._arc[nodes] + capacity.next_increase_at(demand, nodes)
        return self._cost


class CandidateNodes:
    """The nodes that take a demand's pods: how many now, and what the next one costs there.

    Only nodes that changed since the demand's last turn are looked at again.
    """

    def __init__(
        self,
        cost_matrix: CostMatrix,
        index: int,
        capacity: Plan,
        shadow_prices: Float64s | None,
        own_costs: dict[int, OwnCosts],
        *,
        packed: bool = False,
        wait_prices: Int64s | None = None,
    ) -> None:
        """The nodes for one of the demands; ``own_costs``: known ones, by kind (``CostMatrix.kinds``)."""
        #: Prices of its pods in turn, if they wait where that is cheaper; and how many are placed.
        self._wait_prices, self._placed = wait_prices, 0
        self._index = index
        self._demand: Demand = cost_matrix.demands[index]
        self._capacity = capacity
        self._packed = packed and bool(self._demand.constraints.blocks)
        self._requested = self._demand.requests > 0
        self._resource_cost: Float64s | None = None
        if shadow_prices is not None:
            self._resource_cost = shadow_prices[:, self._requested] @ self._demand.requests[self._requested]
        #: What its preferences among the pods of the round add to the cost of each node, and what they had read then.
        self._soft_costs = self._demand.soft_costs(capacity.before)
        self._soft_cost: Int64s | None = None
        self._soft_cost_version: tuple[int, ...] = ()
        #: What the rules read when the demand's last pod found no node; None: it found one.
        self._version_when_stuck: tuple[int, ...] | None = None
        #: If spread is all that decides beside room and cost; demands of a kind share them.
        self._own_costs: OwnCosts | None = None
        only_spreads = self._soft_costs is not None and self._soft_costs.only_spreads
        if only_spreads and not self._demand.constraints.constrained and wait_prices is None:
            kind = cost_matrix.kinds[index]
            if kind not in own_costs:
                own_costs[kind] = OwnCosts(self._demand, cost_matrix.least_arcs[index], capacity, self._resource_cost)
            self._own_costs = own_costs[kind]
            return
        #: float64[N], what the next pod costs on each node, infinite where there is no room; after how many commits.
        self._next_cost, self._seen_changes = cost_matrix.first_pod_cost_of(index), 0
        if self._resource_cost is not None:
            self._next_cost = self._next_cost + self._resource_cost

    def place(self, count: int) -> tuple[list[Commit], int]:
        """Commits at most ``count`` pods; and how many of the others may find a node after later placements."""
        constraints = self._demand.constraints
        if constraints.sequential:
            placed = self._place_sequentially(count)
            unplaced = count - sum(pods for _, pods in placed)
            commits = [Commit(self._index, node, pods) for node, pods in placed]
            return commits, unplaced if constraints.may_unblock else 0
        nodes, pods = self._choose_affordable(count)
        if len(nodes):
            self._placed += int(pods.sum())
            self._capacity.place_many(self._demand, nodes, pods)
        return [Commit(self._index, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True)], 0

    def _place_sequentially(self, count: int) -> list[tuple[int, int]]:
        """Commits at most `count` pods of a constrained demand, one by one: pairs of node and pods."""
        demand, capacity = self._demand, self._capacity
        domain_counts, constraints = capacity.domain_counts, demand.constraints
        if self._version_when_stuck is not None and (
            not constraints.may_unblock or self._version_when_stuck == domain_counts.version(constraints.reads)
        ):
            return []
        if self._own_costs is not None:
            return self._place_in_turns(count, self._own_costs)
        sequence: list[tuple[int, int]] = []
        remaining = count
        # Preferences change with each pod; where there are very many, a handful of pods sees the same.
        compared = constraints.soft_constraints is not None and constraints.soft_constraints.compared
        at_once = -(-remaining // _MAX_SOFT_COST_UPDATES) if compared else remaining
        if self._wait_prices is not None:
            at_once = 1
        while remaining:
            most = min(remaining, at_once, self._until_dearer())
            self._update_soft_cost()
            allowed = domain_counts.allowed(constraints) if constraints.constrained else None
            for price in constraints.rising:
                if isinstance(price, Minimum) and price.rule.or_none:
                    allowed = self._with_enough(price, remaining, allowed)
            if self._packed and allowed is not None and constraints.constrained:
                allowed = self._fewest_blocked_domains(remaining, allowed)
            # Whether all of what is chosen fits together.
            fits = allowed is None
            if domain_counts.is_first_pod(constraints):
                # The first of a group decides where the others go.
                allowed = domain_counts.first_pod_nodes(constraints, capacity.max_pods(demand), demand.count)
                nodes, pods = self._choose(1, allowed)
            elif allowed is None or constraints.coarsest_self_blocking_domains is None:
                if allowed is not None and constraints.self_caps and most > 1:
                    nodes, pods = self._within_caps(most, allowed)
                    fits = True
                else:
                    nodes, pods = self._choose(most, allowed)
            else:
                nodes = self._one_per_domain(constraints.coarsest_self_blocking_domains, allowed, most)
                pods = np.ones_like(nodes)
            if len(nodes) and not self._is_affordable(nodes, pods):
                nodes, pods = nodes[:0], pods[:0]
            placed = list(zip(nodes.tolist(), pods.tolist(), strict=True))
            if fits and len(placed) > 1:
                capacity.place_many(demand, nodes, pods)
            else:
                placed = [(node, taken) for node, pods in placed if (taken := capacity.place(demand, node, pods))]
            if not placed:
                self._version_when_stuck = domain_counts.version(constraints.reads)
                break
            sequence += placed
            remaining -= sum(pods for _, pods in placed)
            self._placed += sum(pods for _, pods in placed)
        return sequence

    def _with_enough(self, minimum: Minimum, count: int, allowed: Bools | None) -> Bools:
        """bool[N]: nodes in whose domains enough pods are, or may come of ``count``."""
        codes, room = minimum.counter.domains, self._capacity.max_pods(self._demand)
        coming = np.minimum(codes.totals(room if allowed is None else np.where(allowed, room, 0)), count)
        begun = minimum.may_begin(self._capacity.domain_counts.of(minimum.counter), coming)[codes.codes]
        return begun if allowed is None else allowed & begun

    def _until_dearer(self) -> int:
        """How many pods may come before a price rises with their number; of nodes by themselves slots say it."""
        counts = self._capacity.domain_counts
        shared = (price for price in self._demand.constraints.rising if not _is_of_nodes(price))
        return min((price.until_next(counts.of(price.counter)) for price in shared), default=2**31)

    def _place_in_turns(self, count: int, own_costs: OwnCosts) -> list[tuple[int, int]]:
        """Commits at most ``count`` pods of a demand that only spreads, one by one: kinds of nodes are compared."""
        demand, capacity, soft_costs = self._demand, self._capacity, self._soft_costs
        assert soft_costs is not None  # noqa: S101 - it spreads
        cost = own_costs.now()
        turns = soft_costs.turns(capacity.domain_counts, demand.constraints.increments, count, cost)
        alike, nodes = turns.alike_nodes, turns.alike_nodes.nodes
        heaps = CheapestOfKinds(cost[nodes], alike.kinds)
        by_amounts = demand.group.pod_class.fits_by_amounts
        sequence: list[tuple[int, int]] = []
        #: Nodes whose pods are not committed yet, and places of all that the next pod costs more than is known.
        chosen, risen = list[int](), set[int]()
        while len(sequence) < count:
            kind, place = heaps.cheapest(turns.cost())
            if place < 0:
                break
            node = int(nodes[place])
            if place in risen:
                # All at once: most of the work is the same for many.
                self._commit_each(chosen)
                chosen.clear()
                places = np.array(sorted(risen), dtype=np.int64)
                heaps.price(places, own_costs.now()[nodes[places]])
                risen.clear()
            elif by_amounts or capacity.place(demand, node, 1):
                sequence.append((node, 1))
                risen.add(place)
                heaps.move(place, kind, alike.come(kind))
                if by_amounts:
                    chosen.append(node)
            else:
                heaps.price(np.array([place]), np.array([np.inf]))
        self._commit_each(chosen)
        self._placed += len(sequence)
        return sequence

    def _commit_each(self, nodes: list[int]) -> None:
        """Commits a pod to each of these nodes, of which some may come twice."""
        if nodes:
            places, pods = np.unique(np.array(nodes, dtype=np.int64), return_counts=True)
            self._capacity.place_many(self._demand, places, pods)

    def _update_soft_cost(self) -> None:
        soft_constraints, domain_counts = self._demand.constraints.soft_constraints, self._capacity.domain_counts
        if soft_constraints is None or self._soft_costs is None:
            return
        stamp = domain_counts.version(soft_constraints.reads)
        if stamp == self._soft_cost_version:
            return
        before, self._soft_cost, self._soft_cost_version = (
            self._soft_cost,
            self._soft_costs.added_cost(domain_counts),
            stamp,
        )
        more = self._soft_cost if before is None else self._soft_cost - before
        self._next_cost = self._next_cost + more

    def _fewest_blocked_domains(self, count: int, allowed: Bools) -> Bools:
        """bool[N]: domains that its own pods have closed already; where those are full the next one that it closes.

        That is the one with the least room of those with enough, else that with the most.
        """
        blocks, domain_counts = self._demand.constraints.blocks, self._capacity.domain_counts
        fit_counts = np.where(allowed, self._capacity.max_pods(self._demand), 0)
        blocked: Bools = np.logical_and.reduce([domain_counts.occupied(each) for each in blocks])
        if fit_counts[blocked].any():
            return allowed & blocked
        domains = min((counter.domains for counter in blocks), key=lambda counter: counter.count)
        remaining = domains.totals(np.minimum(fit_counts, count))
        for cap in self._demand.constraints.self_caps:
            if cap.counter.domains is domains:
                remaining = np.minimum(remaining, domain_counts.cap_room(cap))
        next_one = (
            np.where(remaining >= count, remaining, np.inf).argmin()
            if (remaining >= count).any()
            else remaining.argmax()
        )
        chosen: Bools = allowed & (domains.codes == next_one)
        return chosen

    def _one_per_domain(self, domains: Domains, allowed: Bools, count: int) -> Int64s:
        """The cheapest nodes that no rule forbids now, ``count`` at most and no two of one domain, cheapest first."""
        if domains.count < _FEW_DOMAINS:
            self._refresh()
            cost = np.where(allowed, self._next_cost, np.inf)
            cheapest = [each[cost[each].argmin()] for each in map(domains.nodes, range(domains.count + 1)) if len(each)]
            nodes = np.array(cheapest, dtype=np.int64)
            nodes = nodes[np.isfinite(cost[nodes])]
        else:
            nodes = self._cheapest(count, allowed)
        nodes = nodes[np.lexsort((nodes, self._next_cost[nodes]))]
        _, first = np.unique(domains.codes[nodes], return_index=True)
        chosen: Int64s = nodes[np.sort(first)][:count]
        return chosen

    def _within_caps(self, count: int, allowed: Bools) -> tuple[Int64s, Int64s]:
        """``_choose`` where domains take several pods and no more; it may leave some for another call."""
        caps = [
            (cap.counter.domains.codes, np.minimum(self._capacity.domain_counts.cap_room(cap), count))
            for cap in self._demand.constraints.self_caps
        ]
        nodes, pods = self._choose(count, allowed)
        if all((np.bincount(domains[nodes], pods, len(room)) <= room).all() for domains, room in caps):
            return nodes, pods
        nodes = self._cheapest(len(allowed), allowed)
        for domains, room in caps:
            nodes = nodes[cheapest_per_domain(self._next_cost[nodes], domains[nodes], room)]
        if not len(nodes):
            return nodes, nodes
        most = np.minimum(self._capacity.fit_counts_at(self._demand, nodes), count)
        levels = np.arange(min(int(most.max()), 2 * -(-count // len(nodes)) + 2), dtype=np.int64)
        cost = np.where(
            levels < most[:, np.newaxis], self._arc_cost(nodes)[:, np.newaxis] + self._slot_costs(nodes, levels), np.inf
        )
        given = capped_greedy(cost, [(domains[nodes], room) for domains, room in caps], count)
        return nodes[given > 0], given[given > 0]

    def _choose(self, count: int, allowed: Bools | None = None) -> tuple[Int64s, Int64s]:
        """Nodes and how many pods each gets: ``count`` pods, or as many as there is room for.

        Args:
            allowed: bool[N], nodes to choose from; None: all.
        """
        # With rising slots a class needs no more nodes than it has pods: the cheapest ones.
        nodes = self._cheapest(count, allowed)
        most = np.minimum(self._capacity.fit_counts_at(self._demand, nodes), count)
        if int(most.sum()) <= count:
            return nodes, most
        return self._cheapest_slots(nodes, most, count)

    def _choose_affordable(self, count: int) -> tuple[Int64s, Int64s]:
        """``_choose`` of as many pods as cost less than they would by waiting.

        Slots rise in cost and prices fall, so they meet once.
        """
        chosen_pods = self._choose(count)
        if self._wait_prices is None or self._is_affordable(*chosen_pods):
            return chosen_pods
        affordable, dear = 0, int(chosen_pods[1].sum())
        chosen_pods = chosen_pods[0][:0], chosen_pods[1][:0]
        while affordable + 1 < dear:
            middle = (affordable + dear) // 2
            chosen = self._choose(middle)
            if self._is_affordable(*chosen):
                affordable, chosen_pods = middle, chosen
            else:
                dear = middle
        return chosen_pods

    def _is_affordable(self, nodes: Int64s, pods: Int64s) -> bool:
        """Whether the dearest of these slots costs less than the last of these pods would by waiting."""
        if self._wait_prices is None or not len(nodes):
            return True
        last = self._placed + int(pods.sum()) - 1
        if last >= len(self._wait_prices):
            return False
        potential, size = self._demand.potential, self._demand.size
        load = self._capacity.load_at(nodes, potential)
        after = load.at(np.arange(len(nodes)), pods[:, np.newaxis] * size, pods)
        cost = self._demand.arc[nodes] + potential.values(after) - potential.values(after.less(size))
        if self._soft_cost is not None:
            cost = cost + self._soft_cost[nodes]
        return int(cost.max()) < int(self._wait_prices[last])

    def _cheapest(self, count: int, allowed: Bools | None) -> Int64s:
        """int64[K], ascending: the nodes with room that cost least now, ``count`` at most.

        Args:
            allowed: bool[N], nodes to choose from; None: all.
        """
        self._refresh()
        cost = self._next_cost if allowed is None else np.where(allowed, self._next_cost, np.inf)
        if count == 1 and len(cost):
            nodes = np.array([cost.argmin()])
        elif count < len(cost):
            nodes = np.sort(np.argpartition(cost, count - 1)[:count])
        else:
            nodes = np.arange(len(cost))
        cheapest: Int64s = nodes[np.isfinite(cost[nodes])]
        return cheapest

    def _refresh(self) -> None:
        capacity, demand = self._capacity, self._demand
        if self._seen_changes == capacity.changes:
            return
        nodes = capacity.changed_since(self._seen_changes)
        nodes = nodes[demand.counts[nodes] > 0]
        self._seen_changes = capacity.changes
        self._next_cost[nodes] = np.inf
        nodes = nodes[capacity.has_room_at(demand, nodes)]
        self._next_cost[nodes] = self._arc_cost(nodes) + capacity.next_increase_at(demand, nodes)

    def _arc_cost(self, nodes: Int64s) -> Float64s:
        arc = self._own_cost(nodes)
        return arc if self._soft_cost is None else arc + self._soft_cost[nodes]

    def _own_cost(self, nodes: Int64s) -> Float64s:
        """The arcs, and what the resources that a pod takes there cost others."""
        arc: Float64s = self._demand.arc[nodes].astype(np.float64)
        return arc if self._resource_cost is None else arc + self._resource_cost[nodes]

    def _slot_costs(self, nodes: Int64s, levels: Int64s) -> Int64s:
        demand = self._demand
        slots = demand.potential.slots(self._capacity.load_at(nodes, demand.potential), demand.size, levels)
        slots = slots + demand.constraints.penalty_of_own_pods * levels
        for price in filter(_is_of_nodes, demand.constraints.rising):
            codes = price.counter.domains.codes[nodes, np.newaxis]
            counts = self._capacity.domain_counts.of(price.counter)[codes]
            rises = price.next_pod(counts + levels) - price.next_pod(counts)
            slots = slots + np.where(codes < price.counter.domains.count, rises, 0)
        return slots

    def _cheapest_slots(self, nodes: Int64s, most: Int64s, count: int) -> tuple[Int64s, Int64s]:
        arc, deepest = self._arc_cost(nodes)[:, np.newaxis], int(most.max())
        deep = 2 * -(-count // len(nodes)) + 2
        while True:
            deep = min(deep, deepest)
            levels = np.arange(deep, dtype=np.int64)
            cost = np.where(levels < most[:, np.newaxis], arc + self._slot_costs(nodes, levels), np.inf)
            if int(np.minimum(most, deep).sum()) >= count:
                limit = np.partition(cost, count - 1, axis=None)[count - 1]
                below = cost < limit
                # Deeper slots that were not looked at cost no less than the last that was.
                if deep == deepest or not (below[:, -1] & (most > deep)).any():
                    break
            deep *= 2
        given = below.sum(axis=1)
        short = count - int(given.sum())
        if short:
            # Slots at the limit itself, in the order of the nodes.
            ties = (cost == limit).sum(axis=1)
            given += np.clip(short - (np.cumsum(ties) - ties), 0, ties)
        used = given > 0
        return nodes[used], given[used].astype(np.int64)


def _is_of_nodes(price: RisingPrice) -> bool:
    """Whether it rises with the pods of one node, and never falls."""
    return price.counter.domains.are_single_nodes and price.rises
