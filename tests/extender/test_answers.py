"""What kube-scheduler is told, as a function of what the plan says and what was asked."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st
from thalweg_extender.answers import INFEASIBLE_MESSAGE, FilterOutcome, to_filter, to_preempt, to_prioritize
from thalweg_extender.wire import ExtenderFilterResult, MetaPod, MetaVictims

from flowcore.model.advice import HELD_MESSAGE, Advice

NAMES = st.sampled_from([f"n{i}" for i in range(8)])
ASKED = st.lists(NAMES, unique=True)
GUIDANCE = st.builds(
    Advice,
    managed=st.booleans(),
    node=st.one_of(st.just(""), NAMES),
    hold=st.booleans(),
    infeasible_nodes=st.one_of(
        st.sets(NAMES), st.frozensets(NAMES), st.lists(NAMES), st.dictionaries(NAMES, st.none())
    ),
    scores=st.dictionaries(NAMES, st.integers(-3, 30)),
)
#: What kube-scheduler may send, and what would stop it in an answer: no pods, or null in their place.
CANDIDATES = st.dictionaries(
    NAMES,
    st.none()
    | st.builds(
        MetaVictims,
        st.none() | st.lists(st.none() | st.builds(MetaPod, st.sampled_from("xyz")), max_size=3),
        st.integers(0, 2),
    ),
)
VICTIMS = st.dictionaries(NAMES, st.lists(st.sampled_from("uvw"), unique=True), max_size=2)


def rejected(result: ExtenderFilterResult) -> dict[str, str]:
    """The nodes that are named with a reason; they are never candidates for preemption."""
    assert not result.failed_nodes
    assert result.failed_and_unresolvable_nodes is not None
    return result.failed_and_unresolvable_nodes


def test_the_planned_node_passes_alone() -> None:
    """Whether the pod would be held otherwise or not."""
    for hold in (True, False):
        outcome, passed, result = to_filter(Advice(managed=True, node="b", hold=hold), ["a", "b", "c"])
        assert (outcome, passed, result.node_names, rejected(result)) == (FilterOutcome.STEERED, ["b"], ["b"], {})


def test_a_planned_node_that_was_not_asked_about_is_a_hold_or_a_free_choice() -> None:
    """A hold under Require, under Prefer all nodes pass."""
    outcome, passed, result = to_filter(Advice(managed=True, node="gone", hold=True), ["a", "b"])
    assert (outcome, passed, result.node_names, rejected(result)) == (FilterOutcome.HELD, [], [], {"a": HELD_MESSAGE})
    outcome, passed, result = to_filter(Advice(managed=True, node="gone"), ["a", "b"])
    assert (outcome, passed, result.node_names, rejected(result)) == (FilterOutcome.PASSED, ["a", "b"], ["a", "b"], {})


def test_a_planned_node_that_is_taken_is_none() -> None:
    """The plan is older than what took the room."""
    wants = Advice(managed=True, node="b", infeasible_nodes={"b"})
    outcome, passed, result = to_filter(wants, ["a", "b"])
    assert (outcome, passed, rejected(result)) == (FilterOutcome.PASSED, ["a"], {"b": INFEASIBLE_MESSAGE})
    held = Advice(managed=True, node="b", hold=True, infeasible_nodes={"b"})
    assert to_filter(held, ["a", "b"])[0] is FilterOutcome.HELD


def test_taken_nodes_are_withheld_from_pods_that_no_policy_governs() -> None:
    """One of them carries the reason; the message must not count them."""
    outcome, passed, result = to_filter(Advice(infeasible_nodes=["b", "d", "elsewhere"]), ["a", "b", "c", "d"])
    assert (outcome, passed, rejected(result)) == (FilterOutcome.PASSED, ["a", "c"], {"b": INFEASIBLE_MESSAGE})
    outcome, passed, result = to_filter(Advice(infeasible_nodes=["a", "b"]), ["a", "b"])
    assert (outcome, passed, result.node_names, rejected(result)) == (
        FilterOutcome.PASSED,
        [],
        [],
        {"a": INFEASIBLE_MESSAGE},
    )


@given(GUIDANCE, ASKED)
def test_filter_is_safe(guidance: Advice, names: list[str]) -> None:
    """No node that was not asked about comes back, no taken one passes, a hold lets only the planned node pass."""
    outcome, passed, result = to_filter(guidance, names)
    named = rejected(result)
    assert result.node_names == passed
    assert passed == [name for name in names if name in passed]
    assert not set(passed) & set(guidance.infeasible_nodes)
    assert set(named) <= set(names) - set(passed)
    assert not guidance.hold or set(passed) <= {guidance.node}
    assert (outcome is FilterOutcome.STEERED) == (
        guidance.node in names and guidance.node not in guidance.infeasible_nodes
    )
    assert outcome is not FilterOutcome.STEERED or passed == [guidance.node]
    assert not (outcome is FilterOutcome.HELD and passed)
    assert result.error == ""


@given(GUIDANCE, ASKED)
def test_filter_withholds_nothing_without_a_reason(guidance: Advice, names: list[str]) -> None:
    """Who is neither steered nor held has every node that is not taken; what is withheld has one constant text."""
    outcome, passed, result = to_filter(guidance, names)
    if outcome is FilterOutcome.PASSED:
        assert set(passed) == set(names) - set(guidance.infeasible_nodes)
    if outcome is not FilterOutcome.STEERED and len(passed) < len(names):
        (text,) = rejected(result).values()
        assert text == (HELD_MESSAGE if outcome is FilterOutcome.HELD else INFEASIBLE_MESSAGE)


@given(GUIDANCE, ASKED)
def test_scores_are_in_range_and_of_nodes_asked_about(guidance: Advice, names: list[str]) -> None:
    """kube-scheduler checks neither: a score of 1,000 would drown all else."""
    found = {each.host: each.score for each in to_prioritize(guidance, names)}
    assert set(found) == (set(names) & set(guidance.scores) if guidance.managed else set())
    for name, score in found.items():
        assert 0 <= score <= 10
        assert score == guidance.scores[name] or not 0 <= guidance.scores[name] <= 10


@given(CANDIDATES, VICTIMS)
def test_the_plan_alone_says_who_leaves_for_a_pod_that_a_policy_steers(
    candidates: dict[str, MetaVictims | None], victims: dict[str, list[str]]
) -> None:
    """Whatever kube-scheduler has found: the node may be none of its candidates. A node without victims is left out."""
    answer = to_preempt(Advice(managed=True, hold=True, victims=victims), candidates).node_name_to_meta_victims
    expected = {node: uids for node, uids in victims.items() if uids}
    assert {node: [pod.uid for pod in each.pods or () if pod] for node, each in answer.items()} == expected
    assert all(each.num_pdb_violations == 0 for each in answer.values())


@given(CANDIDATES, st.booleans())
def test_preemption_where_kube_scheduler_chooses(candidates: dict[str, MetaVictims | None], managed: bool) -> None:  # noqa: FBT001
    """Candidates stay as they were found, but for those that would make kube-scheduler stop: nobody to evict, or null.

    For a managed pod those go too that violate a PodDisruptionBudget.
    """
    advice = Advice(managed=managed, may_preempt=managed, infeasible_nodes=["n1"])
    answer = to_preempt(advice, candidates).node_name_to_meta_victims
    for node, victims in candidates.items():
        usable = victims is not None and bool(victims.pods) and None not in victims.pods
        stays = usable and not (managed and victims is not None and victims.num_pdb_violations > 0)
        assert (answer.get(node) is victims) if stays else node not in answer
    assert set(answer) <= set(candidates)


def test_scores_of_many_nodes_give_the_garbage_collector_nothing_to_do() -> None:
    """Each request has thousands of them: a collection amid the answer makes it late."""
    names = [f"n{number}" for number in range(5_000)]
    advice = Advice(managed=True, scores=dict.fromkeys(names, 1))
    before = gc.get_threshold()
    gc.set_threshold(len(names) // 5, *before[1:])
    try:
        gc.collect()
        scores = to_prioritize(advice, names)
        assert len(scores) == len(names)
        assert gc.get_count()[1] == 0, "collections since"
    finally:
        gc.set_threshold(*before)
