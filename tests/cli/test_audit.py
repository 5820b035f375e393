"""`thalweg audit`: trying all plans never contradicts what it says, and its verifier refuses what is not true."""

import copy
import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.audited_clusters import as_list, best, drawn, most_joined
from support.cli import Manifest, node, pod, thalweg
from support.verified_audits import audit_of, finding, running, verified
from thalweg import plugin

#: Clusters that the default tier draws, and both tiers together.
_QUICK, _ALL = 20, 200


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < _QUICK else pytest.mark.slow) for seed in range(_ALL)]
)
def test_no_plan_contradicts_an_audit(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The verifier finds all of it true, and no plan of a drawn cluster does better than it says, nor is at fault."""
    cluster, dump = drawn(seed), tmp_path / "now.json"
    audit = audit_of(dump, cluster.objects())
    assert verified(tmp_path, audit, dump) == 0, capsys.readouterr()
    most = best(cluster, [key.partition("/")[2] for key in finding(audit, "PriorityInversions")["counted"]])
    for each in audit["findings"]:
        stranded = each["kind"] == "StrandedRoom"
        reached = most_joined(cluster, each["like"].partition("/")[2]) if stranded else most[each["kind"]]
        assert each["atLeast"] <= reached <= each["atMost"], each


def small() -> list[Manifest]:
    """Two of four waiting pods have room, one of them by a move."""
    stamped = {"creationTimestamp": "2026-11-01T12:00:00Z"}
    objects = [node("n1"), node("n2"), node("n3"), running("a", "n1"), running("b", "n2")]
    whole = [pod(name, "4") for name in ("first", "second", "third")]
    return [*objects, *whole, pod("huge", "9", metadata=stamped)]


def test_pods_wait_though_a_move_makes_room(tmp_path: Path) -> None:
    """By hand: a and b together leave two whole nodes, and nothing takes nine cores."""
    dump = tmp_path / "now.json"
    audit = audit_of(dump, small())
    waits = finding(audit, "WaitingPods")
    assert (waits["now"], waits["atLeast"], waits["atMost"]) == (4, 2, 2)
    assert waits["sentence"].startswith("4 pods wait; a plan runs 2 of them, with 1 move; no plan runs more")
    actions = [step["action"] for step in audit["plans"]["WaitingPods"]]
    assert sorted(actions) == ["Move", "Place", "Place"]
    (move,) = (step for step in audit["plans"]["WaitingPods"] if step["action"] == "Move")
    assert move["lostSeconds"] == 2 * 3600
    assert move["price"] > 0
    assert verified(tmp_path, audit, dump) == 0


@pytest.mark.parametrize("where", ["pods", "nodes"])
@pytest.mark.parametrize(
    "annotation", ["cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"]
)
def test_pods_that_people_keep_are_not_moved(tmp_path: Path, annotation: str, where: str) -> None:
    """By their own annotation or by that of their node: the plan is the one without moves."""
    value = "true" if where == "nodes" or "karpenter" in annotation else "false"
    if where == "nodes":
        annotation = annotation.replace("safe-to-evict", "scale-down-disabled")
    objects = small()
    for each in objects:
        if (each["kind"] == "Node") == (where == "nodes"):
            each["metadata"]["annotations"] = {annotation: value}
    audit = audit_of(tmp_path / "now.json", objects)
    assert finding(audit, "WaitingPods")["atLeast"] == 1
    assert [step["action"] for step in audit["plans"]["WaitingPods"]] == ["Place"]
    assert finding(audit, "EmptyNodes")["atLeast"] == 0


Change = Callable[[dict[str, Any]], None]


def _of(audit: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = audit["plans"]["WaitingPods"]
    return steps


def _move(audit: dict[str, Any]) -> dict[str, Any]:
    return next(step for step in _of(audit) if step["action"] == "Move")


TAMPERED: dict[str, Change] = {
    "more is said to be gained": lambda audit: finding(audit, "WaitingPods").update(atLeast=3, atMost=3),
    "no pod is said to be gained": lambda audit: finding(audit, "WaitingPods").update(atLeast=1),
    "a smaller bound": lambda audit: finding(audit, "WaitingPods").update(atMost=1, atLeast=1),
    "a smaller bound with higher prices": lambda audit: (
        [
            pool["prices"].update(cpu=pool["prices"].get("cpu", 0) * 5 + 10**17)
            for pool in finding(audit, "WaitingPods")["bound"]["pools"]
        ]
        and finding(audit, "WaitingPods").update(atMost=1)
    ),
    "a negative price": lambda audit: finding(audit, "WaitingPods")["bound"]["pools"][0]["prices"].update(cpu=-1),
    "fewer wait": lambda audit: finding(audit, "WaitingPods").update(
        now=2, counted=[step["pod"] for step in _of(audit) if step["action"] == "Place"]
    ),
    "a pod is placed twice": lambda audit: _of(audit).append(_of(audit)[0]),
    "a move is left out": lambda audit: _of(audit).remove(_move(audit)),
    "the moves come last": lambda audit: _of(audit).append(_of(audit).pop(_of(audit).index(_move(audit)))),
    "a pod goes to where it has no room": lambda audit: _move(audit).update(node="n3"),
    "a pod runs elsewhere": lambda audit: _move(audit).update({"from": "n3"}),
    "an eviction for a move": lambda audit: _move(audit).update(action="Evict"),
    "less work is lost": lambda audit: _move(audit).update(lostSeconds=1),
    "more nodes may be empty": lambda audit: finding(audit, "EmptyNodes").update(atLeast=2, atMost=2),
    "more moves than allowed": lambda audit: audit.update(mostMoves=0),
    "a finding is left out": lambda audit: audit["findings"].remove(finding(audit, "EmptyNodes")),
    "a finding is told twice": lambda audit: audit["findings"].append(finding(audit, "EmptyNodes")),
    "a larger cluster": lambda audit: audit.update(nodes=30),
    "more pods run": lambda audit: audit.update(running=20),
    "a pod that the plan runs is not judged": lambda audit: (
        audit["notJudged"].append({"pod": "default/first", "reason": "it is odd"}),
        finding(audit, "WaitingPods")["counted"].remove("default/first"),
        finding(audit, "WaitingPods").update(now=3),
    ),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_audit_is_refused(tmp_path: Path, change: Change, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever somebody changes in favour of a better story."""
    dump = tmp_path / "now.json"
    audit = audit_of(dump, small())
    changed = copy.deepcopy(audit)
    change(changed)
    assert changed != audit
    assert verified(tmp_path, changed, dump) == 1
    assert "NOT TRUE" in capsys.readouterr().out


def budget(allowed: int) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    }


