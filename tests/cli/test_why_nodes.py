"""``thalweg why --nodes``, the real command, and its verdicts against kube-scheduler's."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from support.cli import Manifest, node, pod, thalweg, why_nodes
from support.draw import ASPECTS, Case, cases_for
from support.profiles import examples
from support.verdicts import namespaces_of, read_pods, snapshot_of, storage_objects
from thalweg.questions.node_verdicts import as_json
from thalweg.questions.node_verdicts import explain as explanations

from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.dump_commands import DUMP_COMMAND
from flowcore.questions.scenario.reading.missing_objects import NO_CLAIMS_MESSAGE
from flowcore.rules.filters.registry import IN_ORDER

FITS = {"fits": True, "filter": "", "reason": ""}
WEB = {"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}}


def dump_of(*objects: Manifest) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def rule(side: str, **term: Any) -> Manifest:
    own = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}, **term}
    return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}}


def test_the_answers_shape() -> None:
    """An array of pods, each with every node: whether it fits, which filter rejects it, in kube-scheduler's words."""
    tainted = node("b", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    answer = why_nodes(node("a", "2"), tainted, pod("p", "1"), pod("q", "3"))
    taint = {"fits": False, "filter": "TaintToleration", "reason": "node(s) had untolerated taint(s)"}
    short = {"fits": False, "filter": "NodeResourcesFit", "reason": "Insufficient cpu"}
    assert answer == [
        {"pod": "default/p", "nodes": {"a": FITS, "b": taint}},
        {"pod": "default/q", "nodes": {"a": short, "b": taint}},
    ]


def test_who_would_leave_for_a_pod() -> None:
    """Asked by name, a pod that fits on no node is told which running pods would leave for it, or why none would."""
    low = pod("low", "3", nodeName="a", priority=1, status={"phase": "Running"})
    (entry,) = why_nodes(node("a"), low, pod("p", "3", priority=2), names=("p",))
    leaves = {"pod": "default/low", "node": "a", "kind": "Preemption", "for": ["default/p"]}
    assert entry["evictions"] == [{**leaves, "to": "", "reason": "", "gain": 0, "price": 1125, "acts": False}]
    assert "nobodyLeaves" not in entry
    for waiting, why in (
        (pod("p", "3", priority=1), "no running pod has a lower priority"),
        (pod("p", "3", priority=2, preemptionPolicy="Never"), "its preemptionPolicy is Never"),
        (pod("p", "5", priority=2), "evictions of pods with a lower priority would not make enough room"),
    ):
        (entry,) = why_nodes(node("a"), low, waiting, names=("p",))
        assert (entry.get("evictions"), entry["nobodyLeaves"]) == (None, why)
    (entry,) = why_nodes(node("a"), low, pod("p", "1", priority=2), names=("p",))
    assert not {"evictions", "nobodyLeaves", "gang", "blocked"} & entry.keys()


def test_a_budget_that_lets_nobody_leave_is_named() -> None:
    """In the words for people too."""
    low = pod("low", "3", nodeName="a", metadata={"labels": {"app": "web"}}, status={"phase": "Running"})
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
              "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}  # fmt: skip
    dump = dump_of(node("a"), low, pod("p", "3", priority=2), budget)
    done = thalweg("why", "--nodes", "p", "-f", "-", stdin=dump)
    assert "no running pod would leave for it: PodDisruptionBudgets allow no eviction now: default/b" in done.stdout


def test_who_would_leave_is_left_out_where_room_does_not_help() -> None:
    """A pod whose volume claim is missing fits on no node, whoever leaves."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "other"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    low = pod("low", "3", nodeName="a", priority=1, status={"phase": "Running"})
    (entry,) = why_nodes(node("a"), low, claim, pod("p", "3", priority=2, volumes=volumes), names=("p",))
    assert 'persistentvolumeclaim "missing" not found' in entry["text"]
    assert "nobodyLeaves" not in entry


def test_no_pending_pod_is_placed_before_another() -> None:
    """Two pods that both fit alone fit both."""
    answer = why_nodes(node("a", "1"), pod("p", "1"), pod("q", "1"))
    assert [entry["nodes"] for entry in answer] == [{"a": FITS}, {"a": FITS}]


def test_running_pods_count_and_pods_that_ended_do_not() -> None:
    """Room and rules are read against what runs."""
    web = {**pod("", "3", nodeName="a"), **WEB, "status": {"phase": "Running"}}
    over = pod("over", "3", nodeName="b", status={"phase": "Succeeded"})
    answer = why_nodes(node("a"), node("b"), web, over, pod("p", "3"))
    assert [entry["pod"] for entry in answer] == ["default/p"]
    assert {name: verdict["reason"] for name, verdict in answer[0]["nodes"].items()} == {
        "a": "Insufficient cpu",
        "b": "",
    }


def test_constraints_of_the_dumps_policies_are_judged() -> None:
    """The filter that is ours comes after kube-scheduler's; a contradiction is told before all of them."""
    at_most = {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}

    def policy(name: str, key: str = HOSTNAME) -> Manifest:
        return {
            "apiVersion": "scheduling.thalweg/v1alpha1",
            "kind": "FlowSchedulingPolicy",
            "metadata": {"name": name},
            "spec": {
                "selects": {"podSelector": {"matchLabels": {"policy": name}}},
                "constraints": [{"name": "az", "conflict": {**at_most, "topologyKey": key}}],
            },
        }

    def governed(name: str, policy: str) -> Manifest:
        return pod(name, "1", schedulerName="thalweg", metadata={"labels": {"app": "web", "policy": policy}})

    nodes = [node(name, cpu) for name, cpu in (("a", "4"), ("b", "4"), ("c", "0"))]
    web = {**pod("", nodeName="a"), **WEB, "status": {"phase": "Running"}}
    found = why_nodes(*nodes, web, governed("p", "one"), governed("q", "odd"), policy("one"), policy("odd", "rack"))
    reasons = {
        entry["pod"]: {name: (verdict["filter"], verdict["reason"]) for name, verdict in entry["nodes"].items()}
        for entry in found
    }
    full = "node(s) are full by constraint az of policy one (at most 1 per kubernetes.io/hostname)"
    nowhere = "constraint az of policy odd names rack, a label that no node has"
    odd = f"node(s) are ruled out by a contradiction: {nowhere}"
    assert reasons == {
        "default/p": {"a": ("PolicyConstraints", full), "b": ("", ""), "c": ("NodeResourcesFit", "Insufficient cpu")},
        "default/q": dict.fromkeys("abc", ("PolicyConstraints", odd)),
    }


def test_rules_between_pods_are_judged() -> None:
    """Those of the pod that waits, for the pods that run."""
    web = {**pod("", nodeName="a"), **WEB, "status": {"phase": "Running"}}
    near = pod("near", **rule("podAffinity", namespaces=["shop"]))
    far = pod("far", **rule("podAntiAffinity", namespaces=["shop"]))
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    even = pod("even", topologySpreadConstraints=[spread])
    found = {entry["pod"]: entry for entry in why_nodes(node("a"), node("b"), web, near, far, even)}
    reasons = {
        key: {name: (verdict["filter"], verdict["reason"]) for name, verdict in entry["nodes"].items()}
        for key, entry in found.items()
    }
    label = ("PodTopologySpread", "node(s) didn't match pod topology spread constraints (missing required label)")
    assert reasons == {
        "default/near": {"a": ("", ""), "b": ("InterPodAffinity", "node(s) didn't match pod affinity rules")},
        "default/far": {"a": ("InterPodAffinity", "node(s) didn't match pod anti-affinity rules"), "b": ("", "")},
        "default/even": {"a": label, "b": label},
    }
    assert not any("blocked" in entry for entry in found.values())


def test_namespace_selectors_read_the_namespaces_of_the_dump() -> None:
    """A running pod is near only if its namespace's labels are selected."""
    web = {**pod("", nodeName="a"), **WEB, "status": {"phase": "Running"}}
    near = pod("near", **rule("podAffinity", namespaceSelector={"matchLabels": {"team": "one"}}))
    for team, fits in (("one", True), ("two", False)):
        shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": team}}}
        assert why_nodes(shop, node("a"), web, near)[0]["nodes"]["a"]["fits"] is fits


def test_a_blocked_pod_is_judged_all_the_same() -> None:
    """Gates are no matter of filters."""
    answer = why_nodes(node("a"), pod("p", schedulingGates=[{"name": "example.com/gate"}]))
    assert answer[0]["nodes"] == {"a": FITS}
    assert answer[0]["blocked"] == "its scheduling gates are closed: example.com/gate"


def test_pods_by_name_in_the_order_given() -> None:
    """Each once; a name alone means the namespace default."""
    objects = [node("a"), pod("p"), pod("q"), {**pod(""), **WEB}]
    answer = why_nodes(*objects, names=("shop/web", "q", "default/q"))
    assert [entry["pod"] for entry in answer] == ["shop/web", "default/q"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("default/nobody", "pod default/nobody: there is no such pod"),
        ("nobody", "pod default/nobody: there is no such pod"),
        ("runs", "pod default/runs: it does not wait: it is bound to a"),
        ("done", "pod default/done: it has finished"),
    ],
)
def test_a_pod_that_does_not_wait_is_an_error(name: str, message: str) -> None:
    """One line that says what is wrong, and exit code 2."""
    objects = [node("a"), pod("p"), pod("runs", nodeName="a"), pod("done", status={"phase": "Failed"})]
    done = thalweg("why", "--nodes", "default/p", name, "-f", "-", stdin=dump_of(*objects))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {message}")
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """As with ``plan``."""
    done = thalweg("why", "--nodes", "-f", tmp_path / "none.json")
    assert done.returncode == 2
    assert done.stderr == f"Error: {tmp_path / 'none.json'}: cannot be read: No such file or directory\n"


