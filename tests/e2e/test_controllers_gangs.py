"""Gangs without annotations on a real API server: pods and objects as their controllers write them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, until
from support.parents import install_parents, made_by, parent
from thalweg_controlplane.client.objects import object_path

from flowcore.api.kinds import JOB, JOB_SET, KUBEFLOW, LEADER_WORKER_SET, PARENTS, POD_GANG, RAY_CLUSTER

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Kinds are installed.
BREAKS_PLANE = True
PYTORCH = KUBEFLOW[0]
#: Pods whose policy asks for gangs of RayClusters: by default they are none.
RAY = {"for": "ray"}
Manifest = dict[str, Any]


class Workload(NamedTuple):
    """What a user creates, and what its controller makes of it.

    Attributes:
        pods: three, of a core each; ``uid``: of the object, once it is created.
        named: what the reasons of its pods begin with.
    """

    manifest: Manifest
    pods: Callable[[str], list[Manifest]]
    named: str


def job_set(scene: ClusterScenario, name: str = "train") -> Workload:
    """One replicated job of three pods."""
    template = {"spec": {"parallelism": 3, "completions": 3}}
    jobs = [{"name": "workers", "replicas": 1, "template": template}]
    labels = {f"jobset.sigs.k8s.io/{label}": value for label, value in
              (("jobset-name", name), ("replicatedjob-name", "workers"), ("job-index", "0"))}  # fmt: skip

    def pods(_uid: str) -> list[Manifest]:
        made = [scene.pod(f"{name}-workers-0-{at}", "1", labels=labels) for at in range(3)]
        return [made_by(each, "batch/v1", "Job", f"{name}-workers-0") for each in made]

    manifest = parent(JOB_SET, scene.namespace, name, replicatedJobs=jobs)
    return Workload(manifest, pods, f"JobSet {scene.namespace}/{name} (workers)")


def leader_worker_set(scene: ClusterScenario) -> Workload:
    """One group: a leader and two workers."""

    def pods(_uid: str) -> list[Manifest]:
        made = []
        for at, name in enumerate(("serve-0", "serve-0-1", "serve-0-2")):
            labels = {f"leaderworkerset.sigs.k8s.io/{label}": value for label, value in
                      (("name", "serve"), ("group-index", "0"), ("worker-index", str(at)))}  # fmt: skip
            size = {"leaderworkerset.sigs.k8s.io/size": "3"}
            member = scene.pod(name, "1", labels=labels, annotations=size)
            made.append(made_by(member, "apps/v1", "StatefulSet", "serve-0" if at else "serve"))
        return made

    manifest = parent(LEADER_WORKER_SET, scene.namespace, "serve", replicas=1, leaderWorkerTemplate={"size": 3})
    return Workload(manifest, pods, f"LeaderWorkerSet {scene.namespace}/serve (workers 0)")


def pytorch_job(scene: ClusterScenario) -> Workload:
    """A master and two workers."""
    manifest = parent(
        PYTORCH, scene.namespace, "torch", pytorchReplicaSpecs={"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    )
    return Workload(manifest, _owned(scene, manifest), f"PyTorchJob {scene.namespace}/torch")


def ray_cluster(scene: ClusterScenario) -> Workload:
    """A head and two workers."""
    manifest = parent(RAY_CLUSTER, scene.namespace, "ray", workerGroupSpecs=[{"groupName": "w", "replicas": 2}])
    return Workload(manifest, _owned(scene, manifest, RAY), f"RayCluster {scene.namespace}/ray")


def pod_gang(scene: ClusterScenario) -> Workload:
    """One group of three pods, which it names."""
    labels = {"grove.io/podgang": "gang", "grove.io/podclique": "gang-decode"}
    references = [{"namespace": scene.namespace, "name": f"decode-{at}"} for at in range(3)]
    groups = [{"name": "gang-decode", "minReplicas": 3, "podReferences": references}]

    def pods(_uid: str) -> list[Manifest]:
        made = [scene.pod(f"decode-{at}", "1", labels=labels) for at in range(3)]
        return [made_by(each, "grove.io/v1alpha1", "PodClique", "gang-decode") for each in made]

    manifest = parent(POD_GANG, scene.namespace, "gang", podgroups=groups)
    return Workload(manifest, pods, f"PodGang {scene.namespace}/gang (gang-decode)")


def _owned(
    scene: ClusterScenario, manifest: Manifest, labels: dict[str, str] | None = None
) -> Callable[[str], list[Manifest]]:
    """Pods whose controller is the object itself."""
    name = manifest["metadata"]["name"]

    def pods(uid: str) -> list[Manifest]:
        made = [scene.pod(f"{name}-{at}", "1", labels=labels or {}) for at in range(3)]
        return [made_by(each, manifest["apiVersion"], manifest["kind"], name, uid) for each in made]

    return pods


WORKLOADS = pytest.mark.parametrize(
    "make", [job_set, leader_worker_set, pytorch_job, ray_cluster, pod_gang], ids=lambda make: make.__name__
)


@pytest_asyncio.fixture(loop_scope="module")
async def gangs(scene: ClusterScenario, operator: Operator) -> ClusterScenario:
    """A scene whose API server has all kinds, and whose operator knows: it asks at its start, and once a minute."""
    await install_parents(scene.api, *PARENTS)
    await scene.policy("ray", selects={"podSelector": {"matchLabels": RAY}}, gangs={"controllers": ["RayCluster"]})
    await operator.stop()
    await operator.start()
    return scene


@WORKLOADS
async def test_a_gang_is_whole_or_absent(gangs: ClusterScenario, make: Callable[[ClusterScenario], Workload]) -> None:
    """While pods are still to come the others wait; where not all fit none is bound; with room all are."""
    scene, workload = gangs, make(gangs)
    await scene.nodes("a", cpu="2")
    created = await scene.api.create(workload.manifest)
    pods = workload.pods(created["metadata"]["uid"])
    await scene.api.create_many(pods[:2])
    first, last = (each["metadata"]["name"] for each in (pods[0], pods[2]))
    await scene.reason_of(first, "pods exist")
    await scene.api.create(pods[2])
    await scene.reason_of(last, workload.named, "at once")
    await scene.wait_for_round("probe")
    assert not any(each["spec"].get("nodeName") for each in await scene.pods() if each["metadata"]["name"] != "probe")
    await scene.nodes("b", cpu="1")
    await scene.nodes_of(*(each["metadata"]["name"] for each in pods))


@WORKLOADS
async def test_pods_before_their_object(gangs: ClusterScenario, make: Callable[[ClusterScenario], Workload]) -> None:
    """They wait until it is seen, and nobody else waits."""
    scene, workload = gangs, make(gangs)
    await scene.nodes("a", cpu="4")
    if workload.manifest["kind"] in ("PyTorchJob", "RayCluster"):
        # The uid in the owner reference is the object's: the object is made, and unseen by those that it did not make.
        pods = workload.pods("uid of another object of the name")
        await scene.api.create(workload.manifest)
        await scene.api.create_many(pods)
        await scene.reason_of(pods[0]["metadata"]["name"], "did not make this pod")
    else:
        pods = workload.pods("")
        await scene.api.create_many(pods)
        await scene.reason_of(pods[0]["metadata"]["name"], "does not exist")
        await scene.wait_for_round("other")
        await scene.api.create(workload.manifest)
        await scene.nodes_of(*(each["metadata"]["name"] for each in pods))


async def test_ordered_jobs_start_one_after_the_other(gangs: ClusterScenario) -> None:
    """The controller makes the second Job once the first is ready: the first does not wait for its pods."""
    scene = gangs
    template = {"spec": {"parallelism": 1}}
    jobs = [{"name": name, "replicas": 1, "template": template} for name in ("driver", "workers")]
    jobs[1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]  # type: ignore[assignment]
    await scene.nodes("a")
    await scene.api.create(parent(JOB_SET, scene.namespace, "ordered", replicatedJobs=jobs))
    labels = {f"jobset.sigs.k8s.io/{label}": value for label, value in
              (("jobset-name", "ordered"), ("replicatedjob-name", "driver"), ("job-index", "0"))}  # fmt: skip
    driver = made_by(scene.pod("driver", "1", labels=labels), "batch/v1", "Job", "ordered-driver-0")
    await scene.api.create(driver)
    await scene.node_of("driver")


async def test_labels_of_somebody_elses_object(gangs: ClusterScenario) -> None:
    """A pod with the labels of a JobSet, of another controller, is placed by itself and counts for nobody."""
    scene, workload = gangs, job_set(gangs)
    await scene.nodes("a")
    await scene.api.create(workload.manifest)
    *members, stranger = workload.pods("")
    await scene.api.create_many(members)
    await scene.api.create(made_by(stranger, "apps/v1", "ReplicaSet", "evil"))
    await scene.node_of(stranger["metadata"]["name"])
    await scene.reason_of(members[0]["metadata"]["name"], "2 of 3 pods exist")


async def test_jobs_are_gangs_where_a_policy_asks(gangs: ClusterScenario) -> None:
    """By default a Job runs as many pods as fit. A policy that is put in force makes the waiting ones a gang."""
    scene = gangs
    job = await scene.api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": scene.namespace},
            "spec": {
                "parallelism": 3,
                "completions": 3,
                "completionMode": "Indexed",
                "template": {"spec": {**scene.pod("x")["spec"], "restartPolicy": "Never"}},
            },
        }
    )
    pods = [
        made_by(scene.pod(f"j-{at}", "1", labels={"job": "j"}), JOB.api_version, "Job", "j", job["metadata"]["uid"])
        for at in range(3)
    ]
    await scene.nodes("a", cpu="1")
    await scene.api.create(pods[0])
    await scene.node_of("j-0")
    selects = {"podSelector": {"matchLabels": {"job": "j"}}}
    await scene.policy("jobs", selects=selects, gangs={"controllers": ["IndexedJob"]})
    await scene.api.create(pods[1])
    await scene.reason_of("j-1", "2 of 3 pods exist")
    await scene.api.create(pods[2])
    await scene.nodes("b", cpu="1")
    await scene.reason_of("j-1", "needs 2 pods at once")
    await scene.policy("jobs", selects=selects, gangs={"controllers": []})
    await until(lambda: _bound(scene, 2), 60, lambda: "one pod more to be bound, as the policy turns gangs off")


async def _bound(scene: ClusterScenario, count: int) -> bool:
    return sum(bool(each["spec"].get("nodeName")) for each in await scene.pods()) == count


async def test_an_object_that_is_deleted(gangs: ClusterScenario) -> None:
    """Pods that are left say so. A new object of the name does not take them."""
    scene, workload = gangs, pytorch_job(gangs)
    await scene.nodes("a")
    created = await scene.api.create(workload.manifest)
    pods = workload.pods(created["metadata"]["uid"])[:2]
    await scene.api.create_many(pods)
    await scene.reason_of("torch-0", "2 of 3 pods exist")
    await scene.api.delete(object_path(workload.manifest))
    await scene.reason_of("torch-0", "does not exist")
    await scene.api.create(workload.manifest)
    await scene.reason_of("torch-0", "did not make this pod")