@pytest.mark.parametrize("allowed", [0, 1])
def test_moves_keep_budgets(tmp_path: Path, allowed: int) -> None:
    """With a budget that lets nobody go, nobody moves. The bound does not count budgets."""
    objects = small()
    for each in objects:
        if each["kind"] == "Pod" and each["spec"].get("nodeName"):
            each["metadata"]["labels"] = {"app": "web"}
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [*objects, budget(allowed)])
    waits = finding(audit, "WaitingPods")
    assert (waits["atLeast"], waits["atMost"]) == (1 + allowed, 2)
    assert verified(tmp_path, audit, dump) == 0
    free = audit_of(dump, objects)
    dump.write_text(json.dumps(as_list([*objects, budget(allowed)])))
    assert verified(tmp_path, free, dump) == 1 - allowed


def test_a_dump_without_budgets_says_so(tmp_path: Path) -> None:
    """What the dump does not tell is named, and each witness ends with that."""
    audit = audit_of(tmp_path / "now.json", small())
    assert finding(audit, "WaitingPods")["sentence"].endswith(", as far as the dump shows")
    (unknown,) = audit["unknown"]
    assert "PodDisruptionBudget" in unknown
    audit = audit_of(tmp_path / "now.json", [*small(), budget(5)])
    assert audit["unknown"] == []
    assert finding(audit, "WaitingPods")["sentence"].endswith("no plan runs more")


