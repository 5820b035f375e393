"""``thalweg plan``, the real command, on dumps good and bad."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cli import Manifest, by_pod, node, plan_of, pod, thalweg, to_yaml
from support.draw import Case, crowded_cases
from support.eviction_safety import check_evictions
from support.profiles import examples
from support.safety import check_complete, check_costs, check_gangs, check_plan
from support.verdicts import read_pods, snapshot_of
from thalweg.dumps.reader import read_dump
from thalweg.main import main
from thalweg.plans.local_plan import plan

from flowcore.api import Interner, WireNamespace, WireNode, to_labels, to_node
from flowcore.cluster.running import running_pods
from flowcore.model.gangs import Gang
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.questions.scenario import Scenario

# -- what is read ------------------------------------------------------------------------------------------------------

OBJECTS = [node("a"), pod("p", "3"), pod("q", "3")]

#: What ``-o json`` prints.
_ANSWER = {
    "placed", "waiting", "evictions", "proposals", "observed", "hidden", "nodes", "cost", "lowerBound", "gap",
    "certified", "boundNotes", "incomplete", "seconds", "warnings", "now", "workloads", "evictionsByWorkload",
    "proposalsByWorkload", "namespace", "policy", "leftAtLeast", "counts", "leaving", "ungoverned",
}  # fmt: skip
#: What ``by_pod`` adds.
_BY_POD = {"placements", "pending", "evicted", "proposed", "bound"}


def check_shape(answer: dict[str, Any], nodes: set[str], pending: set[str]) -> None:
    """The answer of ``--nodes`` is exactly of the shape that is promised."""
    assert set(answer) == _ANSWER | _BY_POD | {"nodesOf"}
    assert isinstance(answer["cost"], int)
    assert answer["bound"] == len(answer["placements"])
    assert isinstance(answer["seconds"], float)
    assert set(answer["placements"]).isdisjoint(answer["pending"])
    assert set(answer["placements"]) | set(answer["pending"]) == pending
    assert set(answer["placements"].values()) <= nodes
    for waiting in answer["pending"].values():
        assert set(waiting) == {"reason", "nodes"}
        assert waiting["reason"]
        assert set(waiting["nodes"]) == nodes
        assert all(reason and isinstance(reason, str) for reason in waiting["nodes"].values())


def test_the_answers_shape() -> None:
    """Placements and pending pods, each pod in one of them, each node with its reason, cost, bound and seconds."""
    answer = plan_of(node("a"), node("b", "1"), pod("p", "3"), pod("q", "3"))
    check_shape(answer, {"a", "b"}, {"default/p", "default/q"})
    assert answer["placements"] == {"default/p": "a"}
    assert answer["pending"]["default/q"]["nodes"] == {"a": "Insufficient cpu", "b": "Insufficient cpu"}
    assert answer["pending"]["default/q"]["reason"].startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_nodes_only_by_request() -> None:
    """Without ``--nodes`` the answer has a reason for each pod, whatever the cluster."""
    objects = json.dumps({"kind": "List", "items": [node("a"), *(pod(name, "5") for name in "pqr")]})
    done = thalweg("plan", "-f", "-", "-o", "json", stdin=objects)
    answer = by_pod(done.stdout)
    assert set(answer) == _ANSWER | _BY_POD
    (reason,) = {waiting["reason"] for waiting in answer["pending"].values()}
    assert answer["pending"] == {f"default/{name}": {"reason": reason} for name in "pqr"}


def test_a_pod_in_the_place_of_another() -> None:
    """It goes where that one runs, however full, or waits with the reason that holds there."""
    old = pod("old", "3", nodeName="a", schedulerName="thalweg")
    new = pod("new", "4", schedulerName="thalweg")
    new["metadata"]["annotations"] = {"scheduling.thalweg/replaces": "old"}
    spec = {"selects": {"podSelector": {}}, "replaces": {"victims": "Governed"}}
    kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    allowed: Manifest = {**kind, "metadata": {"name": "p"}, "spec": spec}
    answer = plan_of(node("a", "4"), node("b", "4"), old, new, allowed)
    assert answer["placements"] == {"default/new": "a"}
    answer = plan_of(node("a", "4"), node("b", "4"), old, new)
    assert "that pod is not of the same controller" in answer["pending"]["default/new"]["reason"]
    answer = plan_of(node("a", "4"), node("b", "4"), old, pod("there", "1", nodeName="a"), new, allowed)
    check_shape(answer, {"a", "b"}, {"default/new"})
    reason = "cannot replace default/old on node a: Insufficient cpu"
    assert answer["pending"]["default/new"]["reason"] == reason


def as_list(objects: list[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def as_yaml_list(objects: list[Manifest]) -> str:
    return to_yaml({"apiVersion": "v1", "kind": "List", "items": objects})


def as_typed_lists(objects: list[Manifest]) -> str:
    bare = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in objects]
    nodes = [each for each, whole in zip(bare, objects, strict=True) if whole["kind"] == "Node"]
    pods = [each for each, whole in zip(bare, objects, strict=True) if whole["kind"] == "Pod"]
    return to_yaml(
        {"apiVersion": "v1", "kind": "NodeList", "items": nodes}, {"apiVersion": "v1", "kind": "PodList", "items": pods}
    )


def as_documents(objects: list[Manifest]) -> str:
    return "# what kubectl printed\n---\n" + to_yaml(*objects) + "---\n"


@pytest.mark.parametrize("write", [as_list, as_yaml_list, as_typed_lists, as_documents])
@pytest.mark.parametrize("from_stdin", [True, False])
def test_every_form_that_kubectl_prints(write: Any, from_stdin: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """A List, typed lists and YAML of several documents mean the same, from a file and from standard input."""
    text = write(OBJECTS)
    (tmp_path / "dump").write_text(text)
    source = "-" if from_stdin else str(tmp_path / "dump")
    done = thalweg("plan", "-f", source, "-o", "json", "--nodes", stdin=text if from_stdin else None)
    assert done.returncode == 0, done.stderr
    check_shape(by_pod(done.stdout), {"a"}, {"default/p", "default/q"})
    assert by_pod(done.stdout)["bound"] == 1


def test_several_files_are_one_cluster(tmp_path: Path) -> None:
    """Of an object that comes twice the last one counts."""
    (tmp_path / "now.json").write_text(as_list([node("a", "1"), pod("p", "2")]))
    (tmp_path / "more.yaml").write_text(to_yaml(node("a", "2"), pod("q", "2")))
    done = thalweg("plan", "-f", tmp_path / "now.json", "-f", tmp_path / "more.yaml", "-o", "json")
    assert by_pod(done.stdout)["bound"] == 1


def test_the_table_says_the_same() -> None:
    """Without ``-o json``: the sums first, then what goes where, what waits and why; the cost only with -v."""
    done = thalweg("plan", "-f", "-", "--pods", stdin=as_list(OBJECTS))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 node; 2 pods wait: 1 gets a node, 1 has none")
    assert lines[2] == "1 pod has no node; no plan leaves fewer"
    assert lines[4].split() == ["POD", "NODE", "COST", "REMARK"]
    assert any(line.startswith("default/p") and " a " in line for line in lines)
    assert any(line.startswith("default/q") and "Insufficient cpu" in line for line in lines)
    assert not any(line.startswith("cost ") for line in lines)
    assert done.stderr == ""
    done = thalweg("plan", "-f", "-", "-v", stdin=as_list(OBJECTS))
    assert done.stdout.splitlines()[-1].startswith("cost ")


def owned(name: str, kind: str, owner: str, cpu: str = "1", **spec: Any) -> Manifest:
    """A pod of a controller."""
    made = pod(name, cpu, **spec)
    reference = {"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


#: Room for 3 of the 5 pods of a Job, and a pod by itself that no node takes.
JOB = [node("a", "3"), *(owned(f"nightly-{at}", "Job", "nightly") for at in range(5)),
       pod("lost", "1", nodeSelector={"zone": "none"})]  # fmt: skip


def test_a_line_for_each_workload() -> None:
    """A Job is one line: how many of its pods are placed, and why the others wait; --pods has them all."""
    done = thalweg("plan", "-f", "-", stdin=as_list(JOB))
    assert done.stdout.splitlines() == [
        "1 node; 6 pods wait: 3 get a node, 3 have none; certified: no plan that evicts nobody costs less",
        "No policy governs these pods: default-scheduler binds them. Thalweg changes nothing.",
        "3 pods have no node; no plan leaves fewer",
        "",
        "WORKLOAD             PLAN",
        "job/default/nightly  3 of 5 placed; 2 wait: cpu (best node lacks 1)",
        "pod/default/lost     waits: node labels",
        "",
    ]
    every = thalweg("plan", "-f", "-", "--pods", stdin=as_list(JOB)).stdout
    assert sum(line.startswith("default/nightly-") for line in every.splitlines()) == 5


def test_it_says_what_every_plan_leaves() -> None:
    """In pods and GPUs, of the whole cluster also beside one namespace; nothing where nothing waits."""
    gpus = node("a", "8")
    gpus["status"]["allocatable"]["example.com/gpu"] = "3"
    pods = [pod(f"p{number}", "1") for number in range(2)]
    for each in pods:
        each["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "2"
    sentence = "1 pod has no node and asks for 2 GPUs; no plan leaves fewer"
    assert thalweg("plan", "-f", "-", stdin=as_list([gpus, *pods])).stdout.splitlines()[2] == sentence
    listed = thalweg("plan", "-f", "-", "-n", "default", stdin=as_list([gpus, *pods])).stdout.splitlines()
    assert listed[2] == f"in the whole cluster {sentence}"
    assert sentence in thalweg("status", "-f", "-", stdin=as_list([gpus, *pods])).stdout.splitlines()
    known = plan_of(gpus, *pods)["leftAtLeast"]
    assert known == {
        "waiting": 1,
        "pods": 1,
        "resource": "example.com/gpu",
        "asked": 2,
        "amount": 2,
        "levels": [],
        "furtherLevels": 0,
        "boundNotes": [],
        "size": 0.66666,
        "leastSize": 0.0,
    }
    assert plan_of(gpus, pods[0])["leftAtLeast"] is None
    assert thalweg("plan", "-f", "-", stdin=as_list([gpus, pods[0]])).stdout.splitlines()[2] == ""


def test_it_says_why_nothing_is_known_of_other_plans() -> None:
    """Room for three pods in sum, and for two of them on nodes: in words and, for programs, as codes."""
    objects = [node("a", "3"), node("b", "3"), pod("p", "2"), pod("q", "2"), pod("r", "1500m")]
    unknown = "how few a plan must leave is not known: the bound counts pods as if they could be split among nodes"
    for command in ("plan", "status"):
        assert (
            f"1 pod has no node; {unknown}" in thalweg(command, "-f", "-", stdin=as_list(objects)).stdout.splitlines()
        )
    known = plan_of(*objects)["leftAtLeast"]
    assert (known["waiting"], known["pods"], known["boundNotes"]) == (1, 0, ["Fractions"])


def test_workloads_add_up_in_json() -> None:
    """Their sums are those of the lists of pods, and the codes of a workload are those of its waiting pods."""
    answer = plan_of(*JOB)
    rows = {each["workload"]: each for each in answer["workloads"]}
    assert sum(each["placed"] for each in rows.values()) == len(answer["placements"])
    assert sum(each["waiting"] for each in rows.values()) == len(answer["pending"])
    nightly = rows["job/default/nightly"]
    assert (nightly["pods"], nightly["placed"], nightly["waiting"]) == (5, 3, 2)
    assert nightly["codes"] == {"NodeResourcesFit": 2}
    assert nightly["short"] == {"cpu (best node lacks 1)": 2}
    assert "Insufficient cpu" in nightly["reason"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "thalweg"])
def test_pods_are_planned_with_their_claims(scheduler: str) -> None:
    """Whoever binds them."""
    claimed = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Pending"},
    }
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    objects = [node("a"), claim, late]
    answer = plan_of(*objects, pod("p", schedulerName=scheduler, **claimed))
    assert answer["placements"] == {"default/p": "a"}


def test_no_pending_pods() -> None:
    """An empty plan is an answer; the table certifies nothing."""
    answer = plan_of(node("a"), pod("r", nodeName="a"))
    numbers = {"cost": 0, "lowerBound": 0, "gap": 0.0, "hidden": 0, "seconds": 0, "bound": 0, "nodes": 1}
    words = {
        "certified": True,
        "incomplete": False,
        "now": "2026-01-01T00:00:00Z",
        "namespace": "",
        "policy": "",
        "boundNotes": [],
    }
    lists: tuple[str, ...] = ("placed", "waiting", "evictions", "proposals", "observed", "warnings", "workloads")
    lists += ("evictionsByWorkload", "proposalsByWorkload")
    maps = {name: {} for name in ("placements", "pending", "evicted", "proposed", "nodesOf")}
    assert {**answer, "seconds": 0} == {
        **numbers,
        **words,
        **maps,
        **{name: [] for name in lists},
        "leftAtLeast": None,
    } | {name: answer[name] for name in ("counts", "leaving", "ungoverned")}
    assert (answer["counts"]["waiting"], answer["counts"]["sentence"]) == (0, "no pod waits")
    assert (answer["leaving"]["sentence"], answer["ungoverned"]["sentence"]) == ("", "")
    done = thalweg("plan", "-f", "-", stdin=as_list([node("a"), pod("r", nodeName="a")]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 node; no pod waits\n\n", "")


# -- which pods count --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["thalweg", "default-scheduler", "no-such-scheduler", None])
def test_every_pending_pod_is_planned_whatever_scheduler_it_names(scheduler: str | None) -> None:
    """It says where all of it would go."""
    spec = {} if scheduler is None else {"schedulerName": scheduler}
    assert plan_of(node("a"), pod("p", **spec))["placements"] == {"default/p": "a"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_are_done_hold_no_room_and_are_not_planned(phase: str) -> None:
    """Bound or never bound."""
    done = pod("done", "4", nodeName="a", status={"phase": phase})
    never = pod("never", "4", status={"phase": phase})
    answer = plan_of(node("a"), done, never, pod("p", "4"))
    assert answer["placements"] == {"default/p": "a"}
    assert answer["pending"] == {}


@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown", None])
def test_bound_pods_hold_their_room(phase: str | None) -> None:
    """Whatever phase they are in, until they are done; one that is being deleted too."""
    status = {} if phase is None else {"phase": phase}
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    bound = [pod("b1", "2", nodeName="a", status=status), pod("b2", "1", nodeName="a", status=status, metadata=leaving)]
    answer = plan_of(node("a"), *bound, pod("fits", "1"), pod("not", "2"))
    assert answer["placements"] == {"default/fits": "a"}
    assert set(answer["pending"]) == {"default/not"}


UNREADABLE = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "it is being deleted"),
        ({"schedulingGates": [{"name": "example.com/wait"}]}, "its scheduling gates are closed: example.com/wait"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}, "volume claims (disk)"),
        ({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}, "volume claims (held-scratch)"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}, "resource claims (gpu)"),
        ({"topologySpreadConstraints": [UNREADABLE]}, "spec.topologySpreadConstraints[0].labelSelector"),
    ],
)
def test_what_cannot_be_placed_waits_with_a_reason(changes: Manifest, reason: str) -> None:
    """It takes no room from others, and each node's reason is the same."""
    answer = plan_of(node("a", "1"), pod("held", "1", **changes), pod("free", "1"))
    check_shape(answer, {"a"}, {"default/held", "default/free"})
    assert answer["placements"] == {"default/free": "a"}
    assert reason in answer["pending"]["default/held"]["reason"]
    assert answer["pending"]["default/held"]["nodes"] == {"a": answer["pending"]["default/held"]["reason"]}


