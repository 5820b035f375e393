"""Gangs without annotations: which pods are in one, and how large it is, by the controllers that make the pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
import pytest

from flowcore.api import Interner, WirePod, to_pod
from flowcore.api.gang_parents import kinds_of, parent_reader
from flowcore.api.kinds import (
    JOB,
    JOB_SET,
    KUBEFLOW,
    LEADER_WORKER_SET,
    MPI_JOB,
    PARENTS,
    POD_GANG,
    RAY_CLUSTER,
    VOLCANO_JOB,
    ObjectKind,
)
from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.cluster.kinds import GANG_PARENTS
from flowcore.cluster.pods_to_come import ComingPods
from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import PolicyError
from flowcore.model.gang_parents import BUILT_IN_GROUPS
from flowcore.model.gang_spec import MAX_GANGS_IN_GROUP
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Delivery, GangPolicy, Policy
from flowcore.model.selectors import Labels

MODELS = KnownModels(("CPUMemory",))
PYTORCH, TF = KUBEFLOW[0], KUBEFLOW[1]
JOBSET_LABEL, LWS_LABEL = "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/"


def parent(
    kind: ObjectKind, name: str = "train", *, uid: str = "uid", status: Any = None, **spec: Any
) -> dict[str, Any]:
    """An object as its users or its controller write it; ``annotations`` and ``deleting`` are of its metadata."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": uid, "annotations": spec.pop("annotations", {})}
    if spec.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return made | ({} if status is None else {"status": status})


def pod(
    name: str,
    by: str,
    *,
    uid: str = "uid",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    scheduler: str = "thalweg",
) -> Pod:
    """A pod; ``by``: its controller as ``batch/v1/Job/train``."""
    version, kind, controller = by.rsplit("/", 2)
    owner = {"apiVersion": version, "kind": kind, "name": controller, "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": "ml", "uid": name, "labels": dict(labels or {}), "ownerReferences": [owner],
                "annotations": dict(annotations or {})}  # fmt: skip
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]} | (
        {"nodeName": node} if node else {}
    )
    return to_pod(
        msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, WirePod), Interner()
    )


def of_job_set(role: str, job: int, index: int, name: str = "train", **fields: Any) -> Pod:
    """A pod of a JobSet, as its controller and the Job's label it."""
    labels = {f"{JOBSET_LABEL}{label}": value for label, value in
              (("jobset-name", name), ("replicatedjob-name", role), ("job-index", str(job)))}  # fmt: skip
    made_by = fields.pop("by", f"batch/v1/Job/{name}-{role}-{job}")
    return pod(f"{name}-{role}-{job}-{index}", made_by, uid=f"job-{role}-{job}", labels=labels, **fields)


def of_leader_worker_set(group: int, index: int, size: int = 0, name: str = "serve", **fields: Any) -> Pod:
    """A pod of a LeaderWorkerSet: index 0 is the leader."""
    labels = {f"{LWS_LABEL}{label}": value for label, value in
              (("name", name), ("group-index", str(group)), ("worker-index", str(index)))}  # fmt: skip
    said = {"annotations": {f"{LWS_LABEL}size": str(size)}} if size else {}
    own, by = (f"{name}-{group}", name) if index == 0 else (f"{name}-{group}-{index}", f"{name}-{group}")
    by = fields.pop("by", f"apps/v1/StatefulSet/{by}")
    return pod(own, by, labels=labels, **{**said, **fields})


def cluster_of(*things: Pod | dict[str, Any], followed: Sequence[ObjectKind] | None = PARENTS, **gangs: Any) -> Cluster:
    """A cluster with these pods and parents; ``gangs``: of the policy that governs."""
    cluster = Cluster()
    cluster.set_namespace("ml", ())
    if gangs:
        spec = {"selects": {"podSelector": {}}, "gangs": gangs}
        cluster.policies.replace([parse_policy("p", spec, MODELS)])
        cluster.regang_pods()
    if followed is not None:
        cluster.follow_parents(frozenset(kind.qualified for kind in followed))
    for thing in things:
        put(cluster, thing)
    return cluster


def put(cluster: Cluster, thing: Pod | dict[str, Any]) -> None:
    """Puts a pod or a parent."""
    if isinstance(thing, Pod):
        cluster.put_pod(thing)
        return
    kind = next(kind for kind in PARENTS if kind.kind == thing["kind"])
    value = parent_reader(kind)(msgspec.json.encode(thing))
    GANG_PARENTS.put(cluster, value.key, value)


def told(cluster: Cluster) -> list[Gang]:
    """The gangs of a round with all waiting pods."""
    pending = [(waiting, Delivery.BINDER) for waiting in cluster.waiting.values()]
    return gangs_for(cluster.gangs, pending, {}, lambda _node, _label: "")[1]


def replicas(*counts: int, **roles: Any) -> list[dict[str, Any]]:
    """Replicated jobs of a JobSet: of so many pods each, named by letters."""
    return [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": count, "completions": count}}}
        | roles.get(name, {})
        for name, count in zip("abc", counts, strict=False)
    ]


# --- which pods are in a gang ---