def test_pods_that_cannot_be_judged_are_named(tmp_path: Path) -> None:
    """A pod with a claim of which the dump has none is in no finding; the verifier wants it named."""
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [*small(), pod("claims", "1", volumes=claim)])
    assert [each["pod"] for each in audit["notJudged"]] == ["default/claims"]
    assert finding(audit, "WaitingPods")["now"] == 4
    assert verified(tmp_path, audit, dump) == 0
    audit["notJudged"] = []
    assert verified(tmp_path, audit, dump) == 1


def test_a_gang_that_could_run(tmp_path: Path) -> None:
    """Two pods that need a whole node each: one move makes room for both of them."""
    objects = [node("n1"), node("n2"), node("n3"), running("a", "n1"), running("b", "n2")]
    marks = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "2"}
    pods = [pod(f"train-{at}", "4", metadata={"annotations": marks}) for at in range(2)]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [*objects, *pods])
    gangs = finding(audit, "WaitingGangs")
    assert (gangs["now"], gangs["atLeast"], gangs["atMost"]) == (1, 1, 1)
    assert verified(tmp_path, audit, dump) == 0
    lines = thalweg("audit", "-f", dump).stdout.splitlines()
    assert sum("place default/train-0 on" in line for line in lines) == 1
    assert "  its plan is that of WaitingPods, above" in lines
    audit = audit_of(dump, [node("n1"), running("a", "n1"), *pods])
    assert finding(audit, "WaitingGangs")["atMost"] == 0


def test_nodes_that_could_be_empty(tmp_path: Path) -> None:
    """Four pods of two cores on four nodes of four: two nodes hold them, and no plan needs fewer."""
    objects = [node(f"n{at}") for at in range(4)] + [running(f"r{at}", f"n{at}") for at in range(4)]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, objects)
    empty = finding(audit, "EmptyNodes")
    assert (empty["now"], empty["atLeast"], empty["atMost"]) == (4, 2, 2)
    assert empty["sentence"].startswith(
        "4 nodes hold pods; a plan empties 2 of them, with 2 moves; no plan empties more"
    )
    assert verified(tmp_path, audit, dump) == 0


def test_an_empty_node_that_replaces_several(tmp_path: Path) -> None:
    """Four nodes of two cores are full, and one of eight is empty: it holds the pods of all four."""
    objects = [*(node(f"n{number}", "2") for number in range(4)), node("large", "8")]
    objects += [running(f"r{number}", f"n{number}") for number in range(4)]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, objects)
    empty = finding(audit, "EmptyNodes")
    assert (empty["now"], empty["atLeast"], empty["atMost"]) == (4, 3, 3)
    assert "the plan empties 4 and fills 1 empty node" in empty["sentence"]
    assert verified(tmp_path, audit, dump) == 0
    some = audit_of(dump, objects, most_moves=3)
    assert finding(some, "EmptyNodes")["atLeast"] == 2
    assert verified(tmp_path, some, dump) == 0
    assert finding(audit_of(dump, objects, most_moves=1), "EmptyNodes")["atLeast"] == 0


