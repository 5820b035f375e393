"""Hypothetical changes of a scenario, and what they leave behind."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw import Case, crowded_cases
from support.draw_preemption import crowded_nodes
from support.profiles import examples
from support.scenario_state import NOW, drawn_scenario, manifest_node, manifest_pod, scenario_of, state_of

from flowcore.model.errors import ModelError
from flowcore.questions.scenario import Change, Scenario, applied, plan_scenario
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Cordon,
    Drain,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    FailDomain,
    MovePod,
    PutObjects,
    RemoveNode,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)
from flowcore.questions.scenario.reading.edits import Edits

CONTEXT = AnswerContext(now=NOW)
_GANG = {"scheduling.thalweg/gang": "drawn", "scheduling.thalweg/gang-min-member": "2"}


def _new_pod(name: str) -> dict[str, object]:
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "schedulerName": "thalweg"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "annotations": _GANG}, "spec": requests}


def changes_of(scenario: Scenario) -> st.SearchStrategy[Change]:
    """Changes that are possible in a scenario."""
    nodes = st.sampled_from(sorted(scenario.cluster.nodes))
    pods = st.sampled_from(sorted(scenario.cluster.pods))
    running = sorted(pod.key for pod in scenario.running())
    found: list[st.SearchStrategy[Change]] = [
        *(nodes.map(kind) for kind in (Cordon, Uncordon, Drain)),
        st.builds(AddNodes, st.integers(1, 3), nodes),
        st.builds(SetPriority, pods, st.integers(-5, 2000)),
        st.builds(MovePod, pods, nodes),
        st.builds(Tolerate, pods, st.just("dedicated")),
        st.builds(DropNodeSelector, pods, st.sampled_from(("zone", "disk"))),
        st.builds(Request, pods, st.sampled_from(("cpu", "memory")), st.integers(0, 4000)),
        st.builds(DropPodRules, pods, st.sampled_from(("affinity", "antiAffinity", "spread"))),
        st.builds(PutObjects, st.lists(st.sampled_from("xyz").map(_new_pod), min_size=1, max_size=4)),
    ]
    if running:
        found.append(st.builds(EvictPods, st.lists(st.sampled_from(running), min_size=1, max_size=4, unique=True)))
    return st.one_of(found)


@st.composite
def with_a_gang(draw: st.DrawFn, case: Case) -> Case:
    """Some pods of the case, running and waiting, are a gang."""

    def maybe(pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "metadata": pod["metadata"] | {"annotations": _GANG}} if draw(st.booleans()) else pod

    return replace(case, pods=[maybe(pod) for pod in case.pods], pending=[maybe(pod) for pod in case.pending])


@settings(max_examples=examples(60))
@given(case=st.one_of(crowded_cases(), crowded_nodes()), data=st.data())
def test_undo_is_exact(case: Case, data: st.DataObject) -> None:
    """After any changes the scenario is what it was: objects, sums, gangs, and the order of nodes and pods."""
    scenario = drawn_scenario(data.draw(with_a_gang(case)))
    before = state_of(scenario)
    wanted = data.draw(st.lists(changes_of(scenario), max_size=5))
    removed = data.draw(st.lists(st.sampled_from(sorted(scenario.cluster.nodes)), unique=True, max_size=2))
    # An earlier change may have evicted a pod that a later one is to evict.
    with suppress(UnknownName), applied(scenario, [*wanted, *map(RemoveNode, removed)], CONTEXT):
        pass
    assert state_of(scenario) == before


@settings(max_examples=examples(15))
@given(case=st.one_of(crowded_cases(), crowded_nodes()))
def test_no_change_changes_nothing(case: Case) -> None:
    """What if nothing: an empty difference."""
    answer = answer_what_if(drawn_scenario(case), WhatIfQuery(), CONTEXT)
    assert answer.same
    assert answer.before == answer.after


@settings(max_examples=examples(15))
@given(case=st.one_of(crowded_cases(), crowded_nodes()), data=st.data())
def test_the_lists_tell_one_plan_from_the_other(case: Case, data: st.DataObject) -> None:
    """The answer's lists, put onto the plan as it is, give the plan of a scenario that was changed for good."""
    scenario, changed = drawn_scenario(case), drawn_scenario(case)
    wanted = [Drain(data.draw(st.sampled_from(sorted(scenario.cluster.nodes))))]
    answer = answer_what_if(scenario, WhatIfQuery([*wanted]), CONTEXT)
    first = _places(scenario)
    with applied(changed, wanted, CONTEXT):
        second = _places(changed)
    told = first | answer.nodes | dict.fromkeys(answer.waiting, "")
    told |= {key: each.to_node for key, each in (answer.moved | answer.replanned).items()}
    for key in answer.gone:
        del told[key]
    assert told == second
    assert set(answer.placed) == set(answer.nodes)
    assert set(answer.reasons) == set(answer.waiting)
    assert all(answer.reasons.values())