def test_volumes_without_claims_hold_nothing_up() -> None:
    """Config maps, projected tokens, empty dirs."""
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}, {"name": "d", "projected": {}}]
    assert plan_of(node("a"), pod("p", volumes=volumes))["bound"] == 1


@pytest.mark.parametrize("quantity", ["abc", "-1", "1 Gi", "", "1Z"])
def test_an_unreadable_quantity_leaves_only_that_pod_pending(quantity: str) -> None:
    """With the field in its reason."""
    answer = plan_of(node("a"), pod("bad", quantity), pod("good"))
    assert answer["placements"] == {"default/good": "a"}
    assert answer["pending"]["default/bad"]["reason"].startswith("spec.containers[0].resources.requests.cpu: ")
    assert f'"{quantity}"' in answer["pending"]["default/bad"]["reason"]


def test_an_unreadable_node_takes_nothing() -> None:
    """And says why."""
    bad = node("bad", "four")
    answer = plan_of(bad, node("good", "1"), pod("p", "1"), pod("q", "1"))
    assert list(answer["placements"].values()) == ["good"]
    (waiting,) = answer["pending"].values()
    assert "status.allocatable.cpu" in waiting["nodes"]["bad"]


def test_unknown_fields_and_kinds_are_passed_over() -> None:
    """What newer versions and other projects bring changes nothing."""
    strange = pod("p", newField={"deep": [1, None]}, metadata={"managedFields": [{"time": "never"}]})
    strange["spec"]["containers"][0]["newField"] = 3
    others = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": 5},
        {"apiVersion": "example.com/v1", "kind": "Widget"},
        {"apiVersion": "v1", "kind": "Event", "metadata": None},
    ]
    assert plan_of(node("a"), strange, *others)["placements"] == {"default/p": "a"}


