"""What why advises, case by case: the commonest mistakes by name, and the fix that people want first."""

from collections import Counter
from dataclasses import replace as replace_outcome
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace
from support.cli import Manifest, pod
from support.device_clusters import GPU as GPU_CLASS
from support.device_clusters import allocated, claim, slice_of
from support.profiles import examples
from support.scenario_state import scenario_of
from support.small_fixes import NOW, draw_scenario

from flowcore.api.pod_limits import MAX_TOLERATIONS
from flowcore.questions.diagnosis.answers import WhyAnswer, WhyKind, WhyQuery
from flowcore.questions.diagnosis.fixes import find_fixes
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario, applied, plan_scenario
from flowcore.questions.scenario.alternatives.replanning import PlanDifference, nodes_held
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    DropNodeSelector,
    EvictPods,
    RemoveTaint,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
)

CONTEXT = AnswerContext(NOW)
ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
GPU_TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
MEMORY_TAINT = {"key": "dedicated", "value": "memory", "effect": "NoSchedule"}
TOLERATES_GPU = {"tolerations": [{"key": GPU, "operator": "Exists"}]}


def node(name: str, cpu: str = "4", zone: str = "a", gpus: int = 0, taints: Any = (), **labels: str) -> Manifest:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
    named = {"kubernetes.io/hostname": name, ZONE: zone, **labels}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": named},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable},
    }


def one(name: str, cpu: str = "1", gpus: int = 0, kind: str = "", owner: str = "", labels: Any = None,
        annotations: Any = None, **spec: Any) -> Manifest:  # fmt: skip
    """A pod of a controller, or by itself."""
    metadata = {"labels": labels or {}, "annotations": annotations or {}, "uid": name}
    if kind:
        metadata["ownerReferences"] = [{"kind": kind, "name": owner, "uid": f"of-{owner}", "controller": True}]
    found = pod(name, cpu, metadata=metadata, **spec)
    if gpus:
        found["spec"]["containers"][0]["resources"]["requests"][GPU] = str(gpus)
    return found


def ask(scenario: Scenario, target: str) -> WhyAnswer:
    return answer_why(scenario, WhyQuery(target), CONTEXT)


def kinds(answer: WhyAnswer) -> list[type]:
    return [type(fix.change[0]) for fix in answer.fixes]


def gang(name: str, size: int, gpus: int) -> list[Manifest]:
    terms = {"scheduling.thalweg/gang": name, "scheduling.thalweg/gang-min-member": str(size)}
    return [one(f"{name}-{at}", "1", gpus, annotations=terms, **TOLERATES_GPU) for at in range(size)]


# -- the commonest mistakes, by name -----------------------------------------------------------------------------------


def test_a_label_value_that_no_node_has() -> None:
    """The value is named, and the nearest that nodes have; to mend it comes before to drop the rule."""
    nodes = [node("gp-0", pool="general"), node("gp-1", pool="general"), node("arm", pool="arm")]
    answer = ask(scenario_of([*nodes, one("typo", nodeSelector={"pool": "genral"})]), "default/typo")
    assert answer.evidence[0] == "No node has pool=genral; 2 nodes have pool=general."
    assert answer.next == "Ask for pool=general, not pool=genral: nobody loses a place."
    assert kinds(answer)[:2] == [ReplaceNodeLabel, DropNodeSelector]


def test_a_label_key_that_no_node_has() -> None:
    """The near key has the value that is asked for; required node affinity is read as well."""
    kind = {"node.kubernetes.io/instance-type": "m6i.2xlarge"}
    wrong = {"key": "node.kubernetes.io/instancetype", "operator": "In", "values": ["m6i.2xlarge"]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [wrong]}]}}
    for spec in ({"nodeSelector": {wrong["key"]: "m6i.2xlarge"}}, {"affinity": {"nodeAffinity": terms}}):
        answer = ask(scenario_of([node("a", **kind), one("typo", **spec)]), "default/typo")
        have = "1 node has node.kubernetes.io/instance-type=m6i.2xlarge."
        assert answer.evidence[0] == f"No node has node.kubernetes.io/instancetype=m6i.2xlarge; {have}"
        assert answer.fixes[0].text.startswith("Ask for node.kubernetes.io/instance-type=m6i.2xlarge, not ")