def test_the_table_of_all_pods() -> None:
    """A line a pod, with reasons counted as kube-scheduler counts them."""
    objects = [node("a", "1"), node("b", "2"), pod("p", "2"), pod("q", "3"), pod("r", "1")]
    lines = thalweg("why", "--nodes", "-f", "-", stdin=dump_of(*objects)).stdout.splitlines()
    assert [line.strip().split(maxsplit=1) for line in lines] == [
        ["POD", "VERDICT"],
        ["default/p", "1/2 nodes are available: 1 Insufficient cpu."],
        ["default/q", "0/2 nodes are available: 2 Insufficient cpu."],
        ["default/r", "2/2 nodes are available."],
    ]


def test_the_table_of_one_pod() -> None:
    """Node by node under its name; brackets in a reason are left as they are."""
    selector = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    objects = [node("a", "1"), node("b"), pod("p", "2"), pod("even", topologySpreadConstraints=[spread])]
    text = thalweg("why", "--nodes", "default/p", "even", "-f", "-", stdin=dump_of(*objects)).stdout
    first, nodes, second, _ = text.split("\n\n")
    assert [line.split() for line in nodes.splitlines()[1:]] == [
        ["NODES", "FITS", "FILTER", "REASON"],
        ["a", "no", "NodeResourcesFit", "Insufficient", "cpu"],
        ["b", "yes"],
    ]
    assert first.startswith("default/p: HandedOver: ")
    assert nodes.splitlines()[0] == "Before other pods are planned: 1/2 nodes are available: 1 Insufficient cpu."
    assert second.startswith("default/even: Blocked: ")
    assert "Thalweg does not plan this pod: spec.topologySpreadConstraints[0].labelSelector: " in " ".join(text.split())