def test_each_kind_makes_gangs() -> None:
    """With the objects as their controllers write them, and with no annotation of anybody."""
    cluster = cluster_of(
        parent(JOB_SET, replicatedJobs=[{"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 1}}}]),
        *(of_job_set("workers", job, 0) for job in range(2)),
        parent(PYTORCH, "torch", pytorchReplicaSpecs={"Master": {"replicas": 1}, "Worker": {"replicas": 2}}),
        *(pod(f"torch-{at}", "kubeflow.org/v1/PyTorchJob/torch") for at in range(3)),
        parent(RAY_CLUSTER, "ray", workerGroupSpecs=[{"replicas": 1, "numOfHosts": 2}]),
        *(pod(f"ray-{at}", "ray.io/v1/RayCluster/ray") for at in range(3)),
        controllers=["JobSet", "Kubeflow", "RayCluster"],
    )
    assert told(cluster) == [
        Gang("JobSet ml/train (workers)", 2),
        Gang("PyTorchJob ml/torch", 3),
        Gang("RayCluster ml/ray", 3),
    ]


def test_pods_wait_until_their_parent_is_seen() -> None:
    """With that reason; once it is there, and has as many pods as it says, they are planned together."""
    cluster = cluster_of(*(pod(f"t-{at}", "kubeflow.org/v1/TFJob/t") for at in range(2)))
    assert told(cluster) == [Gang("TFJob ml/t", 1, unschedulable_reason="TFJob ml/t does not exist")]
    put(cluster, parent(TF, "t", tfReplicaSpecs={"Worker": {"replicas": 3}}))
    assert told(cluster) == [Gang("TFJob ml/t", 3, unschedulable_reason="TFJob ml/t: 2 of 3 pods exist")]
    put(cluster, pod("t-2", "kubeflow.org/v1/TFJob/t"))
    assert told(cluster) == [Gang("TFJob ml/t", 3)]


def test_kinds_that_cannot_be_read_have_single_pods() -> None:
    """Also once their pods are there; and they become gangs when the right comes."""
    cluster = cluster_of(*(pod(f"t-{at}", "kubeflow.org/v1/TFJob/t") for at in range(2)), followed=())
    assert told(cluster) == []
    assert all(waiting.gang is None for waiting in cluster.waiting.values())
    assert cluster.follow_parents(frozenset({TF.qualified}))
    assert [gang.name for gang in told(cluster)] == ["TFJob ml/t"]
    assert cluster.follow_parents(frozenset())
    assert told(cluster) == []


def test_a_dump_follows_the_kinds_that_it_has() -> None:
    """A dump without RayClusters does not make pods wait for one."""
    ray = [pod(f"r-{at}", "ray.io/v1/RayCluster/ray") for at in range(2)]
    cluster = cluster_of(*ray, *(pod(f"t-{at}", "kubeflow.org/v1/TFJob/t") for at in range(2)), followed=None)
    assert told(cluster) == []
    put(cluster, parent(TF, "t", tfReplicaSpecs={"Worker": {"replicas": 2}}))
    assert told(cluster) == [Gang("TFJob ml/t", 2)]


def test_a_mark_on_the_pod_goes_first() -> None:
    """An annotation of ours, or a PodGroup that the controller made for another scheduler."""
    ours = {"scheduling.thalweg/gang": "own", "scheduling.thalweg/gang-min-member": "1"}
    cluster = cluster_of(
        pod("t-0", "kubeflow.org/v1/TFJob/t", annotations=ours),
        pod("t-1", "kubeflow.org/v1/TFJob/t", annotations={"scheduling.k8s.io/group-name": "g"}),
    )
    names = sorted(gang.name for gang in told(cluster))
    assert names == ["PodGroup ml/g of scheduling.volcano.sh", "gang ml/own"]


@pytest.mark.parametrize(
    "by", ["batch/v1/Job/evil", "batch/v1/Job/train-workers-1", "apps/v1/ReplicaSet/train-workers-0"]
)
def test_labels_alone_do_not_make_a_member(by: str) -> None:
    """A pod that names the JobSet of somebody else is of a controller with another name, so it is in no gang."""
    stranger = of_job_set("workers", 0, 7, by=by)
    assert cluster_of(stranger).pods["ml/train-workers-0-7"].gang is None


def test_a_namesake_does_not_count() -> None:
    """Pods of an earlier job of the name, or of a Job with a number that the JobSet does not have: only they wait."""
    cluster = cluster_of(
        parent(PYTORCH, pytorchReplicaSpecs={"Worker": {"replicas": 2}}),
        *(pod(f"train-{at}", "kubeflow.org/v1/PyTorchJob/train") for at in range(2)),
        pod("train-old", "kubeflow.org/v1/PyTorchJob/train", uid="earlier"),
        parent(JOB_SET, "set", replicatedJobs=replicas(1)),
        of_job_set("a", 0, 0, "set"),
        of_job_set("a", 9, 0, "set"),
    )
    assert told(cluster) == [
        Gang("JobSet ml/set (a)", 1),
        Gang("JobSet ml/set (a) as ml/set-a-9-0 has it", 1, unschedulable_reason="JobSet ml/set did not make this pod"),
        Gang("PyTorchJob ml/train", 2),
        Gang("PyTorchJob ml/train as ml/train-old has it", 1,
             unschedulable_reason="PyTorchJob ml/train did not make this pod"),
    ]  # fmt: skip


def test_a_parent_that_goes() -> None:
    """One that is being deleted makes no pods any more, so nobody waits for them; one that is not seen is told."""
    workers = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    cluster = cluster_of(parent(PYTORCH, **workers), pod("train-0", "kubeflow.org/v1/PyTorchJob/train"))
    assert told(cluster)[0].unschedulable_reason == "PyTorchJob ml/train: 1 of 4 pods exist"
    put(cluster, parent(PYTORCH, deleting=True, **workers))
    assert told(cluster) == []
    (key,) = cluster.gangs.parents
    assert GANG_PARENTS.put(cluster, key, None)
    assert told(cluster)[0].unschedulable_reason == "PyTorchJob ml/train does not exist"


def test_pods_of_a_parent_that_is_gone_for_good_are_single_pods() -> None:
    """As after ``kubectl delete --cascade=orphan``: their Jobs go on without the JobSet. A new one counts."""
    cluster = cluster_of(of_job_set("a", 0, 0), of_job_set("a", 0, 1), pod("t-0", "kubeflow.org/v1/TFJob/t"))
    job_set, job = sorted(cluster.parent_gangs.unseen())
    expected = [f"{key.display_name} does not exist" for key in (job_set, job)]
    assert [gang.unschedulable_reason for gang in told(cluster)] == expected
    kinds = frozenset(kind.qualified for kind in PARENTS)
    assert cluster.follow_parents(kinds, frozenset({job_set}))
    assert [gang.name for gang in told(cluster)] == ["TFJob ml/t"]
    put(cluster, of_job_set("a", 0, 2))
    assert cluster.pods["ml/train-a-0-2"].gang is None
    put(cluster, parent(JOB_SET, replicatedJobs=replicas(3)))
    assert Gang("JobSet ml/train (a)", 3) in told(cluster)


@pytest.mark.parametrize(
    ("change", "alone"),
    [({"deleting": True}, True), ({"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}, True), ({}, False)],
    ids=["deleted", "no size", "a gang"],
)
def test_pods_of_controllers_that_make_no_gang_are_single(change: dict[str, Any], *, alone: bool) -> None:
    """So they may be moved, and ``steering: Prefer`` holds for them; also if the object comes after its pods."""
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}
    pods = [pod(f"train-{at}", "kubeflow.org/v1/PyTorchJob/train", node=node) for at, node in enumerate(("", "n"))]
    cluster = cluster_of(parent(PYTORCH, **spec | change), *pods)
    assert [each.gang is None for each in cluster.pods.values()] == [alone, alone]
    cluster = cluster_of(*pods, parent(PYTORCH, **spec))
    put(cluster, parent(PYTORCH, **spec | change))
    assert [each.gang is None for each in cluster.pods.values()] == [alone, alone]
    put(cluster, parent(PYTORCH, **spec))
    assert not any(each.gang is None for each in cluster.pods.values())


def test_a_parent_that_changes_without_end_costs_little() -> None:
    """The status of a Job changes with each pod that ends: its pods are not all looked at each time.

    They are once it makes no gang any more. What is true of each pod alone is not asked again, such as its policy.
    """
    status = [{"succeeded": count} for count in range(3)]
    cluster = cluster_of(*job_pods(4), controllers=["Job"])
    put(cluster, parent(JOB, parallelism=4, completions=4, status=status[0]))
    looks, asked = 0, 0
    as_they_are, governing = cluster.parent_gangs.put_again, cluster.policies.governing

    def counted(pod: Pod) -> Pod:
        nonlocal looks
        looks += 1
        return as_they_are(pod)

    def answered(scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        nonlocal asked
        asked += 1
        return governing(scheduler_name, labels, namespace_labels)

    cluster.parent_gangs.put_again = counted  # type: ignore[method-assign]
    cluster.policies.governing = answered  # type: ignore[method-assign]
    for each in status[1:]:
        put(cluster, parent(JOB, parallelism=4, completions=4, status=each))
    assert looks == 0
    put(cluster, parent(JOB, parallelism=4, completions=4, deleting=True))
    assert (looks, asked) == (4, 0)


def test_changes_that_do_not_decide_on_gangs_look_at_no_pods() -> None:
    """Labels of a namespace that no policy reads, and the precedence of a policy alone."""
    cluster = cluster_of(*job_pods(4), controllers=["Job"])
    candidates = cluster.parent_gangs.candidates
    asked: list[str | None] = []

    def counted(namespace: str | None = None) -> Collection[str]:
        asked.append(namespace)
        return candidates(namespace)

    cluster.parent_gangs.candidates = counted  # type: ignore[method-assign]
    assert cluster.set_namespace("ml", (("team", "a"),))
    spec = {"selects": {"podSelector": {}}, "gangs": {"controllers": ["Job"]}}
    assert cluster.replace_policies([parse_policy("p", spec | {"precedence": 1}, MODELS)])
    assert not asked
    by_team = {"podSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    assert cluster.replace_policies([parse_policy("p", spec | {"selects": by_team}, MODELS)])
    assert cluster.set_namespace("ml", ())
    assert asked == [None, "ml"]
    assert all(each.gang is None for each in cluster.pods.values())


def test_a_size_that_changes_while_the_gang_starts() -> None:
    """The new size counts at once; pods that run already count for it."""
    bound = [pod(f"train-{at}", "kubeflow.org/v1/PyTorchJob/train", node="n") for at in range(2)]
    cluster = cluster_of(
        parent(PYTORCH, pytorchReplicaSpecs={"Worker": {"replicas": 3}}),
        *bound,
        *(pod(f"train-{at}", "kubeflow.org/v1/PyTorchJob/train") for at in range(2, 4)),
    )
    assert told(cluster) == [Gang("PyTorchJob ml/train", 1, partially_placed=True)]
    put(cluster, parent(PYTORCH, pytorchReplicaSpecs={"Worker": {"replicas": 4}}))
    assert told(cluster) == [Gang("PyTorchJob ml/train", 2, partially_placed=True)]
    put(cluster, parent(PYTORCH, pytorchReplicaSpecs={"Worker": {"replicas": 2}}))
    assert told(cluster) == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"Worker": {"replicas": -1}}, "spec.pytorchReplicaSpecs.Worker.replicas: -1 is no number of pods"),
        ({"Worker": {"replicas": "many"}}, "Expected `int | null`, got `str`"),
        ({"Worker": {"replicas": 10**9}}, "1 of 1000000000 pods exist"),
        ({f"Role{at}": {"replicas": 2**31 - 1} for at in range(3)}, f"1 of {2**31 - 1} pods exist"),
    ],
)
def test_bad_sizes(spec: dict[str, Any], reason: str) -> None:
    """The pods of that parent wait and say so; others are planned."""
    cluster = cluster_of(
        parent(PYTORCH, pytorchReplicaSpecs=spec),
        pod("train-0", "kubeflow.org/v1/PyTorchJob/train"),
        parent(PYTORCH, "other", pytorchReplicaSpecs={"Worker": {"replicas": 1}}),
        pod("other-0", "kubeflow.org/v1/PyTorchJob/other"),
    )
    good, bad = told(cluster)
    assert good == Gang("PyTorchJob ml/other", 1)
    assert bad.unschedulable_reason.startswith("PyTorchJob ml/train: ")
    assert reason in bad.unschedulable_reason


def test_a_size_of_zero_is_no_gang() -> None:
    """Its pods, if it has any, are placed one by one."""
    cluster = cluster_of(
        parent(PYTORCH, pytorchReplicaSpecs={"Worker": {"replicas": 0}}),
        pod("train-0", "kubeflow.org/v1/PyTorchJob/train"),
    )
    assert told(cluster) == []


# --- JobSet ---


def test_the_jobs_of_a_job_set_start_together() -> None:
    """All parts are one group; while one of them has no pods the others wait for it."""
    cluster = cluster_of(parent(JOB_SET, replicatedJobs=replicas(1, 2)), of_job_set("a", 0, 0))
    (waits,) = told(cluster)
    assert waits.unschedulable_reason == "JobSet ml/train (a): JobSet ml/train (b) of its group has no pods"
    for index in range(2):
        put(cluster, of_job_set("b", 0, index))
    unit = "JobSet ml/train (a), JobSet ml/train (b)"
    assert told(cluster) == [
        Gang("JobSet ml/train (a)", 1, atomic_group=unit),
        Gang("JobSet ml/train (b)", 2, atomic_group=unit),
    ]


@pytest.mark.parametrize(
    "order",
    [
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": replicas(1, 2)},
        {"replicatedJobs": replicas(1, 2, b={"dependsOn": [{"name": "a", "status": "Ready"}]})},
    ],
    ids=["in order", "depends on"],
)
def test_jobs_that_start_after_others_do_not_keep_them_waiting(order: dict[str, Any]) -> None:
    """The second Job is made once the first is ready: each is a gang of its own."""
    cluster = cluster_of(parent(JOB_SET, **order), of_job_set("a", 0, 0))
    assert told(cluster) == [Gang("JobSet ml/train (a)", 1)]


def awaiting(name: str, status: str) -> dict[str, Any]:
    """What a replicated job has that starts after another."""
    return {"dependsOn": [{"name": name, "status": status}]}


@pytest.mark.parametrize(
    ("order", "after"),
    [
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": replicas(1, 1, 1)},
         {"a": ("b", "c"), "b": ("c",)}),
        ({"replicatedJobs": replicas(1, 1, 1, b=awaiting("a", "Ready"), c=awaiting("b", "Ready"))},
         {"a": ("b", "c"), "b": ("c",)}),
        ({"replicatedJobs": replicas(1, 1, 1, b=awaiting("a", "Ready"), c=awaiting("b", "Complete"))}, {"a": ("b",)}),
        ({"replicatedJobs": replicas(1, 1, b=awaiting("b", "Ready"))}, {"b": ("b",)}),
        ({"replicatedJobs": replicas(1, 1)}, {}),
    ],
    ids=["in order", "ready", "complete", "itself", "at once"],
)  # fmt: skip
def test_which_jobs_come_after_which(order: dict[str, Any], after: dict[str, tuple[str, ...]]) -> None:
    """One that waits until another is complete does not run beside it."""
    cluster = cluster_of(parent(JOB_SET, **order))
    (made,) = cluster.gangs.parents.values()
    assert made.after == after


def test_jobs_that_ended_are_not_waited_for() -> None:
    """Their pods may be gone: the status of the JobSet says how many Jobs ended."""
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}
    cluster = cluster_of(parent(JOB_SET, replicatedJobs=replicas(1, 2), status=status), of_job_set("b", 0, 0, node="n"))
    put(cluster, of_job_set("b", 0, 1))
    assert told(cluster) == [Gang("JobSet ml/train (b)", 1, partially_placed=True)]


def test_a_pod_that_is_made_again_after_others_of_its_job_ended() -> None:
    """Job 0 ended, and of Job 1 one pod: only the last one is still to run, whether or not the ended pods are there."""
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}
    jobs = replicas(2, a={"replicas": 2})
    last = [of_job_set("a", 1, 0, phase="Succeeded", node="n"), of_job_set("a", 1, 1)]
    cluster = cluster_of(parent(JOB_SET, replicatedJobs=jobs, status=status), *last)
    assert told(cluster) == [Gang("JobSet ml/train (a)", 1)]
    for index in range(2):
        put(cluster, of_job_set("a", 0, index, phase="Succeeded", node="n"))
    assert told(cluster) == [Gang("JobSet ml/train (a)", 1)]


