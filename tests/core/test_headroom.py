"""How many more pods fit, and which new nodes help."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.draw import Case, crowded_cases
from support.levels import NOW as DUMPED
from support.levels import scenario_of as dumped
from support.profiles import examples
from support.scenario_state import NOW, drawn_scenario, manifest_node, manifest_pod, state_of
from support.scenario_state import scenario_of as read

from flowcore.model.errors import ModelError
from flowcore.questions.scenario import Scenario, applied, plan_scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomAnswer, HeadroomQuery, answer_headroom, copy_of
from flowcore.questions.scenario.alternatives.planned_with import planned_with
from flowcore.questions.scenario.alternatives.unneeded_nodes import most_together
from flowcore.questions.scenario.alternatives.what_if import outcome_of
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.changes import AddNodes, PutObjects, RemoveNode
from flowcore.questions.scenario.reading.edits import Edits

CONTEXT = AnswerContext(now=NOW)
_BUDGET = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 1},
}


def scenario_of(objects: Sequence[dict[str, Any]]) -> Scenario:
    """A scenario with these objects and a pod that has ended: a dump without any pod has no answer."""
    return read([*objects, manifest_pod("ended") | {"status": {"phase": "Succeeded"}}])


def headroom(scenario: Scenario, context: AnswerContext = CONTEXT, **fields: Any) -> HeadroomAnswer:
    """The answer to a query with these fields."""
    return answer_headroom(scenario, HeadroomQuery(**fields), context)


def placed_with(scenario: Scenario, like: str, copies: int, now: float = NOW) -> int:
    """How many of so many copies a plan of the whole scenario places."""
    edits = Edits(scenario)
    pod = copy_of(scenario.cluster.pods[like], now)
    for number in range(copies):
        name = f"copy-{number}"
        edits.put_pod(msgspec.structs.replace(pod, name=name, uid=name, preempts=False))
    try:
        result = plan_scenario(scenario, now).result
        return sum("/copy-" in each.pod.key for each in result.placements)
    finally:
        edits.undo()


@settings(max_examples=examples(25))
@given(case=crowded_cases(), data=st.data())
def test_the_number_is_exact(case: Case, data: st.DataObject) -> None:
    """So many copies are placed by a plan of the cluster, and of one more not all, whatever rules they have."""
    scenario = drawn_scenario(replace(case, pending=[]))
    assume(scenario.cluster.pods)
    like = data.draw(st.sampled_from(sorted(scenario.cluster.pods)))
    before = state_of(scenario)
    answer = headroom(scenario, like=like, limit=40, scale_ups=0)
    assert state_of(scenario) == before
    assert answer.fits is not None
    assert sum(answer.nodes.values()) == answer.fits
    if answer.fits:
        assert placed_with(scenario, like, answer.fits) == answer.fits
    if answer.at_least:
        assert answer.fits == 40
    else:
        assert answer.reason
        assert placed_with(scenario, like, answer.fits + 1) <= answer.fits


@settings(max_examples=examples(25))
@given(
    nodes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=6),
    cpu=st.integers(1, 4),
    waiting=st.lists(st.integers(1, 4), max_size=4),
)
def test_plain_pods_are_counted_node_by_node(nodes: list[tuple[int, int]], cpu: int, waiting: list[int]) -> None:
    """Without rules the number is what the plan leaves free on each node, divided by what a pod requests."""
    scenario = scenario_of(
        [
            *(manifest_node(f"n{at}", "z", str(cores), pods) for at, (cores, pods) in enumerate(nodes)),
            *(manifest_pod(f"w{at}", cpu=str(cores)) for at, cores in enumerate(waiting)),
        ]
    )
    after = plan_scenario(scenario, NOW).result.after
    free = after.free[:, [after.resources.index("cpu"), after.resources.index("pods")]]
    expected = int((free // [cpu * 1000, 1]).min(axis=1).clip(min=0).sum())
    assert headroom(scenario, requests={"cpu": str(cpu)}, scale_ups=0).fits == expected


@settings(max_examples=examples(25))
@given(
    waiting=st.lists(st.tuples(st.integers(1, 8), st.sampled_from(("", "x"))), min_size=1, max_size=8),
    shapes=st.lists(st.tuples(st.integers(1, 8), st.sampled_from(("", "x"))), min_size=1, max_size=3),
)
def test_new_nodes_place_what_is_said(waiting: list[tuple[int, str]], shapes: list[tuple[int, str]]) -> None:
    """With the nodes that are suggested a plan places exactly so many more, these pods, and each new node gets one."""
    nodes = [manifest_node(f"n{at}", "z", str(cores), kind=kind) for at, (cores, kind) in enumerate(shapes)]
    pods = [manifest_pod(f"w{at}", cpu=str(cores), kind=kind) for at, (cores, kind) in enumerate(waiting)]
    scenario = scenario_of([*nodes, *pods])
    before = plan_scenario(scenario, NOW).result
    left = {each.pod.key for each in before.unplaced}
    answer = headroom(scenario)
    for found in answer.scale_ups:
        with applied(scenario, [AddNodes(found.count, found.like)], CONTEXT):
            after = plan_scenario(scenario, NOW).result
        helped = {each.pod.key for each in after.placements} & left
        assert set(found.places) == helped
        assert found.pods == len(helped) > 0
        assert found.cost == after.cost
        assert len({each.node for each in after.placements if "-new-" in each.node}) == found.count
    # Who fits on an empty node of some shape is helped by a suggestion.
    could = {
        f"default/w{at}"
        for at, (cores, kind) in enumerate(waiting)
        if any(cores <= room and kind in ("", of) for room, of in shapes)
    }
    assert bool(answer.scale_ups) == bool(left & could)


def test_a_pod_with_rules() -> None:
    """Pods that keep apart from each other: one on each node that has none yet."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    web = manifest_pod("web", "a")
    web["spec"]["affinity"] = apart
    web["metadata"]["labels"] = {"app": "web"}
    scenario = scenario_of([*(manifest_node(name, "z") for name in "abc"), web])
    answer = headroom(scenario, like="default/web")
    assert answer.fits == 2
    assert answer.nodes == {"b": 1, "c": 1}
    assert "anti-affinity" in answer.reason