def with_gpus(manifest: Manifest, gpus: int) -> Manifest:
    """A node that offers, or a pod that asks for, so many GPUs."""
    if manifest["kind"] == "Node":
        manifest["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
    else:
        manifest["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = str(gpus)
    return manifest


def test_gpus_that_are_stranded(tmp_path: Path) -> None:
    """Pods want four GPUs. Two nodes have three left each: one move joins four of these six."""
    objects = [with_gpus(node(f"n{at}", "32"), 4) for at in range(3)]
    objects += [with_gpus(running("big", "n0", "1"), 4)]
    objects += [with_gpus(running(f"one{at}", f"n{at + 1}", "1"), 1) for at in range(2)]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, objects)
    stranded = next(each for each in audit["findings"] if each["resource"] == "nvidia.com/gpu")
    assert stranded["like"] == "default/big"
    assert (stranded["now"], stranded["atLeast"], stranded["atMost"]) == (6, 4, 4)
    assert verified(tmp_path, audit, dump) == 0
    stranded["like"] = "default/one0"
    assert verified(tmp_path, audit, dump) == 1


def test_priorities_that_are_inverted(tmp_path: Path) -> None:
    """One urgent pod waits for room that two weak ones hold; only as many leave as must."""
    weak = [running(f"weak{at}", "n1") | {} for at in range(2)]
    urgent = pod("urgent", "2", priority=100)
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [node("n1"), *weak, urgent])
    inverted = finding(audit, "PriorityInversions")
    assert (inverted["now"], inverted["atLeast"], inverted["atMost"]) == (1, 1, 1)
    assert [step["action"] for step in audit["plans"]["PriorityInversions"]] == ["Evict", "Place"]
    assert finding(audit, "WaitingPods")["atMost"] == 0
    assert verified(tmp_path, audit, dump) == 0
    never = audit_of(dump, [node("n1"), *weak, pod("urgent", "2", priority=100, preemptionPolicy="Never")])
    assert finding(never, "PriorityInversions")["now"] == 0


_SAME = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
_FIELD = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
_PORT = [{"containerPort": 80, "hostPort": 80}]


def required(kind: str, terms: object) -> Manifest:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