def test_a_label_that_nothing_comes_near() -> None:
    """Then what there is of the label is told, or that there is none; no guess is made."""
    for selector, words in (
        ({"pool": "gpu"}, "No node has pool=gpu; of this label there is general."),
        ({"rack": "r1"}, "No node has the label rack."),
    ):
        answer = ask(scenario_of([node("a", pool="general"), one("p", nodeSelector=selector)]), "default/p")
        assert answer.evidence[0] == words
        assert ReplaceNodeLabel not in kinds(answer)


def test_labels_of_nodes_are_for_those_who_may_read_nodes() -> None:
    """Who may not learns neither a value of a label nor how many nodes have it."""
    nodes = [node("gp-0", pool="general"), node("gp-1", pool="general")]
    asker = AnswerContext(NOW, nodes=False)
    scenario = scenario_of([*nodes, one("typo", nodeSelector={"pool": "genral"})])
    answer = answer_why(scenario, WhyQuery("default/typo"), asker)
    assert "general" not in json.encode(answer).decode()
    assert ReplaceNodeLabel not in kinds(answer)


def _claim(storage_class: str) -> Manifest:
    metadata = {"name": "data", "namespace": "default"}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"storageClassName": storage_class}}


VOLUME = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
GP3 = {
    "kind": "StorageClass",
    "metadata": {"name": "gp3"},
    "provisioner": "x",
    "volumeBindingMode": "WaitForFirstConsumer",
}
EXTENDER = {
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "all"},
    "spec": {"selects": {"podSelector": {}, "schedulerNames": ["default-scheduler"]}, "delivery": "Extender"},
}


@pytest.mark.parametrize("policies", [[], [EXTENDER]])
def test_a_claim_or_a_storage_class_that_does_not_exist(policies: list[Manifest]) -> None:
    """To create it is the way out, whether such pods are planned or not."""
    other = {**_claim("gp3"), "metadata": {"name": "other", "namespace": "default"}}
    here = [node("a"), GP3, *policies, one("p", volumes=VOLUME)]
    answer = ask(scenario_of([*here, other]), "default/p")
    assert "PersistentVolumeClaim default/data does not exist." in answer.evidence
    assert answer.next == "Create PersistentVolumeClaim data in namespace default."
    answer = ask(scenario_of([*here, _claim("gp33")]), "default/p")
    missing = "StorageClass gp33, which PersistentVolumeClaim default/data names, does not exist; there is gp3."
    assert missing in answer.evidence
    assert answer.next == "Create StorageClass gp33, or name another one in the claim."


def test_a_priority_class_that_does_not_exist() -> None:
    """It is named beside those that are there; the API server would refuse the next such pod."""
    classes: list[Manifest] = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": 5} for name in ("batch", "urgent")
    ]
    waits = one("p", "9", priorityClassName="urgnt", preemptionPolicy="Never")
    answer = ask(scenario_of([node("a"), *classes, waits]), "default/p")
    missing = "PriorityClass urgnt does not exist, so its priority counts as 0; there are batch and urgent."
    assert answer.evidence[0] == missing
    assert answer.next.startswith("Create PriorityClass urgnt, or name another one")
    # A dump without any says nothing of what is there, and a priority that is written into the pod needs no class.
    written = one("p", "9", priorityClassName="urgnt", preemptionPolicy="Never", priority=7)
    for objects in ([waits], [*classes, written]):
        assert not any(
            "PriorityClass" in each for each in ask(scenario_of([node("a"), *objects]), "default/p").evidence
        )


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_resource_claim_or_a_template_that_does_not_exist(kind: str) -> None:
    """Whatever else the pod waits for, the claim comes first."""
    field = f"{kind[:1].lower()}{kind[1:]}Name"
    waits = one("p", resourceClaims=[{"name": "gpu", field: "one-gpu"}], schedulerName="thalweg")

    def there(name: str, namespace: str = "default") -> Manifest:
        return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    answer = ask(scenario_of([node("a"), waits, there("two-gpus"), there("one-gpu", "other")]), "default/p")
    assert f"{kind} default/one-gpu does not exist." in answer.evidence
    assert answer.next == f"Create {kind} one-gpu in namespace default."
    for objects in ([], [there("one-gpu")]):
        answer = ask(scenario_of([node("a"), waits, *objects]), "default/p")
        assert not answer.evidence
        assert not answer.next.startswith("Create")


