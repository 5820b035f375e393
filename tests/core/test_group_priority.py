"""The priority and preemption policy of a PodGroup count for its pods in place of their own, whenever it comes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import node, plan_of, pod
from support.profiles import examples
from support.scenario_state import NOW, manifest_pod, scenario_of, state_of

from flowcore.api import Interner, WirePodGroup, to_pod_group
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.costs import MODELS
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.pods import Pod, PodClass
from flowcore.questions.scenario import Change, applied
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import EvictPods, MovePod, SetPriority
from flowcore.questions.scenario.observed import compare_observed

KEY = GangKey(GangSource.NATIVE, "ml", "train")
API = "scheduling.k8s.io/v1alpha2"


def read(source: GangSource = GangSource.NATIVE, **spec: Any) -> GangSpec:
    """The terms of a PodGroup with this spec."""
    raw = {"metadata": {"name": "train", "namespace": "ml"}, "spec": spec}
    return to_pod_group(msgspec.convert(raw, WirePodGroup), source, Interner()).spec


def test_what_is_read() -> None:
    """Of Kubernetes' own PodGroups alone: others have classes that nobody has resolved."""
    assert (read(priority=7, preemptionPolicy="Never").priority, read(priority=7).preempts) == (7, None)
    assert read(preemptionPolicy="Never").preempts is False
    assert read(preemptionPolicy="PreemptLowerPriority").preempts is True
    assert read(priorityClassName="high").priority is None
    assert read(GangSource.VOLCANO, priorityClassName="high", minMember=1).priority is None


def member(name: str, priority: int, *, preempts: bool = True, **fields: Any) -> Pod:
    """A pod of the group."""
    return Pod("ml", name, name, PodClass(priority=priority), gang=GangRef(KEY), preempts=preempts, **fields)


def urgencies(cluster: Cluster) -> dict[str, tuple[int, bool]]:
    """Priority and preemption policy of each pod, which are the same wherever the cluster has it."""
    for key, waiting in cluster.waiting.items():
        known = cluster.pods[key]
        assert (waiting.pod_class.priority, waiting.preempts) == (known.pod_class.priority, known.preempts)
    bound = [pod.pod_class.priority for pod in cluster.pods.values() if pod.node_name and not pod.terminal]
    assert sorted(cluster.bound_priorities.elements()) == sorted(bound)
    return {pod.name: (pod.pod_class.priority, pod.preempts) for pod in cluster.pods.values()}


POD = st.tuples(
    st.sampled_from("abc"), st.sampled_from([0, 5]), st.booleans(), st.sampled_from(["", "n"]), st.booleans()
)
GROUP = st.tuples(st.sampled_from([None, 0, 9]), st.sampled_from([None, False, True]))


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(POD, GROUP, st.just("gone"), st.sampled_from(["-a", "-b"])), max_size=20))
def test_in_any_order(history: list[Any]) -> None:
    """Pods and their group come, change and go: each pod has the group's while it is there, and its own otherwise."""
    cluster, own, group = Cluster(), dict[str, tuple[int, bool]](), GangSpec()
    for event in history:
        if event == "gone":
            cluster.remove_pod_group(KEY)
            group = GangSpec()
        elif isinstance(event, str):
            cluster.remove_pod(f"ml/{event[1:]}")
            own.pop(event[1:], None)
        elif len(event) == 2:
            group = GangSpec(min_member=2, priority=event[0], preempts=event[1])
            cluster.put_pod_group(PodGroup(KEY, group))
        else:
            name, priority, preempts, where, deleting = event
            cluster.put_pod(member(name, priority, preempts=preempts, node_name=where, deleting=deleting))
            own[name] = (priority, preempts)
        assert urgencies(cluster) == {
            name: (
                priority if group.priority is None else group.priority,
                preempts if group.preempts is None else group.preempts,
            )
            for name, (priority, preempts) in own.items()
        }


def test_a_group_that_comes_late_starts_a_round_and_no_other_pod_changes() -> None:
    """Those of other groups are the same objects as before."""
    cluster = Cluster()
    other = Pod("ml", "other", "other", PodClass(priority=3))
    for each in (member("a", 0), other):
        cluster.put_pod(each)
    assert cluster.put_pod_group(PodGroup(KEY, GangSpec(min_member=1, priority=9)))
    assert cluster.pods["ml/other"] is other
    assert cluster.waiting["ml/a"].pod_class.priority == 9


def test_others_may_have_the_room_of_a_group_that_is_no_longer_urgent() -> None:
    """None of its own pods waits, so that only others gain by a round."""
    cluster = Cluster()
    cluster.put_pod(member("a", 0, node_name="n"))
    assert cluster.put_pod_group(PodGroup(KEY, GangSpec(min_member=1, priority=9)))
    assert not cluster.put_pod_group(PodGroup(KEY, GangSpec(min_member=1, priority=9), uid="another"))
    assert cluster.remove_pod_group(KEY)