def test_nothing_waits() -> None:
    """An empty answer is an answer."""
    assert why_nodes(node("a")) == []
    assert thalweg("why", "--nodes", "-f", "-", stdin=dump_of(node("a"))).stdout == "no pod waits\n"


def test_a_dump_without_nodes_is_an_error() -> None:
    """As with ``plan``."""
    done = thalweg("why", "--nodes", "-f", "-", stdin=dump_of(pod("p")))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: standard input: no Node found. Dump the cluster with: {DUMP_COMMAND}\n"


def test_claims_that_were_not_dumped_are_not_said_to_be_missing() -> None:
    """Without any PersistentVolumeClaim in the files the reason says that, and which command adds them."""
    done = thalweg("why", "--nodes", "-f", "-", "-o", "json", stdin=dump_of(node("a"), claiming("p", "data"), pod("q")))
    first, second = json.loads(done.stdout)
    assert done.returncode == 0
    assert first["nodes"] == {"a": {"fits": False, "filter": "VolumeRestrictions", "reason": NO_CLAIMS_MESSAGE}}
    assert NO_CLAIMS_MESSAGE.startswith("the files contain no PersistentVolumeClaim (add them: kubectl get pvc,pv,sc,")
    assert second["nodes"] == {"a": FITS}
    assert done.stderr == f"Warning: Pod default/p: volume claims are not judged: {NO_CLAIMS_MESSAGE}\n"


