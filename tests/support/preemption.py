"""Rounds that may evict, on drawn cases, beside what kube-scheduler's DefaultPreemption chooses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from support.draw import Case, Manifest
from support.eviction_safety import check_evictions
from support.verdicts import namespaces_of, read_pods, verdicts_from_cache
from thalweg_controlplane import Oracle, OracleDecision

from flowcore.api import Interner, WireDisruptionBudget, WireNode, to_disruption_budget, to_node
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import running_pods
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

#: Added to each priority before they are summed: pickOneNodeForPreemption of kube-scheduler's preemption.go.
_ABOVE_ALL = 2**31
#: No pod has a higher priority, so nobody evicts one that has this.
_HIGHEST = 2**31 - 1
#: Selects all pods. So does an empty selector, but not in kube-scheduler's preemption.
_EVERYTHING = {"matchExpressions": [{"key": "not-a-label", "operator": "DoesNotExist"}]}


def key_of(pod: Manifest) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def cluster_of(case: Case) -> Cluster:
    """The case as the operator would have seen it, without the pending pods."""
    cluster = Cluster()
    for manifest in case.nodes:
        cluster.put_node(to_node(msgspec.convert(manifest, WireNode), Interner()))
    for name, labels in namespaces_of(case).items():
        cluster.set_namespace(name, labels)
    for pod in read_pods(case.pods):
        cluster.put_pod(pod)
    for budget in budgets_of(case):
        cluster.set_disruption_budget(budget.key, budget)
    return cluster


def budgets_of(case: Case) -> list[DisruptionBudget]:
    """The case's PodDisruptionBudgets."""
    return [to_disruption_budget(msgspec.convert(manifest, WireDisruptionBudget)) for manifest in case.budgets]


def plannable(case: Case) -> list[Pod]:
    """The pending pods that rounds plan."""
    return [pod for pod in read_pods(case.pending) if not pod.skip_reason]


def evicting_snapshot(case: Case, pods: Sequence[Pod], now: float = 0.0) -> Snapshot:
    """The case as a round sees it that may evict, with these pods waiting."""
    cluster = cluster_of(case)
    pending = tuple(
        PendingPod(
            pod.key, pod.uid, pod.pod_class, BUILT_IN.name, pod.created, pod.signature, preempts=pod.preempts
        )
        for pod in pods
    )  # fmt: skip
    running = running_pods(cluster, lambda _pod: BUILT_IN, now)
    return to_snapshot(cluster, now=now, pending=pending, running=running)


def protected(case: Case) -> set[str]:
    """Keys of pods that nobody may evict: they leave already, are static, or have several budgets."""
    budgets = budgets_of(case)
    found = set()
    for pod in read_pods(case.pods):
        several = sum(budget.selects(pod.namespace, pod.labels) for budget in budgets) > 1
        if several or pod.static or pod.deleting:
            found.add(pod.key)
    return found


def for_kube_scheduler(case: Case) -> Case:
    """The question as DefaultPreemption understands it, where it does not know what the Eviction API refuses.

    Pods that nobody may evict get the highest priority, which no filter reads. Selectors that select all say so.
    """
    spared = protected(case)
    pods = [
        {**pod, "spec": {**pod["spec"], "priority": _HIGHEST}} if key_of(pod) in spared else pod
        for pod in verdicts_from_cache(case)
    ]
    budgets = [
        {**budget, "spec": {"selector": _EVERYTHING}} if budget["spec"].get("selector") == {} else budget
        for budget in case.budgets
    ]
    return replace(case, pods=pods, budgets=budgets)


def decisions(oracle: Oracle, case: Case) -> dict[str, OracleDecision]:
    """What kube-scheduler does with each pending pod, each by itself."""
    asked = for_kube_scheduler(case)
    return oracle.decide(asked.nodes, asked.pods, asked.pending, asked.namespaces, asked.storage, asked.budgets)


def price(case: Case, victims: Collection[str], violations: int = 0) -> tuple[int, int, int, int, float]:
    """What kube-scheduler compares two sets of victims by; the smaller the better.

    Source: pickOneNodeForPreemption (pkg/scheduler/framework/preemption/preemption.go).
    """
    chosen = [pod for pod in case.pods if key_of(pod) in victims]
    priorities = [pod["spec"].get("priority", 0) for pod in chosen]
    top = max(priorities)
    starts = [
        datetime.fromisoformat(pod["status"]["startTime"]).timestamp()
        for pod, priority in zip(chosen, priorities, strict=True)
        if priority == top
    ]
    return violations, top, sum(priority + _ABOVE_ALL for priority in priorities), len(chosen), -min(starts)


def fits(oracle: Oracle, case: Case, pod: Manifest, node: str, without: Collection[str]) -> bool:
    """Whether kube-scheduler's filters let a pod go to a node once some pods have left."""
    left = [each for each in verdicts_from_cache(case) if key_of(each) not in without]
    return oracle.judge(case.nodes, left, [pod], (), case.namespaces, case.storage)[""][key_of(pod)][node].fits