def test_a_saved_state_has_what_is_written() -> None:
    """So that a question may ask what would be without the group."""
    cluster = Cluster()
    cluster.put_pod_group(PodGroup(KEY, GangSpec(min_member=1, priority=9)))
    cluster.put_pod(member("a", 2))
    again = Cluster()
    put_lines([line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)], again)
    assert urgencies(again) == {"a": (9, True)}
    again.remove_pod_group(KEY)
    assert urgencies(again) == {"a": (2, True)}


def group(name: str, count: int, **spec: Any) -> dict[str, Any]:
    """A PodGroup as a file has it."""
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }


def members(name: str, count: int, **spec: Any) -> list[dict[str, Any]]:
    """Pods of a group that ask for one core each."""
    return [pod(f"{name}-{n}", "1", schedulingGroup={"podGroupName": name}, **spec) for n in range(count)]


PREEMPTING = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "all"},
    "spec": {"selects": {"podSelector": {}}, "delivery": "Binder", "preemption": {"mode": "LowerPriority"}},
}


@pytest.mark.parametrize("urgent", ["a", "b"])
def test_the_group_with_the_higher_priority_gets_the_room(urgent: str) -> None:
    """Whatever priority its pods have themselves."""
    (modest,) = {"a", "b"} - {urgent}
    answer = plan_of(
        node("n", "2"),
        group(urgent, 2, priority=10),
        group(modest, 2, priority=1),
        *members(urgent, 2, priority=0),
        *members(modest, 2, priority=100),
    )
    assert set(answer["placements"]) == {f"default/{urgent}-{n}" for n in range(2)}


@pytest.mark.parametrize(
    ("spec", "evicted"),
    [
        ({"priority": 10}, 2),
        ({"priority": 10, "preemptionPolicy": "Never"}, 0),
        ({"priority": 0}, 0),
        ({"priorityClassName": "high"}, 2),
    ],
)
def test_preemption_by_a_group(spec: dict[str, Any], evicted: int) -> None:
    """Pods of a lower priority leave for it, if its policy lets them, whatever its pods say."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
    answer = plan_of(
        node("n", "2"),
        high,
        PREEMPTING,
        *(pod(f"runs-{n}", "1", nodeName="n", priority=5) for n in range(2)),
        group("train", 2, **spec),
        *members("train", 2, priority=7 if evicted else 100, preemptionPolicy="PreemptLowerPriority"),
    )
    assert len(answer["evicted"]) == evicted


def test_preemption_of_a_group() -> None:
    """Its running pods are protected by its priority, not by theirs."""
    running = [*members("low", 1, priority=100, nodeName="n"), *members("high", 1, priority=0, nodeName="n")]
    answer = plan_of(
        node("n", "2"), PREEMPTING, group("low", 1, priority=0), group("high", 1, priority=100), *running,
        pod("urgent", "1", priority=50),
    )  # fmt: skip
    assert set(answer["evicted"]) == {"default/low-0"}


@pytest.mark.parametrize("later", [(), (MovePod("default/train-0", "n"), EvictPods(["default/train-0"]))])
def test_what_if_a_member_had_another_priority(later: tuple[Change, ...]) -> None:
    """The question counts, not what its group says; then all is as it was."""
    scenario = scenario_of(
        [node("n", "1"), PREEMPTING, group("train", 1, priority=3, preemptionPolicy="PreemptLowerPriority"),
         *members("train", 1), manifest_pod("runs", "n")]
    )  # fmt: skip
    before = state_of(scenario)
    with applied(scenario, [SetPriority("default/train-0", -1), *later], AnswerContext(NOW)):
        assert scenario.cluster.pods["default/train-0"].pod_class.priority == -1
    assert state_of(scenario) == before


def test_nobody_leaves_for_an_observed_pod_of_a_group() -> None:
    """Where it is, is compared with where it would go; a preemption policy of its group evicts nobody for that."""
    binder, observing = (
        {**PREEMPTING, "metadata": {"name": scheduler},
         "spec": PREEMPTING["spec"] | {"selects": {"schedulerNames": [scheduler]}, "delivery": delivery}}
        for scheduler, delivery in (("thalweg", "Binder"), ("default-scheduler", "Observe"))
    )  # fmt: skip
    victim = manifest_pod("lowly", "n")
    victim["spec"]["schedulerName"] = "thalweg"
    urgent = members("train", 1, nodeName="n")[0]
    urgent["spec"]["schedulerName"] = "default-scheduler"
    scenario = scenario_of(
        [node("n", "1"), binder, observing, group("train", 0, priority=9, preemptionPolicy="PreemptLowerPriority"),
         victim, urgent]
    )  # fmt: skip
    (compared,) = compare_observed(scenario, NOW, MODELS)
    assert compared.planned == ""


def test_a_class_that_the_files_lack_is_named() -> None:
    """The pods' own priority counts then."""
    answer = plan_of(node("n", "2"), group("train", 1, priorityClassName="gone"), *members("train", 1, priority=3))
    assert any("PodGroup default/train: spec.priorityClassName" in warning for warning in answer["warnings"])
    assert set(answer["placements"]) == {"default/train-0"}