def test_a_pod_without_a_free_device() -> None:
    """The only one is another claim's: the filter says so, and what helps."""
    api = {"apiVersion": "resource.k8s.io/v1"}
    objects = [
        {**api, "kind": "DeviceClass", **GPU_CLASS},
        {**api, "kind": "ResourceSlice", **slice_of("a", 1)},
        {**api, "kind": "ResourceClaim", **allocated(claim("theirs"), "a", "gpu-0")},
        {**api, "kind": "ResourceClaim", **claim("mine")},
    ]
    waits = one("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    answer = ask(scenario_of([node("a"), *objects, waits]), "default/p")
    assert answer.kind is WhyKind.NOTHING_FITS
    assert "1 cannot allocate all claims" in answer.text
    assert "DynamicResources rejects 1 of 1 nodes; no other filter is needed to exclude them all." in answer.evidence
    assert answer.next == "Add a node like a: nobody loses a place."
    free = [each for each in objects if each["metadata"]["name"] != "theirs"]
    assert plan_scenario(scenario_of([node("a"), *free, waits]), NOW).result.placements


def test_pods_that_are_not_planned_are_told_who_must_act() -> None:
    """Unknown claims are to be mended, devices to be free, others another scheduler, gates who sets them."""
    dra = one("dra", resourceClaims=[{"name": "gpu"}], schedulerName="thalweg")
    backed = one("backed", schedulerName="thalweg")
    backed["spec"]["containers"][0]["resources"]["requests"]["deviceclass.resource.kubernetes.io/gpu"] = "1"
    theirs = one("theirs", tolerations=[{"key": f"t{number}"} for number in range(MAX_TOLERATIONS + 1)])
    gpu_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **GPU_CLASS}
    gates = [{"name": name} for name in ("kueue.x-k8s.io/admission", "example.com/wait")]
    scenario = scenario_of([node("a"), gpu_class, dra, backed, theirs, one("gated", schedulingGates=gates)])
    assert ask(scenario, "default/dra").next.startswith("Mend what the reason names")
    assert "free devices" in ask(scenario, "default/backed").next
    assert ask(scenario, "default/theirs").next.startswith("It is left to the scheduler default-scheduler already")
    gated = ask(scenario, "default/gated").next
    assert "Kueue opens it when it admits the pod's Workload" in gated
    assert "kubectl get workloads.kueue.x-k8s.io -n default" in gated
    assert "Ask whoever sets the gate example.com/wait" in gated


@pytest.mark.parametrize("running", [0, 3])
def test_more_replicas_than_zones(running: int) -> None:
    """Each zone has one, whether it runs already or is placed now; a priority would only exchange the replicas."""
    term = {"labelSelector": {"matchLabels": {"app": "zoo"}}, "topologyKey": ZONE}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [
        one(f"zoo-{at}", kind="StatefulSet", owner="zoo", labels={"app": "zoo"}, affinity=apart,
            **({"nodeName": "abc"[at]} if at < running else {}))
        for at in range(4)
    ]  # fmt: skip
    answer = ask(scenario_of([*(node(name, zone=name) for name in "abc"), *pods]), "statefulset/default/zoo")
    assert answer.kind is (WhyKind.NOTHING_FITS if running else WhyKind.ROOM_TAKEN)
    assert answer.evidence[0].startswith("Each of 3 zones has one, and 4 pods want one each")
    assert answer.next.startswith("Run 3 of these pods, add a zone, or prefer other zones")
    assert SetPriority not in kinds(answer)


# -- the least number of nodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "there", "missing"), [(10, 9, 1), (8, 6, 2), (14, 0, 14), (9, 3, 6)])
def test_the_least_number_of_nodes_is_found(size: int, there: int, missing: int) -> None:
    """So many fewer nodes than pods of a whole node each: the same for the gang and for each of its pods."""
    nodes = [node(f"gpu-{at}", "96", gpus=8, taints=[GPU_TAINT]) for at in range(max(1, there))]
    if not there:
        nodes.append(one("user", "1", 8, nodeName="gpu-0", **TOLERATES_GPU))
    scenario = scenario_of([*nodes, *gang("train", size, 8)])
    for target in ("gang/default/train", f"default/train-{size - 1}"):
        (added,) = (fix for fix in ask(scenario, target).fixes if isinstance(fix.change[0], AddNodes))
        assert added.change == [AddNodes(missing, "gpu-0")]
        assert len(added.places) == size
    with applied(scenario, [AddNodes(missing - 1, "gpu-0")] if missing > 1 else [], CONTEXT):
        assert not plan_scenario(scenario, NOW).result.placements