def tainted(name: str, *keys: str) -> dict[str, Any]:
    """A node with a GPU and taints."""
    made = manifest_node(name, "z", "8")
    made["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    made["spec"] = {"taints": [{"key": key, "value": "yes", "effect": "NoSchedule"} for key in keys]}
    return made


def test_gpu_pods_tolerate_what_gpu_pools_have() -> None:
    """The taint that is named as the resource, as the API server's admission has it; others by their key."""
    scenario = scenario_of([tainted("a", "nvidia.com/gpu"), tainted("b", "nvidia.com/gpu", "dedicated")])
    answer = headroom(scenario, requests={"nvidia.com/gpu": "1"})
    assert (answer.fits, answer.nodes, answer.tolerates) == (4, {"a": 4}, ["nvidia.com/gpu"])
    answer = headroom(scenario, requests={"nvidia.com/gpu": "1"}, tolerate=["dedicated"])
    assert (answer.fits, answer.tolerates) == (8, ["nvidia.com/gpu", "dedicated"])
    assert headroom(scenario, requests={"cpu": "1"}).fits == 0


def test_a_pod_that_is_there_has_its_own_tolerations() -> None:
    """What is asked about is that pod."""
    with pytest.raises(ModelError, match="tolerate"):
        headroom(scenario_of([manifest_pod("p")]), like="default/p", tolerate=["dedicated"])


def test_no_new_nodes_are_tried_where_none_are_asked_for() -> None:
    """Then nothing is said of them."""
    scenario = scenario_of([manifest_node("a", "z", "1"), manifest_pod("large", cpu="4")])
    assert not headroom(scenario, scale_ups=0).tried
    assert headroom(scenario).tried


def test_counting_stops_at_the_limit() -> None:
    """More may fit then, and the answer says so."""
    answer = headroom(scenario_of([manifest_node("a", "z", "64")]), requests={"cpu": "1"}, limit=5)
    assert (answer.fits, answer.at_least, answer.reason) == (5, True, "")


def test_what_nobody_offers() -> None:
    """No node has the resource: none fits, and the reason names the resource."""
    answer = headroom(scenario_of([manifest_node("a", "z")]), requests={"nvidia.com/gpu": "1"})
    assert answer.fits == 0
    assert "nvidia.com/gpu" in answer.reason


def test_a_pod_that_nobody_may_plan() -> None:
    """It is said why, in place of a number that means nothing."""
    gated = manifest_pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    answer = headroom(scenario_of([manifest_node("a", "z"), gated]), like="default/gated")
    assert answer.fits == 0
    assert "example.com/later" in answer.reason


def test_a_daemon_set_takes_its_part_of_a_new_node() -> None:
    """3 of 4 cores are left on each new node: one pod of 2 cores each."""
    agent = manifest_pod("agent", "a", "1", owner="DaemonSet")
    pods = [manifest_pod(f"w{at}", cpu="2") for at in range(4)]
    (found,) = headroom(scenario_of([manifest_node("a", "z"), agent, *pods])).scale_ups
    assert (found.count, found.pods) == (3, 3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"like": "default/nobody"}, "there is no pod default/nobody"),
        ({"like": "default/x", "requests": {"cpu": "1"}}, "either"),
        ({"requests": {"cpu": "one"}}, r"requests\.cpu"),
        ({"requests": {"gpu": "1"}}, r"requests\.gpu"),
        ({"limit": 0}, "limit"),
    ],
)
def test_questions_that_have_no_answer(fields: dict[str, Any], words: str) -> None:
    """Each gives one sentence."""
    with pytest.raises(ModelError, match=words):
        headroom(scenario_of([manifest_node("a", "z")]), **fields)


