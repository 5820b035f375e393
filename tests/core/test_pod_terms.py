"""Terms of running pods are found as a walk over all of them finds them, and cost pods of other namespaces little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw_selectors import LABELS, REQUIREMENTS
from support.profiles import examples
from support.work import lines_run

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model import pod_terms
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.pod_index import PodIndex, PodSignature, incoming_term_matches
from flowcore.model.pods import PodClass
from flowcore.model.selector_index import SelectorIndex
from flowcore.model.selectors import Labels, LabelSelector, Requirement
from flowcore.rules.verdicts.groups import group

NODES = {"n0": 0, "n1": 1}
NAMESPACES = ("red", "blue", "green")
TEAM = LabelSelector((Requirement("team", "Exists"),))

_selectors = st.none() | st.lists(REQUIREMENTS, max_size=3).map(lambda drawn: LabelSelector(tuple(drawn)))
_names = st.lists(st.sampled_from(NAMESPACES), max_size=2).map(tuple)
_terms = st.builds(
    AffinityTerm, st.sampled_from(("zone", "host")), _selectors, _names, st.sampled_from((None, None, TEAM))
)
_constraints = st.builds(
    InterPodConstraints,
    anti_affinity=st.lists(_terms, max_size=3).map(tuple),
    preferred=st.lists(st.builds(WeightedTerm, st.sampled_from((1, -5)), _terms), max_size=2).map(tuple),
)
_signatures = st.builds(PodSignature, st.sampled_from(NAMESPACES), LABELS, st.just(value=False), _constraints)
_pods = st.tuples(st.sampled_from(sorted(NODES)), _signatures)
_Pod = tuple[str, PodSignature]


class Walk:
    """The same pods in a list, and the terms of each namespace in the order in which they came."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pods: list[_Pod] = []
        self.came: dict[str, dict[AffinityTerm | WeightedTerm, None]] = {}

    def put(self, pods: Iterable[_Pod]) -> None:
        """More pods run."""
        for node, signature in pods:
            self.pods.append((node, signature))
            for terms in _terms_of(signature):
                self.came.setdefault(signature.namespace, {}).update(dict.fromkeys(terms))

    def remove(self, pod: _Pod) -> None:
        """A pod is gone, and so are terms that no other pod of its namespace brings."""
        self.pods.remove(pod)
        namespace = pod[1].namespace
        left = {
            term for _, each in self.pods if each.namespace == namespace for terms in _terms_of(each) for term in terms
        }
        self.came[namespace] = {term: None for term in self.came.get(namespace, {}) if term in left}

    def reaches(self, term: AffinityTerm | WeightedTerm, namespace: str, asked: str) -> bool:
        """Whether a term that pods of a namespace brought holds for pods of the other one.

        The first terms about others hold for all; of the rest the first ones hold at home.
        """
        same = [each for each in self.came[namespace] if type(each) is type(term)]
        shared = [each for each in same if each.scope.reaches_beyond(namespace)][: self.limit]
        home = [each for each in same if each not in shared][: 2 * self.limit]
        return term in shared or (term in home and asked == namespace)

    def find(
        self, kind: int, asked: PodSignature, namespaces: dict[str, Labels]
    ) -> dict[AffinityTerm | WeightedTerm, Counter[int]]:
        """Each term that speaks of the pod, with the nodes of the pods that bring it."""
        found: dict[AffinityTerm | WeightedTerm, Counter[int]] = {}
        for node, signature in self.pods:
            for term in _terms_of(signature)[kind]:
                plain = term.term if isinstance(term, WeightedTerm) else term
                reaches = self.reaches(term, signature.namespace, asked.namespace)
                if reaches and incoming_term_matches(plain, asked, namespaces):
                    found.setdefault(term, Counter())[NODES[node]] += 1
        return found


def _terms_of(signature: PodSignature) -> tuple[list[AffinityTerm], list[WeightedTerm]]:
    rules = signature.constraints
    assert rules is not None
    return list(dict.fromkeys(rules.anti_affinity)), list(rules.preferred)


