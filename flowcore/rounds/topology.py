"""Rules between pods within a round: what must be counted so that they hold for the pods of the round too.

A rule asks how many pods of some description run in a node's domain of a topology. Each distinct question is one
counter: pods per domain, begun with those that run already. A placement feeds the counters of the descriptions that
its pod meets, and is allowed by the counters that its own rules and the anti-affinity of others read. Verdicts from
these are those of ``filters.judge`` on a snapshot in which the round's placements run, without asking it for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowcore.classes import Group
from flowcore.costs.topology_spread import HOSTNAME
from flowcore.filters import pod_topology_spread, policy_constraints
from flowcore.filters.inter_pod_affinity import speaks_of_itself
from flowcore.model.neighbours import Alike, Crowd, Described, Description, SelectorIndex, Together, term_matches
from flowcore.model.pods import PodClass
from flowcore.model.rules import AffinityTerm, Rules, SpreadConstraint, WeightedTerm
from flowcore.model.snapshot import Bools, Int64s, NodeTable, Snapshot

#: More pods than any node takes.
UNLIMITED = 2**31
#: Stands in for the least of no domains at all, as in kube-scheduler (math.MaxInt32).
_NO_DOMAIN = 2**31 - 1
#: Where more domains than this changed, all nodes are looked at again at once.
_FEW = 16


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """The D domains of a topology: nodes that have the same value of its label.

    Attributes:
        codes: int64[N], each node's domain; D for nodes without the label.
        labelled: bool[N], nodes that are in a domain.
        ordered: int64[N], nodes by domain; ``starts``: int64[D + 2], where each domain begins in it.
    """

    codes: Int64s
    labelled: Bools
    ordered: Int64s
    starts: Int64s

    @classmethod
    def of(cls, key: str, table: NodeTable) -> Domains:
        """The domains of a label, by the first node of each: a table that lived long numbers its values otherwise."""
        values = table.column(key).codes
        labelled = values >= 0
        _, first, whose = np.unique(values[labelled], return_index=True, return_inverse=True)
        codes = np.full(len(values), len(first), dtype=np.int64)
        codes[labelled] = np.argsort(np.argsort(first))[whose]
        ordered = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[ordered], np.arange(len(first) + 2))
        return cls(codes, labelled, ordered, starts)

    @classmethod
    def whole(cls, table: NodeTable) -> Domains:
        """All nodes in one."""
        count = len(table.nodes)
        codes: Int64s = np.zeros(count, dtype=np.int64)
        starts = np.array([0, count, count], dtype=np.int64)
        return cls(codes, np.ones(count, dtype=np.bool_), np.arange(count, dtype=np.int64), starts)

    @property
    def count(self) -> int:
        """D."""
        return len(self.starts) - 2

    def nodes(self, domain: int) -> Int64s:
        """Nodes of one domain."""
        return self.ordered[self.starts[domain] : self.starts[domain + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """Pods of some description in each of the D domains of a topology.

    Attributes:
        feeding: bool[N], nodes whose pods count, all of them in a domain.
        first: int64[D + 1], pods that run as the round begins; the last entry, for nodes in no domain, stays zero.
    """

    domains: Domains
    feeding: Bools
    first: Int64s

    @classmethod
    def of(cls, crowd: Crowd | None, domains: Domains, feeding: Bools | None, table: NodeTable) -> Counter:
        """A counter begun with a crowd's pods, on the nodes given or on all that are in a domain."""
        feeding = domains.labelled if feeding is None else feeding & domains.labelled
        first: Int64s = np.zeros(domains.count + 1, dtype=np.int64)
        if crowd is not None:
            positions, pods = crowd.on(table.index)
            here = feeding[positions]
            np.add.at(first, domains.codes[positions[here]], pods[here])
        return cls(domains, feeding, first)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A DoNotSchedule constraint of a group.

    Attributes:
        inside: int64[K], the domains that count.
        itself: 1 where the selector selects the group's own pods.
        least: what the emptiest domain has; None: what the counter says.
    """

    counter: Counter
    max_skew: int
    itself: int
    inside: Int64s
    least: int | None

    def least_of(self, counts: Int64s) -> int:
        """What the emptiest domain has."""
        if self.least is not None:
            return self.least
        return int((counts[:-1] if len(self.inside) == len(counts) - 1 else counts[self.inside]).min())


@dataclass(frozen=True, slots=True, eq=False)
class Leaning:
    """What a group would rather have of the pods of the round.

    Attributes:
        drawn: counters of pods that it wants near (weight above zero) or far, or that want it so.
        crowded: counters of its ScheduleAnyway constraints, in their order.
    """

    drawn: tuple[tuple[Counter, int], ...]
    crowded: tuple[Counter, ...]

    @property
    def reads(self) -> tuple[Counter, ...]:
        """All its counters."""
        return (*(counter for counter, _ in self.drawn), *self.crowded)


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """What a policy's constraint demands of a group: at most ``most`` counted pods in a domain, its own included.

    Attributes:
        itself: 1 where the group's own pods are counted.
    """

    counter: Counter
    most: int
    itself: int

    def room(self, counts: Int64s) -> Int64s:
        """int64[D + 1]: how many pods of the group each domain takes; none where there is no label."""
        room = np.maximum(self.most - counts, 0) if self.itself else np.where(counts <= self.most, UNLIMITED, 0)
        room[-1] = 0
        return room


@dataclass(frozen=True, eq=False)
class Ties:
    """A group's part in the rules of a round.

    Attributes:
        feeds: counters that each placement of it raises, once each.
        apart: counters that must be zero in a node's domain.
        near: counters of one description, that of its affinity terms; each must be above zero in a node's domain.
        first: the terms speak of the group itself: while nobody meets them, its first pod may go anywhere.
        leaning: what it prefers of pods of the round, None where that is nothing.
    """

    feeds: tuple[Counter, ...] = ()
    apart: tuple[Counter, ...] = ()
    near: tuple[Counter, ...] = ()
    first: bool = False
    spreads: tuple[Spread, ...] = ()
    caps: tuple[Cap, ...] = ()
    #: Those of ``feeds`` that close domains to other groups.
    closes: tuple[Counter, ...] = ()
    leaning: Leaning | None = None

    def without_idle(self, raised: AbstractSet[Counter]) -> Ties:
        """The same, less preferences that no placement of the round has to do with."""
        if self.leaning is not None and raised.isdisjoint(self.leaning.reads):
            rest = replace(self, leaning=None)
            return rest if rest.feeds or rest.bound else FREE
        return self

    @cached_property
    def reads(self) -> tuple[Counter, ...]:
        """All counters that allow it nodes or forbid them."""
        return (*self.theirs, *(cap.counter for cap in self.caps))

    @cached_property
    def theirs(self) -> tuple[Counter, ...]:
        """Those of rules that kube-scheduler knows; caps are ours alone."""
        return (*self.apart, *self.near, *(spread.counter for spread in self.spreads))

    @cached_property
    def narrowing(self) -> Domains | None:
        """The fewest domains of which one placement of the group may forbid it one; None: none of its own does.

        A domain that a cap leaves open for several is not among them (``filling``).
        """
        own = [counter for counter in self.apart if counter in self.feeds]
        own += [cap.counter for cap in self.filling if cap.most == 1]
        own += [spread.counter for spread in self.spreads if spread.counter in self.feeds]
        return min((counter.domains for counter in own), key=lambda domains: domains.count, default=None)

    @cached_property
    def filling(self) -> tuple[Cap, ...]:
        """Caps that the group's own pods use up."""
        return tuple(cap for cap in self.caps if cap.itself)

    @cached_property
    def bound(self) -> bool:
        """Whether placements of others, or its own, may forbid it a node that has room."""
        return bool(self.apart or self.near or self.spreads or self.caps)

    @property
    def in_turn(self) -> bool:
        """Whether placements, of its own or of others, may decide where its next pod goes: only filling knows that."""
        return self.bound or self.leaning is not None

    @property
    def only_forbids(self) -> bool:
        """Whether no placement of others helps it to a node, and none is better than another for who is near."""
        return not (self.near or self.spreads or self.leaning)

    @property
    def may_open(self) -> bool:
        """Whether placements may allow it a node that was forbidden."""
        return bool(self.near or self.spreads)


