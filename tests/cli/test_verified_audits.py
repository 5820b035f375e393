"""What `thalweg audit` says of clusters with all sorts of rules: its verifier agrees, and refuses what is not so."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audited_clusters import as_list
from support.cli import Manifest, node, pod, thalweg
from support.draw import Case
from support.draw_preemption import OFTEN, SELDOM, batches, crowded_nodes
from support.profiles import examples
from support.verified_audits import audit_of, finding, running, verified
from thalweg.audit.run_audit import above_limits, limits_of

from flowcore.questions.audit.answer_audit import AuditAnswer
from flowcore.questions.audit.finding import AuditFinding, FindingKind

_GANG = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "2"}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return tmp_path / "now.json"


@given(
    crowded_nodes(SELDOM, batches(SELDOM)) | crowded_nodes(OFTEN, batches(OFTEN, most_kinds=5)),
    st.lists(st.booleans(), min_size=80, max_size=80),
)
@settings(max_examples=examples(60))
def test_audits_of_crowded_clusters_are_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: Case, owned: list[bool]
) -> None:
    """With anti-affinity, affinity, spread, host ports, budgets, priorities, and pods that end or are static."""
    for manifest, has_owner in zip(case.pods, owned, strict=False):
        if has_owner:
            owner = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
            manifest["metadata"]["ownerReferences"] = [owner]
    path = tmp_path / "now.json"
    audit = audit_of(path, [*case.nodes, *case.pods, *case.pending, *case.budgets])
    assert verified(tmp_path, audit, path) == 0, (capsys.readouterr(), audit["plans"])


def test_pods_behind_the_gate_of_thalweg_are_planned(dump: Path) -> None:
    """That gate waits for a plan. Another one is somebody else's: no plan may place the pod."""
    gated = pod("waits", "1", schedulingGates=[{"name": "scheduling.thalweg/plan"}])
    audit = audit_of(dump, [node("n1"), gated])
    assert finding(audit, "WaitingPods")["atLeast"] == 1
    assert verified(dump.parent, audit, dump) == 0
    gated["spec"]["schedulingGates"].append({"name": "example.com/quota"})
    dump.write_text(json.dumps(as_list([node("n1"), gated])))
    assert verified(dump.parent, audit, dump) == 1


def policy(scheduler: str) -> Manifest:
    """Of all pods of a scheduler."""
    selects = {"podSelector": {}, "schedulerNames": [scheduler]}
    return {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy",
            "metadata": {"name": scheduler}, "spec": {"selects": selects}}  # fmt: skip


def urgent(name: str, **spec: Any) -> Manifest:
    stamped = {"creationTimestamp": "2026-11-01T12:00:00Z"}
    return pod(name, "4", metadata=stamped, priority=100, **spec)


def test_a_gang_leaves_as_a_whole(dump: Path) -> None:
    """Also from a node to which nobody comes; a policy of the pod that it leaves for does it all."""
    gang = [running(f"member-{at}", f"n{at}", "4", {"annotations": _GANG}) for at in range(2)]
    waits = urgent("waits", nodeSelector={"kubernetes.io/hostname": "n0"}, schedulerName="thalweg")
    objects = [node("n0"), node("n1"), *gang, waits, policy("thalweg")]
    audit = audit_of(dump, objects)
    steps = audit["plans"]["PriorityInversions"]
    assert sorted(step["from"] for step in steps if step["action"] == "Evict") == ["n0", "n1"]
    assert verified(dump.parent, audit, dump) == 0
    done = thalweg("audit", "-f", dump, "--apply", "PriorityInversions", "--dry-run")
    assert "Policies would carry out 3 of 3 steps." in done.stdout, done.stdout


def test_nobody_leaves_for_a_pod_that_evicts_nobody(dump: Path) -> None:
    """The plan of an urgent pod is no plan of one that has the same priority and never evicts."""
    objects = [node("n1"), running("weak", "n1", "4"), urgent("waits")]
    audit = audit_of(dump, objects)
    assert finding(audit, "PriorityInversions")["atLeast"] == 1
    assert verified(dump.parent, audit, dump) == 0
    tampered = json.loads(json.dumps(audit))
    finding(tampered, "PriorityInversions").update(now=0, atLeast=0, atMost=0, counted=[], plan="")
    assert verified(dump.parent, tampered, dump) == 1
    objects[-1]["spec"]["preemptionPolicy"] = "Never"
    dump.write_text(json.dumps(as_list(objects)))
    assert verified(dump.parent, audit, dump) == 1