def test_others_that_wait_may_take_the_new_nodes_first() -> None:
    """The last of nine pods alike needs as many nodes as all of them."""
    pods = [one(f"n-{at}", "4", kind="Job", owner="n") for at in range(9)]
    (added,) = (
        fix
        for fix in ask(scenario_of([node("a"), *pods]), "job/default/n").fixes
        if isinstance(fix.change[0], AddNodes)
    )
    assert added.change == [AddNodes(8, "a")]


def test_as_many_nodes_as_spare_others_are_offered_too() -> None:
    """One node is enough for the gang, if three pods of others wait in its place; with two nobody loses."""
    others = [one(f"small-{at}", "1", 1, kind="Job", owner="small", **TOLERATES_GPU) for at in range(3)]
    gpu = node("gpu-0", "96", gpus=4, taints=[GPU_TAINT])
    added = [
        fix
        for fix in ask(scenario_of([gpu, *others, *gang("train", 4, 2)]), "gang/default/train").fixes
        if isinstance(fix.change[0], AddNodes)
    ]
    assert [fix.change[0].count for fix in added] == [2, 1]
    assert [len(fix.loses) for fix in added] == [0, 3]


@pytest.mark.parametrize("asked", ["n-01", "n-04", "n-07"])
def test_a_node_is_uncordoned_for_a_pod_whose_like_gets_the_room(asked: str) -> None:
    """Which of equal pods goes to a node that is opened is chance: those that do not are told of it too."""
    pods = [one(f"n-{at:02}", "4", kind="ReplicaSet", owner="n") for at in range(8)]
    closed = node("closed")
    closed["spec"]["unschedulable"] = True
    scenario = scenario_of([closed, *pods])
    fixes = find_fixes(scenario, plan_scenario(scenario, NOW), [f"default/{asked}"], CONTEXT)
    assert fixes[0].text == "Uncordon node closed: places 1 of 8 pods like it, nobody loses a place."
    fixes = find_fixes(scenario, plan_scenario(scenario, NOW), ["default/n-00"], CONTEXT)
    assert fixes[0].text == "Uncordon node closed: nobody loses a place."


def test_a_number_that_no_plan_has_proven_is_at_most() -> None:
    """A search that must end before it knows the least number says so: others take the first 8 nodes."""
    pods = [one(f"n-{at:02}", "4", kind="Job", owner="n") for at in range(18)]
    scenario = scenario_of([node("a"), *pods])
    plan = plan_scenario(scenario, NOW)
    middle = plan.result.unplaced[8].pod.key
    (added,) = find_fixes(scenario, plan, [middle], CONTEXT, budget_plans=2)
    assert added.text.startswith("Add at most ")
    with applied(scenario, added.change, CONTEXT):
        assert middle in {each.pod.key for each in plan_scenario(scenario, NOW).result.placements}


# -- who loses, and what comes first -----------------------------------------------------------------------------------


def test_pods_of_one_workload_that_exchange_their_nodes_lose_nothing() -> None:
    """A fix shifts who of a Job waits: that is no loss, and is not told."""
    batch = [one(f"batch-{at}", "2", kind="Job", owner="batch") for at in range(6)]
    scenario = scenario_of([node("a"), node("b", pool="b"), *batch, one("p", "1", nodeSelector={"pool": "bb"})])
    plan = plan_scenario(scenario, NOW)
    before = {each.pod.key for each in plan.result.placements}
    for fix in ask(scenario, "default/p").fixes:
        with applied(scenario, fix.change, CONTEXT):
            after = {each.pod.key for each in plan_scenario(scenario, NOW).result.placements}
        fewer = sum("batch" in key for key in before) - sum("batch" in key for key in after)
        assert len(fix.loses) == max(0, fewer)