def places(
    answer: Iterable[tuple[AffinityTerm | WeightedTerm, MatchingPods]],
) -> dict[AffinityTerm | WeightedTerm, Counter[int]]:
    """Term -> position of a node -> pods."""
    found: dict[AffinityTerm | WeightedTerm, Counter[int]] = {}
    for term, pods in answer:
        for node, count in zip(*(array.tolist() for array in pods.to_arrays(NODES)), strict=True):
            found.setdefault(term, Counter())[node] += count
    return found


def agree(index: PodIndex, walk: Walk, asked: Iterable[PodSignature], namespaces: dict[str, Labels]) -> None:
    """The index and the walk find the same."""
    for signature in asked:
        for kind, answer in enumerate((index.anti_affinity_terms_for(signature), index.preferred_terms_for(signature))):
            assert places(answer) == walk.find(kind, signature, namespaces)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(st.just("put"), _pods)
        | st.tuples(st.just("put"), _pods)
        | st.tuples(st.just("remove"), st.integers(0, 20))
        | st.tuples(st.just("team"), st.sampled_from(NAMESPACES)),
        max_size=20,
    ),
    st.lists(_signatures, min_size=1, max_size=3),
    st.lists(_pods, max_size=3),
    st.integers(0, 20),
    st.sampled_from((1, 2, 1_000)),
)
def test_terms_are_found_as_a_walk_over_all_terms_finds_them(
    events: list[tuple[str, object]], asked: list[PodSignature], more: list[_Pod], gone: int, limit: int
) -> None:
    """After every event, with few terms about other namespaces allowed and with many; with changes on top, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_terms, "MAX_TERMS_ABOUT_OTHERS", limit)
        patch.setattr(pod_terms, "MAX_TERMS_AT_HOME", 2 * limit)
        namespaces: dict[str, Labels] = dict.fromkeys(NAMESPACES, ())
        index, walk = PodIndex(namespaces), Walk(limit)
        for event, what in events:
            if event == "put":
                node, signature = what  # type: ignore[misc]
                index.change(signature, node, 1)
                walk.put([(node, signature)])
            elif event == "remove" and walk.pods:
                node, signature = walk.pods[what % len(walk.pods)]  # type: ignore[operator]
                index.change(signature, node, -1)
                walk.remove((node, signature))
            elif event == "team":
                namespaces[what] = () if namespaces[what] else (("team", "one"),)  # type: ignore[index]
                index.set_namespace(what, namespaces[what])  # type: ignore[arg-type, index]
            agree(index, walk, asked, namespaces)
        leaves = [walk.pods[gone % len(walk.pods)]] if walk.pods else []
        above = index.with_changes([] if limit < 1_000 else more, leaves)
        for pod in leaves:
            walk.pods.remove(pod)
        if limit == 1_000:
            walk.put(more)
        agree(above, walk, asked, namespaces)


def _not_in(number: int, reach: LabelSelector | None = None) -> AffinityTerm:
    """A term that only a test of its selector rules out, about the pods of mallory or those of a selection."""
    selector = LabelSelector((Requirement(f"k{number}", "NotIn", ("v",)), Requirement("here", "NotIn", ("v",))))
    return AffinityTerm("zone", selector, ("mallory",) if reach is None else (), reach)


def _running(terms: Iterable[AffinityTerm]) -> PodIndex:
    index = PodIndex({"mallory": (), "victim": ()})
    for term in terms:
        weighted = WeightedTerm(1, term)
        constraints = InterPodConstraints(anti_affinity=(term,), preferred=(weighted,))
        index.change(PodSignature("mallory", constraints=constraints), "n0", 1)
    return index


def _victim(number: int) -> PodSignature:
    return PodSignature("victim", (("here", "v"), ("pod", f"p{number}")))


def _work_of_groups(index: PodIndex) -> int:
    pending = [
        PendingPod(f"victim/p{number}", f"u{number}", PodClass(), "", signature=_victim(number)) for number in range(10)
    ]
    return lines_run(lambda: group(pending, index))


def test_terms_about_their_own_namespace_cost_pods_of_others_nothing() -> None:
    """The lines that a round runs to group pods are as many beside 1,000 such terms as beside 10."""
    few, many = (_running(_not_in(number) for number in range(count)) for count in (10, 1_000))
    assert _work_of_groups(many) == _work_of_groups(few)
    assert many.anti_affinity_terms_for(PodSignature("mallory", (("pod", "p"),)))


def test_terms_about_all_namespaces_cost_pods_of_others_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the terms beyond the limit are no more work, and asked again none is looked at."""
    monkeypatch.setattr(pod_terms, "MAX_TERMS_ABOUT_OTHERS", 50)
    within, beyond = (_running(_not_in(number, LabelSelector()) for number in range(count)) for count in (50, 500))
    first = _work_of_groups(within)
    assert _work_of_groups(beyond) == first
    assert _work_of_groups(beyond) < first / 5


