"""Plans of dumps know the controllers that make gangs; a dump without them says what it lacks."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from support.cli import Manifest, node
from thalweg.main import main

from flowcore.api.gang_parents import rules_in

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


RULE = {"apiVersion": "example.com/v1", "kind": "Training", "plural": "trainings", "size": ["spec.n"]}


def own_policy() -> Manifest:
    """A policy that names a kind of its own."""
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "own"},
        "spec": {"selects": {"podSelector": {}}, "gangs": {"parents": [RULE]}},
    }


def training(count: Any, version: str = "v1", **metadata: Any) -> Manifest:
    """An object of that kind."""
    metadata = {"name": "train", "namespace": "ml", "uid": "u"} | metadata
    return {"apiVersion": f"example.com/{version}", "kind": "Training", "metadata": metadata, "spec": {"n": count}}


def own_members(count: int) -> list[Manifest]:
    """Waiting pods of it."""
    pods = members(count)
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": "train", "uid": "u", "controller": True}
    for each in pods:
        each["metadata"]["ownerReferences"] = [owner]
    return pods


def test_kinds_that_a_policy_of_the_dump_names(tmp_path: Path) -> None:
    """Also where the objects come before the policy; objects of other versions and kinds are ignored as before."""
    other = {"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "o", "namespace": "ml"}}
    answer = plan(tmp_path, node("a", "2"), training(3), other, own_policy(), pods=own_members(3))
    assert len(answer["waiting"]) == 3
    (ignored,) = (each for each in answer["warnings"] if "ignored" in each)
    assert "1 Other object ignored, such as Other ml/o" in ignored
    few = plan(tmp_path, node("a", "2"), own_policy(), training(3), pods=own_members(2))
    assert reasons(few) == {"Training.example.com ml/train: 2 of 3 pods exist."}
    older = plan(tmp_path, node("a", "2"), own_policy(), training(3, "v0"), pods=own_members(3))
    assert len(older["waiting"]) == 1
    assert any("kubectl get trainings.v1.example.com -A -o json" in each for each in older["warnings"])


def test_policies_that_name_one_kind_otherwise(tmp_path: Path) -> None:
    """The first by precedence says where the size is, as in the cluster, wherever it is in the file."""
    first, second = own_policy(), own_policy()
    first["spec"] |= {"precedence": 9, "gangs": {"parents": [RULE | {"size": ["spec.many"]}]}}
    second["metadata"] = {"name": "second"}
    item = training(1)
    item["spec"]["many"] = 3
    for policies in ((first, second), (second, first)):
        answer = plan(tmp_path, node("a", "9"), *policies, item, pods=own_members(2))
        assert reasons(answer) == {"Training.example.com ml/train: 2 of 3 pods exist."}
        ((_, rule),) = rules_in(policies).values()
        assert rule.sizes == ("spec.many",)


def test_objects_of_own_kinds_that_cannot_be_read(tmp_path: Path) -> None:
    """A size that is no number is a reason of its pods; metadata that cannot be read is an error that names it."""
    answer = plan(tmp_path, node("a", "2"), own_policy(), training("many"), pods=own_members(1))
    assert reasons(answer) == {'Training.example.com ml/train: spec.n: "many" is no number of pods.'}
    path = tmp_path / "now.json"
    for item, told in (
        (training(1, uid=7), "Training ml/train: metadata.uid: Expected"),
        (training(1, name=""), "Training ml: metadata.name: required value"),
        (training(1) | {"metadata": None}, "Training: metadata: expected an object, got nothing"),
    ):
        items = [node("a", "2"), own_policy(), item]
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        done = CliRunner().invoke(main, ["plan", "-f", str(path)])
        assert done.exit_code == 2
        assert told in done.stderr


def test_a_dump_without_the_object_says_so(tmp_path: Path) -> None:
    """It has others of the kind: the pods are placed one by one, as after ``kubectl delete --cascade=orphan``."""
    other = job_set(2)
    other["metadata"]["name"] = "other"
    answer = plan(tmp_path, node("a", "2"), other, pods=members(3))
    assert len(answer["waiting"]) == 1
    assert any("the files do not contain JobSet ml/train" in each for each in answer["warnings"])


def leader_worker_set(startup: str, **worker: Any) -> Manifest:
    """Of a leader and two workers, of a core each."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {}, "spec": {"containers": [container], **worker}}
    spec = {"startupPolicy": startup, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template}}
    metadata = {"name": "serve", "namespace": "ml", "uid": "u"}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}


def of_leader_worker_set(index: int, cores: int = 1, group: int = 0) -> Manifest:
    """A waiting pod of one of its groups; 0 is the leader."""
    pod = members(1)[0]
    own, by = (f"serve-{group}", "serve") if index == 0 else (f"serve-{group}-{index}", f"serve-{group}")
    labels = {"name": "serve", "group-index": str(group), "worker-index": str(index)}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": by, "uid": by, "controller": True}
    pod["metadata"] |= {
        "name": own,
        "uid": own,
        "ownerReferences": [owner],
        "labels": {f"leaderworkerset.sigs.k8s.io/{name}": value for name, value in labels.items()},
    }
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cores)
    return pod  # fmt: skip