#: What the waiting pod says, the pod on n1, and the node n1.
KEPT: dict[str, tuple[Manifest, Manifest, Manifest]] = {
    "its anti-affinity": ({"affinity": required("podAntiAffinity", [_SAME])}, {}, {}),
    "anti-affinity of the pod there": ({}, {"affinity": required("podAntiAffinity", [_SAME])}, {}),
    "spread": ({"topologySpreadConstraints": [{**_SAME, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}, {}, {}),
    "node affinity": (
        {"affinity": required("nodeAffinity", {"nodeSelectorTerms": [{"matchFields": [_FIELD]}]})}, {}, {}
    ),
    "node selector": ({"nodeSelector": {"kubernetes.io/hostname": "n2"}}, {}, {}),
    "taint": ({}, {}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    "cordon": ({}, {}, {"unschedulable": True}),
    "host port": ({"ports": _PORT}, {"ports": _PORT}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "there", "place"), KEPT.values(), ids=KEPT)
def test_rules_are_kept(tmp_path: Path, waiting: Manifest, there: Manifest, place: Manifest) -> None:
    """What keeps a pod from a node keeps the plan from it, and a step there is refused."""
    pods = [running("a", "n1", "1", {"labels": {"app": "a"}}), pod("waits", "1", metadata={"labels": {"app": "a"}})]
    for manifest, spec in zip(pods, (there, waiting), strict=True):
        manifest["spec"] |= {key: value for key, value in spec.items() if key != "ports"}
        manifest["spec"]["containers"][0]["ports"] = spec.get("ports", [])
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [node("n1", **place), node("n2"), *pods])
    (step,) = audit["plans"]["WaitingPods"]
    assert step["node"] == "n2"
    assert verified(tmp_path, audit, dump) == 0
    step["node"] = "n1"
    assert verified(tmp_path, audit, dump) == 1


def test_a_pod_comes_to_those_that_it_wants(tmp_path: Path) -> None:
    """By pod affinity, which every other node breaks."""
    waits = pod("waits", "1", affinity=required("podAffinity", [_SAME]))
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [node("n1"), node("n2"), running("a", "n2", "1", {"labels": {"app": "a"}}), waits])
    (step,) = audit["plans"]["WaitingPods"]
    assert step["node"] == "n2"
    assert verified(tmp_path, audit, dump) == 0
    step["node"] = "n1"
    assert verified(tmp_path, audit, dump) == 1


def test_volumes_are_reached(tmp_path: Path) -> None:
    """A pod whose volume is on one node goes there; a step to another one is refused."""
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}
    near = {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}
    named = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"}
    volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": near, "claimRef": named, "storageClassName": "own"}}
    claim = {"metadata": {"name": "data", "namespace": "default", "uid": "c"}, "status": {"phase": "Bound"},
             "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "storageClassName": "own"}}  # fmt: skip
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    store = {"metadata": {"name": "own"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    objects = [
        {"apiVersion": "v1", "kind": "PersistentVolume", **volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **store},
        pod("keeps", "1", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
    ]
    dump = tmp_path / "now.json"
    audit = audit_of(dump, [node("n1"), node("n2"), *objects])
    (step,) = audit["plans"]["WaitingPods"]
    assert step["node"] == "n2"
    assert verified(tmp_path, audit, dump) == 0
    step["node"] = "n1"
    assert verified(tmp_path, audit, dump) == 1


def policy_that(**rescheduling: Any) -> Manifest:
    spec = {"selects": {"podSelector": {}, "schedulerNames": ["thalweg"]}, "rescheduling": rescheduling}
    return {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy", "metadata": {"name": "web"},
            "spec": spec}  # fmt: skip


@pytest.mark.parametrize(
    ("objects", "by", "says"),
    [
        ([], "nobody: no policy governs it", "would carry out 0 of 2 steps"),
        ([policy_that()], "policy web: spec.rescheduling.mode is Off", "would carry out 0 of 2 steps"),
        ([policy_that(mode="Act")], "policy web: spec.rescheduling.reasons has no Gain", "0 of 2 steps"),
        ([policy_that(mode="Act", reasons=["Gain"])], "policy web", "would carry out 2 of 2 steps"),
        (
            [policy_that(mode="Act", reasons=["Gain"], limits={"perRound": 1})],
            "policy web",
            "spec.rescheduling.limits.perRound of policy web is 1, and the plan moves 2 pods",
        ),
        (
            [policy_that(mode="Act", reasons=["Gain"], minAge="20h")],
            "policy web: it has run for less than spec.rescheduling.minAge of policy web",
            "would carry out 0 of 2 steps",
        ),
    ],
)
def test_who_would_carry_out_a_plan(tmp_path: Path, objects: list[Manifest], by: str, says: str) -> None:
    """Each step with its policy or what stands in the way; nothing is carried out without a policy."""
    pods = [running(f"r{at}", f"n{at}") for at in range(4)]
    for each in pods:
        each["spec"]["schedulerName"] = "thalweg"
    waits = pod("waits", "9", metadata={"creationTimestamp": "2026-11-01T12:00:00Z"}, schedulerName="thalweg")
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(as_list([*(node(f"n{at}") for at in range(4)), *pods, waits, *objects])))
    done = thalweg("audit", "-f", dump, "--apply", "EmptyNodes", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "Nothing is carried out (--dry-run)."
    rows = [line for line in done.stdout.splitlines() if " move " in line]
    assert len(rows) == 2
    assert all(row.endswith(f"  {by}") for row in rows), rows
    assert says in done.stdout
    answer = json.loads(thalweg("audit", "-f", dump, "--apply", "EmptyNodes", "--dry-run", "-o", "json").stdout)
    assert [each["step"]["action"] for each in answer["steps"]] == ["Move", "Move"]
    assert all(bool(each["obstacle"]) == (":" in by) for each in answer["steps"])


def test_plans_that_cannot_be_applied(tmp_path: Path) -> None:
    """The command shows a plan that there is, and carries none out."""
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(as_list(small())))
    for arguments in (("--apply", "WaitingPods"), ("--dry-run",)):
        refused = thalweg("audit", "-f", dump, *arguments)
        assert refused.returncode == 2
        assert "--apply and --dry-run need each other" in refused.stderr
    refused = thalweg("audit", "-f", dump, "--apply", "Gangs", "--dry-run")
    assert refused.returncode == 2
    assert "plan Gangs: the audit has none of that name; it has WaitingPods, WaitingGangs" in refused.stderr
    done = thalweg("audit", "-f", dump, "--apply", "WaitingGangs", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "No gang waits.\nThere is no plan to carry out.\n")


def test_the_text_for_people(tmp_path: Path) -> None:
    """Figures, the sentence, the steps, and exit codes for pipelines."""
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(as_list(small())))
    done = thalweg("audit", "-f", dump)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 nodes, 2 running pods; 4 pods wait: all can be judged"
    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert rows["WaitingPods"] == ["4", "2", "2"]
    assert rows["default-scheduler"] == ["default", "Fragmentation", "1", "default/a", "on", "n1,", "2h", "ago"]
    assert "4 pods wait; a plan runs 2 of them, with 1 move; no plan runs more, as far as the dump shows." in lines
    assert any(line.startswith("Not known: ") for line in lines)
    assert len(lines) <= 45
    done = thalweg("audit", "-f", dump, "--fail-above", "WaitingPods=1", "--fail-above", "EmptyNodes=9")
    assert done.returncode == 1
    assert "Above the limit: WaitingPods 2, limit 1" in done.stderr
    assert thalweg("audit", "-f", dump, "--fail-above", "WaitingPods=2").returncode == 0
    refused = thalweg("audit", "-f", dump, "--fail-above", "Pods=2")
    assert refused.returncode == 2
    assert "the findings are WaitingPods, WaitingGangs" in refused.stderr


def test_an_audit_fits_a_screen_whatever_is_missing(tmp_path: Path) -> None:
    """Hundreds of pods of one PriorityClass that the files lack have one line, and so have other schedulers' queues."""
    objects = small()
    for number in range(300):
        objects.append(pod(f"more-{number}", "9"))
        objects[-1]["spec"] |= {"priorityClassName": "urgent", "schedulerName": ("volcano", "kai")[number % 2]}
    dump, page = tmp_path / "now.json", tmp_path / "audit.html"
    dump.write_text(json.dumps(as_list(objects)))
    done = thalweg("audit", "-f", dump, "--html", page)
    lines = done.stdout.splitlines()
    assert len(lines) <= 45
    (classes,) = (line for line in lines if "PriorityClass urgent" in line)
    assert "Pod default/more-0 and 299 more: spec.priorityClassName" in classes
    assert any("for the scheduler kai and 1 other: if it has queues or quotas" in line for line in lines)
    assert page.read_text().count("PriorityClass urgent") == 1
    for number in range(20):
        objects[-1 - number]["spec"]["priorityClassName"] = f"class-{number}"
    dump.write_text(json.dumps(as_list(objects)))
    lines = thalweg("audit", "-f", dump).stdout.splitlines()
    assert len(lines) <= 45
    assert any(re.fullmatch(r"Not known: \d+ more; -o json has them all", line) for line in lines)


def test_kubectl_has_the_command(tmp_path: Path) -> None:
    """``kubectl thalweg audit`` is the same command."""
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(as_list(small())))
    done = CliRunner().invoke(plugin.main, ["audit", "-f", str(dump)], catch_exceptions=False)
    assert done.output == thalweg("audit", "-f", dump).stdout


def test_limits_of_stranded_room(tmp_path: Path) -> None:
    """Each resource has its own. Of two nodes with 10Gi free one could be whole; memory is told as people write it."""
    pods = [running(f"r{at}", f"n{at}", "1") for at in range(2)] + [pod("whole", "1")]
    for each, memory in zip(pods, ("6Gi", "6Gi", "16Gi"), strict=True):
        each["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(as_list([node("n0"), node("n1"), *pods])))
    done = thalweg("audit", "-f", dump, "--fail-above", "StrandedRoom/memory=0")
    rows = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())}
    assert rows["StrandedRoom/memory"] == ["20Gi", "16Gi", "16Gi"]
    assert (done.returncode, done.stderr) == (1, "Above the limit: StrandedRoom/memory 16Gi, limit 0\n")
    assert thalweg("audit", "-f", dump, "--fail-above", "StrandedRoom/memory=16Gi").returncode == 0
    kept = thalweg("audit", "-f", dump, "--fail-above", "StrandedRoom/nvidia.com/gpu=0")
    assert kept.returncode == 0
    assert "No finding StrandedRoom/nvidia.com/gpu, so its limit is kept; there are WaitingPods," in kept.stderr
    for limits in ("StrandedRoom/=0", "WaitingPods/memory=0", "StrandedRoom=0"):
        refused = thalweg("audit", "-f", dump, "--fail-above", limits)
        assert refused.returncode == 2
        assert f'--fail-above "{limits}": expected FINDING=AMOUNT' in refused.stderr