def test_a_pod_that_is_made_again_after_ended_pods_of_its_job_are_gone() -> None:
    """Pods go with their node, ended or not: the Job counts them, and the JobSet does not say it."""
    ended = [of_job_set("a", 0, index, phase="Succeeded", node="n") for index in range(2)]
    again = [of_job_set("a", 0, 2, node="n"), of_job_set("a", 0, 3)]
    cluster = cluster_of(parent(JOB_SET, replicatedJobs=replicas(4)), *ended, *again)
    assert told(cluster) == [Gang("JobSet ml/train (a)", 1, partially_placed=True)]
    for each in ended:
        cluster.remove_pod(each.key)
    assert told(cluster) == [Gang("JobSet ml/train (a)", 1, partially_placed=True)]


def test_a_job_set_of_very_many_replicated_jobs() -> None:
    """More gangs than a group may have are placed each by itself."""
    count = MAX_GANGS_IN_GROUP + 1
    jobs = [{**replicas(1)[0], "name": f"r{at}"} for at in range(count)]
    pods = [of_job_set(f"r{at}", 0, 0) for at in range(count)]
    assert {gang.atomic_group for gang in told(cluster_of(parent(JOB_SET, replicatedJobs=jobs), *pods))} == {""}
    fewer = told(cluster_of(parent(JOB_SET, replicatedJobs=jobs[1:]), *pods[1:]))
    assert len({gang.atomic_group for gang in fewer} - {""}) == 1


