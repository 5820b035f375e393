"""Workloads, and two plans side by side by workload."""

from __future__ import annotations

from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of

from flowcore.model.pods import Pod, PodClass
from flowcore.model.workloads import workload_of
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer, WhatIfQuery, answer_what_if
from flowcore.questions.scenario.alternatives.workload_changes import WorkloadChange, WorkloadCount, workload_changes
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import Drain


def _pod(name: str, controller: str = "", labels: tuple[tuple[str, str], ...] = ()) -> Pod:
    return Pod("shop", name, name, PodClass(), labels, controller=controller)


def test_the_workload_of_a_pod_is_what_people_call_it() -> None:
    """A Deployment for its ReplicaSet, any other controller by kind and name, a pod without one by itself."""
    hashed = (("pod-template-hash", "5d6f"),)
    assert workload_of(_pod("web-5d6f-x", "ReplicaSet/web-5d6f", hashed)) == "deployment/shop/web"
    assert workload_of(_pod("web-5d6f-x", "ReplicaSet/web-5d6f")) == "replicaset/shop/web-5d6f"
    assert workload_of(_pod("db-0", "StatefulSet/db")) == "statefulset/shop/db"
    assert workload_of(_pod("head", "RayCluster/learn")) == "raycluster/shop/learn"
    assert workload_of(_pod("once")) == "pod/shop/once"


def test_a_gang_comes_before_the_controller() -> None:
    """Its pods wait as one, whichever Jobs made them."""
    scenario = scenario_of(
        [manifest_node("a", "z"), manifest_pod("g", annotations={"scheduling.thalweg/gang": "train"})]
    )
    assert workload_of(scenario.cluster.pods["default/g"]) == "gang/default/train"


def test_the_controller_is_read_from_the_owner_references() -> None:
    """As the API server has them: kind and name."""
    pod = manifest_pod("db-0")
    pod["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}]
    scenario = scenario_of([manifest_node("a", "z"), pod])
    assert workload_of(scenario.cluster.pods["default/db-0"]) == "statefulset/default/db"


def test_pods_of_one_workload_that_exchange_nodes_are_no_change() -> None:
    """One gets the place of the other: as many wait as before."""
    workloads = {"ci/n-1": "job/ci/n", "ci/n-2": "job/ci/n", "ci/m": "pod/ci/m"}
    before = {"ci/n-1": "a", "ci/n-2": "", "ci/m": "b"}
    assert workload_changes(workloads, {}, before, {**before, "ci/n-1": "", "ci/n-2": "a"}) == []
    (lost,) = workload_changes(workloads, {}, before, {**before, "ci/n-1": ""})
    assert (lost.workload, lost.lost, lost.gained) == ("job/ci/n", 1, -1)
    assert lost.namespace == "ci"


def test_running_pods_that_leave_either_way_are_no_change() -> None:
    """Both plans evict one pod of a ReplicaSet, and move another one: which of them is all the same."""
    keys = ("ci/r-1", "ci/r-2", "ci/r-3")
    workloads, ran = dict.fromkeys(keys, "replicaset/ci/r"), dict.fromkeys(keys, "a")
    before = {"ci/r-1": "", "ci/r-2": "b", "ci/r-3": "a"}
    assert workload_changes(workloads, ran, before, {"ci/r-1": "a", "ci/r-2": "", "ci/r-3": "c"}) == []
    (change,) = workload_changes(workloads, ran, before, {"ci/r-1": "", "ci/r-2": "b", "ci/r-3": "b"})
    assert change == WorkloadChange("replicaset/ci/r", WorkloadCount(3, 2, 1, 1), WorkloadCount(3, 2, 2, 1))
    assert change.lost == 0


def _drained(context: AnswerContext) -> WhatIfAnswer:
    pods = []
    for at in range(4):
        pod = manifest_pod(f"web-{at}", "a" if at < 2 else "b", "1")
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]
        pods.append(pod)
    nodes = [manifest_node(name, "z", cpu="3") for name in "ab"]
    return answer_what_if(scenario_of([*nodes, *pods]), WhatIfQuery([Drain("a")]), context)


def test_what_if_counts_by_workload() -> None:
    """A drained node: one of its two pods finds room, the other waits."""
    (change,) = _drained(AnswerContext(NOW)).workloads
    assert change == WorkloadChange("replicaset/default/web", WorkloadCount(4, 4), WorkloadCount(4, 3, 1, 1))
    assert _drained(AnswerContext(NOW, sees=lambda _: False)).workloads == []