def check_eligible(case: Case, result: RoundResult) -> None:
    """Whoever leaves may leave, by the manifests, and no budget loses more than it allows."""
    leaving = {eviction.pod.key for eviction in result.evictions}
    assert not leaving & protected(case), f"nobody may evict {leaving & protected(case)}"
    pods = [pod for pod in read_pods(case.pods) if pod.key in leaving]
    for budget in budgets_of(case):
        count = sum(budget.selects(pod.namespace, pod.labels) for pod in pods)
        assert count <= budget.allowed, f"{count} of {budget.key} leave, which allows {budget.allowed}"


def plan(case: Case, pods: Sequence[Pod]) -> RoundResult:
    """A round in which these pods wait, with all checks done."""
    snapshot = evicting_snapshot(case, pods)
    result = run_round(snapshot)
    check_eligible(case, result)
    check_evictions(snapshot, result, DEFAULT_POLICIES)
    return result


def _difference(case: Case, what: str) -> AssertionError:
    return AssertionError(f"{what}\n{json.dumps(case.to_json(), indent=1)}")


def compare_one(oracle: Oracle, case: Case, pod: Pod, theirs: OracleDecision) -> str:
    """Plans one urgent pod, checks the plan beside kube-scheduler's, and says what kind of case it was.

    Raises:
        AssertionError: the plan is not legal, not minimal, or worse than kube-scheduler's.
    """
    manifest = next(each for each in case.pending if key_of(each) == pod.key)
    alone = replace(case, pending=[manifest])
    result = plan(alone, [pod])
    said = f"kube-scheduler: {theirs}; ours: {[(p.node, p.victims) for p in result.placements]}"
    if theirs.node and not fits(oracle, alone, manifest, theirs.node, theirs.victims):
        # A host port that two pods of a node hold: NodeInfo.RemovePod gives it free when one of them leaves.
        return "kube-scheduler's plan does not fit"
    if not result.placements:
        if theirs.node and not theirs.violations:
            raise _difference(alone, f"we leave the pod waiting. {said}")
        return "both wait" if not theirs.node else "only by violating a budget"
    (placement,) = result.placements
    if theirs.node and not theirs.victims and placement.victims:
        raise _difference(alone, f"it fits without any eviction. {said}")
    if not fits(oracle, alone, manifest, placement.node, placement.victims):
        raise _difference(alone, f"the filters reject the plan. {said}")
    for spared in placement.victims:
        if fits(oracle, alone, manifest, placement.node, set(placement.victims) - {spared}):
            raise _difference(alone, f"{spared} could stay. {said}")
    if not placement.victims:
        return "it fits"
    if not theirs.node:
        return "only we evict"
    ours, other = price(alone, placement.victims), price(alone, theirs.victims, theirs.violations)
    if ours > other:
        raise _difference(alone, f"our victims {ours} are worse than {other}. {said}")
    return "both evict, equal" if ours == other else "both evict, ours are better"


@dataclass(frozen=True, slots=True)
class Batch:
    """How many pods of a batch get a node, and how many pods are evicted for it."""

    placed: int
    victims: int


def schedule_one_by_one(oracle: Oracle, case: Case, order: Iterable[str]) -> Batch:
    """kube-scheduler's way with a batch: each pod is bound, and its victims are gone, before the next one comes.

    The case has no budgets.
    """
    pending = {key_of(pod): pod for pod in case.pending}
    placed = victims = 0
    for key in order:
        decision = decisions(oracle, replace(case, pending=[pending[key]]))[key]
        if not decision.node:
            continue
        placed, victims = placed + 1, victims + len(decision.victims)
        bound = {**pending[key], "spec": {**pending[key]["spec"], "nodeName": decision.node}}
        bound["status"] = {"phase": "Running", "startTime": "2026-02-01T00:00:00Z"}
        left = [pod for pod in case.pods if key_of(pod) not in decision.victims]
        case = replace(case, pods=[*left, bound])
    return Batch(placed, victims)


def compare_batch(oracle: Oracle, case: Case) -> tuple[Batch, Batch]:
    """A batch in one round, checked by kube-scheduler's filters pod by pod, and in kube-scheduler's way."""
    pods = plannable(case)
    result = plan(case, pods)
    carry_out(oracle, case, result)
    ours = Batch(len(result.placements), len(result.evictions))
    return ours, schedule_one_by_one(oracle, case, [pod.key for pod in sorted(pods, key=_first)])


def _first(pod: Pod) -> tuple[int, str]:
    return -pod.pod_class.priority, pod.key


def carry_out(oracle: Oracle, case: Case, result: RoundResult) -> None:
    """Pods without victims come first, then all victims leave, then the others come: every filter passes each time."""
    manifests = {key_of(pod): pod for pod in case.pending}
    left, victims = verdicts_from_cache(case), {eviction.pod.key for eviction in result.evictions}
    for placement in sorted(result.placements, key=lambda each: bool(each.victims)):
        pod = manifests[placement.pod.key]
        if placement.victims:
            left = [each for each in left if key_of(each) not in victims]
        verdict = oracle.judge(case.nodes, left, [pod], (), case.namespaces)[""][placement.pod.key][placement.node]
        if not verdict.fits:
            raise _difference(case, f"{placement.pod.key} on {placement.node}: {verdict}")
        left.append({**pod, "spec": {**pod["spec"], "nodeName": placement.node}})