def test_jobs_of_a_job_set_whose_indexes_fail_each_by_itself() -> None:
    """An index that failed for good is not made again, and the JobSet does not say so: nobody waits for it."""
    jobs = replicas(3)
    jobs[0]["template"]["spec"]["backoffLimitPerIndex"] = 1
    assert told(cluster_of(parent(JOB_SET, replicatedJobs=jobs), of_job_set("a", 0, 0))) == []


def test_exclusive_topology_by_webhook_is_no_gang() -> None:
    """All pods but the first of each Job are made once that has a node; with node selectors all are made at once."""
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    by_selector = exclusive | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    cluster = cluster_of(
        parent(JOB_SET, annotations=exclusive, replicatedJobs=replicas(4)),
        of_job_set("a", 0, 0),
        parent(JOB_SET, "fixed", annotations=by_selector, replicatedJobs=replicas(4)),
        of_job_set("a", 0, 0, "fixed"),
    )
    assert told(cluster) == [
        Gang("JobSet ml/fixed (a)", 4, unschedulable_reason="JobSet ml/fixed (a): 1 of 4 pods exist")
    ]


# --- LeaderWorkerSet ---


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    """Leader and workers are placed together, whatever other groups have."""
    cluster = cluster_of(
        parent(LEADER_WORKER_SET, "serve", replicas=2, leaderWorkerTemplate={"size": 3}),
        *(of_leader_worker_set(0, index, 3) for index in range(3)),
        of_leader_worker_set(1, 0, 3),
    )
    unit = "LeaderWorkerSet ml/serve (leader 0), LeaderWorkerSet ml/serve (workers 0)"
    assert told(cluster) == [
        Gang("LeaderWorkerSet ml/serve (leader 0)", 1, atomic_group=unit),
        Gang("LeaderWorkerSet ml/serve (leader 1)", 1, unschedulable_reason="LeaderWorkerSet ml/serve (leader 1): "
             "LeaderWorkerSet ml/serve (workers 1) of its group has no pods"),
        Gang("LeaderWorkerSet ml/serve (workers 0)", 2, atomic_group=unit),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "first",
    [{"startupPolicy": "LeaderReady"}, {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}}],
    ids=["ready", "exclusive"],
)
def test_a_leader_that_starts_first_waits_for_nobody(first: dict[str, Any]) -> None:
    """Its workers are made later, and are a gang of their own."""
    cluster = cluster_of(
        parent(LEADER_WORKER_SET, "serve", leaderWorkerTemplate={"size": 3}, **first), of_leader_worker_set(0, 0, 3)
    )
    assert told(cluster) == [Gang("LeaderWorkerSet ml/serve (leader 0)", 1)]


