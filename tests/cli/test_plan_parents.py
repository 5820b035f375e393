"""Plans of dumps know the controllers that make gangs; a dump without them says what it lacks."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from support.cli import Manifest, node
from thalweg.main import main

LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/job-index": "0",
}


def job_set(parallelism: int) -> Manifest:
    """A JobSet of one Job, with fields that no plan reads."""
    template = {"spec": {"parallelism": parallelism, "template": {"spec": {"containers": [{"name": "c", "env": []}]}}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}], "suspend": False}
    metadata = {"name": "train", "namespace": "ml", "uid": "u"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def members(count: int) -> list[Manifest]:
    """Waiting pods of it, of a core each."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-workers-0", "uid": "j", "controller": True}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{at}", "namespace": "ml", "uid": f"p{at}", "labels": LABELS,
                         "ownerReferences": [owner]},
            "spec": {"schedulerName": "thalweg", "priority": 0, "preemptionPolicy": "Never",
                     "containers": [container]},
        }
        for at in range(count)
    ]  # fmt: skip


def plan(folder: Path, *objects: Manifest, pods: list[Manifest]) -> dict[str, Any]:
    """What ``plan`` says of these objects."""
    path = folder / "now.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, *pods]}))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def reasons(answer: dict[str, Any]) -> set[str]:
    """Why pods wait."""
    return {each["reason"] for each in answer["waiting"]}


def test_pods_of_a_job_set_are_whole_or_absent(tmp_path: Path) -> None:
    """Also where its object comes after its pods in the file, and pods are still to come."""
    assert reasons(plan(tmp_path, node("a", "2"), job_set(2), pods=members(2))) == set()
    short = plan(tmp_path, node("a", "2"), job_set(3), pods=members(3))
    assert len(short["waiting"]) == 3
    few = plan(tmp_path, *members(2), job_set(3), pods=[node("a", "2")])
    assert reasons(few) == {"JobSet ml/train (workers): 2 of 3 pods exist."}


def test_a_size_that_cannot_be_read(tmp_path: Path) -> None:
    """Its pods wait for that; the rest of the dump is planned."""
    alone = members(1)[0]
    alone["metadata"] |= {"name": "alone", "uid": "alone", "labels": {}, "ownerReferences": []}
    answer = plan(tmp_path, node("a", "2"), job_set(-1), pods=[*members(2), alone])
    assert [each["pod"] for each in answer["placed"]] == ["ml/alone"]
    assert reasons(answer) == {
        "JobSet ml/train: spec.replicatedJobs[0].template.spec.parallelism: -1 is no number of pods."
    }


def test_a_dump_without_the_kind_says_so(tmp_path: Path) -> None:
    """Its pods are planned one by one, which the live cluster would not do."""
    answer = plan(tmp_path, node("a", "2"), pods=members(3))
    assert len(answer["waiting"]) == 1
    assert any("the files contain no JobSet" in each for each in answer["warnings"])


def test_a_policy_of_the_dump_decides(tmp_path: Path) -> None:
    """One that turns the source off, and one that asks for more kinds."""
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "own"},
        "spec": {"selects": {"podSelector": {}}, "gangs": {"controllers": []}},
    }
    assert len(plan(tmp_path, node("a", "2"), job_set(3), policy, pods=members(3))["waiting"]) == 1