def test_claims_of_a_pod_that_we_bind_are_judged_as_those_of_others() -> None:
    """The binder gives them their volumes."""
    claim = {**CLAIM, "metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "late"}}
    (explained,) = why_nodes(node("a"), LATE, claim, claiming("p", "data", scheduler="thalweg"))
    assert "blocked" not in explained
    assert explained["nodes"]["a"]["filter"] == "VolumeBinding"


@settings(max_examples=examples(100))
@given(cases_for(ASPECTS))
def test_every_pod_and_node_has_its_verdict(case: Case) -> None:
    """Whatever the cluster: all waiting pods, all nodes, and reasons exactly where a pod does not fit."""
    table = snapshot_of(case).table
    dump = Scenario()
    for each_node in table.nodes:
        dump.cluster.put_node(each_node)
    for each_pod in read_pods([*case.pods, *case.pending]):
        dump.cluster.put_pod(each_pod)
    for name, labels in namespaces_of(case).items():
        dump.cluster.set_namespace(name, labels)
    for each in storage_objects(case):
        dump.cluster.put_storage(each)
    waiting = [each.key for each in dump.waiting()]
    answer = json.loads(msgspec.json.encode(as_json(explanations(dump, dump.waiting()))))
    assert [entry["pod"] for entry in answer] == waiting
    for entry in answer:
        assert list(entry["nodes"]) == [each.name for each in table.nodes]
        for verdict in entry["nodes"].values():
            assert verdict["fits"] == (verdict["filter"] == "") == (verdict["reason"] == "")
            assert verdict["filter"] in {"", *(each.name for each in IN_ORDER)}


CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
LATE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claiming(name: str, *claims: str, scheduler: str = "default-scheduler") -> Manifest:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, schedulerName=scheduler, volumes=volumes)


def volume_on(name: str, host: str) -> Manifest:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    spec = {"storageClassName": "late", "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": status}