@pytest.mark.parametrize(("said", "needed"), [(2, 1), (4, 3)])
def test_a_group_of_an_earlier_size_needs_that_size(said: int, needed: int) -> None:
    """While a rolling update changes the size, each pod says how large its own group is."""
    cluster = cluster_of(
        parent(LEADER_WORKER_SET, "serve", leaderWorkerTemplate={"size": 3}),
        *(of_leader_worker_set(0, index, said) for index in range(said)),
    )
    assert [gang.min_placed for gang in told(cluster)] == [1, needed]
    assert not any(gang.unschedulable_reason for gang in told(cluster))


def test_a_leader_of_a_group_of_one() -> None:
    """It has no workers, whatever the newest size is."""
    cluster = cluster_of(
        parent(LEADER_WORKER_SET, "serve", leaderWorkerTemplate={"size": 3}), of_leader_worker_set(0, 0, 1)
    )
    assert told(cluster) == [Gang("LeaderWorkerSet ml/serve (leader 0)", 1)]


def test_a_stranger_in_a_group() -> None:
    """A Deployment whose pods have the labels of a group is in no gang."""
    stranger = of_leader_worker_set(0, 1, by="apps/v1/ReplicaSet/evil")
    assert cluster_of(stranger).pods["ml/serve-0-1"].gang is None


# --- Kubeflow, Ray ---


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}}, 4),
        ({"pytorchReplicaSpecs": {"Worker": {"replicas": 8}}, "elasticPolicy": {"minReplicas": 2}}, 2),
        ({"pytorchReplicaSpecs": {"Worker": {"replicas": 4}},
          "runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}, 3),
        ({"pytorchReplicaSpecs": {"Worker": {"replicas": 4}},
          "runPolicy": {"schedulingPolicy": {"minAvailable": 99}}}, 4),
    ],
    ids=["sum", "elastic", "minAvailable", "more than there are"],
)  # fmt: skip
def test_kubeflow_sizes(spec: dict[str, Any], size: int) -> None:
    """As many as must run at once, and never more than will be made."""
    cluster = cluster_of(
        parent(PYTORCH, **spec), *(pod(f"t-{at}", "kubeflow.org/v1/PyTorchJob/train") for at in range(8))
    )
    assert told(cluster) == [Gang("PyTorchJob ml/train", size)]


@pytest.mark.parametrize(("policy", "size"), [(None, 3), ("WaitForWorkersReady", 2)])
def test_an_mpi_launcher(policy: str | None, size: int) -> None:
    """Its Job makes it; where it comes once the workers are ready, these do not wait for it."""
    labels = {"training.kubeflow.org/job-name": "mpi"}
    cluster = cluster_of(
        parent(MPI_JOB, "mpi", mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
               launcherCreationPolicy=policy),
        *(pod(f"mpi-worker-{at}", "kubeflow.org/v2beta1/MPIJob/mpi", labels=labels) for at in range(2)),
        pod("mpi-launcher-x", "batch/v1/Job/mpi-launcher", uid="of the Job", labels=labels),
    )  # fmt: skip
    assert told(cluster) == [Gang("MPIJob ml/mpi", size)]


def test_an_mpi_launcher_that_is_made_again_after_a_worker_failed() -> None:
    """mpi-operator makes no worker again whose pod is there, failed or not; the Job of the launcher tries again."""
    labels = {"training.kubeflow.org/job-name": "mpi"}
    status = {"replicaStatuses": {"Launcher": {"failed": 1}, "Worker": {"active": 1, "failed": 1}}}
    cluster = cluster_of(
        parent(MPI_JOB, "mpi", mpiReplicaSpecs={"Launcher": {}, "Worker": {"replicas": 2}}, status=status),
        pod("mpi-worker-0", "kubeflow.org/v2beta1/MPIJob/mpi", labels=labels, node="n", phase="Running"),
        pod("mpi-worker-1", "kubeflow.org/v2beta1/MPIJob/mpi", labels=labels, node="n", phase="Failed"),
        pod("mpi-launcher-y", "batch/v1/Job/mpi-launcher", uid="of the Job", labels=labels),
    )
    assert told(cluster) == [Gang("MPIJob ml/mpi", 1, partially_placed=True)]


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2}, {"replicas": 1}]}, 6),
        (
            {
                "workerGroupSpecs": [{"replicas": 5, "minReplicas": 2, "maxReplicas": 9}],
                "enableInTreeAutoscaling": True,
            },
            3,
        ),
        ({"workerGroupSpecs": [{"replicas": 5, "minReplicas": 0, "maxReplicas": 3}]}, 4),
        ({"workerGroupSpecs": [{"replicas": 5, "suspend": True}]}, 1),
        ({}, 1),
    ],
    ids=["hosts", "autoscaling", "at most", "suspended", "head"],
)
def test_ray_sizes(spec: dict[str, Any], size: int) -> None:
    """As KubeRay makes them: workers beyond the fewest, which its autoscaler asks for, are placed one by one."""
    cluster = cluster_of(
        parent(RAY_CLUSTER, "ray", **spec),
        *(pod(f"r-{at}", "ray.io/v1/RayCluster/ray") for at in range(8)),
        controllers=["RayCluster"],
    )
    assert told(cluster) == [Gang("RayCluster ml/ray", size)]


