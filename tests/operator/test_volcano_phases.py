"""Which PodGroups of Volcano get the phase that their controller waits for, and which are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.fake_api import serving
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.delivery.status.volcano_phases import VolcanoPhases, jobs_to_start
from thalweg_operator.metrics import Metrics

from flowcore.api import Interner, WirePodGroup, to_pod_group
from flowcore.api.parent_sizes import WireVolcanoJob, to_volcano_job
from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.kinds import VOLCANO_JOBS
from flowcore.model.cost_policy import KnownModels
from flowcore.model.gang_spec import GangSource

MODELS = KnownModels(("CPUMemory",))
GOVERNS: dict[str, Any] = {"selects": {"podSelector": {"matchLabels": {"tier": "batch"}}}}


def cluster_of(
    *,
    scheduler: str | None = "thalweg",
    phase: str = "",
    owner: str = "job-uid",
    labels: tuple[str, ...] = ("batch", "batch"),
    deleting: bool = False,
    policy: dict[str, Any] | None = None,
) -> Cluster:
    """A cluster with a Job of Volcano and its PodGroup; ``labels``: the tier of each of its tasks."""
    cluster = Cluster()
    cluster.set_namespace("ml", ())
    if policy is not None:
        cluster.policies.replace([parse_policy("p", policy, MODELS)])
    owners = [{"kind": "Job", "name": "train", "uid": owner, "controller": True}]
    group = {
        "metadata": {"name": "train-job-uid", "namespace": "ml", "uid": "group-uid", "ownerReferences": owners},
        "spec": {"minMember": 2},
        "status": {"phase": phase} if phase else {},
    }
    cluster.put_pod_group(to_pod_group(msgspec.convert(group, WirePodGroup), GangSource.VOLCANO, Interner()))
    tasks = [
        {"name": f"task-{at}", "replicas": 1, "template": {"metadata": {"labels": {"tier": tier}}, "spec": {}}}
        for at, tier in enumerate(labels)
    ]
    metadata = {"name": "train", "namespace": "ml", "uid": "job-uid"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    wire = msgspec.convert({"metadata": metadata, "spec": {"schedulerName": scheduler, "tasks": tasks}}, WireVolcanoJob)
    job = to_volcano_job(wire)
    VOLCANO_JOBS.put(cluster, (job.namespace, job.name), job)
    return cluster


def started(cluster: Cluster) -> list[str]:
    """Names of the groups that are written."""
    return [start.group.key.name for start in jobs_to_start(cluster) if start is not None]


@pytest.mark.parametrize("phase", ["", "Pending"])
@pytest.mark.parametrize("policy", [None, GOVERNS], ids=["built-in", "policy"])
def test_a_job_of_ours_is_started(phase: str, policy: dict[str, Any] | None) -> None:
    """It names a scheduler that we serve, by default or by a policy."""
    assert started(cluster_of(phase=phase, policy=policy)) == ["train-job-uid"]


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown", "Completed"])
def test_a_group_that_went_on_is_left_alone(phase: str) -> None:
    """No phase but the first is overwritten."""
    assert not started(cluster_of(phase=phase))


@pytest.mark.parametrize(
    "case",
    [
        {"scheduler": "volcano"},
        {"scheduler": None},
        {"policy": GOVERNS | {"delivery": "Observe"}},
        {"policy": GOVERNS | {"gangs": {"controllers": ["JobSet"]}}},
        {"owner": "uid of another job"},
        {"owner": ""},
        {"deleting": True},
        {"labels": ()},
    ],
    ids=["volcano", "default", "observed", "turned off", "another's group", "no owner", "deleting", "no tasks"],
)
def test_what_is_not_ours_is_left_alone(case: dict[str, Any]) -> None:
    """Volcano's scheduler is in charge there, or nobody is yet."""
    assert not started(cluster_of(**case))


def test_all_pods_must_be_governed() -> None:
    """A Job of which one task goes to nobody's policy would start in part."""
    steered = GOVERNS | {"delivery": "Extender"}
    assert started(cluster_of(scheduler="thalweg-steered", policy=steered)) == ["train-job-uid"]
    assert not started(cluster_of(scheduler="thalweg-steered", policy=steered, labels=("batch", "web")))


def test_a_namespace_that_is_not_known_yet() -> None:
    """A policy may select by its labels: nothing is written before they are known."""
    cluster = cluster_of()
    cluster.set_namespace("ml", None)
    assert not started(cluster)


def test_a_group_of_another_namespace_that_names_the_job() -> None:
    """A tenant who writes the uid of somebody else's Job into a group keeps that Job from nothing."""
    cluster = cluster_of()
    owners = [{"kind": "Job", "name": "train", "uid": "job-uid", "controller": True}]
    forged = {"metadata": {"name": "forged", "namespace": "evil", "uid": "forged", "ownerReferences": owners}}
    cluster.put_pod_group(to_pod_group(msgspec.convert(forged, WirePodGroup), GangSource.VOLCANO, Interner()))
    assert started(cluster) == ["train-job-uid"]


