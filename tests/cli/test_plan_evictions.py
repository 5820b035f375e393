"""``thalweg plan``: who leaves for whom, and what the files say about priorities and PodDisruptionBudgets."""

import json
from typing import Any

import pytest
from support.cli import Manifest, node, plan_of, pod, thalweg
from thalweg.plans.evictions import WHY

from flowcore.model.policies import (
    CHECKPOINTED_AT,
    DO_NOT_DISRUPT,
    DURING_EXECUTION,
    EVICTABLE,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
)
from flowcore.model.running_pods import EvictionKind

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}
LABELS = {"app": "web"}


def running(name: str, cpu: str = "3", *, on: str = "a", owner: Manifest | None = OWNER, **spec: Any) -> Manifest:
    """A running pod of a ReplicaSet that has run for long."""
    metadata = {"labels": LABELS, "creationTimestamp": "2020-01-01T00:00:00Z"}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return pod(name, cpu, metadata={**metadata}, status={"phase": "Running"}, nodeName=on, **spec)


def budget(allowed: int | None) -> Manifest:
    """A PodDisruptionBudget for the pods of the ReplicaSet; None: without a status."""
    found: Manifest = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}},
    }
    return found if allowed is None else {**found, "status": {"disruptionsAllowed": allowed}}


def priority_class(name: str, value: int, **fields: Any) -> Manifest:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value, **fields}


def policy(**spec: Any) -> Manifest:
    """A policy for the pods of the default scheduler."""
    kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    selects = {"schedulerNames": ["default-scheduler"]}
    return {**kind, "metadata": {"name": "p"}, "spec": {"selects": selects, "delivery": "Observe", **spec}}


URGENT = pod("urgent", "3", priority=1000)


# -- preemption --------------------------------------------------------------------------------------------------------


def test_the_lowest_priority_leaves() -> None:
    """One pod leaves, of the node where the lowest priority runs; the preemptor is placed there."""
    answer = plan_of(node("a"), node("b"), running("high", priority=10), running("low", on="b", priority=5), URGENT)
    assert answer["placements"] == {"default/urgent": "b"}
    assert answer["evicted"] == {
        "default/low": {"node": "b", "for": ["default/urgent"], "kind": "Preemption", "to": None}
    }
    assert answer["pending"] == answer["proposed"] == {}


def test_a_pod_that_never_preempts_says_so() -> None:
    """It waits while a pod of a lower priority, for which another one leaves, gets a node."""
    ours = {"schedulerName": "thalweg"}  # for pods of others nobody leaves anyway
    low, batch = running("low", "3", priority=0), pod("batch", "3", priority=10, **ours)
    answer = plan_of(node("a"), low, batch, pod("urgent", "4", priority=20, preemptionPolicy="Never", **ours))
    assert answer["evicted"].keys() == {"default/low"}
    assert answer["pending"]["default/urgent"]["reason"] == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "Running pods leave for pods of a lower priority, and none for this one: its preemptionPolicy is Never."
    )


def test_nobody_leaves_where_there_is_room() -> None:
    """Free room goes first."""
    answer = plan_of(node("a"), node("b"), running("low"), URGENT)
    assert (answer["placements"], answer["evicted"]) == ({"default/urgent": "b"}, {})


def test_no_second_wave_while_victims_terminate() -> None:
    """A pod whose victim terminates on its nominated node evicts nobody else."""
    leaving = running("leaving", priority=1)
    leaving["metadata"] |= {"deletionTimestamp": "2020-01-02T00:00:00Z"}
    urgent = pod("urgent", "3", priority=1000, status={"phase": "Pending", "nominatedNodeName": "a"})
    answer = plan_of(node("a"), node("b"), leaving, running("other", on="b"), urgent)
    assert answer["evicted"] == {}
    assert answer["pending"].keys() == {"default/urgent"}