def test_policies_of_the_dump_are_heeded() -> None:
    """With a price for waiting of its own, the pod that came later goes first."""
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "urgent"},
        "spec": {"selects": {"podSelector": {"matchLabels": {"urgent": "yes"}}}, "unscheduled": {"base": 10**9}},
    }
    urgent = pod("urgent", "4", schedulerName="thalweg", metadata={"labels": {"urgent": "yes"}})
    assert plan_of(node("a"), pod("p", "4"), urgent, policy)["placements"] == {"default/urgent": "a"}
    answer = plan_of(node("a"), pod("p", "4"), urgent)
    assert answer["placements"] == {"default/p": "a"}


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_gangs_of_the_dump_are_the_operators(tmp_path: Path) -> None:
    """From PodGroup objects, typed lists of them too, and from annotations, less what runs already."""
    ours = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "3"}
    label = {"scheduling.x-k8s.io/pod-group": "eval"}
    manifests = [node("a"), *(pod(name, "100m") for name in "abcdef")]
    manifests[1]["spec"]["nodeName"] = "a"
    for each in manifests[1:4]:
        each["metadata"]["annotations"] = ours
    manifests[4]["metadata"]["labels"] = label
    manifests[5]["spec"]["schedulingGroup"] = {"podGroupName": "native"}
    manifests[6]["spec"]["schedulingGroup"] = {"podGroupName": "nowhere"}
    group = {"metadata": {"name": "eval", "namespace": "default"}, "spec": {"minMember": 2}}
    listed = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroupList", "items": [group]}
    native = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "native", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    file = tmp_path / "dump.yaml"
    file.write_text(to_yaml(*manifests, listed, native, {**native, "apiVersion": "example.com/v1", "spec": "else"}))
    result = plan(read_dump((str(file),)), 0.0).result
    label_gang = "PodGroup default/eval of scheduling.x-k8s.io"
    assert {**result.after.gangs} == {
        "gang default/train": Gang("gang default/train", 2, partially_placed=True),
        label_gang: Gang(label_gang, 2, unschedulable_reason=f"{label_gang}: 1 of 2 pods exist"),
        "PodGroup default/native": Gang("PodGroup default/native", 1),
        "PodGroup default/nowhere": Gang(
            "PodGroup default/nowhere", 1, unschedulable_reason="PodGroup default/nowhere does not exist"
        ),
    }
    assert {each.pod.key: each.pod.gangs for each in result.placements}["default/b"] == ("gang default/train",)


