"""PodIndex: after any changes, each question is answered as a recount answers it."""

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw_selectors import LABELS, REQUIREMENTS
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.inter_pod_constraints import (
    AffinityTerm,
    InterPodConstraints,
    MaxPerDomain,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.nodes import Node
from flowcore.model.pod_index import (
    AffinityMatch,
    ConstraintMatch,
    PodIndex,
    PodMatch,
    PodSignature,
    SpreadMatch,
    own_term_matches,
    term_matches,
)
from flowcore.model.pods import PodClass
from flowcore.model.selector_index import SelectorIndex
from flowcore.model.selectors import Labels, LabelSelector, Requirement
from flowcore.rules.filters import run_filters
from flowcore.rules.topology.drift import Drift

NODES = ("n0", "n1", "n2", "n3", "gone")
NAMESPACES = ("default", "red")
TEAMS: tuple[Labels, ...] = ((), (("team", "one"),))

_selectors = st.none() | st.lists(REQUIREMENTS, max_size=2).map(lambda drawn: LabelSelector(tuple(drawn)))
_terms = st.builds(
    AffinityTerm,
    st.sampled_from(("zone", "host")),
    _selectors,
    st.sampled_from(((), ("default",), NAMESPACES)),
    st.sampled_from((None, None, LabelSelector(), LabelSelector((Requirement("team", "Exists"),)))),
)
_limits = st.builds(
    MaxPerDomain,
    st.just("constraint c of policy p"),
    st.sampled_from(("zone", "host", "")),
    st.lists(_selectors.filter(lambda each: each is not None), min_size=1, max_size=2).map(tuple),
    st.sampled_from((None, LabelSelector((Requirement("team", "Exists"),)))),
    st.integers(0, 3),
)
_rules = st.builds(
    InterPodConstraints,
    affinity=st.lists(_terms, max_size=2).map(tuple),
    anti_affinity=st.lists(_terms, max_size=2).map(tuple),
    spread=st.lists(
        st.builds(
            SpreadConstraint,
            st.sampled_from(("zone", "host")),
            st.integers(1, 2),
            _selectors,
            st.integers(1, 3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    limits=st.lists(_limits, max_size=2).map(tuple),
    preferred=st.lists(st.builds(WeightedTerm, st.sampled_from((1, -1, 5)), _terms), max_size=2).map(tuple),
)
_kinds = st.builds(PodSignature, st.sampled_from(NAMESPACES), LABELS, st.booleans(), st.none() | _rules)
_changes = st.tuples(_kinds, st.sampled_from(NODES), st.integers(1, 2))
TABLE = NodeTable.of([Node(name) for name in NODES[:-1]])


def places(crowd: MatchingPods) -> Counter[int]:
    """Position -> pods, as ``to_arrays`` has it."""
    found: Counter[int] = Counter()
    for at, count in zip(*(array.tolist() for array in crowd.to_arrays(TABLE.index)), strict=True):
        found[at] += count
    return found


class Recount:
    """The same pods in a plain list."""

    def __init__(self) -> None:
        self.pods: list[tuple[PodSignature, str]] = []
        self.namespaces: dict[str, Labels] = {}

    def crowd(self, of: PodMatch) -> Counter[int]:
        return self._places(
            kind
            if (
                isinstance(of, AffinityMatch)
                and all(own_term_matches(term, kind, self.namespaces) for term in of.terms)
            )
            or (
                isinstance(of, SpreadMatch)
                and of.selector is not None
                and of.selector.requirements != ()
                and kind.namespace == of.namespace
                and not kind.deleting
                and of.selector.matches(kind.labels)
            )
            or (
                isinstance(of, ConstraintMatch)
                and any(selector.matches(kind.labels) for selector in of.selectors)
                and (of.namespaces is None or of.namespaces.matches(self.namespaces.get(kind.namespace, ())))
            )
            else None
            for kind, _ in self.pods
        )

    def anti_affinity_terms_for(self, asked: PodSignature) -> dict[AffinityTerm, Counter[int]]:
        labels = self.namespaces.get(asked.namespace, ())
        terms = {
            term for kind, _ in self.pods if kind.constraints is not None for term in kind.constraints.anti_affinity
        }
        return {
            term: self._places(
                kind if kind.constraints is not None and term in kind.constraints.anti_affinity else None
                for kind, _ in self.pods
            )
            for term in terms
            if term_matches(term, asked.namespace, asked.labels, labels)
        }

    def preferred_terms_for(self, asked: PodSignature) -> Counter[tuple[WeightedTerm, int]]:
        labels = self.namespaces.get(asked.namespace, ())
        return Counter(
            (wish, TABLE.index[node])
            for kind, node in self.pods
            if kind.constraints is not None and node in TABLE.index
            for wish in (*kind.constraints.preferred, *(WeightedTerm(1, term) for term in kind.constraints.affinity))
            if term_matches(wish.term, asked.namespace, asked.labels, labels)
        )

    def _places(self, chosen: Any) -> Counter[int]:
        return Counter(
            TABLE.index[node]
            for kind, (_, node) in zip(chosen, self.pods, strict=True)
            if kind is not None and node in TABLE.index
        )


EVENTS = st.one_of(
    st.tuples(st.just("come"), _changes),
    st.tuples(st.just("come"), _changes),
    st.tuples(st.just("go"), st.integers(0, 20)),
    st.tuples(st.just("exchange"), st.tuples(st.integers(0, 20), LABELS, st.booleans())),
    st.tuples(st.just("namespace"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from((*TEAMS, None)))),
)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(EVENTS, max_size=25),
    st.lists(st.lists(_terms, min_size=1, max_size=2).map(lambda t: AffinityMatch(tuple(t)))
             | st.builds(SpreadMatch, st.sampled_from(NAMESPACES), _selectors)
             | _limits.map(lambda limit: ConstraintMatch(limit.selectors, limit.namespaces)), min_size=1, max_size=6),
    st.lists(_kinds, min_size=1, max_size=3),
    st.lists(_changes, max_size=3),
)  # fmt: skip
def test_questions_are_answered_as_by_a_recount(
    events: list[tuple[str, Any]],
    crowds: list[PodMatch],
    kinds: list[PodSignature],
    placed: list[tuple[PodSignature, str, int]],
) -> None:
    """Asked after every event, so that what is kept from before must be kept up to date; and with more pods on top."""
    pod_index, recount = PodIndex(), Recount()
    for event, what in events:
        if event == "come":
            kind, node, count = what
            pod_index.change(kind, node, count)
            recount.pods += [(kind, node)] * count
        elif event == "go" and recount.pods:
            kind, node = recount.pods.pop(what % len(recount.pods))
            pod_index.change(kind, node, -1)
        elif event == "exchange" and recount.pods:
            which, labels, keeps_rules = what
            before, node = recount.pods.pop(which % len(recount.pods))
            constraints = before.constraints if keeps_rules else None
            kind = PodSignature(before.namespace, labels, not before.deleting, constraints)
            pod_index.exchange(before, kind, node)
            recount.pods.append((kind, node))
        elif event == "namespace":
            name, labels = what
            pod_index.set_namespace(name, labels)
            recount.namespaces = dict(pod_index.namespaces)
        compare(pod_index, recount, crowds, kinds)
    more = [(node, kind) for kind, node, count in placed for _ in range(count)]
    above = pod_index.with_changes(more)
    compare(pod_index, recount, crowds, kinds)
    recount.pods += [(kind, node) for node, kind in more]
    compare(above, recount, crowds, kinds)


def compare(pod_index: PodIndex, recount: Recount, crowds: list[PodMatch], kinds: list[PodSignature]) -> None:
    for of in crowds:
        assert places(pod_index.matching_pods(of)) == recount.crowd(of)
    for kind in kinds:
        found: dict[AffinityTerm, Counter[int]] = {}
        for term, crowd in pod_index.anti_affinity_terms_for(kind):
            found.setdefault(term, Counter()).update(places(crowd))
        assert found == recount.anti_affinity_terms_for(kind)
        preferred: Counter[tuple[WeightedTerm, int]] = Counter()
        for wish, crowd in pod_index.preferred_terms_for(kind):
            preferred.update({(wish, at): count for at, count in places(crowd).items()})
        assert preferred == recount.preferred_terms_for(kind)
        assert pod_index.has_terms or not (found or preferred)


def test_a_pod_that_becomes_of_another_kind_counts_as_that() -> None:
    """With other labels it leaves some crowds and comes to others; with other rules it brings those. Asked before."""
    web, db = (LabelSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db"))
    crowds = [SpreadMatch("default", selector) for selector in (web, db)]
    apart = InterPodConstraints(anti_affinity=(AffinityTerm("zone", web, ("default",)),))
    ruled_web, ruled_db, plain_web, plain_db = (
        PodSignature("default", (("app", app),), constraints=rules) for rules in (apart, None) for app in ("web", "db")
    )
    node, recount = NODES[0], Recount()
    pod_index = PodIndex.of([(node, ruled_web)])
    for before, after in pairwise([ruled_web, ruled_db, ruled_web, plain_db, plain_web, plain_web, ruled_db]):
        recount.pods = [(before, node)]
        compare(pod_index, recount, crowds, [plain_web])
        pod_index.exchange(before, after, node)
        recount.pods = [(after, node)]
        compare(pod_index, recount, crowds, [plain_web])
        assert list(pod_index.counts()) == [(after, node, 1)]


@settings(max_examples=examples(100))
@given(st.lists(_selectors, max_size=8), st.lists(LABELS, max_size=4), st.sets(st.integers(0, 7)))
def test_selectors_are_found_by_what_they_select(
    selectors: list[LabelSelector | None], asked: list[Labels], removed: set[int]
) -> None:
    """Each of those that select the labels once, and no other; not those that were taken out."""
    index: SelectorIndex[int] = SelectorIndex()
    for at, selector in enumerate(selectors):
        index.add(at, selector)
    for at in removed & set(range(len(selectors))):
        index.remove(at)
    for labels in asked:
        expected = [
            at for at, each in enumerate(selectors) if each is not None and each.matches(labels) and at not in removed
        ]
        assert sorted(index.find(labels)) == expected


def test_what_nobody_asks_about_is_only_counted() -> None:
    """Every pod may be of its own kind: no arrays, no indices before there is a rule."""
    pod_index = PodIndex()
    for at in range(1000):
        pod_index.change(PodSignature("default", (("pod", f"p{at}"),)), "n0", 1)
    assert not pod_index.anti_affinity_terms_for(PodSignature("default", (("pod", "p0"),)))
    assert not pod_index._by_label
    assert not pod_index._matching
    asked = AffinityMatch((AffinityTerm("zone", LabelSelector((Requirement("pod", "In", ("p7",)),)), ("default",)),))
    assert places(pod_index.matching_pods(asked)) == {0: 1}
    for at in range(1000):
        pod_index.change(PodSignature("default", (("pod", f"p{at}"),)), "n0", -1)
    assert list(pod_index.counts()) == []
    assert not any(pod_index._by_label.values())
    assert not pod_index.matching_pods(asked)


def test_what_is_at_hand_needs_no_search() -> None:
    """What was asked about, what few pods may be, and nothing else; also by a label that others have asked about."""

    def with_label(key: str, value: str) -> SpreadMatch:
        return SpreadMatch("default", LabelSelector((Requirement(key, "In", (value,)),)))

    pod_index, most = PodIndex(), 3
    anywhere = AffinityMatch((AffinityTerm("zone", LabelSelector((Requirement("pod", "Exists"),)), ("red",)),))
    everywhere = AffinityMatch((msgspec.structs.replace(anywhere.terms[0], namespace_selector=LabelSelector()),))
    for at in range(5):
        pod_index.change(PodSignature("default", (("pod", f"p{at}"), ("team", "one"))), "n0", 1)
        assert pod_index.is_at_hand(with_label("pod", "p0"), most) == (at < most)
    assert pod_index.is_at_hand(anywhere, most)  # no pods in its namespace
    assert not pod_index.is_at_hand(everywhere, most)
    assert not pod_index.is_at_hand(SpreadMatch("default", anywhere.selector), most)
    assert pod_index.is_at_hand(SpreadMatch("default", None), most)
    pod_index.matching_pods(with_label("pod", "p1"))
    assert pod_index.is_at_hand(with_label("pod", "p0"), most)
    assert not pod_index.is_at_hand(with_label("team", "one"), most)
    for asked in (everywhere, with_label("team", "one")):
        pod_index.matching_pods(asked)
        assert pod_index.is_at_hand(asked, most)
    for _ in range(2):
        pod_index.age()
    assert not pod_index.is_at_hand(everywhere, most)


# -- what is newer than a plan -----------------------------------------------------------------------------------------

_node_labels = st.sampled_from(((), (("zone", "a"),), (("zone", "b"),), (("host", "h"), ("zone", "a"))))


def seen(nodes: dict[str, Node], pod_index: PodIndex) -> Snapshot:
    table = NodeTable.of(nodes[name] for name in sorted(nodes))
    return build_snapshot(generation=1, now=0.0, table=table, running=(), pending=(), pod_index=pod_index)


def fits(kind: PodSignature, name: str, nodes: dict[str, Node], pod_index: PodIndex) -> bool:
    snapshot = seen(nodes, pod_index)
    return name in nodes and bool(run_filters(PodClass(), snapshot, kind).fits[snapshot.table.index[name]])


@settings(max_examples=examples(150), deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(NODES[:-1], _node_labels)),
    st.lists(_changes, max_size=5),
    st.lists(
        st.tuples(st.just("come"), _changes)
        | st.tuples(st.just("go"), st.integers(0, 5))
        | st.tuples(st.just("node"), st.tuples(st.sampled_from(NODES), st.none() | _node_labels))
        | st.tuples(st.just("namespace"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(TEAMS))),
        min_size=1,
        max_size=3,
    ),
    _kinds,
)
def test_a_placement_that_no_longer_holds_is_found_out(
    drawn: dict[str, Labels],
    before: list[tuple[PodSignature, str, int]],
    events: list[tuple[str, Any]],
    kind: PodSignature,
) -> None:
    """Where the pod fitted and does not any more, ``conflicts`` says so."""
    kind = PodSignature(kind.namespace, kind.labels, False, kind.constraints)
    room = (("pods", 100),)
    nodes = {name: Node(name, labels=labels, allocatable=room) for name, labels in drawn.items()}
    pod_index = PodIndex()
    for each, name, count in before:
        pod_index.change(each, name, count)
    places_before = [name for name in nodes if fits(kind, name, nodes, pod_index)]
    newer = Drift()
    for event, what in events:
        if event == "come":
            each, name, count = what
            pod_index.change(each, name, count)
            newer.pods.change(each, name, count)
        elif event == "go" and before:
            each, name, _ = before.pop(what % len(before))
            pod_index.change(each, name, -1)
            newer.pods.change(each, name, -1)
        elif event == "node":
            name, labels = what
            newer.nodes_before.setdefault(name, nodes.get(name))
            nodes.pop(name, None)
            if labels is not None:
                nodes[name] = Node(name, labels=labels, allocatable=room)
        elif event == "namespace":
            pod_index.set_namespace(*what)
            newer.pods.set_namespace(*what)
            newer.namespaces_changed = True
    for name in places_before:
        if name in nodes and name not in newer.nodes_before and not fits(kind, name, nodes, pod_index):
            assert newer.conflicts(kind, nodes[name], nodes, pod_index)


def test_changes_that_concern_nobody_break_nothing() -> None:
    """Pods that no rule speaks of, in other domains, or that make room."""
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    term = AffinityTerm("zone", web, ("default",))
    here = Node("here", labels=(("zone", "a"),))
    nodes = {"here": here, "there": Node("there", labels=(("zone", "b"),))}
    web_pod, other = PodSignature("default", (("app", "web"),)), PodSignature("default", (("app", "db"),))
    alone = PodSignature("default", (("app", "x"),), constraints=InterPodConstraints(anti_affinity=(term,)))
    near = PodSignature("default", (("app", "x"),), constraints=InterPodConstraints(affinity=(term,)))
    spread = PodSignature(
        "default", (("app", "web"),), constraints=InterPodConstraints(spread=(SpreadConstraint("zone", 1, web),))
    )

    def breaks(kind: PodSignature, changed: PodSignature, node: str, by: int) -> bool:
        newer = Drift()
        newer.pods.change(changed, node, by)
        return newer.conflicts(kind, here, nodes, PodIndex())

    assert not any(
        breaks(kind, other, node, by)
        for kind in (web_pod, alone, near, spread)
        for node in ("here", "there")
        for by in (1, -1)
    )
    assert [breaks(alone, web_pod, node, by) for node in ("here", "there") for by in (1, -1)] == [1, 0, 0, 0]
    assert [breaks(near, web_pod, node, by) for node in ("here", "there") for by in (1, -1)] == [0, 1, 0, 0]
    assert [breaks(spread, web_pod, node, by) for node in ("here", "there") for by in (1, -1)] == [1, 0, 0, 1]
    assert [breaks(web_pod, alone, node, by) for node in ("here", "there") for by in (1, -1)] == [1, 0, 0, 0]