@pytest.mark.parametrize("priority", [1000, 1001])
def test_equal_and_higher_priorities_stay(priority: int) -> None:
    """Only strictly lower priorities leave."""
    answer = plan_of(node("a"), running("other", priority=priority), URGENT)
    assert answer["evicted"] == {}
    assert answer["pending"].keys() == {"default/urgent"}


def test_a_pod_that_preempts_nobody_waits() -> None:
    """PreemptionPolicy Never of the pod, of its class, and mode Never of its policy."""
    never = {"preemptionPolicy": "Never"}
    for objects in (
        [pod("urgent", "3", priority=1000, **never)],
        [pod("urgent", "3", priorityClassName="c"), priority_class("c", 1000, **never)],
        [URGENT, policy(preemption={"mode": "Never"})],
    ):
        answer = plan_of(node("a"), running("low"), *objects)
        assert answer["evicted"] == {}, objects
        assert answer["pending"].keys() == {"default/urgent"}


@pytest.mark.parametrize(("allowed", "leaves"), [(0, False), (1, True), (None, False)])
def test_budgets_are_kept(allowed: int | None, leaves: bool) -> None:  # noqa: FBT001
    """A PodDisruptionBudget that allows none protects its pods. One without a status does too, and is named."""
    answer = plan_of(node("a"), running("low"), URGENT, budget(allowed))
    assert bool(answer["evicted"]) is leaves
    named = [each for each in answer["warnings"] if "PodDisruptionBudget default/web" in each]
    assert len(named) == (allowed is None)


def in_system(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "kube-system"}}


def test_nobody_is_preempted_in_kube_system() -> None:
    """As the operator may not. `why` says so, and a pod of another namespace leaves in its place."""
    system = in_system(running("low"))
    answer = plan_of(node("a"), system, URGENT)
    assert (answer["evicted"], answer["placements"]) == ({}, {})
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), system, URGENT]})
    why = thalweg("why", "urgent", "-f", "-", stdin=dump)
    assert "kube-system/low: it is in kube-system, where Thalweg evicts nobody" in why.stdout
    answer = plan_of(node("a"), node("b"), system, running("high", on="b", priority=10), URGENT)
    assert answer["evicted"].keys() == {"default/high"}


def test_nobody_is_moved_in_kube_system() -> None:
    """Nor is anybody proposed to be, for whoever waits."""
    system = in_system(running("q", "2", on="b"))
    answer = plan_of(node("a"), node("b"), running("p", "2"), system, LARGE, arguments=("--reschedule",))
    assert answer["evicted"].keys() == {"default/p"}
    answer = plan_of(node("a"), node("b"), in_system(running("p", "2")), system, LARGE, arguments=("--reschedule",))
    assert (answer["evicted"], answer["placements"]) == ({}, {})


def test_a_gang_leaves_as_a_whole() -> None:
    """Nobody is left behind that is of no use without the others."""
    gang = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "2"}
    members = [running(name, on=on, schedulerName="thalweg") for name, on in (("g0", "a"), ("g1", "b"))]
    for member in members:
        member["metadata"]["annotations"] = gang
    answer = plan_of(node("a"), node("b"), *members, URGENT)
    assert len(answer["placements"]) == 1
    assert answer["evicted"].keys() == {"default/g0", "default/g1"}


# -- priorities --------------------------------------------------------------------------------------------------------


def test_a_class_gives_its_priority() -> None:
    """A pod that has only the name of its class has the class's priority, whichever comes first in the files."""
    urgent, low = pod("urgent", "3", priorityClassName="urgent"), running("low", priority=5)
    for objects in ([urgent, priority_class("urgent", 6)], [priority_class("urgent", 6), urgent]):
        assert plan_of(node("a"), low, *objects)["evicted"].keys() == {"default/low"}
    assert plan_of(node("a"), low, urgent, priority_class("urgent", 5))["evicted"] == {}