def spoiled(kind: str, path: str, value: Any) -> str:
    """A dump in which one field has another value."""
    objects = {"Node": node("n1"), "Pod": pod("p1"), "Namespace": {"kind": "Namespace", "metadata": {"name": "ns1"}}}
    found = objects[kind]
    at: Any = found
    *parents, last = path.split("/")
    for step in parents:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    at[int(last) if last.isdigit() else last] = value
    return as_list([node("other"), found])


SPOILED = [
    ("Pod", "metadata", None, "Pod: metadata"),
    ("Pod", "metadata", "p1", "Pod: metadata"),
    ("Pod", "metadata/name", None, "Pod: metadata.name"),
    ("Pod", "metadata/name", 5, "Pod: metadata.name"),
    ("Pod", "metadata/namespace", 5, "metadata.namespace"),
    ("Pod", "metadata/labels", ["a"], "Pod default/p1: metadata.labels"),
    ("Pod", "metadata/labels", {"a": 1}, "Pod default/p1: metadata.labels"),
    ("Pod", "metadata/creationTimestamp", "yesterday", "Pod default/p1: metadata.creationTimestamp"),
    ("Pod", "spec", None, "Pod default/p1: spec"),
    ("Pod", "spec", [], "Pod default/p1: spec"),
    ("Pod", "spec/containers", {"a": 1}, "Pod default/p1: spec.containers"),
    ("Pod", "spec/containers/0", "main", "Pod default/p1: spec.containers"),
    ("Pod", "spec/containers/0/resources/requests", ["cpu"], "Pod default/p1: spec.containers[0].resources.requests"),
    (
        "Pod",
        "spec/containers/0/resources/requests/cpu",
        {"a": 1},
        "Pod default/p1: spec.containers[0].resources.requests",
    ),
    ("Pod", "spec/containers/0/ports", [{"hostPort": "http"}], "Pod default/p1: spec.containers[0].ports[0].hostPort"),
    ("Pod", "spec/nodeName", 5, "Pod default/p1: spec.nodeName"),
    ("Pod", "spec/nodeSelector", {"zone": 5}, "Pod default/p1: spec.nodeSelector"),
    ("Pod", "spec/tolerations", [{"key": 5}], "Pod default/p1: spec.tolerations[0].key"),
    ("Pod", "spec/priority", "high", "Pod default/p1: spec.priority"),
    ("Pod", "spec/affinity/nodeAffinity", "here", "Pod default/p1: spec.affinity.nodeAffinity"),
    ("Pod", "status", 5, "Pod default/p1: status"),
    ("Node", "metadata/labels", {"zone": None}, "Node n1: metadata.labels"),
    ("Node", "spec/taints", {"key": "a"}, "Node n1: spec.taints"),
    ("Node", "spec/unschedulable", "yes", "Node n1: spec.unschedulable"),
    ("Node", "status/allocatable", "much", "Node n1: status.allocatable"),
    ("Node", "status/allocatable/cpu", [4], "Node n1: status.allocatable"),
    ("Namespace", "metadata/labels", {"team": 1}, "Namespace ns1: metadata.labels"),
]