def test_many_selectors_of_namespaces_cost_pods_with_other_labels_nothing() -> None:
    """Each term selects namespaces in words of its own, which take in this one: a pod is found by its labels first."""
    app = LabelSelector((Requirement("app", "In", ("db",)),))
    few, many = (
        _running(
            AffinityTerm("zone", app, (), LabelSelector((Requirement(f"k{number}", "NotIn", ("v",)),)))
            for number in range(count)
        )
        for count in (10, 1_000)
    )
    assert _work_of_groups(many) == _work_of_groups(few)
    assert many.anti_affinity_terms_for(PodSignature("victim", (("app", "db"),)))


def test_terms_about_their_own_namespace_cost_its_pods_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at on the event loop too, as soon as a pod comes."""
    monkeypatch.setattr(pod_terms, "MAX_TERMS_AT_HOME", 50)
    within, beyond = (_running(_not_in(number) for number in range(count)) for count in (50, 500))
    asked = PodSignature("mallory", (("here", "v"),))
    work = [lines_run(lambda index=index: index.anti_affinity_terms_for(asked)) for index in (within, beyond)]
    assert work[1] == work[0]


def test_terms_beyond_the_limit_hold_in_their_namespace_and_take_the_place_of_those_that_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first ones hold for others. Another namespace has a limit of its own."""
    monkeypatch.setattr(pod_terms, "MAX_TERMS_ABOUT_OTHERS", 2)
    terms = [_not_in(number, LabelSelector()) for number in range(3)]
    index = PodIndex({"mallory": (), "victim": ()})
    signatures = [PodSignature("mallory", constraints=InterPodConstraints(anti_affinity=(term,))) for term in terms]
    for signature in signatures:
        index.change(signature, "n0", 1)
    in_victim, in_mallory = PodSignature("victim"), PodSignature("mallory")
    assert [term for term, _ in index.anti_affinity_terms_for(in_victim)] == terms[:2]
    assert {term for term, _ in index.anti_affinity_terms_for(in_mallory)} == set(terms)
    assert [bool(index.terms_problem(signature)) for signature in signatures] == [False, False, True]
    assert index.terms_problem(signatures[2]).startswith(
        "of its pod affinity and anti-affinity terms 1 hold in its namespace only and 0 for no pod: "
    )
    index.change(PodSignature("green", constraints=signatures[2].constraints), "n1", 1)
    assert {term for term, _ in index.anti_affinity_terms_for(in_victim)} == set(terms)
    index.change(PodSignature("green", constraints=signatures[2].constraints), "n1", -1)
    index.change(signatures[0], "n0", -1)
    assert [term for term, _ in index.anti_affinity_terms_for(in_victim)] == terms[1:]
    assert index.terms_problem(signatures[2]) == ""


def test_an_item_is_filed_under_its_rarest_requirement() -> None:
    """Of 1,000 items that all want app=db, and each its own cluster, a pod is compared with one."""
    index: SelectorIndex[int] = SelectorIndex()
    for number in range(1_000):
        wanted = (Requirement("app", "In", ("db",)), Requirement("cluster", "In", (f"c{number}",)))
        index.add(number, LabelSelector(wanted))
    labels = (("app", "db"), ("cluster", "c500"))
    assert list(index.find(labels)) == [500]
    assert lines_run(lambda: list(index.find(labels))) < 100