def test_who_has_room_may_evict_all_the_same(dump: Path) -> None:
    """The most urgent pod leaves its room to another one where a pod of a priority between theirs runs."""
    between = pod("between", "4", status={"phase": "Running"}, nodeName="n1", priority=15)
    weak = pod("weak", "1", status={"phase": "Running"}, nodeName="n3", priority=0)
    waiting = [pod("first", "4", priority=20), pod("second", "4", priority=10)]
    audit = audit_of(dump, [node("n1"), node("n2"), node("n3", "1"), between, weak, *waiting])
    inverted = finding(audit, "PriorityInversions")
    assert inverted["counted"] == ["default/second"]
    assert inverted["atMost"] == 1
    assert verified(dump.parent, audit, dump) == 0


def test_moves_of_several_policies_are_so_many_together(dump: Path) -> None:
    """Each policy has limits of its own; the audit has one number."""
    objects: list[Manifest] = []
    for name in "abc":
        objects += [node(f"{name}1"), node(f"{name}2"), running(name, f"{name}1", schedulerName=name)]
        objects.append(pod(f"stays-{name}", "2", status={"phase": "Running"}, nodeName=f"{name}2"))
        objects.append(pod(f"waits-{name}", "4"))
        objects.append(policy(name))
    for most in (1, 2, 3):
        audit = audit_of(dump, objects, most_moves=most)
        assert sum(step["action"] == "Move" for step in audit["plans"]["WaitingPods"]) <= most
        assert finding(audit, "WaitingPods")["atLeast"] >= 1
        assert verified(dump.parent, audit, dump) == 0
    assert finding(audit, "WaitingPods")["atLeast"] == 3


def with_gpus(manifest: Manifest, resource: str = "nvidia.com/gpu") -> Manifest:
    """A node that offers, or a pod that asks for, two GPUs."""
    if manifest["kind"] == "Node":
        manifest["status"]["allocatable"][resource] = "2"
    else:
        manifest["spec"]["containers"][0]["resources"]["requests"][resource] = "2"
    return manifest


def device_class(**spec: Any) -> Manifest:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}


def test_what_devices_may_serve_bounds_nothing(dump: Path) -> None:
    """Each of two nodes has its GPUs taken. With a DeviceClass a pod may have its GPUs elsewhere as devices."""
    objects = [with_gpus(node(f"n{at}")) for at in range(2)]
    objects += [with_gpus(running(f"r{at}", f"n{at}", "1")) for at in range(2)]
    audit = audit_of(dump, objects)
    assert finding(audit, "EmptyNodes")["atMost"] == 0
    audit = audit_of(dump, [*objects, device_class(extendedResourceName="nvidia.com/gpu")])
    assert finding(audit, "EmptyNodes")["atMost"] == 1
    assert "StrandedRoom" not in [each["kind"] for each in audit["findings"]]
    assert verified(dump.parent, audit, dump) == 0


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_a_dump_without_device_classes_says_so(dump: Path, resource: str) -> None:
    """No node offers what a pod asks for: the bound says that no plan runs it, and that a DeviceClass may."""
    objects = [node("n1"), with_gpus(pod("waits", "1"), resource)]
    audit = audit_of(dump, objects)
    assert finding(audit, "WaitingPods")["atMost"] == 0
    (unknown,) = audit["unknown"]
    assert f"pods ask for {resource}, which no node offers" in unknown
    assert verified(dump.parent, audit, dump) == 0
    audit = audit_of(dump, [*objects, device_class(extendedResourceName="nvidia.com/gpu")])
    assert finding(audit, "WaitingPods")["atMost"] == 1
    assert "DeviceClass" not in " ".join(audit["unknown"])
    assert verified(dump.parent, audit, dump) == 0


def test_a_pod_that_is_to_be_replaced_counts(dump: Path) -> None:
    """It holds its node, and may move like others."""
    new = pod("new", "2", metadata={"annotations": {"scheduling.thalweg/replaces": "a"}})
    audit = audit_of(dump, [node("n1"), node("n2"), running("a", "n1"), running("b", "n2"), new])
    empty = finding(audit, "EmptyNodes")
    assert (empty["now"], empty["atLeast"], empty["atMost"]) == (2, 1, 1)
    assert [each["pod"] for each in audit["notJudged"]] == ["default/new"]
    assert verified(dump.parent, audit, dump) == 0