@settings(max_examples=examples(10))
@given(st.integers(0, 10_000))
def test_losers_are_those_of_each_workload_that_wait_more(seed: int) -> None:
    """Each fix is planned here once more, and the pods of each Job that wait are counted anew."""
    this = draw_scenario(seed)
    cluster = this.cluster
    for each in list(cluster.pods.values()):
        cluster.put_pod(replace(each, controller=f"Job/{dict(each.labels)['app']}"))
    plan, names = plan_scenario(this, NOW), {key: dict(each.labels)["app"] for key, each in cluster.pods.items()}

    def waiting(held: dict[str, str]) -> Counter[str]:
        return Counter(name for key, name in names.items() if key not in held)

    before = nodes_held(this, plan)
    for unplaced in plan.result.unplaced[:1]:
        for fix in find_fixes(this, plan, [unplaced.pod.key], CONTEXT):
            with applied(this, fix.change, CONTEXT):
                after = nodes_held(this, plan_scenario(this, NOW))
            assert unplaced.pod.key in after
            assert Counter(names[key] for key in fix.loses) == waiting(after) - waiting(before)
            assert set(fix.loses) <= before.keys() - after.keys()
            assert waiting(after)[names[unplaced.pod.key]] < waiting(before)[names[unplaced.pod.key]]


def test_what_a_removed_taint_lets_in_is_told_and_comes_last() -> None:
    """A GPU pod that tolerates nothing: to tolerate is the fix. Without the taint all the others come, too."""
    others = [one(f"ci-{at}", "1", kind="Job", owner="ci") for at in range(20)]
    gpu = node("gpu-0", "96", gpus=8, taints=[GPU_TAINT])
    answer = ask(scenario_of([node("a"), gpu, *others, one("notol", gpus=1)]), "default/notol")
    assert answer.next == "Tolerate the taint nvidia.com/gpu=present:NoSchedule: nobody loses a place."
    (removed,) = (fix for fix in answer.fixes if isinstance(fix.change[0], RemoveTaint))
    assert "16 other pods get a place there too" in removed.text
    assert answer.fixes.index(removed) > 0


@pytest.mark.parametrize("wanted", [{}, {"kubernetes.io/arch": "amd64"}], ids=["any node", "a label of all nodes"])
def test_nodes_are_added_before_pools_are_opened_and_gpu_nodes_are_not(wanted: dict[str, str]) -> None:
    """Pods that ask for no GPU are not sent to GPU nodes by any advice, nor to a pool for others by the first."""
    amd64 = {"kubernetes.io/arch": "amd64"}
    nodes = [
        node("gp-0", **amd64),
        node("mem-0", "4", taints=[MEMORY_TAINT], pool="memory", **amd64),
        node("gpu-0", "96", gpus=8, taints=[GPU_TAINT], **amd64),
    ]
    pods = [one(f"nightly-{at}", "2", kind="Job", owner="nightly", nodeSelector=wanted) for at in range(4)]
    answer = ask(scenario_of([*nodes, *pods]), "job/default/nightly")
    changes = [fix.change[0] for fix in answer.fixes]
    assert answer.fixes[0].change == [AddNodes(1, "gp-0")]
    tolerated = [each.key for each in changes if isinstance(each, Tolerate)]
    assert tolerated == ["dedicated"]


def test_a_pool_that_the_pod_asks_for_is_tolerated_at_once() -> None:
    """It selects the pool by its label and lacks the toleration."""
    pool = node("mem-0", taints=[MEMORY_TAINT], pool="memory")
    answer = ask(scenario_of([node("a"), pool, one("p", nodeSelector={"pool": "memory"})]), "default/p")
    assert kinds(answer)[0] is Tolerate


def test_amounts_have_one_unit() -> None:
    """2.94 of cpu, not 200: not 2940m beside 200."""
    answer = ask(scenario_of([node("a", "2940m"), one("impossible", "200")]), "default/impossible")
    assert answer.fixes[0].text == "Ask for 2.94 of cpu, not 200: nobody loses a place."
    assert answer.fixes[0].change == [Request("default/impossible", "cpu", 2940)]


def test_who_has_the_room_is_told_in_words() -> None:
    """Numbers of the plan are for programs."""
    created = {at: f"2026-11-2{at}T00:00:00Z" for at in (1, 2)}
    first, second = (one(f"p-{at}", "3") for at in (1, 2))
    for each, at in ((first, 1), (second, 2)):
        each["metadata"]["creationTimestamp"] = created[at]
    answer = answer_why(scenario_of([node("a"), first, second]), WhyQuery("default/p-2", fixes=False), CONTEXT)
    assert answer.evidence == ["default/p-1 has its room on a.", "It has the same priority and came earlier."]
    assert not any("costs" in line for line in answer.evidence)
    assert any("To leave it costs" in line for line in answer.details)
    siblings = [one(f"s-{at}", "3", kind="Job", owner="s") for at in (1, 2)]
    answer = answer_why(scenario_of([node("a"), *siblings]), WhyQuery("job/default/s", fixes=False), CONTEXT)
    assert answer.evidence[1] == "It is another pod of job/default/s: which of them waits is all the same."