def test_pods_with_claims_are_judged_by_the_storage_objects_of_the_dump() -> None:
    """And are planned: another scheduler binds them."""
    claim = {**CLAIM, "metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "late"}}
    objects = [node("a"), node("b"), LATE, volume_on("v", "b"), claim, claiming("p", "data"), claiming("q", "none")]
    first, second = why_nodes(*objects)
    missing = {"fits": False, "filter": "VolumeRestrictions", "reason": 'persistentvolumeclaim "none" not found'}
    no_volume = {
        "fits": False,
        "filter": "VolumeBinding",
        "reason": "node(s) didn't find available persistent volumes to bind",
    }
    assert (first["nodes"], second["nodes"]) == ({"a": no_volume, "b": FITS}, {"a": missing, "b": missing})
    assert "blocked" not in first


def test_a_resource_that_a_device_class_of_the_dump_backs_is_devices() -> None:
    """Wherever the DeviceClass stands, on nodes that do not offer it, in each delivery; others are not concerned."""
    devices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    asking = pod("p")
    asking["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    none = {"fits": False, "filter": "DynamicResources", "reason": "cannot allocate all claims"}
    for objects in ([devices, asking, pod("q")], [asking, pod("q"), devices]):
        assert why_nodes(node("a"), *objects) == [
            {"pod": "default/p", "nodes": {"a": none}},
            {"pod": "default/q", "nodes": {"a": FITS}},
        ]
    ours = {**asking, "spec": {**asking["spec"], "schedulerName": "thalweg"}}
    (entry,) = why_nodes(node("a"), devices, ours, names=("default/p",))
    assert (entry["nodes"], "blocked" in entry) == ({"a": none}, False)


def test_a_storage_object_that_cannot_be_read_is_named() -> None:
    """With its file, kind, name and field, as all objects of a dump are."""
    claim = {**CLAIM, "metadata": {"name": "data", "namespace": "shop", "labels": {"a": 1}}}
    done = thalweg("why", "--nodes", "-f", "-", stdin=dump_of(node("a"), claim))
    assert done.returncode == 2
    assert done.stderr == (
        "Error: standard input: PersistentVolumeClaim shop/data: metadata.labels[...]: Expected `str`, got `int`\n"
    )


def test_what_is_the_matter_with_its_gang_is_said() -> None:
    """A pod that fits everywhere and waits all the same; one whose gang lacks nothing but room says nothing."""
    ours = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "2"}
    pods = [pod(name, metadata={"annotations": ours}) for name in "pq"]
    (alone,) = why_nodes(node("a"), pods[0])
    assert (alone["gang"], alone["nodes"]) == ("gang default/train: 1 of 2 pods exist", {"a": FITS})
    assert all("gang" not in each for each in why_nodes(node("a"), *pods))
    text = thalweg("why", "--nodes", "-f", "-", stdin=dump_of(node("a"), pods[0])).stdout
    assert "Gang default/train: 1 of 2 pods exist." in " ".join(text.split())


def test_a_gang_whose_topology_no_node_has() -> None:
    """Each node would do for the pod, none for its gang: that is said, and no longer once a node has the label."""
    ours = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "1"}
    member = pod("p", metadata={"annotations": {**ours, "scheduling.thalweg/gang-topology": "zone"}})
    (found,) = why_nodes(node("a"), member)
    assert found["gang"] == "gang default/train keeps to one domain of zone, a label that no node has"
    zoned = node("a")
    zoned["metadata"]["labels"] = {"zone": "z1"}
    (found,) = why_nodes(zoned, member)
    assert "gang" not in found


def test_nodes_with_one_verdict_share_a_row() -> None:
    """Three names and how many more; nodes with another verdict have rows of their own."""
    nodes = [node(f"n{number}", cpu="1") for number in range(5)]
    dump = dump_of(*nodes, node("large", cpu="9"), pod("p", "4"))
    text = thalweg("why", "--nodes", "p", "-f", "-", stdin=dump).stdout.partition("Before other pods are planned")[2]
    lines = [line.split("  ")[0] for line in text.splitlines()[1:]]
    assert lines == ["NODES", "n0, n1, n2 and 2 more", "large"]


def test_one_answer_has_the_likely_typo_and_every_node() -> None:
    """The label that was meant, and that the filter for labels rejects all nodes."""
    nodes = [node(name) for name in "ab"]
    for each in nodes:
        each["metadata"]["labels"]["pool"] = "general"
    dump = dump_of(*nodes, pod("p", nodeSelector={"pool": "genral"}))
    text = thalweg("why", "p", "--nodes", "-f", "-", stdin=dump).stdout
    assert "No node has pool=genral; 2 nodes have pool=general." in text
    assert "a, b   no    NodeAffinity" in text


def test_without_a_pod_there_is_no_question() -> None:
    """A sentence that says what to give; and an option that asks no operator is told beside one that is for it."""
    for words, said in (
        ((), "name a pod, or give --nodes for a line for each waiting pod"),
        (("--nodes", "--watch"), "--watch needs a target"),
        (("p", "--nodes", "--server", "https://a"), "--nodes asks no operator, and --server is for one"),
    ):
        done = thalweg("why", *words)
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())