def test_a_budget_of_the_past_lets_nobody_go(dump: Path) -> None:
    """Its status is older than its spec: the Eviction API refuses."""
    objects = [node("n1"), node("n2"), *(running(name, at, metadata={"labels": {"app": "web"}})
               for name, at in (("a", "n1"), ("b", "n2"))), pod("waits", "4")]  # fmt: skip
    free = audit_of(dump, objects)
    assert finding(free, "WaitingPods")["atLeast"] == 1
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 1},
    }
    audit = audit_of(dump, [*objects, budget])
    assert finding(audit, "WaitingPods")["atLeast"] == 0
    assert verified(dump.parent, audit, dump) == 0
    assert verified(dump.parent, free, dump) == 1


@pytest.mark.parametrize("saved", ["yesterday", "2026-11-01T11:00:00", "2026-11-01T12:00:30Z", "2026-11-01T11:00:00Z"])
def test_work_that_was_saved(dump: Path, saved: str) -> None:
    """What cannot be read is ignored, and clocks differ by a minute."""
    moves = running("a", "n1", metadata={"annotations": {"scheduling.thalweg/checkpointed-at": saved}})
    stays = pod("stays", "2", status={"phase": "Running"}, nodeName="n2")
    stamped = {"creationTimestamp": "2026-11-01T12:00:00Z"}
    audit = audit_of(dump, [node("n1"), node("n2"), moves, stays, pod("waits", "4", metadata=stamped)])
    assert [step["action"] for step in audit["plans"]["WaitingPods"]] == ["Move", "Place"]
    assert verified(dump.parent, audit, dump) == 0


def test_the_first_of_its_kind(dump: Path) -> None:
    """A pod that wants others of its kind near comes first where none is in any zone."""
    rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    waits = pod("waits", "1", metadata={"labels": {"app": "a"}},
                affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}})  # fmt: skip
    zoned = node("n2")
    zoned["metadata"]["labels"]["zone"] = "z"
    audit = audit_of(dump, [node("n1"), zoned, running("a", "n1", metadata={"labels": {"app": "a"}}), waits])
    (step,) = audit["plans"]["WaitingPods"]
    assert step["node"] == "n2"
    assert verified(dump.parent, audit, dump) == 0


def test_limits_are_of_one_finding_each() -> None:
    """Bytes of memory and GPUs are not compared with one number."""
    assert limits_of(("WaitingPods=0", "StrandedRoom/memory=64Gi")) == {
        "WaitingPods": 0, "StrandedRoom/memory": 64 * 2**30
    }  # fmt: skip
    for wrong in ("StrandedRoom=4", "WaitingPods/=4", "WaitingPods/cpu=4", "WaitingPods=some", "WaitingPods=-1",
                  "EmptyNodes=0.5", "Pods=2", "WaitingPods"):  # fmt: skip
        with pytest.raises(click.UsageError, match=f'--fail-above "{wrong}"'):
            limits_of((wrong,))
    findings = [
        AuditFinding(
            kind=FindingKind.STRANDED_ROOM, now=9, at_least=at_least, at_most=9, sentence="", resource=resource
        )
        for resource, at_least in (("memory", 2**30), ("nvidia.com/gpu", 4))
    ]
    answer = AuditAnswer(now="", nodes=0, running=0, most_moves=0, findings=findings, plans={}, closed=[], unknown=[],
                         not_judged=[], warnings=[])  # fmt: skip
    limits = limits_of(("StrandedRoom/memory=1Mi", "StrandedRoom/nvidia.com/gpu=4"))
    assert [*above_limits(answer, limits)] == ["StrandedRoom/memory 1Gi, limit 1Mi"]


def _tampered(audit: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(audit))
    return copied