def test_what_stays_free_is_what_full_nodes_have_left(tmp_path: Path) -> None:
    """Of 16Gi a pod holds 1Gi, and three more would take 3Gi and the last cores: 12Gi are of no use to such pods."""
    like = running("r", "n0", "1")
    like["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
    audit = audit_of(tmp_path / "now.json", [node("n0"), like])
    stranded = next(each for each in audit["findings"] if each["kind"] == "StrandedRoom")
    said = "free once no more pods like default/r fit on any node: 12Gi memory; no plan makes any of it usable"
    assert stranded["sentence"] == said


def test_no_move_where_none_is_allowed(tmp_path: Path) -> None:
    """`--moves 0` counts what has room now."""
    dump = tmp_path / "now.json"
    audit = audit_of(dump, small(), most_moves=0)
    assert finding(audit, "WaitingPods")["atLeast"] == 1
    assert finding(audit, "EmptyNodes")["atLeast"] == 0
    assert verified(tmp_path, audit, dump) == 0


def test_the_page_for_a_browser(tmp_path: Path) -> None:
    """One file: no script, nothing from elsewhere, a picture for each finding, light and dark; names are escaped."""
    dump, page = tmp_path / "now.json", tmp_path / "audit.html"
    evil = "<script>alert(1)</script>"
    objects = small()
    for each in objects:
        if each["kind"] == "Pod":
            each["spec"]["schedulerName"] = evil
    dump.write_text(json.dumps(as_list(objects)))
    done = thalweg("audit", "-f", dump, "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "4 pods wait; a plan runs 2 of them, with 1 move; no plan runs more" in text
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") >= 2
    assert "<script" not in text
    assert "http" not in text
    assert 'aria-label="now 4: a plan avoids 2, no plan more than 2"' in text
    assert "<td>2h</td>" in text.partition("<th>since its start or checkpoint</th>")[2]
    assert "price" not in text, "that has no unit"
    (closed,) = re.findall(r"<section><h2>Who closed the room, and when</h2>.*?</section>", text, re.DOTALL)
    assert "The room of 1 pod is free" in closed
    cells = re.findall(r"<td[^>]*>(.*?)</td>", closed)
    owner = escape(evil)
    assert cells[:5] == [owner, "default", "Fragmentation", "1", "default/a on n1, 2h ago"]
    placed = ["default/a", owner, "2026-11-01T10:00:00Z", "n1", "n2"]
    assert cells[5:] == [*placed, "Fragmentation", "1", "default/second"]
    refused = thalweg("audit", "-f", dump, "--html", tmp_path / "absent" / "audit.html")
    assert refused.returncode == 2
    assert "No such file or directory" in refused.stderr