def test_names_that_the_asker_may_not_see() -> None:
    """Pods of other namespaces are counted and not named, and nothing can be like them."""
    pods = [manifest_pod("full", "a", "4"), manifest_pod("w", cpu="2", namespace="red")]
    scenario = scenario_of([manifest_node("a", "z"), *pods])
    context = AnswerContext(now=NOW, sees=lambda namespace: namespace == "default")
    (found,) = headroom(scenario, context).scale_ups
    assert (found.pods, found.places) == (1, [])
    with pytest.raises(UnknownName, match="there is no pod red/w"):
        headroom(scenario, context, like="red/w")


def test_what_waits_comes_first() -> None:
    """Headroom is what is left beside the plan of the pods that wait."""
    scenario = scenario_of([manifest_node("a", "z")])
    assert headroom(scenario, requests={"cpu": "1"}).fits == 4
    with applied(scenario, [PutObjects([manifest_pod("w", cpu="3")])], CONTEXT):
        assert headroom(scenario, requests={"cpu": "1"}).fits == 1


def test_a_pod_that_moves_counts_for_its_queue() -> None:
    """Its replacement has a node in the plan and takes of the queue's limit: no more equal pods fit than are placed."""
    scenario = dumped("by_name/headroom-n-not-placed-2-434")
    for pod in scenario.waiting():
        fits = headroom(scenario, AnswerContext(now=DUMPED), like=pod.key).fits
        assert fits is not None
        assert placed_with(scenario, pod.key, fits, DUMPED) == fits


def big_cluster_that_is_half_empty() -> list[dict[str, Any]]:
    """Four nodes of 4 cores: one is full, two have a pod of 1 core each, one is empty."""
    pods = [manifest_pod("full", "a", "4"), manifest_pod("b0", "b"), manifest_pod("c0", "c")]
    return [*(manifest_node(name, "z") for name in "abcd"), *pods]


def test_nodes_that_are_worth_nothing() -> None:
    """The empty node, and one of two whose pod has room on the other; the witness says where it goes."""
    scenario = scenario_of(big_cluster_that_is_half_empty())
    before = state_of(scenario)
    found = headroom(scenario, unneeded=4).unneeded
    assert state_of(scenario) == before
    assert found is not None
    assert found.nodes == ["d", "b"]
    assert found.pods == 1
    assert {key: (each.from_node, each.to_node) for key, each in found.moves.items()} == {"default/b0": ("b", "c")}
    only = headroom(scenario, unneeded=1).unneeded
    assert only is not None
    assert only.nodes == ["d"]
    assert headroom(scenario).unneeded is None