def test_the_default_class_counts_for_pods_without_one() -> None:
    """Of several the lowest; a pod with a priority keeps it."""
    low, plain = running("low", priority=5), pod("plain", "3")
    default = priority_class("d", 6, globalDefault=True)
    assert plan_of(node("a"), low, plain, default)["evicted"].keys() == {"default/low"}
    lower = priority_class("lower", 5, globalDefault=True)
    assert plan_of(node("a"), low, plain, default, lower)["evicted"] == {}
    assert plan_of(node("a"), low, pod("plain", "3", priority=0), default)["evicted"] == {}


def test_the_systems_classes_are_known() -> None:
    """They are in every cluster; of the two, pods of nodes come first."""
    critical = running("critical", priorityClassName="system-cluster-critical")
    answer = plan_of(node("a"), critical, pod("agent", "3", priorityClassName="system-node-critical"))
    assert answer["evicted"].keys() == {"default/critical"}
    assert answer["warnings"] == []


def test_an_unknown_class_is_named() -> None:
    """Its pods count with priority 0, a warning says how to add it, and the plan is not certified."""
    answer = plan_of(node("a"), pod("p", priorityClassName="gone"))
    assert any("Pod default/p: spec.priorityClassName" in each and "gone" in each for each in answer["warnings"])
    assert answer["placements"] == {"default/p": "a"}
    assert not answer["certified"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (priority_class("c", 1_000_000_001), "PriorityClass c: value: 1000000001 is more than 1000000000"),
        (priority_class("c", 2**31), "PriorityClass c: value: Expected `int` <= 2147483647"),
        (priority_class("system-mine", 1), "PriorityClass system-mine: metadata.name: system- is reserved"),
        (pod("p", priority=2**31), "Pod default/p: spec.priority: Expected `int` <= 2147483647"),
    ],
)
def test_priorities_beyond_their_range(bad: Manifest, words: str) -> None:
    """One line of error that names the object and the field."""
    dump = json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("a"), bad]})
    done = thalweg("plan", "-f", "-", stdin=dump)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


# -- moves -------------------------------------------------------------------------------------------------------------

#: Two nodes with a hole each; a pod that fits if one of the running pods moves.
HOLES = [node("a"), node("b"), running("p", "2"), running("q", "2", on="b")]
LARGE = pod("large", "4", metadata={"creationTimestamp": "2020-02-01T00:00:00Z"})


def test_a_large_pod_fits_by_a_move() -> None:
    """With --reschedule one pod moves to the other's node; without it the large pod waits."""
    answer = plan_of(*HOLES, LARGE, arguments=("--reschedule",))
    ((moved, eviction),) = answer["evicted"].items()
    other = {"a": "b", "b": "a"}[eviction["node"]]
    assert moved == {"a": "default/p", "b": "default/q"}[eviction["node"]]
    assert eviction == {"node": eviction["node"], "for": ["default/large"], "kind": "Migration", "to": other}
    assert answer["placements"] == {"default/large": eviction["node"]}
    answer = plan_of(*HOLES, LARGE)
    assert (answer["evicted"], answer["proposed"], answer["placements"]) == ({}, {}, {})


def test_a_policy_moves_or_proposes() -> None:
    """Act moves without --reschedule. Propose shows the same move as a proposal, and nothing leaves."""
    acts = plan_of(*HOLES, LARGE, policy(rescheduling={"mode": "Act"}))
    assert [each["kind"] for each in acts["evicted"].values()] == ["Migration"]
    assert acts["proposed"] == {}
    proposes = plan_of(*HOLES, LARGE, policy(rescheduling={"mode": "Propose"}))
    assert (proposes["evicted"], proposes["placements"]) == ({}, {})
    assert proposes["proposed"] == acts["evicted"]
    off = plan_of(*HOLES, LARGE, policy(rescheduling={"mode": "Act", "limits": {"perRound": 0}}))
    assert off["evicted"] == {}


