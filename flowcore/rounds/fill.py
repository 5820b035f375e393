"""All pods of a class at once, one class after the other: what one-by-one scheduling would do, over arrays.

A class's pods go to its cheapest slots, as many as it has pods; since slots of a node rise in cost, that is what
placing them one after the other gives. So the work follows classes and their pods' nodes, not pods times nodes. Where
rules between pods keep a class's pods apart, each placement decides where the next may go: then they go one a domain at
a time, or as many as a policy's constraint lets into each.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.capped import cheapest_within, promising
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.field import Field
from flowcore.rounds.leaning import Leanings
from flowcore.rounds.room import Room
from flowcore.rounds.topology import Domains

#: Of so many domains the cheapest node of each is looked for; of more, the cheapest nodes whatever their domain.
_FEW_DOMAINS = 64
#: What a class prefers among the pods of the round is looked at so often at most in each of its turns.
_MOST_LOOKS = 256


def plan_by_filling(
    field: Field,
    order: Iterable[tuple[int, int]],
    room: Room,
    tolls: Float64s | None = None,
    *,
    packed: bool = False,
) -> list[Commit]:
    """Commits into ``room`` one class after the other.

    Args:
        field: the demands, and where they stood when the round began.
        order: demand and how many of its pods, in turn; a demand may come several times.
            Where rules may open a node to a class only later (a pod that it wants to be near of, a domain that is no
            longer too full), those of its pods that found none have another turn after all the others, for as long as
            any pod finds one.
        tolls: float64[N, R], what a unit of each resource of a node is worth to others: a class prefers nodes where
            what it takes is worth little. None: nothing.
        packed: classes that close domains to others close as few as will do, whatever their nodes cost.
    """
    commits: list[Commit] = []
    standings: dict[int, _Standing] = {}
    turns = [(at, count) for at, count in order if count > 0]
    while turns:
        before = len(commits)
        again: dict[int, int] = {}
        for at, count in turns:
            standing = standings.get(at)
            if standing is None:
                standing = standings[at] = _Standing(field, at, room, tolls, packed=packed)
            ties = field.demands[at].ties
            if ties.in_turn:
                found = standing.place_in_turn(count)
                commits.extend(Commit(at, node, pods) for node, pods in found)
                short = count - sum(pods for _, pods in found)
                if ties.may_open and short:
                    again[at] = again.get(at, 0) + short
                continue
            nodes, pods = standing.choose(count)
            if len(nodes):
                room.take_many(field.demands[at], nodes, pods)
                commits.extend(Commit(at, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True))
        turns = list(again.items()) if len(commits) > before else []
    return commits


class _Standing:
    """The nodes that take a demand's pods: how many now, and what the next one costs there.

    Only nodes that changed since the demand's last turn are looked at again.
    """

    def __init__(self, field: Field, at: int, room: Room, tolls: Float64s | None, *, packed: bool = False) -> None:
        self._demand: Demand = field.demands[at]
        self._room = room
        self._packed = packed and bool(self._demand.ties.closes)
        self._asked = self._demand.wanted > 0
        self._toll: Float64s | None = None
        self._nodes = np.nonzero(field.counts[at])[0]
        self._most = field.counts[at][self._nodes]
        self._next = field.opening[at][self._nodes]
        if tolls is not None:
            self._toll = tolls[:, self._asked] @ self._demand.wanted[self._asked]
            self._next = self._next + self._toll[self._nodes]
        self._seen = 0
        #: What its preferences among the pods of the round add to the cost of each node, and what they had read then.
        leaning = self._demand.ties.leaning
        self._leanings = None if leaning is None else Leanings(self._demand, leaning, room.snapshot)
        self._leant: Int64s | None = None
        self._leant_at: tuple[int, ...] = ()
        #: What the rules read when the demand's last pod found no node; None: it found one.
        self._hopeless: tuple[int, ...] | None = None

    def place_in_turn(self, count: int) -> list[tuple[int, int]]:
        """Commits up to so many pods of a demand that rules bind or that leans on others: node and pods, in turn."""
        demand, room = self._demand, self._room
        together, ties = room.together, demand.ties
        if self._hopeless is not None and (not ties.may_open or self._hopeless == together.stamp(ties.reads)):
            return []
        found: list[tuple[int, int]] = []
        left = count
        # Preferences change with each pod; where there are very many, a handful of pods sees the same.
        at_once = left if ties.leaning is None else -(-left // _MOST_LOOKS)
        while left:
            most = min(left, at_once)
            self._lean()
            allowed = together.allowed(ties) if ties.bound else None
            if self._packed and allowed is not None:
                allowed = self._few_domains(left, allowed)
            if together.alone(ties):
                # The first of a group decides where the others go.
                allowed = together.gathering(ties, room.counts(demand), demand.count)
                nodes, pods = self.choose(1, allowed)
            elif allowed is None or ties.narrowing is None:
                if allowed is not None and ties.filling and most > 1:
                    nodes, pods = self._within_caps(most, allowed)
                else:
                    nodes, pods = self.choose(most, allowed)
            else:
                nodes = self._one_a_domain(ties.narrowing, allowed, most)
                pods = np.ones_like(nodes)
            wave = zip(nodes.tolist(), pods.tolist(), strict=True)
            placed = [(node, taken) for node, pods in wave if (taken := room.take(demand, node, pods))]
            if not placed:
                self._hopeless = together.stamp(ties.reads)
                break
            found += placed
            left -= sum(pods for _, pods in placed)
        return found

    def _lean(self) -> None:
        leaning, together = self._demand.ties.leaning, self._room.together
        if leaning is None or self._leanings is None:
            return
        stamp = together.stamp(leaning.reads)
        if stamp == self._leant_at:
            return
        before, self._leant, self._leant_at = self._leant, self._leanings.more(together), stamp
        more = self._leant if before is None else self._leant - before
        self._next = self._next + more[self._nodes]

    def _few_domains(self, count: int, allowed: Bools) -> Bools:
        """bool[N]: domains that its own pods have closed already; where those are full the next one that it closes.

        That is the one with the least room of those with enough, else that with the most.
        """
        closes, together = self._demand.ties.closes, self._room.together
        space = np.where(allowed, self._room.counts(self._demand), 0)
        closed: Bools = np.logical_and.reduce([(together.of(each) > 0)[each.domains.codes] for each in closes])
        if space[closed].any():
            return allowed & closed
        domains = min((each.domains for each in closes), key=lambda each: each.count)
        room = np.bincount(domains.codes, np.minimum(space, count), domains.count + 1)
        for cap in self._demand.ties.filling:
            if cap.counter.domains is domains:
                room = np.minimum(room, cap.room(together.of(cap.counter)))
        next_one = np.where(room >= count, room, np.inf).argmin() if (room >= count).any() else room.argmax()
        chosen: Bools = allowed & (domains.codes == next_one)
        return chosen

    def _one_a_domain(self, domains: Domains, allowed: Bools, count: int) -> Int64s:
        """The cheapest nodes that no rule forbids now, ``count`` at most and no two of one domain, cheapest first."""
        self._look_again()
        cost = np.full(len(allowed), np.inf)
        cost[self._nodes] = np.where(allowed[self._nodes], self._next, np.inf)
        if domains.count < _FEW_DOMAINS:
            cheapest = [each[cost[each].argmin()] for each in map(domains.nodes, range(domains.count + 1)) if len(each)]
            nodes = np.array(cheapest, dtype=np.int64)
        else:
            nodes = np.argpartition(cost, count - 1)[:count] if len(cost) > count else np.arange(len(cost))
        nodes = nodes[np.isfinite(cost[nodes])]
        nodes = nodes[np.lexsort((nodes, cost[nodes]))]
        _, first = np.unique(domains.codes[nodes], return_index=True)
        chosen: Int64s = nodes[np.sort(first)][:count]
        return chosen

    def _within_caps(self, count: int, allowed: Bools) -> tuple[Int64s, Int64s]:
        """``choose`` where domains take several pods and no more; it may leave some for another call."""
        self._look_again()
        usable = np.nonzero(allowed[self._nodes])[0]
        caps = [
            (cap.counter.domains.codes, np.minimum(cap.room(self._room.together.of(cap.counter)), count))
            for cap in self._demand.ties.filling
        ]
        for domains, room in caps:
            usable = usable[promising(self._next[usable], domains[self._nodes[usable]], room)]
        if not len(usable):
            return usable, usable
        nodes = self._nodes[usable]
        most = np.minimum(self._most[usable], count)
        levels = np.arange(min(int(most.max()), 2 * -(-count // len(nodes)) + 2), dtype=np.int64)
        cost = np.where(
            levels < most[:, np.newaxis], self._arc(nodes)[:, np.newaxis] + self._slots(nodes, levels), np.inf
        )
        given = cheapest_within(cost, [(domains[nodes], room) for domains, room in caps], count)
        return nodes[given > 0], given[given > 0]

    def choose(self, count: int, allowed: Bools | None = None) -> tuple[Int64s, Int64s]:
        """Nodes and how many pods each gets: ``count`` pods, or as many as there is room for.

        Args:
            allowed: bool[N], nodes to choose from; None: all.
        """
        self._look_again()
        nodes, most, cost = self._nodes, self._most, self._next
        if allowed is not None:
            usable = allowed[nodes]
            nodes, most, cost = nodes[usable], most[usable], cost[usable]
        if len(nodes) > count:
            # With rising slots a class needs no more nodes than it has pods: the cheapest ones.
            near = np.sort(np.argpartition(cost, count - 1)[:count]) if count > 1 else cost.argmin(keepdims=True)
            nodes, most = nodes[near], most[near]
        most = np.minimum(most, count)
        if int(most.sum()) <= count:
            return nodes, most
        return self._cheapest_slots(nodes, most, count)

    def _look_again(self) -> None:
        changed = self._room.changed_since(self._seen)
        self._seen = self._room.changes
        if changed is None:
            return
        rows = np.nonzero(changed[self._nodes])[0]
        if not len(rows):
            return
        nodes = self._nodes[rows]
        most = self._room.space_at(self._demand, nodes)
        self._most[rows] = most
        self._next[rows] = self._arc(nodes) + self._slots(nodes, np.zeros(1, dtype=np.int64))[:, 0]
        if not most.all():
            alive = self._most > 0
            self._nodes, self._most, self._next = self._nodes[alive], self._most[alive], self._next[alive]

    def _arc(self, nodes: Int64s) -> Float64s:
        arc: Float64s = self._demand.arc[nodes].astype(np.float64)
        if self._leant is not None:
            arc += self._leant[nodes]
        return arc if self._toll is None else arc + self._toll[nodes]

    def _slots(self, nodes: Int64s, levels: Int64s) -> Int64s:
        demand = self._demand
        size = np.broadcast_to(demand.size, (len(nodes), len(demand.size)))
        return demand.model.slot_costs(self._room.load_at(nodes), size, levels, demand.policy.weights)

    def _cheapest_slots(self, nodes: Int64s, most: Int64s, count: int) -> tuple[Int64s, Int64s]:
        arc, deepest = self._arc(nodes)[:, np.newaxis], int(most.max())
        deep = 2 * -(-count // len(nodes)) + 2
        while True:
            deep = min(deep, deepest)
            levels = np.arange(deep, dtype=np.int64)
            cost = np.where(levels < most[:, np.newaxis], arc + self._slots(nodes, levels), np.inf)
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
