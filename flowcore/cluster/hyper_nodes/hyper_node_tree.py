"""Which HyperNodes a node is in, as labels of the node that only we can write: one for each tier.

Topology of gangs then needs nothing but labels. A node has the label of each tier from the lowest HyperNode that it is
in upwards. Where a tier is missing above it, the HyperNode below counts: "one HyperNode of tier 2 or lower" is what
gangs ask. A change costs what it concerns: the nodes below the HyperNode that changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from flowcore.cluster.hyper_nodes.tier_limits import Tiers
from flowcore.model.hyper_nodes import HyperNode, NodeMembers, is_tier_key, tier_key
from flowcore.model.name_patterns import NamePattern, name_pattern
from flowcore.model.nodes import Node
from flowcore.model.selectors import Labels, Requirement, value_of

#: Most tiers that count, the lowest ones: each is a label of every node, and a level of every gang that names none.
MAX_TIERS: Final = 8
#: A HyperNode may select only nodes with this value of a label; a key of None: any node, or the one of that name.
_Hint = tuple[str | None, str]
_ANY: Final[_Hint] = (None, "")
_Key = TypeVar("_Key", str, _Hint)


class HyperNodeTree:
    """HyperNodes, and the nodes that are in them.

    A HyperNode is in one other at most, of a higher tier: in the lowest, of several the first by name. So a circle is
    none. A node is in one HyperNode of each tier: the same holds. ``problems`` tells what does not count.

    Attributes:
        objects: by name.
        tiers: those that count, from the lowest on.
    """

    def __init__(self) -> None:
        self.objects: dict[str, HyperNode] = {}
        self.tiers: tuple[int, ...] = ()
        #: Nodes as the API server has them, without labels of tiers.
        self._nodes: dict[str, Node] = {}
        self._count_of_tier: Counter[int] = Counter()
        #: Name of a tier -> the tiers that have it, and how many HyperNodes say so.
        self._named: dict[str, Counter[int]] = {}
        #: HyperNode -> nodes that its own members select, and the other way round.
        self._selected: dict[str, set[str]] = {}
        self._selecting: dict[str, set[str]] = {}
        #: HyperNode, which need not exist -> HyperNodes that have it as a member.
        self._above: dict[str, set[str]] = {}
        #: HyperNodes by what a node must have that they select.
        self._hinted: dict[_Hint, set[str]] = {}
        #: Labels of nodes by what selects them, until a HyperNode changes: many nodes share them.
        self._labels: dict[frozenset[str], Labels] = {}
        #: Names of nodes by the values of the labels that HyperNodes select by, and all in order; None: not known yet.
        self._by_label: dict[str, dict[str, set[str]]] = {}
        self._names: list[str] | None = None

    def numbered(self) -> Tiers:
        """The tiers with their names; of several tiers with one name the lowest has it."""
        names = {name: min(tiers) for name, tiers in self._named.items()}
        return Tiers(self.tiers, names, max(self._count_of_tier, default=0))

    # --- nodes ---

    def put_node(self, node: Node) -> Node:
        """Takes a node that came or changed; returns it with the labels of its tiers."""
        node = _without_tiers(node)
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None:
            self._names = None
        if before is None or before.labels != node.labels:
            self._index(before, node)
            self._select(node)
        return self.labelled(node.name)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        before = self._nodes.pop(name, None)
        if before is not None:
            self._names = None
            self._index(before, None)
            self._unselect(name)

    def _index(self, before: Node | None, node: Node | None) -> None:
        for key, by_value in self._by_label.items():
            if before is not None and (value := value_of(before.labels, key)) is not None:
                _discard(by_value, value, before.name)
            if node is not None and (value := value_of(node.labels, key)) is not None:
                by_value.setdefault(value, set()).add(node.name)

    def _select(self, node: Node) -> None:
        self._unselect(node.name)
        if not self.objects:
            return
        hints = [_ANY, (None, node.name), *(label for label in node.labels if label in self._hinted)]
        for name in {name for hint in hints for name in self._hinted.get(hint, ())}:
            if any(_has(member, node) for member in self.objects[name].nodes):
                self._add(name, node.name)

    def _unselect(self, node: str) -> None:
        for name in self._selecting.pop(node, ()):
            _discard(self._selected, name, node)

    def _add(self, name: str, node: str) -> None:
        self._selected.setdefault(name, set()).add(node)
        self._selecting.setdefault(node, set()).add(name)

    # --- HyperNodes ---

    def put(self, name: str, hyper_node: HyperNode | None) -> Collection[str]:
        """Takes a HyperNode; None: it is gone. Names of nodes that may have other labels now."""
        before, tiers = self.objects.get(name), self.tiers
        concerned = self._below(name)
        if before is not None:
            self._forget(before)
        if hyper_node is not None:
            self.objects[name] = hyper_node
            self._count_of_tier[hyper_node.tier] += 1
            if hyper_node.tier_name:
                self._named.setdefault(hyper_node.tier_name, Counter())[hyper_node.tier] += 1
            for member in hyper_node.hyper_nodes:
                self._above.setdefault(member, set()).add(name)
            for hint in _hints(hyper_node):
                self._hinted.setdefault(hint, set()).add(name)
            for nodes in hyper_node.nodes:
                for node in self._candidates(nodes):
                    if _has(nodes, self._nodes[node]):
                        self._add(name, node)
        self.tiers = tuple(sorted(self._count_of_tier)[:MAX_TIERS])
        self._labels.clear()
        return concerned | (self._below(name) if self.tiers == tiers else self._selecting.keys())

    def _forget(self, before: HyperNode) -> None:
        del self.objects[before.name]
        _count_down(self._count_of_tier, before.tier)
        if before.tier_name:
            _count_down(self._named[before.tier_name], before.tier)
            if not self._named[before.tier_name]:
                del self._named[before.tier_name]
        for member in before.hyper_nodes:
            _discard(self._above, member, before.name)
        for hint in _hints(before):
            _discard(self._hinted, hint, before.name)
        for node in self._selected.pop(before.name, ()):
            _discard(self._selecting, node, before.name)

    def _candidates(self, member: NodeMembers) -> Iterable[str]:
        """Names of nodes that a member may select."""
        if member.name:
            return (member.name,) if member.name in self._nodes else ()
        if member.pattern:
            return self._in_range(name_pattern(member.pattern))
        equal = _equal(member)
        if equal is None:
            return list(self._nodes)
        by_value = self._by_label.get(equal.key)
        if by_value is None:
            by_value = self._by_label[equal.key] = {}
            for node in self._nodes.values():
                if (value := value_of(node.labels, equal.key)) is not None:
                    by_value.setdefault(value, set()).add(node.name)
        return {node for value in equal.values for node in by_value.get(value, ())}

    def _in_range(self, pattern: NamePattern) -> list[str]:
        if self._names is None:
            self._names = sorted(self._nodes)
        if pattern.range is None:
            return self._names
        least, most = pattern.range
        return self._names[bisect_left(self._names, least) : bisect_right(self._names, most)]

    def _below(self, name: str) -> set[str]:
        """Nodes that a HyperNode selects, and those of its members; members that do not count are no harm here."""
        nodes, seen, todo = set[str](), {name}, [name]
        while todo:
            current = todo.pop()
            nodes |= self._selected.get(current, set())
            members = self.objects[current].hyper_nodes if current in self.objects else ()
            new = [member for member in members if member not in seen]
            seen.update(new)
            todo += new
        return nodes

    # --- what it comes to ---

    def labelled(self, name: str) -> Node:
        """A node with the labels of its tiers."""
        node, selecting = self._nodes[name], self._selecting.get(name)
        if not selecting:
            return node
        by = frozenset(selecting)
        labels = self._labels.get(by)
        if labels is None:
            labels = self._labels[by] = self._labels_of(by)
        return msgspec.structs.replace(node, labels=tuple(sorted((*node.labels, *labels)))) if labels else node

    def _labels_of(self, selecting: Collection[str]) -> Labels:
        held, _ = self._held(selecting)
        labels, lowest = list[tuple[str, str]](), ""
        for tier in self.tiers:
            lowest = held.get(tier, lowest)
            if lowest:
                labels.append((tier_key(tier), lowest))
        return tuple(labels)

    def _held(self, selecting: Collection[str]) -> tuple[dict[int, str], list[tuple[str, str]]]:
        """Tier -> the HyperNode of a node that these select; and pairs of which the second does not count there."""
        held, clashes = dict[int, str](), list[tuple[str, str]]()
        for name in sorted(selecting, key=self._order):
            current: str | None = name
            while current is not None and (tier := self.objects[current].tier) <= self.tiers[-1]:
                first = held.setdefault(tier, current)
                if first != current:
                    clashes.append((first, current))
                    break
                current = self._parent(current)
        return held, clashes

    def _parent(self, name: str) -> str | None:
        """The HyperNode that one is in; None: it is in none."""
        above, tier = self._above.get(name), self.objects[name].tier
        if not above:
            return None
        return min((each for each in above if self.objects[each].tier > tier), key=self._order, default=None)

    def _order(self, name: str) -> tuple[int, str]:
        return self.objects[name].tier, name

    def problems(self) -> Iterator[str]:
        """Sentences about what does not count, by HyperNode."""
        tiers_by_name: dict[str, int] = {}
        for name in sorted(self.objects, key=self._order):
            hyper_node = self.objects[name]
            shown = f"HyperNode {name}"
            if hyper_node.problem:
                yield f"{shown}: {hyper_node.problem}: it does not count"
            if hyper_node.tier not in self.tiers:
                yield f"{shown}: spec.tier: {MAX_TIERS} tiers count, the lowest ones"
            tier = tiers_by_name.setdefault(hyper_node.tier_name, hyper_node.tier)
            if hyper_node.tier_name and tier != hyper_node.tier:
                yield f"{shown}: spec.tierName: {hyper_node.tier_name} is the name of tier {tier}"
            for member in hyper_node.nodes:
                if member.name and member.name not in self._nodes:
                    yield f"{shown}: spec.members: Node {member.name} does not exist"
            for below in hyper_node.hyper_nodes:
                yield from (f"{shown}: spec.members: {why}" for why in self._member_problem(name, below))
        shared = {frozenset(selecting) for selecting in self._selecting.values()}
        clashes = {clash for selecting in shared for clash in self._held(selecting)[1]}
        for first, second in sorted(clashes):
            tier = self.objects[second].tier
            yield f"HyperNode {second}: spec.members: nodes that are in {first} of tier {tier} too count there"

    def _member_problem(self, name: str, below: str) -> Iterator[str]:
        member = self.objects.get(below)
        if member is None:
            yield f"HyperNode {below} does not exist"
        elif member.tier >= self.objects[name].tier:
            yield f"HyperNode {below} has tier {member.tier}, which is not below {self.objects[name].tier}"
        elif self._parent(below) != name:
            yield f"HyperNode {below} is in {self._parent(below)} already"


def _has(member: NodeMembers, node: Node) -> bool:
    if member.name:
        return member.name == node.name
    if member.pattern:
        return name_pattern(member.pattern).is_in(node.name)
    return member.selector is not None and member.selector.matches(node.labels)


def _hints(hyper_node: HyperNode) -> set[_Hint]:
    """What a node must have one of so that a HyperNode selects it."""
    return {hint for member in hyper_node.nodes for hint in _hints_of(member)}


def _hints_of(member: NodeMembers) -> Iterator[_Hint]:
    equal = _equal(member)
    if member.name:
        yield None, member.name
    elif equal is None:
        yield _ANY
    else:
        yield from ((equal.key, value) for value in equal.values)


def _equal(member: NodeMembers) -> Requirement | None:
    """A requirement on the value of a label; None: the member has none."""
    requirements = () if member.selector is None else member.selector.requirements
    return next((each for each in requirements if each.operator == "In"), None)


def _without_tiers(node: Node) -> Node:
    """A node without labels of tiers, which a saved state has."""
    if not any(is_tier_key(key) for key, _ in node.labels):
        return node
    return msgspec.structs.replace(node, labels=tuple(label for label in node.labels if not is_tier_key(label[0])))


def _count_down(counts: Counter[int], tier: int) -> None:
    counts[tier] -= 1
    if not counts[tier]:
        del counts[tier]


def _discard(names_of: dict[_Key, set[str]], key: _Key, name: str) -> None:
    names_of[key].discard(name)
    if not names_of[key]:
        del names_of[key]