# --- Grove ---


def test_a_pod_gang_names_its_pods() -> None:
    """Each group needs its own least number; a pod that the PodGang does not name is none of its."""
    groups = [
        {"name": f"x-0-{role}", "minReplicas": least,
         "podReferences": [{"namespace": "ml", "name": f"{role}-{at}"} for at in range(2)]}
        for role, least in (("router", 1), ("decode", 2))
    ]  # fmt: skip
    members = [
        pod(f"{role}-{at}", f"grove.io/v1alpha1/PodClique/x-0-{role}", uid=role,
            labels={"grove.io/podgang": "x-0", "grove.io/podclique": f"x-0-{role}"})
        for role, count in (("router", 2), ("decode", 3)) for at in range(count)
    ]  # fmt: skip
    cluster = cluster_of(parent(POD_GANG, "x-0", podgroups=groups), *members)
    unit = "PodGang ml/x-0 (x-0-decode), PodGang ml/x-0 (x-0-router)"
    assert told(cluster) == [
        Gang("PodGang ml/x-0 (x-0-decode)", 2, atomic_group=unit),
        Gang("PodGang ml/x-0 (x-0-decode) as ml/decode-2 has it", 1,
             unschedulable_reason="PodGang ml/x-0 did not make this pod"),
        Gang("PodGang ml/x-0 (x-0-router)", 1, atomic_group=unit),
    ]  # fmt: skip


# --- Job, and what policies say ---


def job_pods(count: int, **fields: Any) -> list[Pod]:
    """Waiting pods of a Job."""
    return [pod(f"train-{at}", "batch/v1/Job/train", **fields) for at in range(count)]


def test_jobs_are_no_gangs_unless_asked() -> None:
    """A plain Job runs as many pods as fit, and most people want that."""
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    assert told(cluster_of(parent(JOB, **spec), *job_pods(2))) == []
    assert told(cluster_of(parent(JOB, **spec), *job_pods(2), controllers=["IndexedJob"])) == [
        Gang("Job ml/train (Indexed)", 2)
    ]
    assert told(cluster_of(parent(JOB, **spec), *job_pods(2), controllers=["Job"])) == [Gang("Job ml/train", 2)]


@pytest.mark.parametrize(
    "spec",
    [{"parallelism": 2, "completions": 4, "completionMode": "Indexed"}, {"parallelism": 2, "completions": 2}],
    ids=["in turns", "not indexed"],
)
def test_what_is_no_indexed_gang(spec: dict[str, Any]) -> None:
    """Only a Job that runs all of its indexes at once."""
    assert told(cluster_of(parent(JOB, **spec), *job_pods(2), controllers=["IndexedJob"])) == []


@pytest.mark.parametrize(
    ("spec", "status", "waiting"),
    [
        ({"parallelism": 4, "completions": 9}, {"succeeded": 7}, 2),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 2}, 2),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 1, "failedIndexes": "0,2-3"}, 1),
        ({"parallelism": 4}, {"succeeded": 1}, 1),
    ],
    ids=["nearly done", "half done", "failed for good", "work queue"],
)
def test_the_last_pods_of_a_job_wait_for_nobody_else(
    spec: dict[str, Any], status: dict[str, Any], waiting: int
) -> None:
    """The controller makes no more pods than it still needs, and those that ended may be gone."""
    cluster = cluster_of(parent(JOB, status=status, **spec), *job_pods(waiting), controllers=["Job"])
    assert not any(gang.unschedulable_reason for gang in told(cluster))


def test_no_state_of_a_job_makes_its_pods_wait_for_ever() -> None:
    """Whatever ended for good: the pods that the controller runs then, and no others, are enough."""
    for parallelism, completions in product(range(1, 5), range(1, 5)):
        for succeeded, failed in product(range(completions + 1), repeat=2):
            wanted = min(parallelism, completions - succeeded - failed)
            if wanted <= 0:
                continue
            status = {"succeeded": succeeded, "failedIndexes": ",".join(map(str, range(failed)))}
            job = parent(JOB, status=status, parallelism=parallelism, completions=completions)
            cluster = cluster_of(job, *job_pods(wanted), controllers=["Job"])
            assert not any(gang.unschedulable_reason for gang in told(cluster)), (parallelism, completions, status)


def test_a_policy_turns_sources_off() -> None:
    """Its pods are single pods; the gang comes back with the policy's end."""
    things = (
        parent(TF, "t", tfReplicaSpecs={"Worker": {"replicas": 3}}),
        *(pod(f"t-{at}", "kubeflow.org/v1/TFJob/t") for at in range(2)),
    )
    cluster = cluster_of(*things, controllers=["JobSet"])
    assert told(cluster) == []
    cluster.policies.replace([])
    assert cluster.regang_pods()
    assert told(cluster)[0].unschedulable_reason == "TFJob ml/t: 2 of 3 pods exist"


OURS = {"scheduling.thalweg/gang": "own", "scheduling.thalweg/gang-min-member": "2"}


ASKS = {"scheduling.thalweg/gang-of-controller": "true"}


@pytest.mark.parametrize("controllers", [[], ["IndexedJob"]], ids=["none", "indexed"])
def test_a_job_asks_to_be_a_gang(controllers: list[str]) -> None:
    """By an annotation of its pods, whatever its policy follows, also if it is not indexed; other Jobs are none."""
    spec = {"parallelism": 2, "completions": 2}
    others = [pod(f"other-{at}", "batch/v1/Job/other") for at in range(2)]
    cluster = cluster_of(
        parent(JOB, **spec), parent(JOB, "other", **spec), *job_pods(2, annotations=ASKS), *others,
        controllers=controllers,
    )  # fmt: skip
    assert told(cluster) == [Gang("Job ml/train", 2)]
    assert cluster.parent_gangs.asked == {JOB}