def add_job(cluster: Cluster, namespace: str, number: int) -> None:
    """One more Job of Volcano that waits for the phase of its group ``train-<number>``."""
    owners = [{"kind": "Job", "name": "train", "uid": f"uid-{number}", "controller": True}]
    metadata = {"name": f"train-{number}", "namespace": namespace, "uid": f"{number}", "ownerReferences": owners}
    group = to_pod_group(msgspec.convert({"metadata": metadata}, WirePodGroup), GangSource.VOLCANO, Interner())
    cluster.set_namespace(namespace, ())
    cluster.put_pod_group(group)
    job = msgspec.structs.replace(
        cluster.volcano_jobs["ml", "train"], namespace=namespace, name=f"job-{number}", uid=f"uid-{number}"
    )
    VOLCANO_JOBS.put(cluster, (job.namespace, job.name), job)


@asynccontextmanager
async def writing(cluster: Cluster, directory: Path, answer: Callable[[str], int]) -> AsyncIterator[list[str]]:
    """The namespace and name of each group for which a phase is asked, in order; ``answer`` says the status of each."""
    asked: list[str] = []

    async def patched(request: web.Request) -> web.Response:
        words = request.path.split("/")
        name = f"{words[-3]}/{words[-1]}"
        asked.append(name)
        await asyncio.sleep(0.01)
        status = answer(name)
        return web.json_response({"kind": "Status", "code": status, "message": "as the test says"}, status=status)

    app = web.Application()
    app.router.add_patch("/{path:.*}", patched)
    async with serving(app, directory) as client:
        task = asyncio.create_task(VolcanoPhases(client, cluster, Metrics(), backoff=Backoff(0.2, 1.0)).run())
        yield asked
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_without_the_right_a_few_groups_are_tried(tmp_path: Path) -> None:
    """A hundred Jobs of a namespace cost few requests: once some are refused, one at a time is tried."""
    cluster, allowed = cluster_of(), False
    for number in range(100):
        add_job(cluster, "ml", number)
    async with writing(cluster, tmp_path, lambda _: 200 if allowed else 403) as asked:
        await until(lambda: bool(asked), 10, lambda: "a request")
        await asyncio.sleep(0.5)
        assert len(asked) <= 12, "four refusals, those in flight then, and a few after pauses"
        refused, allowed = len(asked), True
        await until(lambda: len(set(asked)) == 101, 15, lambda: str(asked))
    assert len(asked) <= 101 + refused


async def test_namespaces_take_turns(tmp_path: Path) -> None:
    """A tenant with hundreds of Jobs does not make the only Job of another one wait for all of them."""
    cluster = cluster_of()
    for number in range(300):
        add_job(cluster, "ml", number)
    add_job(cluster, "other", 1000)
    async with writing(cluster, tmp_path, lambda _: 200) as asked:
        await until(lambda: "other/train-1000" in asked, 10, lambda: str(asked))
        assert len(asked) < 20


async def test_a_job_that_is_refused_waits_alone(tmp_path: Path) -> None:
    """A webhook refuses one group: the others get their phase, and it is tried again."""
    cluster = cluster_of()
    for number in range(20):
        add_job(cluster, "ml", number)
    async with writing(cluster, tmp_path, lambda name: 422 if name == "ml/train-3" else 200) as asked:
        await until(lambda: len(set(asked)) == 21 and asked.count("ml/train-3") > 1, 15, lambda: str(asked))
    assert len(asked) == 20 + asked.count("ml/train-3")


async def test_a_job_that_goes_while_it_rests_is_not_written(tmp_path: Path) -> None:
    """Its group was refused; then the policy ended: nobody writes it later."""
    cluster = cluster_of()
    async with writing(cluster, tmp_path, lambda _: 422) as asked:
        await until(lambda: bool(asked), 10, lambda: "a request")
        cluster.policies.replace([parse_policy("p", GOVERNS | {"delivery": "Observe"}, MODELS)])
        await asyncio.sleep(1)
    assert len(asked) == 1


async def test_a_job_that_a_webhook_forbids_keeps_no_later_one_waiting(tmp_path: Path) -> None:
    """It answers 403 for one group, as if the right lacked: those that come later get their phase all the same."""
    cluster, forbidden = cluster_of(), "ml/train-job-uid"
    async with writing(cluster, tmp_path, lambda name: 403 if name == forbidden else 200) as asked:
        await until(lambda: asked == [forbidden] * 2, 10, lambda: str(asked))
        for number in range(20):
            add_job(cluster, f"ns-{number % 2}", number)
        await until(lambda: len(set(asked)) == 21, 10, lambda: str(asked))