def _places(scenario: Scenario) -> dict[str, str]:
    """The node of each pod by the plan; "": it waits."""
    result = plan_scenario(scenario, NOW).result
    found = {pod.key: pod.node_name for pod in (*scenario.running(), *scenario.waiting())}
    found |= {each.pod.key: each.to for each in result.evictions}
    return found | {each.pod.key: each.node for each in result.placements}


# -- what each change means ------------------------------------------------------------------------------------------


def two_zones(*more: dict[str, Any]) -> Scenario:
    """Nodes a and b of zone z1, c of z2, of 4 cores: on a a web server, a pod of a DaemonSet and a static pod."""
    return scenario_of(
        [
            *(manifest_node(name, zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"))),
            manifest_pod("web", "a", "2"),
            manifest_pod("agent", "a", owner="DaemonSet"),
            manifest_pod("static", "a", owner="Node", annotations={"kubernetes.io/config.mirror": "x"}),
            manifest_pod("waits", cpu="5"),
            *more,
        ]
    )


def what_if(scenario: Scenario, *changes: Change, context: AnswerContext = CONTEXT) -> WhatIfAnswer:
    """The answer for these changes."""
    return answer_what_if(scenario, WhatIfQuery([*changes]), context)


def test_a_drained_node_keeps_what_belongs_to_it() -> None:
    """Pods with a controller wait and find another node; a DaemonSet's and a static pod stay; others are said."""
    answer = what_if(two_zones(), Drain("a"))
    assert set(answer.moved) == {"default/web"}
    assert answer.moved["default/web"].from_node == "a"
    assert not answer.gone
    bare = what_if(two_zones(manifest_pod("alone", "a", "500m", owner="")), Drain("a"))
    assert any("default/alone has no controller" in note for note in bare.notes)


def test_a_drain_says_which_budgets_hold_it_up() -> None:
    """More pods leave than a PodDisruptionBudget allows now."""
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    (note,) = what_if(two_zones(budget), Drain("a")).notes
    assert "PodDisruptionBudget default/web allows 0 evictions now, and 1 of its pods leave" in note


def test_a_failed_zone_takes_its_nodes_along() -> None:
    """Its pods wait again and go to the other zone, those of its DaemonSets are gone."""
    answer = what_if(two_zones(manifest_pod("large", "b", "3")), FailDomain("zone", "z1"))
    assert answer.after.nodes == 1
    assert len(answer.moved) == 1, "4 cores are left for 2 and 3"
    assert len(answer.waiting) == 1
    assert set(answer.gone) == {"default/agent", "default/static"}
    assert answer.reasons[answer.waiting[0]]


def test_no_node_is_left() -> None:
    """Every pod waits, and the plan says so."""
    answer = what_if(two_zones(), *map(RemoveNode, "abc"))
    assert answer.after.nodes == 0
    assert answer.waiting == ["default/web"]


def test_a_pod_that_is_being_deleted_is_gone_with_its_node() -> None:
    """Nobody places it anew."""
    scenario = two_zones(manifest_pod("ends", "b", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert what_if(scenario, RemoveNode("b")).gone == ["default/ends"]


def test_new_nodes_have_what_every_such_node_has() -> None:
    """The pod of the DaemonSet and the static pod take 2 of 4 cores: each new node takes one pod of 2 cores."""
    waiting = [manifest_pod(f"two-{at}", cpu="2") for at in range(9)]
    scenario = two_zones(*waiting)
    answer = what_if(scenario, AddNodes(3, "a"))
    assert answer.after.nodes == 6
    assert answer.after.placed - answer.before.placed == 3
    assert set(answer.nodes.values()) <= {"a-new-1", "a-new-2", "a-new-3", "b", "c"}


def test_a_cordoned_node_is_new_when_it_is_copied() -> None:
    """What a node is like is its shape, not its state."""
    assert what_if(two_zones(), Cordon("c"), AddNodes(1, "c")).after.nodes == 4
    waiting = [manifest_pod(f"four-{at}", cpu="4") for at in range(2)]
    scenario = two_zones(*waiting)
    assert what_if(scenario, Cordon("c")).waiting
    assert not what_if(scenario, Cordon("c"), AddNodes(1, "c")).waiting
    assert what_if(scenario, Cordon("c"), Uncordon("c")).same


def test_a_higher_priority_takes_the_room() -> None:
    """A pod with a higher priority preempts, and whoever leaves is named."""
    full = [manifest_pod(f"full-{at}", node, "4") for at, node in enumerate("bc")]
    answer = what_if(two_zones(*full, manifest_pod("urgent", cpu="4")), SetPriority("default/urgent", 1000))
    assert answer.placed == ["default/urgent"]
    assert len(answer.waiting) == 1
    assert (answer.after.moved, answer.after.evicted) == (0, 1)


def test_objects_of_the_api_are_added_and_replaced() -> None:
    """A larger node of the same name, a pod that nobody knew, and a kind that plans do not read."""
    objects = [manifest_node("c", "z2", "8"), manifest_pod("new"), {"kind": "ConfigMap", "metadata": {"name": "x"}}]
    answer = what_if(two_zones(), PutObjects(objects))
    assert set(answer.placed) == {"default/new", "default/waits"}
    assert answer.notes == ["a ConfigMap object is ignored: plans do not depend on this kind"]


def test_an_object_that_does_not_match_its_kind() -> None:
    """The error names the object and the field, as for a dump."""
    with pytest.raises(ModelError, match=r"^Node a: status\.allocatable"):
        what_if(two_zones(), PutObjects([{**manifest_node("a", "z1"), "status": {"allocatable": 3}}]))


def _gangs_of(*controllers: str) -> dict[str, Any]:
    """A policy by which pods of these controllers are gangs, but for namespaces with the label single."""
    single = {"key": "single", "operator": "DoesNotExist"}
    selects = {"schedulerNames": ["default-scheduler"], "namespaceSelector": {"matchExpressions": [single]}}
    spec = {"selects": selects, "delivery": "Extender", "gangs": {"controllers": controllers}}
    return {"kind": "FlowSchedulingPolicy", "metadata": {"name": "gangs"}, "spec": spec}


_TWO_PODS = {"parallelism": 2, "completions": 2}


def _named(name: str) -> dict[str, str]:
    return {"name": name, "uid": name, "namespace": "default"}


def _job_set() -> dict[str, Any]:
    """One that makes the Job of ``_pods_of_a_job``."""
    jobs = {"name": "r", "replicas": 1, "template": {"spec": _TWO_PODS}}
    return {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2", "metadata": _named("s"),
            "spec": {"replicatedJobs": [jobs]}}  # fmt: skip


def _pods_of_a_job(*controllers: str) -> Scenario:
    """A planned Job with two waiting pods; they are a gang if Job is among the controllers."""
    by = {"apiVersion": "batch/v1", "kind": "Job", "name": "s-r-0", "uid": "t", "controller": True}
    labels = {f"jobset.sigs.k8s.io/{label}": value for label, value in
              (("jobset-name", "s"), ("replicatedjob-name", "r"), ("job-index", "0"))}  # fmt: skip
    pods = [manifest_pod(name, ownerReferences=[by], labels=labels) for name in ("t-0", "t-1")]
    job = {"kind": "Job", "apiVersion": "batch/v1", "metadata": _named("s-r-0"), "spec": _TWO_PODS}
    scenario = scenario_of([manifest_node("a", "z1"), _gangs_of(*controllers), job, *pods])
    plan_scenario(scenario, NOW)
    assert len(state_of(scenario)["gangs"]) == ("Job" in controllers)
    return scenario


def test_a_policy_that_breaks_up_a_gang_and_a_pod_of_it() -> None:
    """The plan has its pods one by one. Afterwards they are a gang again, in their order."""
    scenario = _pods_of_a_job("Job", "JobSet")
    before = state_of(scenario)
    with applied(scenario, [SetPriority("default/t-0", 5), PutObjects([_gangs_of()])], CONTEXT):
        plan_scenario(scenario, NOW)
        assert not state_of(scenario)["gangs"]
    assert state_of(scenario) == before


@pytest.mark.parametrize(
    "breaks_up",
    [_gangs_of(), {"kind": "Namespace", "metadata": {"name": "default", "labels": {"single": ""}}}, _job_set()],
    ids=["policy", "namespace", "first JobSet"],
)
def test_a_gang_that_is_broken_up_keeps_its_order(breaks_up: dict[str, Any]) -> None:
    """Also after an earlier question without its first pod."""
    scenario = _pods_of_a_job("Job", "JobSet")
    edits = Edits(scenario)
    edits.remove_pod("default/t-0")
    edits.undo()
    before = state_of(scenario)
    with applied(scenario, [PutObjects([breaks_up])], CONTEXT):
        plan_scenario(scenario, NOW)
        assert before["gangs"].keys().isdisjoint(state_of(scenario)["gangs"])
    assert state_of(scenario) == before


def test_a_pod_of_a_gang_that_an_earlier_change_made() -> None:
    """The gang is gone afterwards."""
    scenario = _pods_of_a_job("JobSet")
    before = state_of(scenario)
    with applied(scenario, [PutObjects([_job_set()]), SetPriority("default/t-0", 5)], CONTEXT):
        plan_scenario(scenario, NOW)
    assert state_of(scenario) == before


def test_names_that_the_asker_may_not_see() -> None:
    """They are counted, not named, and cannot be changed."""
    scenario = two_zones(manifest_pod("secret", "a", namespace="red"))
    context = AnswerContext(now=NOW, sees=lambda namespace: namespace == "default")
    answer = what_if(scenario, Drain("a"), context=context)
    assert set(answer.moved) == {"default/web"}
    assert answer.hidden == 1
    assert b"secret" not in msgspec.json.encode(answer)
    with pytest.raises(UnknownName, match="there is no pod red/secret"):
        what_if(scenario, SetPriority("red/secret", 1), context=context)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Cordon("n77"), "there is no node n77"),
        (Drain("n77"), "there is no node n77"),
        (RemoveNode("n77"), "there is no node n77"),
        (AddNodes(1, "n77"), "there is no node n77"),
        (SetPriority("default/nobody", 1), "there is no pod default/nobody"),
        (MovePod("default/web", "n77"), "there is no node n77"),
        (EvictPods(["default/waits"]), "does not run"),
        (FailDomain("rack", "a"), "no node has the label rack"),
        (FailDomain("zone", "z9"), "no node has topology.kubernetes.io/zone=z9; there are z1, z2"),
    ],
)
def test_unknown_names(change: Change, words: str) -> None:
    """Each is one sentence with the name, and the scenario stays as it is."""
    scenario = two_zones()
    before = state_of(scenario)
    with pytest.raises(UnknownName, match=words), applied(scenario, [change], CONTEXT):
        pass
    assert state_of(scenario) == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([AddNodes(0, "a")], "changes[0].count: it is 0; add at least 1 node"),
        ([AddNodes(-5000, "a"), AddNodes(12000, "a")], "changes[0].count: it is -5000; add at least 1 node"),
        ([AddNodes(10001, "a")], "changes[0].count: it adds 10001 nodes; a question may add 10000"),
        (
            [AddNodes(4000, "a"), Cordon("b"), AddNodes(6001, "b")],
            "changes[2].count: the changes up to this one add 10001 nodes; a question may add 10000",
        ),
        (
            [AddNodes(10000, "a"), PutObjects([manifest_pod("one"), manifest_node("c", "z1")])],
            "changes[1].objects: the changes up to this one add 10001 nodes; a question may add 10000",
        ),
        (
            [PutObjects([manifest_node(f"n{number}", "z1") for number in range(10001)])],
            "changes[0].objects: it adds 10001 nodes; a question may add 10000",
        ),
        ([Cordon("a")] * 10001, "changes: there are 10001; a question may have 10000"),
    ],
)
def test_a_question_has_bounds(changes: list[Change], words: str) -> None:
    """New nodes count over all changes, however they come; nothing is planned for a question that is too large."""
    scenario = two_zones()
    before = state_of(scenario)
    with pytest.raises(ModelError) as caught:
        what_if(scenario, *changes)
    assert str(caught.value) == words
    assert not isinstance(caught.value, UnknownName)
    assert state_of(scenario) == before