@pytest.mark.parametrize(
    "change",
    [
        {"ownerReferences": [{**OWNER, "kind": "DaemonSet"}]},
        {"ownerReferences": []},
        {"annotations": {EVICTABLE: "false"}},
        {"annotations": {EVICTABLE: "perhaps"}},
        {"annotations": {SAFE_TO_EVICT: "false"}},
        {"annotations": {DO_NOT_DISRUPT: "true"}},
        {"annotations": {DO_NOT_DISRUPT: "5m"}},
    ],
    ids=["DaemonSet", "bare", "annotated", "unreadable", "safe to evict", "do not disrupt", "for some minutes"],
)
def test_who_is_never_moved(change: Manifest) -> None:
    """Pods of DaemonSets, pods without a controller and pods annotated against it stay, whoever waits."""
    nodes, pods = HOLES[:2], [json.loads(json.dumps(each)) for each in HOLES[2:]]
    for each in pods:
        each["metadata"] |= change
    answer = plan_of(*nodes, *pods, LARGE, arguments=("--reschedule",))
    assert (answer["evicted"], answer["placements"]) == ({}, {})


def annotated(object_: Manifest, **annotations: str) -> Manifest:
    return {**object_, "metadata": {**object_["metadata"], "annotations": annotations}}


#: What people write on pods and nodes for Cluster Autoscaler and Karpenter.
KEPT = [{SAFE_TO_EVICT: "false"}, {DO_NOT_DISRUPT: "true"}]
KEPT_NODES = [{SCALE_DOWN_DISABLED: "true"}, {DO_NOT_DISRUPT: "true"}]


@pytest.mark.parametrize("annotations", KEPT_NODES)
def test_nobody_is_moved_off_a_node_that_is_kept(annotations: dict[str, str]) -> None:
    """The pod of the other node moves; none does where both are kept."""
    a, b, p, q = HOLES
    kept = annotated(a, **annotations)
    assert list(plan_of(kept, b, p, q, LARGE, arguments=("--reschedule",))["evicted"]) == ["default/q"]
    both = plan_of(kept, annotated(b, **annotations), p, q, LARGE, arguments=("--reschedule",))
    assert (both["evicted"], both["placements"]) == ({}, {})


@pytest.mark.parametrize(
    "annotations", [{SAFE_TO_EVICT: "true"}, {DO_NOT_DISRUPT: "false"}, {"karpenter.sh/do-not-evict": "true"}]
)
def test_other_values_keep_nobody(annotations: dict[str, str]) -> None:
    """Nor do annotations of other names."""
    pods = [annotated(each, **annotations) for each in HOLES[2:]]
    assert len(plan_of(*HOLES[:2], *pods, LARGE, arguments=("--reschedule",))["evicted"]) == 1


@pytest.mark.parametrize("annotations", KEPT)
def test_a_pod_that_is_kept_is_preempted_all_the_same(annotations: dict[str, str]) -> None:
    """As by kube-scheduler."""
    kept = annotated(running("low"), **annotations)
    assert list(plan_of(node("a"), kept, URGENT)["evicted"]) == ["default/low"]


@pytest.mark.parametrize("rules", ["Replace", "Evict"])
@pytest.mark.parametrize("annotations", KEPT)
def test_a_pod_that_is_kept_leaves_for_no_rule(annotations: dict[str, str], rules: str) -> None:
    """Nor does one on a node that is kept."""
    misplaced = running("p", "2", nodeSelector={"kubernetes.io/hostname": "b"})
    asking = policy(delivery="Extender", duringExecution={"rules": rules})
    assert plan_of(node("a"), node("b"), annotated(misplaced, **annotations), asking)["evicted"] == {}
    assert plan_of(annotated(node("a"), **KEPT_NODES[0]), node("b"), misplaced, asking)["evicted"] == {}
    assert list(plan_of(node("a"), node("b"), misplaced, asking)["evicted"]) == ["default/p"]