#: Of groups that no rule speaks of and that have none.
FREE = Ties()


def ties_of(groups: Sequence[Group], snapshot: Snapshot) -> tuple[Ties, ...]:
    """Each group's part; costs next to nothing where no waiting pod has rules.

    What running pods forbid a group is not repeated here: that does not change within a round.
    """
    if all(each.kind.rules is None for each in groups):
        return (FREE,) * len(groups)
    counters = _Counters(groups, snapshot)
    found = [counters.ties(each) for each in groups]
    raised = {counter for each in found for counter in each.feeds}
    return tuple(each.without_idle(raised) for each in found)


@dataclass(slots=True)
class _Draft:
    apart: list[Counter] = field(default_factory=list)
    near: list[Counter] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    drawn: list[tuple[Counter, int]] = field(default_factory=list)
    crowded: list[Counter] = field(default_factory=list)
    caps: list[Cap] = field(default_factory=list)


class _Counters:
    """All counters of a round, each made once."""

    def __init__(self, groups: Sequence[Group], snapshot: Snapshot) -> None:
        self._table, self._neighbours = snapshot.table, snapshot.neighbours
        self._whole = Domains.whole(snapshot.table)
        self._domains: dict[str, Domains] = {}
        self._of_crowd: dict[Description, dict[tuple[object, ...], Counter]] = {}
        self._reading: SelectorIndex[Description] = SelectorIndex()
        #: Pods of the round that bring an anti-affinity term, for those whom it keeps away.
        self._bringing: dict[AffinityTerm, Counter] = {}
        self._repelling: SelectorIndex[AffinityTerm] = SelectorIndex()
        #: The same for preferred terms, of affinity and of anti-affinity.
        self._wishing: dict[WeightedTerm, Counter] = {}
        self._attracting: SelectorIndex[WeightedTerm] = SelectorIndex()
        self._own = {id(each): self._draft(each, each.kind.rules) for each in groups if each.kind.rules is not None}
        for crowd in self._of_crowd:
            self._reading.add(crowd, crowd.selector)
        closing = (cap for draft in self._own.values() for cap in draft.caps if not (cap.most or cap.itself))
        self._closing = {id(cap.counter) for cap in closing}
        self._repelled = {id(each): self._repelling_of(each) for each in groups}
        self._wished = {id(each): self._wished_by(each) for each in groups}
        self._read = {id(counter) for found in self._repelled.values() for counter in found}
        self._read |= {id(counter) for found in self._wished.values() for counter, _ in found}

    def ties(self, group: Group) -> Ties:
        """See ``ties_of``."""
        rules, own = group.kind.rules, self._own.get(id(group), _Draft())
        found = [
            crowd
            for crowd in self._reading.find(group.kind.labels)
            if crowd.includes(group.kind, self._neighbours.namespaces)
        ]
        feeds = [counter for crowd in found for counter in self._of_crowd[crowd].values()]
        brought = (self._bringing[term] for term in dict.fromkeys(rules.anti_affinity if rules is not None else ()))
        feeds += [counter for counter in brought if id(counter) in self._read]
        wishes = (self._wishing[wish] for wish in dict.fromkeys(rules.preferred if rules is not None else ()))
        feeds += [counter for counter in wishes if id(counter) in self._read]
        drawn = (*own.drawn, *self._wished[id(group)])
        leaning = Leaning(drawn, tuple(own.crowded)) if drawn or own.crowded else None
        if not (feeds or leaning or self._repelled[id(group)] or own.apart or own.near or own.spreads or own.caps):
            return FREE
        return Ties(
            feeds=tuple(feeds),
            apart=(*own.apart, *self._repelled[id(group)]),
            near=tuple(own.near),
            first=bool(own.near) and rules is not None and speaks_of_itself(group.kind, rules, self._neighbours),
            spreads=tuple(own.spreads),
            caps=tuple(own.caps),
            closes=tuple(counter for counter in feeds if id(counter) in self._closing),
            leaning=leaning,
        )

    def _wished_by(self, group: Group) -> list[tuple[Counter, int]]:
        """Pods of the round that would rather have it near, or far."""
        kind, labels = group.kind, self._neighbours.namespaces.get(group.kind.namespace, ())
        return [
            (self._wishing[wish], wish.weight)
            for wish in self._attracting.find(kind.labels)
            if term_matches(wish.term, kind.namespace, kind.labels, labels)
        ]

    def _repelling_of(self, group: Group) -> list[Counter]:
        kind = group.kind
        labels = self._neighbours.namespaces.get(kind.namespace, ())
        return [
            self._bringing[term]
            for term in self._repelling.find(kind.labels)
            if term_matches(term, kind.namespace, kind.labels, labels)
        ]

    def _draft(self, group: Group, rules: Rules) -> _Draft:
        draft = _Draft()
        for term in dict.fromkeys(rules.anti_affinity):
            draft.apart.append(self._counter(Together((term,)), term.topology_key))
            if term not in self._bringing:
                self._bringing[term] = Counter.of(None, self._domains_of(term.topology_key), None, self._table)
                self._repelling.add(term, term.selector)
        for key in dict.fromkeys(term.topology_key for term in rules.affinity):
            draft.near.append(self._counter(Together(rules.affinity), key))
        keys = tuple(constraint.topology_key for constraint in rules.spread)
        counts_on = pod_topology_spread.Counted(rules.spread, group.pod_class, self._table)
        draft.spreads += [self._spread(group, each, keys, counts_on(each)) for each in rules.spread]
        for wish in rules.preferred:
            draft.drawn.append((self._counter(Together((wish.term,)), wish.term.topology_key), wish.weight))
            if wish not in self._wishing:
                self._wishing[wish] = Counter.of(None, self._domains_of(wish.term.topology_key), None, self._table)
                self._attracting.add(wish, wish.selector)
        counts_on = pod_topology_spread.Counted(rules.soft_spread, group.pod_class, self._table)
        keys = tuple(each.topology_key for each in rules.soft_spread)
        draft.crowded += [self._crowded(group, each, keys, counts_on) for each in rules.soft_spread]
        for limit in rules.limits:
            counter = self._counter(policy_constraints.description(limit), limit.topology_key)
            itself = policy_constraints.counts_itself(limit, group.kind, self._neighbours)
            draft.caps.append(Cap(counter, limit.most, int(itself)))
        return draft

    def _crowded(
        self,
        group: Group,
        constraint: SpreadConstraint,
        keys: tuple[str, ...],
        counts_on: pod_topology_spread.Counted,
    ) -> Counter:
        feeding = None
        read: tuple[object, ...] = ("soft",)
        if constraint.topology_key != HOSTNAME:
            feeding = counts_on(constraint)
            read = (*read, *_inclusion(constraint, group.pod_class), keys)
        return self._counter(Alike(group.kind.namespace, constraint.selector), constraint.topology_key, read, feeding)

    def _spread(self, group: Group, constraint: SpreadConstraint, keys: tuple[str, ...], counted: Bools) -> Spread:
        kind, selector = group.kind, constraint.selector
        read = (keys, *_inclusion(constraint, group.pod_class))
        counter = self._counter(Alike(kind.namespace, selector), constraint.topology_key, read, counted)
        inside = np.unique(counter.domains.codes[counted])
        least = None if len(inside) else _NO_DOMAIN
        if len(inside) < constraint.min_domains:
            least = 0
        itself = int(selector is not None and selector.matches(kind.labels))
        return Spread(counter, constraint.max_skew, itself, inside, least)

    def _counter(
        self, of: Description, key: str, read: tuple[object, ...] = (), feeding: Bools | None = None
    ) -> Counter:
        known = self._of_crowd.setdefault(of, {})
        found = known.get((key, *read))
        if found is None:
            domains = self._whole if isinstance(of, Described) and not key else self._domains_of(key)
            found = known[key, *read] = Counter.of(self._neighbours.crowd(of), domains, feeding, self._table)
        return found

    def _domains_of(self, key: str) -> Domains:
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains.of(key, self._table)
        return found