def test_a_fix_that_harms_does_not_end_the_search_for_one_that_does_not() -> None:
    """A higher priority costs somebody a place; a toleration does not, since who has the room can go elsewhere."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("one", "two")]
    tolerates = [{"key": key, "operator": "Exists"} for key in ("one", "two")]
    likes = {"weight": 100, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["own"]}]}}
    state = scenario_of(
        [
            node("liked", "2", taints=taints[:1], pool="own"),
            node("other", "2", taints=taints[1:]),
            node("open", "2", pool="own"),
            one("runs", "2", nodeName="open", priority=0),
            one(
                "either",
                "2",
                priority=9,
                tolerations=tolerates,
                affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [likes]}},
            ),
            one("asks", "2", nodeSelector={"pool": "own"}),
        ]
    )
    answer = answer_why(state, WhyQuery("default/asks"), AnswerContext(NOW, nodes=False))
    (harmless,) = (fix for fix in answer.fixes if not fix.loses)
    assert isinstance(harmless.change[0], Tolerate)
    assert answer.fixes[0] == harmless
    assert SetPriority in kinds(answer)


def test_a_pod_without_a_controller_that_is_evicted_loses_its_place() -> None:
    """Nobody creates it anew, whatever room other nodes have; what a controller has runs on there."""
    runs = one("runs", "1", nodeName="a", status={"phase": "Running"})
    for owned, loses in ((False, ["default/runs"]), (True, [])):
        if owned:
            runs["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
        fixes = ask(scenario_of([node("a"), node("b", "2"), runs, one("big", "4")]), "default/big").fixes
        (evicts,) = (fix for fix in fixes if isinstance(fix.change[0], EvictPods))
        assert evicts.loses == loses


def test_a_label_that_one_of_several_terms_asks_for_is_no_reason() -> None:
    """One term of a node affinity suffices: who may use a node by another term has made no mistake."""

    def may_use(*zones: str) -> dict[str, Any]:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in zones]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    state = scenario_of(
        [
            node("full", "1", zone="eu-b"),
            node("free", "4", zone="eu-a"),
            one("runs", nodeName="full"),
            one("right", affinity=may_use("eu-c", "eu-b")),
            one("wrong", affinity=may_use("eu-c", "eu-d")),
        ]
    )
    right, wrong = (ask(state, f"default/{name}") for name in ("right", "wrong"))
    assert not any("No node has" in each for each in right.evidence)
    assert [each for each in wrong.evidence if "No node has" in each] != []


def test_of_many_labels_a_few_are_told() -> None:
    """Each is compared with the labels of all nodes."""
    state = scenario_of([node("a"), one("asks", nodeSelector={f"label-{at}": "x" for at in range(12)})])
    answer = ask(state, "default/asks")
    assert sum(each.startswith("No node has") for each in answer.evidence) == 4


def test_pods_that_exchange_nodes_with_others_of_their_workload_are_no_gain() -> None:
    """Two pods that waited get nodes and one that had one gets none: one pod fewer waits."""
    state = scenario_of([node("a"), one("asks", "9")])
    outcome = PlanDifference(
        places=("ci/one", "ci/two", "ci/alone"),
        loses=(),
        moves=(),
        workloads={"ci/one": "job/ci/run", "ci/two": "job/ci/run", "ci/on": "job/ci/run", "ci/alone": "pod/ci/alone"},
        comes=(),
        gained={"job/ci/run": 1, "pod/ci/alone": 1},
        plan=plan_scenario(state, NOW),
    )
    assert outcome.left(["ci/one", "ci/two", "ci/on"]) == 2
    assert outcome.left(["ci/one", "ci/alone"]) == 0
    exchanged = replace_outcome(outcome, gained={"job/ci/run": 0})
    assert exchanged.left(["ci/one", "ci/two"]) == 2