@pytest.mark.parametrize("annotations", KEPT)
def test_why_says_which_annotation_is_in_the_way(annotations: dict[str, str]) -> None:
    """And offers no move of such a pod."""
    pods = [annotated(each, **annotations) for each in HOLES[2:]]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*HOLES[:2], *pods, LARGE]})
    done = thalweg("why", "default/large", "-f", "-", stdin=dump)
    assert f"no policy moves it: its annotation {next(iter(annotations))} says so" in " ".join(done.stdout.split())
    assert "Move default/" not in done.stdout
    kept_nodes = [annotated(each, **KEPT_NODES[0]) for each in HOLES[:2]]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*kept_nodes, *HOLES[2:], LARGE]})
    done = thalweg("why", "default/large", "-f", "-", stdin=dump)
    assert f"annotation {SCALE_DOWN_DISABLED} of node a says so" in " ".join(done.stdout.split())
    assert "Move default/" not in done.stdout


def test_budgets_keep_pods_from_being_moved() -> None:
    """A PodDisruptionBudget at 0 stops moves as it stops preemption."""
    answer = plan_of(*HOLES, LARGE, budget(0), arguments=("--reschedule",))
    assert (answer["evicted"], answer["placements"]) == ({}, {})


# -- rules that hold while pods run ------------------------------------------------------------------------------------


def test_a_rule_that_does_not_hold_any_more() -> None:
    """With duringExecution the pod is replaced, or evicted where there is no other node; the table says why."""
    misplaced = running("p", "2", nodeSelector={"kubernetes.io/hostname": "b"})
    replace = policy(delivery="Extender", duringExecution={"rules": "Replace"})
    leaves = {"default/p": {"node": "a", "for": [], "kind": "Rule", "to": "b"}}
    assert plan_of(node("a"), node("b"), misplaced, replace)["evicted"] == leaves
    assert plan_of(node("a"), node("b"), misplaced)["evicted"] == {}
    full = [node("a"), node("b", "1"), misplaced]
    assert plan_of(*full, replace)["evicted"] == {}
    leaves["default/p"]["to"] = None
    assert plan_of(*full, policy(delivery="Extender", duringExecution={"rules": "Evict"}))["evicted"] == leaves
    lines = table(node("a"), node("b"), misplaced, replace, arguments=("--pods",))
    assert any("Rule: node a does not match its node affinity or selector" in line for line in lines)
    assert lines[:2] == ["2 nodes; no pod waits", "1 running pod leaves, with a new node"]


def test_a_taint_that_came_later_where_the_policy_asks() -> None:
    """The table says which taint. A pod that its kubelet has not started yet stays."""
    tainted = node("a")
    tainted["spec"] = {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}
    there = running("p", "2")
    there["status"]["startTime"] = "2020-01-01T00:00:00Z"
    also = {"rules": "Replace", "also": ["Taints"]}
    asking = policy(delivery="Extender", duringExecution=also, rescheduling={"minAge": "0s"})
    lines = table(tainted, node("b"), there, asking, arguments=("--pods",))
    reason = "Rule: node a has the taint dedicated=gpu:NoSchedule, which it does not tolerate"
    assert any(reason in line for line in lines)
    assert plan_of(tainted, node("b"), running("p", "2"), asking)["evicted"] == {}
    assert plan_of(tainted, node("b"), there, policy(duringExecution={"rules": "Replace"}))["evicted"] == {}


# -- for people --------------------------------------------------------------------------------------------------------


def table(*objects: Manifest, arguments: tuple[str, ...] = ()) -> list[str]:
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = thalweg("plan", "-f", "-", *arguments, stdin=dump)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_table_says_who_leaves() -> None:
    """Who, from where, for whom, where to, and why; the preemptor's row says whom it waits for."""
    lines = table(node("a"), running("low"), URGENT, arguments=("--pods",))
    assert any("default/urgent" in line and " a " in line and "once default/low has left" in line for line in lines)
    (row,) = (line for line in lines if line.startswith("default/low"))
    assert row.split()[1:4] == ["a", "default/urgent", "-"]
    assert "higher priority" in row
    assert lines[0].startswith("1 node; 1 pod waits: it gets a node")
    assert lines[1].startswith("1 running pod ")
    assert lines[1].endswith(", without a new node")
    lines = table(node("a"), running("low"), URGENT)
    (row,) = (line for line in lines if "higher priority" in line)
    assert row.split()[1:4] == ["1", "0", "pod/default/urgent"]
    lines = table(*HOLES, LARGE, policy(rescheduling={"mode": "Propose"}), arguments=("--pods",))
    heading = next(at for at, line in enumerate(lines) if line.startswith("WOULD LEAVE"))
    assert "default/large" in lines[heading + 1]
    assert lines[0].startswith("2 nodes; 1 pod waits: it has no node")