def _inclusion(constraint: SpreadConstraint, pod_class: PodClass) -> tuple[object, ...]:
    """What of a class decides which nodes a constraint counts."""
    return (
        constraint.honors_affinity and (pod_class.node_selector, pod_class.required_affinity),
        constraint.honors_taints and pod_class.tolerations,
    )


@dataclass(slots=True, eq=False)
class _Allowed:
    """What ``Counts.allowed`` knows of a group, for each counter that its rules read.

    Attributes:
        parts: bool[N], nodes that this counter does not forbid.
        seen: how much of the counter's log is in there.
        least: what a spread took for the least, 0 for others.
        met: whether any pod runs that the group's affinity terms speak of.
        result: bool[N], where all parts are true; the only part itself where there is one.
    """

    parts: list[Bools]
    seen: list[int]
    least: list[int]
    met: bool
    result: Bools


class Counts:
    """The counters of a round as its placements raise them."""

    def __init__(self) -> None:
        self._counts: dict[Counter, Int64s] = {}
        #: Domains in the order in which they were raised.
        self._logs: dict[Counter, list[int]] = {}
        self._allowed: dict[Ties, _Allowed] = {}

    def copy(self) -> Counts:
        """An independent copy."""
        other = Counts()
        other._counts = {counter: counts.copy() for counter, counts in self._counts.items()}
        other._logs = {counter: log.copy() for counter, log in self._logs.items()}
        return other

    def feed(self, ties: Ties, node: int, pods: int) -> None:
        """Counts so many pods of the group on a node."""
        for counter in ties.feeds:
            if counter.feeding[node]:
                domain = int(counter.domains.codes[node])
                self._raised(counter)[domain] += pods
                self._logs[counter].append(domain)

    def feed_all(self, ties: Ties, nodes: Int64s, pods: Int64s) -> None:
        """The same for int64[K] nodes and pods."""
        for counter in ties.feeds:
            here = counter.feeding[nodes]
            if here.any():
                domains = counter.domains.codes[nodes[here]]
                np.add.at(self._raised(counter), domains, pods[here])
                self._logs[counter] += np.unique(domains).tolist()

    def _raised(self, counter: Counter) -> Int64s:
        counts = self._counts.get(counter)
        if counts is None:
            counts = self._counts[counter] = counter.first.copy()
            self._logs[counter] = []
        return counts

    def of(self, counter: Counter) -> Int64s:
        """int64[D + 1]: how many pods it counts in each domain now."""
        return self._counts.get(counter, counter.first)

    def stamp(self, counters: Iterable[Counter]) -> tuple[int, ...]:
        """Changes whenever one of these counters does."""
        return tuple(len(self._logs.get(counter, ())) for counter in counters)

    def came(self, counter: Counter) -> Int64s:
        """int64[N]: how many pods the round has put into each node's domain, of those that it counts."""
        came: Int64s = (self.of(counter) - counter.first)[counter.domains.codes]
        return came

    def allowed(self, ties: Ties) -> Bools:
        """bool[N]: nodes that no rule between pods forbids the next pod of the group.

        Only domains that were raised since the last call are looked at again, where that is enough. The array is the
        same each time and goes on changing.
        """
        known = self._allowed.get(ties)
        if known is None or known.met != self._met(ties):
            known = self._allowed[ties] = self._anew(ties)
            return known.result
        for at, counter in enumerate(ties.reads):
            log = self._logs.get(counter, ())
            raised = set(log[known.seen[at] :])
            if not raised:
                continue
            known.seen[at] = len(log)
            fine, least = self._fine(ties, at)
            if least != known.least[at] or len(raised) > _FEW:
                known.least[at] = least
                np.take(fine, counter.domains.codes, out=known.parts[at])
                if len(known.parts) > 1:
                    np.logical_and.reduce(known.parts, out=known.result)
                continue
            for domain in raised:
                nodes = counter.domains.nodes(domain)
                known.parts[at][nodes] = fine[domain]
                if len(known.parts) > 1:
                    known.result[nodes] = np.logical_and.reduce([part[nodes] for part in known.parts])
        return known.result

    def closed(self, ties: Ties) -> Bools:
        """bool[N]: nodes that anti-affinity or a cap closes to the group for good: no placement opens them again."""
        parts = [(self.of(counter) > 0)[counter.domains.codes] for counter in ties.apart]
        parts += [(cap.room(self.of(cap.counter)) == 0)[cap.counter.domains.codes] for cap in ties.caps]
        closed: Bools = np.logical_or.reduce(parts)
        return closed

    def _anew(self, ties: Ties) -> _Allowed:
        found = [self._fine(ties, at) for at in range(len(ties.reads))]
        parts = [fine[counter.domains.codes] for (fine, _), counter in zip(found, ties.reads, strict=True)]
        seen = [len(self._logs.get(counter, ())) for counter in ties.reads]
        result = parts[0] if len(parts) == 1 else np.logical_and.reduce(parts)
        return _Allowed(parts, seen, [least for _, least in found], self._met(ties), result)

    def _fine(self, ties: Ties, at: int) -> tuple[Bools, int]:
        """bool[D + 1]: domains that one of the counters read does not forbid; and the least of a spread."""
        counts = self.of(ties.reads[at])
        if at < len(ties.apart):
            return counts == 0, 0
        at -= len(ties.apart)
        if at < len(ties.near):
            fine = counts > 0 if self._met(ties) else np.full(len(counts), ties.first)
            fine[-1] = False
            return fine, 0
        at -= len(ties.near)
        if at >= len(ties.spreads):
            return ties.caps[at - len(ties.spreads)].room(counts) > 0, 0
        spread = ties.spreads[at]
        least = spread.least_of(counts)
        fine = counts + (spread.itself - least) <= spread.max_skew
        fine[-1] = False  # no label, no place
        return fine, least

    def _met(self, ties: Ties) -> bool:
        return any(self.of(counter).any() for counter in ties.near)

    def alone(self, ties: Ties) -> bool:
        """Whether the next pod of the group would be the first that its affinity terms speak of."""
        return ties.first and not self._met(ties)

    def gathering(self, ties: Ties, fitting: Int64s, pods: int) -> Bools:
        """bool[N]: where the first pod of a group that wants to be together leaves most of the others a place.

        Args:
            fitting: int64[N], how many pods of the group each node takes.
            pods: how many there are. Domains with room for all of them are as good as any other.
        """
        good = fitting > 0
        for counter in ties.near:
            codes, labelled = counter.domains.codes, counter.domains.labelled
            room = np.bincount(codes[labelled], np.minimum(fitting, pods)[labelled], len(counter.first))
            good &= (room >= min(pods, room.max()))[codes] & labelled
        return good if good.any() else fitting > 0

    def most(self, ties: Ties) -> Int64s:
        """int64[N]: how many pods of the group each node takes in a row before a rule forbids the next."""
        most = np.where(self.allowed(ties), UNLIMITED, 0)
        for counter in ties.apart:
            if counter in ties.feeds:
                most = np.where(counter.feeding, np.minimum(most, 1), most)
        for spread in ties.spreads:
            if spread.counter in ties.feeds:
                room = self._until_skewed(spread)[spread.counter.domains.codes]
                most = np.where(spread.counter.feeding, np.minimum(most, room), most)
        for cap in ties.caps:
            most = np.minimum(most, cap.room(self.of(cap.counter))[cap.counter.domains.codes])
        return most

    def most_at(self, ties: Ties, node: int, enough: int) -> int:
        """``most`` for one node; counts no further than ``enough``."""
        if not self._allows(ties, node):
            return 0
        most = enough
        if most > 1 and any(counter.feeding[node] and counter in ties.feeds for counter in ties.apart):
            most = 1
        for spread in ties.spreads if most > 1 else ():
            counter = spread.counter
            if counter.feeding[node] and counter in ties.feeds:
                most = min(most, int(self._until_skewed(spread)[counter.domains.codes[node]]))
        for cap in ties.filling if most > 1 else ():
            most = min(most, cap.most - int(self.of(cap.counter)[cap.counter.domains.codes[node]]))
        return most

    def _allows(self, ties: Ties, node: int) -> bool:
        """``allowed`` for one node."""
        for counter in ties.apart:
            if self.of(counter)[counter.domains.codes[node]]:
                return False
        if ties.near:
            met = self._met(ties)
            for counter in ties.near:
                if not counter.domains.labelled[node]:
                    return False
                if not (self.of(counter)[counter.domains.codes[node]] if met else ties.first):
                    return False
        for spread in ties.spreads:
            counts, domains = self.of(spread.counter), spread.counter.domains
            if not domains.labelled[node]:
                return False
            if counts[domains.codes[node]] + spread.itself - spread.least_of(counts) > spread.max_skew:
                return False
        for cap in ties.caps:
            domains = cap.counter.domains
            if not domains.labelled[node] or self.of(cap.counter)[domains.codes[node]] + cap.itself > cap.most:
                return False
        return True

    def _until_skewed(self, spread: Spread) -> Int64s:
        """int64[D + 1]: how many pods each domain takes in a row; it may itself be the emptiest one."""
        counts = self.of(spread.counter)
        others = np.full(len(counts), spread.least_of(counts), dtype=np.int64)
        if spread.least is None:
            # The least of the other domains: the least of all, but for a domain that is alone in having it.
            inside = counts[spread.inside]
            emptiest = int(inside.argmin())
            rest = np.delete(inside, emptiest)
            others[spread.inside[emptiest]] = int(rest.min()) if len(rest) else UNLIMITED
        until: Int64s = np.maximum(others + spread.max_skew - counts, 0)
        return until