@pytest.fixture
def stranded(dump: Path) -> dict[str, Any]:
    """The audit of a gang that waits, of GPUs without cpu beside them, and of a pod that needs them."""
    nodes = [node(name, "8") for name in ("n0", "n1")]
    gang = [pod(f"g{at}", "3", metadata={"annotations": {**_GANG, "scheduling.thalweg/gang-min-member": "3"}})
            for at in range(3)]  # fmt: skip
    on_nodes = [running("r0", "n0", "5"), running("r1", "n1", "1")]
    waits = pod("w", "1")
    for each in nodes:
        each["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    for each, amount in zip((*on_nodes, waits), ("1", "1", "4"), strict=True):
        each["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = amount
    return audit_of(dump, [*nodes, *gang, *on_nodes, waits])


def test_a_finding_that_is_left_out_is_missed(dump: Path, stranded: dict[str, Any]) -> None:
    """Each finding that the dump asks for is there."""
    assert verified(dump.parent, stranded, dump) == 0
    for kind in {each["kind"] for each in stranded["findings"]}:
        tampered = _tampered(stranded)
        tampered["findings"] = [each for each in tampered["findings"] if each["kind"] != kind]
        tampered["plans"] = {name: steps for name, steps in tampered["plans"].items() if not name.startswith(kind)}
        assert verified(dump.parent, tampered, dump) == 1, kind


def test_a_sentence_says_what_the_figures_say(dump: Path, stranded: dict[str, Any]) -> None:
    """A reader reads the sentence, not the figures."""
    for number, found in enumerate(stranded["findings"]):
        for sentence in ("all pods have a node", "", found["sentence"].replace("1", "2").replace("no ", "some ")):
            tampered = _tampered(stranded)
            tampered["findings"][number]["sentence"] = sentence
            assert verified(dump.parent, tampered, dump) == int(sentence != found["sentence"]), sentence


def test_gangs_that_are_not_counted_are_named(
    dump: Path, stranded: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Which pods are a gang depends on much that the verifier does not read. It says so, and which pods name one."""
    assert verified(dump.parent, stranded, dump) == 0
    always = "which pods are a gang, and how many of them it needs"
    shown = capsys.readouterr().out
    assert always in shown
    assert "whether gangs wait" not in shown
    finding(stranded, "WaitingGangs").update(gangs=[], now=0, atLeast=0, atMost=0, plan="", sentence="no gang waits")
    stranded["plans"].pop("WaitingGangs", None)
    assert verified(dump.parent, stranded, dump) == 0
    shown = capsys.readouterr().out
    assert always in shown
    assert "whether gangs wait that the audit does not count: of 3 pods, such as default/g0" in shown


def test_pods_that_are_not_judged_are_in_the_sentence(dump: Path, stranded: dict[str, Any]) -> None:
    """Else an audit could say that nobody waits: of pods that it leaves out."""
    waiting = finding(stranded, "WaitingPods")["counted"]
    stranded["notJudged"] = [{"pod": key, "reason": "it is gated"} for key in waiting]
    for kind, sentence in (
        ("WaitingPods", "no pod waits"),
        ("WaitingGangs", "no gang waits"),
        ("PriorityInversions", "no pod is left that has a higher priority than pods that run"),
    ):
        empty = {"counted": [], "gangs": [], "now": 0, "atLeast": 0, "atMost": 0, "plan": "", "sentence": sentence}
        finding(stranded, kind).update(empty)
        stranded["plans"].pop(kind, None)
    assert verified(dump.parent, stranded, dump) == 1
    finding(stranded, "WaitingPods")["sentence"] = "0 of 4 pods that wait can be judged"
    assert verified(dump.parent, stranded, dump) == 0
    stranded["notJudged"].append({"pod": "default/r0", "reason": "it is gated"})
    assert verified(dump.parent, stranded, dump) == 1


def test_a_plan_of_no_finding_is_refused(dump: Path, stranded: dict[str, Any]) -> None:
    """Nobody checks it."""
    stranded["plans"]["Everything"] = [{"action": "Place", "pod": "default/w", "node": "n0"}]
    assert verified(dump.parent, stranded, dump) == 1


def test_an_audit_that_judges_no_pod_does_not_say_that_none_waits(dump: Path) -> None:
    """It says how many wait."""
    gated = pod("gated", "1", schedulingGates=[{"name": "example.com/quota"}])
    audit = audit_of(dump, [node("n1"), gated])
    assert finding(audit, "WaitingPods")["sentence"] == "0 of 1 pods that wait can be judged"
    assert verified(dump.parent, audit, dump) == 0