@pytest.mark.parametrize(
    ("kind", "path", "value", "named"), SPOILED, ids=[f"{kind} {path}={value!r}" for kind, path, value, _ in SPOILED]
)
def test_a_malformed_object_is_named(kind: str, path: str, value: Any, named: str, tmp_path: Path) -> None:
    """Exit code 2, one line: the file, the object, the field and what was expected."""
    (tmp_path / "dump.json").write_text(spoiled(kind, path, value))
    done = thalweg("plan", "-f", tmp_path / "dump.json", "-o", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"Error: {tmp_path / 'dump.json'}: ")
    assert named in done.stderr


def policy_text(spec: str) -> str:
    """A dump of one policy."""
    kind = '"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"'
    return f'{{{kind}, "metadata": {{"name": "f"}}, "spec": {spec}}}'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "contains no object"),
        ("---\n---\n", "contains no object"),
        ("null", "contains no object"),
        ("{", "not valid JSON"),
        ('{"kind": "List", "items": [}', "not valid JSON"),
        ("a: [b", "not valid YAML"),
        ("a: b: c", "not valid YAML: mapping values are not allowed in this context in line 1, column 5"),
        ("\t- x: 1\n\t\tb", "not valid YAML"),
        ("&a [*a]", "a value contains itself by an alias"),
        ("!!python/object/apply:os.system [exit]", "not valid YAML"),
        ("hello", "expected a Kubernetes object, got a string"),
        ("[]", "expected a Kubernetes object, got a list"),
        ("5", "expected a Kubernetes object, got a number"),
        ("true", "expected a Kubernetes object, got a boolean"),
        ("{}", "kind"),
        ('{"kind": 5}', "kind"),
        ('{"kind": "PodList"}', "PodList: items: expected a list, got nothing"),
        ('{"kind": "List", "items": {}}', "List: items: expected a list, got an object"),
        ('{"kind": "List", "items": [5]}', "List: items[0]: expected an object, got a number"),
        ('{"kind": "List", "items": [{"kind": 5}]}', "kind"),
        ('{"kind": "List", "items": [{"kind": ["Pod"]}]}', "kind"),
        ("kind: Thing\n---\n5\n", "document 2: expected a Kubernetes object"),
        ('{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": 1e400}}', "not valid JSON"),
        ('{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": ' + "9" * 400 + "}}", "spec.priority"),
        ('{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": 2147483648}}', "p: spec.priority"),
        ("kind: Pod\nmetadata: {name: p, labels: {1: a}}\nspec: {}", "Pod default/p: metadata.labels"),
        ("kind: Pod\nmetadata: {name: p, labels: {a: yes}}\nspec: {}", "Pod default/p: metadata.labels"),
        ("&a {kind: Pod, metadata: {name: p}, spec: {containers: *a}}", "a value contains itself by an alias"),
        ("\x00", "not valid YAML"),
        (policy_text('{"delivery": "Pigeon"}'), "FlowSchedulingPolicy f: spec.delivery"),
        (policy_text("null"), "FlowSchedulingPolicy f: spec: expected an object, got nothing"),
        (policy_text('{"cost": {"weights": {"balance": 100000000000000000000}}}'), "spec.cost.weights.balance"),
        (policy_text('{"unscheduled": {"base": -1}}'), "FlowSchedulingPolicy f: spec.unscheduled.base"),
        (policy_text('{"precedence": 2000000000}'), "FlowSchedulingPolicy f: spec.precedence"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_named(text: str, named: str, tmp_path: Path) -> None:
    """Exit code 2, one line with the file's name and what is wrong."""
    (tmp_path / "dump").write_text(text)
    done = thalweg("plan", "-f", tmp_path / "dump")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"Error: {tmp_path / 'dump'}: ")
    assert named in done.stderr


