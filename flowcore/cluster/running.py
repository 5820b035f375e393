"""The running pods of a cluster as rounds read them that evict or move pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from flowcore.cluster.cluster import Cluster
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from flowcore.model.policies import DuringExecution, Policy, ReschedulingMode
from flowcore.model.running_pods import GangDisruption, RecentMove, RunningPod, RunningPods
from flowcore.model.selector_index import SelectorIndex

_NO_REASONS: Mapping[str, str] = {}


class BudgetIndex:
    """Which PodDisruptionBudgets protect a pod."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._index: SelectorIndex[str] = SelectorIndex()
        self._budgets = {budget.key: budget for budget in budgets}
        for budget in self._budgets.values():
            self._index.add(budget.key, budget.selector)

    def of(self, pod: Pod) -> tuple[str, ...]:
        """Keys of the budgets, sorted."""
        found = (self._budgets[key] for key in self._index.find(pod.labels))
        return tuple(sorted(budget.key for budget in found if budget.selects(pod.namespace, pod.labels)))


def to_running_pod(
    pod: Pod,
    policy: Policy | None,
    budgets: tuple[str, ...],
    gang: str,
    now: float,
    unevictable_reason: str = "",
    queue: str = "",
) -> RunningPod:
    """A pod with a node as a round reads it.

    Args:
        policy: that governs it; None: none does.
        budgets: keys of the PodDisruptionBudgets that protect it.
        gang: name of its gang; "": none.
        unevictable_reason: why it may not be evicted just now; "": nothing is known against it.
        queue: name of the FlowQueue that it counts for; "": none.
    """
    if not unevictable_reason and pod.static:
        unevictable_reason = "it is a static pod"
    if not unevictable_reason and len(budgets) > 1:
        unevictable_reason = f"several PodDisruptionBudgets protect it: {', '.join(budgets)}"
    return RunningPod(
        key=pod.key,
        uid=pod.uid,
        node=pod.node_name,
        pod_class=pod.pod_class,
        usage=pod.usage,
        signature=pod.signature,
        started=pod.started,
        policy="" if policy is None else policy.name,
        owner=pod.owner,
        gang=gang,
        budgets=budgets,
        immovable_reason=_immovable_reason(pod, policy, now),
        unevictable_reason=unevictable_reason,
        queue=queue,
        during_execution=_during_execution(pod, policy),
    )


def _during_execution(pod: Pod, policy: Policy | None) -> DuringExecution:
    """A pod that is never moved stays, and so does one whose policy only observes.

    Its age and ``spec.rescheduling.mode`` do not matter.
    """
    stays = pod.immovable_reason or pod.gang is not None or pod.unsupported_reason or pod.unbindable_reason
    if policy is None or not policy.delivery.acts or stays:
        return DuringExecution.IGNORE
    return pod.during_execution or policy.during_execution


def _immovable_reason(pod: Pod, policy: Policy | None, now: float) -> str:
    if policy is None or policy.rescheduling.mode is ReschedulingMode.OFF:
        return "no policy moves it"
    if pod.immovable_reason:
        return pod.immovable_reason
    if pod.gang is not None:
        return "it belongs to a gang"
    if pod.unsupported_reason or pod.unbindable_reason:
        return pod.unsupported_reason or pod.unbindable_reason
    if now - (pod.started or pod.created) < policy.rescheduling.min_age:
        return f"it has run for less than spec.rescheduling.minAge of policy {policy.name}"
    return ""


def running_pods(
    cluster: Cluster,
    policy_of: Callable[[Pod], Policy | None],
    now: float,
    *,
    excluded: Collection[str] = (),
    unevictable_reasons: Mapping[str, str] = _NO_REASONS,
    moves: tuple[RecentMove, ...] = (),
) -> RunningPods:
    """All pods that hold room on a known node and do not leave already.

    Args:
        policy_of: the policy that governs a pod.
        now: seconds since the epoch.
        excluded: keys of pods that are about to leave.
        unevictable_reasons: why some pods may not be evicted just now, by uid.
        moves: of the last hour.
    """
    index = BudgetIndex(cluster.disruption_budgets.values())
    pods: list[RunningPod] = []
    gangs: dict[str, GangDisruption] = {}
    leaving = [pod for pod in cluster.pods.values() if pod.key in excluded and is_running(cluster, pod)]
    for pod in cluster.pods.values():
        if pod.key in excluded or not is_running(cluster, pod):
            continue
        gang = ""
        if pod.gang is not None:
            gang = pod.gang.key.display_name
            if gang not in gangs:
                gangs[gang] = gang_disruption(cluster, pod.gang.key, leaving)
        reason = unevictable_reasons.get(pod.uid, "")
        queue = cluster.queues.of(pod, cluster.namespaces)
        pods.append(to_running_pod(pod, policy_of(pod), index.of(pod), gang, now, reason, queue))
    return RunningPods(tuple(pods), budgets_left(cluster, index, leaving), gangs, moves)


def is_running(cluster: Cluster, pod: Pod) -> bool:
    """Whether a pod holds room on a known node and does not leave already."""
    return pod.node_name in cluster.nodes and not pod.terminal and not pod.deleting


def gang_disruption(cluster: Cluster, key: GangKey, leaving: Iterable[Pod]) -> GangDisruption:
    """What may leave of a running gang.

    Args:
        leaving: running pods that are about to leave, and are not deleted yet.
    """
    state = cluster.gangs.state(key)
    running = state.bound_count - sum(1 for pod in leaving if pod.gang is not None and pod.gang.key == key)
    return GangDisruption(key.display_name, running, state.spec.min_member or 0, state.spec.evicted_whole)


def budgets_left(cluster: Cluster, index: BudgetIndex, leaving: Iterable[Pod]) -> dict[str, int]:
    """How many more pods each PodDisruptionBudget lets go.

    Args:
        leaving: running pods that are about to leave: the status counts those only that were evicted already.
    """
    left = {key: budget.allowed for key, budget in cluster.disruption_budgets.items()}
    for pod in leaving:
        for key in index.of(pod):
            if pod.name not in cluster.disruption_budgets[key].disrupted:
                left[key] = max(0, left[key] - 1)
    return left