def test_a_pod_that_asks_beside_pods_of_an_indexed_gang() -> None:
    """Neither waits for all pods of the Job in a gang of its own: some are in the other one."""
    asking, other = job_pods(1, annotations=ASKS)[0], job_pods(2)[1]
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    cluster = cluster_of(parent(JOB, **spec), asking, other, controllers=["IndexedJob"])
    assert told(cluster) == []
    put(cluster, job_pods(2)[0])
    assert told(cluster) == [Gang("Job ml/train (Indexed)", 2)]


def test_a_pod_that_asks_and_names_a_gang_itself() -> None:
    """Its own mark goes first; and what makes no gangs has none to be in."""
    cluster = cluster_of(
        parent(JOB, parallelism=2, completions=2),
        *job_pods(2, annotations=ASKS | OURS),
        pod("web", "apps/v1/ReplicaSet/web", annotations=ASKS),
    )
    assert told(cluster) == [Gang("gang ml/own", 2)]
    assert cluster.pods["ml/web"].gang is None


def test_a_pod_that_asks_in_a_way_that_cannot_be_read() -> None:
    """It waits and says why."""
    (asking,) = job_pods(1, annotations={"scheduling.thalweg/gang-of-controller": "yes"})
    assert not asking.asks_gang
    assert asking.blocked_reason == (
        'annotation scheduling.thalweg/gang-of-controller: "yes" is neither true nor false'
    )


def test_pods_beside_those_that_are_in_another_gang() -> None:
    """Of a job whose workers have annotations the master has none: it does not wait for them to join it."""
    master = pod("t-master", "kubeflow.org/v1/PyTorchJob/t")
    cluster = cluster_of(parent(PYTORCH, "t", pytorchReplicaSpecs={"Master": {}, "Worker": {"replicas": 2}}), master)
    assert told(cluster)[0].unschedulable_reason == "PyTorchJob ml/t: 1 of 3 pods exist"
    workers = [pod(f"t-{at}", "kubeflow.org/v1/PyTorchJob/t", annotations=OURS) for at in range(2)]
    assert cluster.put_pod(workers[0]).gang_changed
    put(cluster, workers[1])
    assert told(cluster) == [Gang("gang ml/own", 2)]
    for worker in workers:
        cluster.remove_pod(worker.key)
    assert told(cluster)[0].unschedulable_reason == "PyTorchJob ml/t: 1 of 3 pods exist"


def test_a_namesake_in_another_gang_does_not_matter() -> None:
    """A pod that only names the parent as its controller does not part the gang."""
    cluster = cluster_of(
        parent(TF, "t", tfReplicaSpecs={"Worker": {"replicas": 2}}),
        *(pod(f"t-{at}", "kubeflow.org/v1/TFJob/t") for at in range(2)),
        pod("evil", "kubeflow.org/v1/TFJob/t", uid="earlier", annotations=OURS),
    )
    assert Gang("TFJob ml/t", 2) in told(cluster)


def test_replicated_jobs_beside_one_in_another_gang() -> None:
    """The drivers do not wait for workers of their group which are in a gang of their own."""
    cluster = cluster_of(parent(JOB_SET, replicatedJobs=replicas(1, 2)), of_job_set("a", 0, 0))
    for index in range(2):
        put(cluster, of_job_set("b", 0, index, annotations=OURS))
    assert told(cluster) == [Gang("gang ml/own", 2)]


@pytest.mark.parametrize(
    "head",
    [{"delivery": "Extender"}, {"delivery": "Observe", "gangs": {"controllers": []}}],
    ids=["delivered differently", "no gang by its policy"],
)
def test_pods_of_a_parent_that_policies_treat_differently(head: dict[str, Any]) -> None:
    """What one pod cannot take part in, the others do not wait for; once the policies agree they are a gang."""
    cluster = cluster_of(
        parent(TF, "t", tfReplicaSpecs={"Chief": {"replicas": 1}, "Worker": {"replicas": 1}}),
        pod("chief", "kubeflow.org/v1/TFJob/t", scheduler="default-scheduler"),
        pod("worker", "kubeflow.org/v1/TFJob/t"),
    )
    assert told(cluster) == [Gang("TFJob ml/t", 2)]
    spec = {"selects": {"schedulerNames": ["default-scheduler"]}, **head}
    cluster.policies.replace([parse_policy("head", spec, MODELS)])
    assert cluster.regang_pods()
    assert told(cluster) == []
    cluster.policies.replace([])
    assert cluster.regang_pods()
    assert told(cluster) == [Gang("TFJob ml/t", 2)]


RULE = {
    "apiVersion": "example.com/v1",
    "kind": "Training",
    "plural": "trainings",
    "size": ["spec.head", "spec.groups[].count"],
}