GAINING = {
    "reasons": ["Gain"],
    "minGain": 1,
    "minAge": "0s",
    "price": {"startup": "1s", "lostWork": "Ignore"},
}


def test_moves_for_gain_are_shown() -> None:
    """JSON has the gain, the tables a sentence, and ``why`` of the running pod says it too."""
    crowd = [node("a"), node("b"), running("p", "1"), running("q", "1")]
    propose = policy(rescheduling={**GAINING, "mode": "Propose"})
    answer = plan_of(*crowd, propose)
    assert (answer["evictions"], answer["evicted"]) == ([], {})
    (move,) = answer["proposals"]
    assert (move["pod"], move["kind"], move["for"], move["to"]) == ("default/p", "Migration", [], "b")
    sentence = f"it costs {move['gain']:,} less on b than on a, and its move costs 12"
    assert (move["gain"] > 12, move["reason"]) == (True, sentence)
    assert plan_of(*crowd, propose, arguments=("--reschedule",))["evictions"] == [move]
    assert plan_of(*crowd, policy(rescheduling={"mode": "Act", "minAge": "0s"}))["evictions"] == []
    acting = policy(rescheduling={**GAINING, "mode": "Act"})
    assert any(f"Migration: {sentence}" in line for line in table(*crowd, acting, arguments=("--pods",)))
    assert any(f"other nodes cost {move['gain']:,} less" in line for line in table(*crowd, acting))
    for rules, said in ((propose, "Policy p proposes to move it to b"), (acting, "The plan moves it to b")):
        dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*crowd, rules]})
        lines = thalweg("why", "default/p", "-f", "-", stdin=dump).stdout.splitlines()
        assert lines[0] == f"default/p: Moves: {said}: {sentence}."
    assert "it does not wait" in thalweg("why", "default/q", "-f", "-", stdin=dump).stderr


def test_a_checkpoint_in_the_future_is_named() -> None:
    """It counts as none: the work of a year is lost by a move."""
    lost = policy(rescheduling={**GAINING, "mode": "Act", "price": {"startup": "1s", "lostWork": "Count"}})
    newest = running("q", "1", owner=None)  # a dump is as old as what is newest in it
    newest["metadata"]["creationTimestamp"] = "2021-01-01T00:00:00Z"
    for year, moves in (("2020", 0), ("9999", 0), ("2021", 1)):
        saved = running("p", "1")
        saved["spec"]["restartPolicy"] = "Never"
        saved["status"]["startTime"] = "2020-01-01T00:00:00Z"
        saved["metadata"]["annotations"] = {CHECKPOINTED_AT: f"{year}-01-01T00:00:00Z"}
        answer = plan_of(node("a"), node("b"), saved, newest, lost)
        assert len(answer["evictions"]) == moves, year
        assert bool([each for each in answer["warnings"] if "in the future" in each]) is (year == "9999")


def test_an_annotation_that_does_not_parse_is_named() -> None:
    """It counts as Ignore, and a warning names the pod and the annotation."""
    annotated = running("p", "2")
    annotated["metadata"]["annotations"] = {DURING_EXECUTION: "Sometimes"}
    answer = plan_of(node("a"), annotated)
    assert answer["evicted"] == {}
    assert [each for each in answer["warnings"] if "Pod default/p: annotation" in each and DURING_EXECUTION in each]


def test_each_reason_to_leave_is_told_in_words() -> None:
    """The table of a plan says why each pod leaves, whatever reasons there are."""
    assert set(WHY) == set(EvictionKind)