@given(room=st.integers(0, 30), sizes=st.lists(st.integers(1, 10), max_size=12), most=st.integers(1, 12))
def test_as_many_nodes_as_go_together(room: int, sizes: list[int], most: int) -> None:
    """Each candidate that goes with those before it is chosen, in their order, and what is given is of all of these."""
    candidates = [f"n{number}" for number in range(len(sizes))]
    size_of = dict(zip(candidates, sizes, strict=True))
    expected: list[str] = []
    for name in candidates:
        if len(expected) < most and sum(size_of[each] for each in (*expected, name)) <= room:
            expected.append(name)
    chosen, given_names = most_together(
        candidates, most, lambda names: names if sum(size_of[name] for name in names) <= room else None, lambda: True
    )
    assert chosen == expected
    assert given_names == (expected or None)


def test_few_trials_find_many_nodes() -> None:
    """Doublings and halvings: 37 of 1,000 candidates in a dozen trials; the best so far where there are no more."""
    tried: list[int] = []

    def attempt(names: Sequence[str]) -> int | None:
        tried.append(len(names))
        return len(names) if len(names) <= 37 else None

    candidates = [f"n{number}" for number in range(1_000)]
    assert most_together(candidates, 1_000, attempt, lambda: len(tried) < 12) == (candidates[:37], 37)
    assert tried[:8] == [1, 2, 4, 8, 16, 32, 64, 48]
    tried.clear()
    assert most_together(candidates, 1_000, attempt, lambda: len(tried) < 3) == (candidates[:4], 4)


@pytest.mark.parametrize(
    "kept",
    [
        {"owner": ""},
        {"annotations": {"scheduling.thalweg/evictable": "false"}},
        {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        {
            "owner": "StatefulSet",
            "annotations": {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "1"},
        },
    ],
    ids=["no controller", "not evictable", "not safe to evict", "not to be disrupted", "gang"],
)
def test_a_node_that_a_pod_may_not_leave_is_needed(kept: dict[str, Any]) -> None:
    """Nobody would make the pod anew, its owner forbids it, or it belongs to a gang."""
    scenario = scenario_of([manifest_node("a", "z"), manifest_node("b", "z"), manifest_pod("p", "a", **kept)])
    found = headroom(scenario, unneeded=2).unneeded
    assert found is not None
    assert found.nodes == ["b"]


def test_budgets_keep_nodes() -> None:
    """Pods of a PodDisruptionBudget that lets one go leave one node, not two."""
    pods = [manifest_pod(f"p{name}", name, labels={"app": "web"}) for name in "ab"]
    nodes = [manifest_node(name, "z") for name in "abc"]
    found = headroom(scenario_of([*nodes, *pods, _BUDGET]), unneeded=3).unneeded
    assert found is not None
    assert found.nodes == ["c", "a"]


def test_budgets_that_are_not_known_are_named() -> None:
    """Where pods leave for that: a dump without any may lack them."""
    objects = big_cluster_that_is_half_empty()
    (note,) = headroom(scenario_of(objects), unneeded=4).notes
    assert "the files contain no PodDisruptionBudget" in note
    assert headroom(scenario_of(objects), unneeded=1).notes == []
    assert headroom(scenario_of([*objects, _BUDGET]), unneeded=4).notes == []


@settings(max_examples=examples(25))
@given(case=crowded_cases(), most=st.integers(1, 6))
def test_without_nodes_that_are_worth_nothing_every_pod_has_a_node_as_before(case: Case, most: int) -> None:
    """By a plan of the scenario from which they are removed. No pod moves that may not."""
    scenario = drawn_scenario(case)
    found = headroom(scenario, unneeded=most, scale_ups=0).unneeded
    assert found is not None
    assert len(found.nodes) <= most
    before = outcome_of(scenario, plan_scenario(scenario, NOW))
    with planned_with(scenario, [RemoveNode(name) for name in found.nodes], CONTEXT) as (plan, _):
        after = outcome_of(scenario, plan, before)
    assert not [key for key in before.keys if before.node_of(key) and after.node_of(key) == ""]
    for key, moved in found.moves.items():
        assert after.node_of(key) == moved.to_node not in found.nodes
        assert scenario.cluster.pods[key].node_name == moved.from_node
    gone = [pod for pod in scenario.running() if pod.node_name in found.nodes and not pod.permanent]
    assert not [pod.key for pod in gone if pod.immovable_reason]


@settings(max_examples=examples(25))
@given(
    waiting=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=8),
    shapes=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4)), min_size=1, max_size=3),
)
def test_what_new_nodes_are_worth(waiting: list[tuple[int, int]], shapes: list[tuple[int, int]]) -> None:
    """A plan places no more with them than it leaves above the bound now, and than the bound falls."""

    def with_gpus(made: dict[str, Any], gpus: int) -> dict[str, Any]:
        where = made["status"]["allocatable"] if made["kind"] == "Node" else _requests(made)
        return made if not gpus else (where.update({"nvidia.com/gpu": str(gpus)}) or made)

    nodes = [with_gpus(manifest_node(f"n{at}", "z", str(cpu)), gpus) for at, (cpu, gpus) in enumerate(shapes)]
    pods = [with_gpus(manifest_pod(f"w{at}", cpu=str(cpu)), gpus) for at, (cpu, gpus) in enumerate(waiting)]
    answer = headroom(scenario_of([*nodes, *pods]))
    least = answer.left_at_least
    for found in answer.scale_ups:
        assert least is not None
        assert found.pods <= least.waiting - least.pods + found.pods_by_bound
        asked = sum(waiting[int(key.removeprefix("default/w"))][1] for key in found.places)
        assert found.amount == (asked if answer.resource else 0)