def test_files_that_are_no_text(tmp_path: Path) -> None:
    """Missing files, folders, bytes that are not UTF-8."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00kind")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "bytes"):
        done = thalweg("plan", "-f", path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: {path}: cannot be read: ")


def test_a_deep_document_ends_in_words() -> None:
    """Ten thousand brackets exhaust a parser, not the reader."""
    for text in ("[" * 10_000, "[" * 10_000 + "]" * 10_000, "a: " + "[" * 3_000 + "]" * 3_000):
        done = thalweg("plan", "-f", "-", stdin=text)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: standard input: ")


def test_a_file_or_a_cluster_must_be_given() -> None:
    """A sentence that names both, not a traceback."""
    done = thalweg("plan")
    assert done.returncode == 2
    assert "Give --filename to ask a dump, or --kubeconfig" in done.stderr


# -- anything at all ---------------------------------------------------------------------------------------------------

_odd_values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.just([]), st.just({}),
    st.just([None]), st.just([{}]), st.just({"a": None}), st.just({"": ""}), st.just("9" * 50), st.just("1Ei"),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a JSON value."""
    if isinstance(value, dict):
        return [p for key, each in value.items() for p in [(*path, key), *places(each, (*path, key))]]
    if isinstance(value, list):
        return [p for at, each in enumerate(value) for p in [(*path, at), *places(each, (*path, at))]]
    return []


