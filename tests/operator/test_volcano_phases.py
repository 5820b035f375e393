"""Which PodGroups of Volcano get the phase that their controller waits for, and which are left alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from thalweg_operator.delivery.status.volcano_phases import groups_to_start

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
    return [group.key.name for group in groups_to_start(cluster)]


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