def _requests(pod: dict[str, Any]) -> dict[str, str]:
    requests: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return requests


def gang_of(name: str, count: int, cpu: str = "2") -> list[dict[str, Any]]:
    """Waiting pods, all or none."""
    said = {"scheduling.thalweg/gang": name, "scheduling.thalweg/gang-min-member": str(count)}
    return [manifest_pod(f"{name}-{at}", cpu=cpu, annotations=said) for at in range(count)]


def test_nodes_for_a_gang() -> None:
    """So many that a plan places all of its pods, beside those that come first."""
    scenario = scenario_of([manifest_node("a", "z"), manifest_pod("full", "a", "3"), *gang_of("train", 4)])
    found = headroom(scenario, gang="default/train").gang
    assert found is not None
    assert found.pods == [f"default/train-{at}" for at in range(4)]
    with applied(scenario, [AddNodes(found.count, found.like)], CONTEXT):
        placed = {each.pod.key for each in plan_scenario(scenario, NOW).result.placements}
    assert placed == set(found.pods)
    assert found.count == 2


def test_nodes_for_a_gang_are_searched_while_there_is_time() -> None:
    """What was found first counts then; where nothing was found yet, the error says so."""
    scenario = scenario_of([manifest_node("a", "z"), manifest_pod("full", "a", "3"), *gang_of("train", 4)])
    turns = iter((True,))
    context = AnswerContext(now=NOW, patient=lambda: next(turns, False))
    found = headroom(scenario, context, gang="default/train", scale_ups=0).gang
    assert found is not None
    assert found.count >= 2
    with pytest.raises(ModelError, match="there is no time for another plan"):
        headroom(scenario, context, gang="default/train", scale_ups=0)


@pytest.mark.parametrize(
    ("gang", "objects", "words"),
    [
        ("default/none", [], "gang default/none: there is no such gang of which pods wait"),
        ("default/small", gang_of("small", 2), "gang default/small: the plan has nodes for all its pods"),
        ("default/large", gang_of("large", 2, "64"), "no plan with new nodes like those that are there places"),
    ],
)
def test_gangs_that_no_new_nodes_help(gang: str, objects: list[dict[str, Any]], words: str) -> None:
    """Each has its sentence."""
    with pytest.raises(ModelError, match=words):
        headroom(scenario_of([manifest_node("a", "z"), *objects]), gang=gang)


def test_a_gang_of_another_namespace_is_not_named() -> None:
    """In the same words as one that is not there."""
    scenario = scenario_of([manifest_node("a", "z"), *gang_of("train", 4)])
    context = AnswerContext(now=NOW, sees=lambda namespace: namespace == "red")
    with pytest.raises(UnknownName, match="there is no such gang of which pods wait"):
        headroom(scenario, context, gang="default/train")


def test_a_node_with_room_for_a_gang_that_lacks_room_is_worth_something() -> None:
    """With one node more it holds a pod of the gang. A node that is too small for one holds none."""
    nodes = [manifest_node("a", "z"), manifest_node("small", "z", "1")]
    found = headroom(scenario_of([*nodes, *gang_of("train", 3)]), unneeded=2).unneeded
    assert found is not None
    assert found.nodes == ["small"]