def must_fit() -> Manifest:
    """A policy under which gangs wait for room of their pods to come."""
    policy = own_policy()
    policy["spec"]["gangs"] = {"podsToCome": "MustFit"}
    return policy


def test_a_leader_whose_workers_would_have_no_room_waits_if_its_policy_says_so(tmp_path: Path) -> None:
    """They are made once it is ready. By default it starts, as without us."""
    leader, group = of_leader_worker_set(0), leader_worker_set("LeaderReady")
    assert reasons(plan(tmp_path, node("a", "2"), group, pods=[leader])) == set()
    assert reasons(plan(tmp_path, node("a", "3"), group, must_fit(), pods=[leader])) == set()
    assert reasons(plan(tmp_path, node("a", "2"), group, must_fit(), pods=[leader])) == {
        "LeaderWorkerSet ml/serve (leader 0): 2 pods come once it runs, and 1 of them have room now."
    }


def test_what_of_pods_to_come_is_judged(tmp_path: Path) -> None:
    """Their node selector; with a leader of another size the workers by themselves; and only what is still to come."""
    nowhere = leader_worker_set("LeaderReady", nodeSelector={"gpu": "a"})
    (reason,) = reasons(plan(tmp_path, node("a", "9"), nowhere, must_fit(), pods=[of_leader_worker_set(0)]))
    assert reason.endswith("2 pods come once it runs, and 0 of them have room now.")
    group = leader_worker_set("LeaderReady")
    assert reasons(plan(tmp_path, node("a", "3"), group, must_fit(), pods=[of_leader_worker_set(0, cores=2)])) == set()
    ungoverned = of_leader_worker_set(1)
    ungoverned["spec"]["nodeName"] = "a"
    started = plan(tmp_path, node("a", "3"), group, must_fit(), pods=[of_leader_worker_set(0), ungoverned])
    assert reasons(started) == set()
    claiming = leader_worker_set("LeaderReady", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    assert reasons(plan(tmp_path, node("a", "1"), claiming, must_fit(), pods=[of_leader_worker_set(0)])) == set()


def test_leaders_do_not_start_beside_each_other_where_one_group_has_room(tmp_path: Path) -> None:
    """Neither at once, nor one after the other: the workers of the first are still to come, for a while."""
    group, leaders = leader_worker_set("LeaderReady"), [of_leader_worker_set(0, group=at) for at in range(2)]
    both = plan(tmp_path, node("a", "5"), group, must_fit(), pods=leaders)
    assert [each["pod"] for each in both["placed"]] == ["ml/serve-0"]
    message = (
        "LeaderWorkerSet ml/serve (leader 1): 2 pods come once it runs, and 1 of them have room now, beside 3 of other "
        "gangs."
    )
    assert reasons(both) == {message}
    assert reasons(plan(tmp_path, node("a", "6"), group, must_fit(), pods=leaders)) == set()
    leaders[0]["spec"]["nodeName"] = "a"
    leaders[0]["status"] = {"phase": "Running", "startTime": "2026-11-27T12:00:00Z"}
    leaders[1]["metadata"]["creationTimestamp"] = "2026-11-27T12:05:00Z"
    later = plan(tmp_path, node("a", "5"), group, must_fit(), pods=leaders)
    assert reasons(later) == {message.replace("beside 3", "beside 2")}
    leaders[1]["metadata"]["creationTimestamp"] = "2026-11-27T12:15:00Z"
    assert reasons(plan(tmp_path, node("a", "5"), group, must_fit(), pods=leaders)) == set()


def test_a_template_with_limits_alone_asks_for_these(tmp_path: Path) -> None:
    """As the API server says it of the pods, so that devices of a plugin need no request in the template."""
    group = leader_worker_set("LeaderReady")
    (container,) = group["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    for resources in ({"limits": {"cpu": 1}}, {"limits": {"cpu": 9}, "requests": {"cpu": 1}}):
        container["resources"] = resources
        assert reasons(plan(tmp_path, node("a", "2"), group, must_fit(), pods=[of_leader_worker_set(0)])) == {
            "LeaderWorkerSet ml/serve (leader 0): 2 pods come once it runs, and 1 of them have room now."
        }
        assert reasons(plan(tmp_path, node("a", "3"), group, must_fit(), pods=[of_leader_worker_set(0)])) == set()


def test_a_leader_that_has_no_room_itself_goes_before_no_other(tmp_path: Path) -> None:
    """Its room may never come."""
    group, leaders = leader_worker_set("LeaderReady"), [of_leader_worker_set(0, group=at) for at in range(2)]
    leaders[0]["spec"]["nodeSelector"] = {"no": "where"}
    assert [each["pod"] for each in plan(tmp_path, node("a", "3"), group, must_fit(), pods=leaders)["placed"]] == [
        "ml/serve-1"
    ]