def own_parent(rule: dict[str, Any], cluster: Cluster, name: str = "t", **spec: Any) -> None:
    """Puts a parent of a kind that the policy names."""
    (wanted,) = [(kind, known) for kind, known in kinds_of([policy_of(rule)]).items() if known is not None]
    metadata = {"name": name, "namespace": "ml", "uid": "uid"}
    value = parent_reader(*wanted)(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    GANG_PARENTS.put(cluster, value.key, value)


def policy_of(rule: dict[str, Any]) -> GangPolicy:
    """With one row of its own."""
    return parse_policy("p", {"selects": {"podSelector": {}}, "gangs": {"parents": [rule]}}, MODELS).gangs


def test_a_policy_adds_a_kind() -> None:
    """By the controller, with the size summed over lists."""
    cluster = cluster_of(parents=[RULE], followed=None)
    for at in range(4):
        put(cluster, pod(f"t-{at}", "example.com/v1/Training/t"))
    own_parent(RULE, cluster, head=1, groups=[{"count": 1}, {"count": 2}])
    assert told(cluster) == [Gang("Training.example.com ml/t", 4)]


def test_a_policy_adds_a_kind_by_label() -> None:
    """The name of the controller must begin with the parent's: a label alone makes no member."""
    rule = RULE | {"podLabel": "example.com/training", "size": ["spec.n"]}
    cluster = cluster_of(parents=[rule], followed=None)
    labels = {"example.com/training": "t"}
    put(cluster, pod("t-0", "apps/v1/ReplicaSet/t-workers", labels=labels))
    put(cluster, pod("t-1", "apps/v1/ReplicaSet/other", labels=labels))
    own_parent(rule, cluster, n=1)
    assert told(cluster) == [Gang("Training.example.com ml/t", 1)]
    assert cluster.pods["ml/t-1"].gang is None


def test_kinds_of_the_same_name_are_told_apart() -> None:
    """A policy names another group's TFJob: rounds know gangs by these names."""
    rule = RULE | {"kind": "TFJob", "size": ["spec.n"]}
    parent_of_kubeflow = parent(TF, "t", tfReplicaSpecs={"Worker": {"replicas": 1}})
    cluster = cluster_of(parent_of_kubeflow, pod("a", "kubeflow.org/v1/TFJob/t"), parents=[rule], followed=None)
    put(cluster, pod("b", "example.com/v1/TFJob/t"))
    own_parent(rule, cluster, n=1)
    assert told(cluster) == [Gang("TFJob ml/t", 1), Gang("TFJob.example.com ml/t", 1)]


def test_a_kind_that_two_policies_name_is_watched_once() -> None:
    """The first says where: a watch under the other plural would empty what the first has listed."""
    first, second = policy_of(RULE), policy_of(RULE | {"plural": "wrongs", "apiVersion": "example.com/v2"})
    assert [rule for rule in kinds_of([first, second]).values() if rule is not None] == list(first.parents)


@pytest.mark.parametrize("first", ["labelled", "controlled"])
def test_two_policies_whose_pods_name_a_kind_in_different_ways(first: str) -> None:
    """Each policy's pods are in the gangs of its own row, whichever row the objects are read by."""
    row = RULE | {"size": ["spec.n"]}
    rows = {"labelled": row | {"podLabel": "example.com/training"}, "controlled": row}
    ordered = sorted(rows, key=lambda name: name != first)
    cluster = cluster_of(followed=None)
    cluster.policies.replace(
        parse_policy(f"p{at}", {"selects": {"podSelector": {"matchLabels": {"by": name}}},
                                "gangs": {"parents": [rows[name]]}}, MODELS)
        for at, name in enumerate(ordered)
    )  # fmt: skip
    cluster.regang_pods()
    put(cluster, pod("l", "apps/v1/ReplicaSet/l-workers", labels={"by": "labelled", "example.com/training": "l"}))
    put(cluster, pod("c", "example.com/v1/Training/c", labels={"by": "controlled"}))
    for name in "lc":
        own_parent(rows[first], cluster, name, n=1)
    assert told(cluster) == [Gang(f"Training.example.com ml/{name}", 1) for name in "cl"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"head": 1, "groups": [{"count": "two"}]}, 'spec.groups[].count: "two" is no number of pods'),
        ({"head": -1}, 'spec.head: "-1" is no number of pods'),
        ({}, "spec.head: nothing is no number of pods"),
    ],
)
def test_a_size_that_a_path_does_not_lead_to(spec: dict[str, Any], problem: str) -> None:
    """The pods say which field of which object it is."""
    cluster = cluster_of(parents=[RULE], followed=None)
    put(cluster, pod("t-0", "example.com/v1/Training/t"))
    own_parent(RULE, cluster, **spec)
    assert [gang.unschedulable_reason for gang in told(cluster)] == [f"Training.example.com ml/t: {problem}"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"apiVersion": "v1"}, "apiVersion"),
        ({"apiVersion": "batch/v1"}, "apiVersion"),
        ({"apiVersion": "batch.volcano.sh/v1alpha1"}, "apiVersion"),
        ({"kind": "training"}, "kind"),
        ({"plural": "../pods"}, "plural"),
        ({"podLabel": "not a label"}, "podLabel"),
        ({"size": []}, "size"),
        ({"size": ["metadata.name"]}, "size[0]"),
    ],
)
def test_rows_that_a_policy_may_not_have(change: dict[str, Any], field: str) -> None:
    """The error names the field."""
    with pytest.raises(PolicyError) as error:
        policy_of(RULE | change)
    assert error.value.field == f"spec.gangs.parents[0].{field}"


def test_the_groups_of_built_in_kinds_are_known() -> None:
    """Rows of policies are refused for them."""
    assert {kind.group for kind in (*PARENTS, VOLCANO_JOB)} == BUILT_IN_GROUPS


def test_what_is_followed_by_default() -> None:
    """All built-in kinds but Jobs and RayClusters."""
    assert set(kinds_of([BUILT_IN.gangs])) == set(PARENTS) - {JOB, RAY_CLUSTER}


def test_pods_to_come_of_a_large_set_are_counted_a_group_at_a_time() -> None:
    """An event loop turns meanwhile, however many groups one object has."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    groups, spec = 20, {"size": 3, "workerTemplate": template}
    manifest = parent(LEADER_WORKER_SET, startupPolicy="LeaderReady", leaderWorkerTemplate=spec)
    known = parent_reader(LEADER_WORKER_SET)(msgspec.json.encode(manifest))
    cluster = Cluster()
    cluster.set_gang_parent(known.key, known)
    for group in range(groups):
        labels = {f"{LWS_LABEL}name": "train", f"{LWS_LABEL}group-index": f"{group}", f"{LWS_LABEL}worker-index": "0"}
        cluster.put_pod(pod(f"train-{group}", "apps/v1/StatefulSet/train", labels=labels, node="a"))
    coming = ComingPods(cluster, "ml", (), -1.0)
    assert len(list(coming.steps())) >= groups
    waiting = cluster.pods["ml/train-0"].gang
    assert waiting is not None
    assert [(each.count, each.owed) for each in coming.after(waiting.key)] == [(2, 2 * (groups - 1))]