@settings(max_examples=examples(120))
@given(crowded_cases(), st.data())
def test_no_manifest_makes_a_traceback(case: Case, data: st.DataObject) -> None:
    """With any field of any object replaced by anything: a plan, or exit code 2 and a line that names the file."""
    dump = {"kind": "List", "items": deepcopy([*case.nodes, *case.pods, *case.pending, *case.namespaces])}
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(dump["items"])))
        at: Any = dump["items"]
        for step in path[:-1]:
            at = at[step] if isinstance(at, list | dict) and (not isinstance(at, list) or step < len(at)) else {}
        if isinstance(at, dict) or (isinstance(at, list) and path[-1] < len(at)):
            at[path[-1]] = data.draw(_odd_values)
    done = CliRunner().invoke(main, ["plan", "-f", "-", "-o", "json"], input=json.dumps(dump))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code in (0, 2)
    if done.exit_code == 2:
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
    else:
        assert set(json.loads(done.stdout)) == _ANSWER


@settings(max_examples=examples(100))
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_no_text_makes_a_traceback(text: str | bytes) -> None:
    """Whatever the file holds."""
    done = CliRunner().invoke(main, ["plan", "-f", "-"], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == 2


def _web(name: str, priority: int, **spec: Any) -> Manifest:
    """A pod that takes host port 80."""
    containers = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    manifest = pod(name)
    manifest["metadata"].update(namespace="default", uid=name)
    manifest["spec"] = {"containers": containers, "priority": priority, **spec}
    return manifest


#: The pod that waits has a higher priority than the one that holds the only host port.
_PREEMPTION = Case([node("a")], [_web("runs", 0, nodeName="a")], [_web("waits", 10)])


@settings(max_examples=examples(80))
@given(crowded_cases())
@example(_PREEMPTION)
def test_plans_for_dumps_are_sound(case: Case) -> None:
    """All safety checks hold of them, evictions carried out; every pending pod is planned or blocked, never both."""
    for manifest in case.pending:
        manifest["spec"].pop("nodeName", None)
    dump = Scenario()
    for manifest in case.nodes:
        dump.cluster.put_node(to_node(msgspec.convert(manifest, WireNode), Interner()))
    for manifest in case.namespaces:
        wire = msgspec.convert(manifest, WireNamespace)
        dump.cluster.set_namespace(wire.metadata.name, to_labels(wire.metadata.labels))
    for each_pod in read_pods([*case.pods, *case.pending]):
        dump.cluster.put_pod(each_pod)
    simulation = plan(dump, now=0.0)
    before = replace(
        snapshot_of(case, place_blocked=False),
        generation=0,
        running=running_pods(dump.cluster, lambda _pod: BUILT_IN, now=0.0),
    )
    check_evictions(before, simulation.result, DEFAULT_POLICIES)
    if simulation.result.evictions:
        for check in (check_complete, check_gangs):
            check(before, simulation.result)
        check_costs(simulation.result)
    else:
        check_plan(before, simulation.result)
    planned = [entry.pod.key for entry in (*simulation.result.placements, *simulation.result.unplaced)]
    waiting = [each.key for each in dump.cluster.pods.values() if not each.node_name and not each.terminal]
    assert sorted([*planned, *simulation.skipped]) == sorted(waiting)


def test_a_bound_pod_with_unreadable_requests_fills_its_node() -> None:
    """What it holds is not known, so nothing is placed beside it; a time without a zone is no reason to stumble."""
    requests = [{"cpu": "4x"}, {"cpu": "4"}]
    running, waiting = (
        {
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": r}}]},
        }
        for name, r in zip("rw", requests, strict=True)
    )
    running["spec"]["nodeName"] = "n"
    running["metadata"]["creationTimestamp"] = "0001-01-01T00:00:00"
    only = {"metadata": {"name": "n"}, "kind": "Node", "status": {"allocatable": {"cpu": "4", "pods": "10"}}}
    dump = json.dumps({"kind": "List", "items": [only, running, waiting]})
    answer = by_pod(CliRunner().invoke(main, ["plan", "-f", "-", "-o", "json", "--nodes"], input=dump).stdout)
    assert answer["placements"] == {}
    assert answer["pending"]["default/w"]["nodes"] == {"n": "Insufficient cpu"}


def test_data_and_waiting_in_a_dump() -> None:
    """Pods go to their data, by their own annotation or their claim's; who would rather wait says so."""
    spec = {
        "selects": {"schedulerNames": ["thalweg"], "podSelector": {}},
        "cost": {"dataLocality": {"pricePerGiB": {"node": 100000}}},
        "unscheduled": {"base": 9000, "perWaitingSecond": 0, "waitForCheaperNode": True},
    }
    near = {"kind": "FlowSchedulingPolicy", "apiVersion": "scheduling.thalweg/v1alpha1", "metadata": {"name": "near"}}

    def reads(name: str, where: str) -> Manifest:
        metadata = {"name": name, "namespace": "default", "annotations": {"scheduling.thalweg/data": where}}
        return pod(name, metadata=metadata, schedulerName="thalweg")

    answer = plan_of(
        node("a"),
        node("b"),
        near | {"spec": spec},
        reads("near-b", '[{"node": "b", "bytes": "1Gi"}]'),
        reads("nowhere", '[{"node": "gone", "bytes": "1Gi"}]'),
        reads("bad", '[{"node": "b"}]'),
    )
    assert answer["placements"]["default/near-b"] == "b"
    assert "default/bad" in answer["placements"]
    assert "It waits for a cheaper node." in str(answer["pending"]["default/nowhere"])
    (told,) = answer["warnings"]
    assert "annotation scheduling.thalweg/data: " in told
    assert "default/bad" in told
    assert told.endswith("; it is ignored")


def test_policies_that_do_nothing_are_warned_of(tmp_path: Path) -> None:
    """One that matches no pod, one that comes second by its name, and a constraint about pods of others."""
    web = {"matchLabels": {"app": "web"}}
    rule = {"name": "az", "conflict": {"pods": {"matchLabels": {"app": "api"}}, "topologyKey": "zone"}}

    def policy(name: str, selector: dict[str, Any], **spec: Any) -> dict[str, Any]:
        kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
        return {**kind, "metadata": {"name": name}, "spec": {"selects": {"podSelector": selector}, **spec}}

    labels = {"name": "p", "labels": {"app": "web"}}
    file = tmp_path / "dump.yaml"
    file.write_text(
        to_yaml(
            node("n"),
            pod("p", metadata=labels, schedulerName="thalweg"),
            policy("first", web, constraints=[rule]),
            policy("second", web),
            policy("none", {"matchLabels": {"app": "other"}}),
        )
    )
    done = thalweg("plan", "-f", file)
    assert done.returncode == 0, done.stderr
    assert "Warning: policy none: it governs no pod: spec.selects matches no pod of the cluster\n" in done.stderr
    assert "Warning: policy second: it governs no pod: first comes first, since its name comes first" in done.stderr
    assert "Warning: policy first: constraint az of policy first does nothing" in done.stderr


def test_files_without_pods_are_named() -> None:
    """Else all nodes look free: the pods were forgotten. A pod that has ended is one, and is none that runs."""
    warning = "Warning: the files have no Pod: everything counts as free\n"
    for command in (("plan",), ("status",), ("plan", "--compare")):
        assert thalweg(*command, "-f", "-", stdin=as_list([node("a")])).stderr == warning
    with_one = as_list([node("a"), pod("p", status={"phase": "Succeeded"})])
    assert thalweg("plan", "-f", "-", stdin=with_one).stderr == ""
