"""The running pods of a cluster as rounds read them that evict or move pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from flowcore.model.policies import DuringExecution, Policy, ReschedulingMode, ReschedulingReason
from flowcore.model.running_pods import GangDisruption, HeldRoom, RecentMove, RunningPod, RunningPods
from flowcore.model.usage import MAX_FUTURE

_NO_REASONS: Mapping[str, str] = {}
#: What is said of an annotation about a checkpoint that is still to come.
FUTURE_CHECKPOINT = "it is in the future; it is ignored until then"


def to_running_pod(
    cluster: Cluster, pod: Pod, policy: Policy | None, now: float, unevictable_reason: str = ""
) -> RunningPod:
    """A pod with a node as a round reads it.

    Args:
        policy: that governs it; None: none does.
        now: seconds since the epoch.
        unevictable_reason: why it may not be evicted just now; "": nothing is known against it.
    """
    budgets = cluster.budgets.of(pod)
    if not unevictable_reason and pod.static:
        unevictable_reason = "it is a static pod"
    is_system = pod.namespace in cluster.policies.system_namespaces
    protected = f"it is in {pod.namespace}, where Thalweg evicts nobody" if is_system else ""
    unevictable_reason = unevictable_reason or protected
    if not unevictable_reason and pod.holds_shared_gpu:
        unevictable_reason = "pods of KAI-Scheduler share the GPU that it holds"
    unevictable_reason = unevictable_reason or composite_reason(cluster, pod)
    if not unevictable_reason and len(budgets) > 1:
        unevictable_reason = f"several PodDisruptionBudgets protect it: {', '.join(budgets)}"
    # Its class may be backed by devices that cannot be planned.
    stays = immovable_reason(cluster, pod)
    replacement = "" if policy is None or not pod.extended else cluster.as_waiting(pod).unsupported_reason
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
        gang="" if pod.gang is None else pod.gang.key.display_name,
        budgets=budgets,
        immovable_reason=_immovable_reason(pod, policy, now, stays, replacement),
        unevictable_reason=unevictable_reason,
        queue=cluster.queues.of(pod, cluster.namespaces),
        during_execution=_during_execution(pod, policy, stays or replacement or protected),
        checkpointed=pod.checkpointed,
        finite=pod.finite,
    )


def immovable_reason(cluster: Cluster, pod: Pod) -> str:
    """Why nothing moves a running pod, whatever policies say: by itself or by its node; "": something may."""
    node = cluster.nodes.get(pod.node_name)
    if pod.immovable_reason or node is None or not node.report.keeps_pods:
        return pod.immovable_reason
    return f"annotation {node.report.keeps_pods} of node {node.name} says so"


def composite_reason(cluster: Cluster, pod: Pod) -> str:
    """Why a pod is not evicted whose PodGroup belongs to a CompositePodGroup, which may say how; "": it is in none."""
    group = None if pod.gang is None else cluster.gangs.groups.get(pod.gang.key)
    return "" if group is None else group.composite_reason


def is_future_checkpoint(checkpointed: float, now: float) -> bool:
    """Whether a checkpoint is further in the future than clocks differ; both in seconds since the epoch."""
    return checkpointed > now + MAX_FUTURE


def _during_execution(pod: Pod, policy: Policy | None, obstacle: str) -> DuringExecution:
    """A pod that is never moved stays, and so does one whose policy only observes.

    Its age and ``spec.rescheduling.mode`` do not matter.

    Args:
        obstacle: why nothing moves it, or why another pod in its place would not be planned; "": neither.
    """
    if policy is not None and ReschedulingReason.BROKEN_RULES not in policy.rescheduling.reasons:
        return DuringExecution.IGNORE
    stays = obstacle or pod.gang is not None or pod.unsupported_reason or pod.pod_class.volumes
    if policy is None or not policy.delivery.acts or stays:
        return DuringExecution.IGNORE
    return pod.during_execution or policy.during_execution


def _immovable_reason(pod: Pod, policy: Policy | None, now: float, stays: str, replacement: str) -> str:
    if policy is None or policy.rescheduling.mode is ReschedulingMode.OFF:
        return "no policy moves it"
    if stays:
        return stays
    if pod.gang is not None:
        return "it belongs to a gang"
    if pod.unsupported_reason:
        return pod.unsupported_reason
    if pod.pod_class.volumes:
        return "it has volumes"
    if replacement:
        return replacement
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
    pods: list[RunningPod] = []
    gangs: dict[str, GangDisruption] = {}
    leaving = [pod for pod in cluster.pods.values() if pod.key in excluded and is_running(cluster, pod)]
    terminating = [pod for pod in cluster.pods.values() if is_terminating(cluster, pod)]
    for pod in cluster.pods.values():
        if pod.key in excluded or not is_running(cluster, pod):
            continue
        if pod.gang is not None and (name := pod.gang.key.display_name) not in gangs:
            gangs[name] = gang_disruption(cluster, pod.gang.key, leaving)
        pods.append(to_running_pod(cluster, pod, policy_of(pod), now, unevictable_reasons.get(pod.uid, "")))
    room_to_come = tuple(map(held_room, (*leaving, *terminating)))
    return RunningPods(tuple(pods), budgets_left(cluster, leaving), gangs, moves, room_to_come)


def held_room(pod: Pod) -> HeldRoom:
    """What a pod holds on its node."""
    return HeldRoom(pod.node_name, pod.usage, pod.pod_class.unrequested)


def is_running(cluster: Cluster, pod: Pod) -> bool:
    """Whether a pod holds room on a known node and does not leave already."""
    return pod.node_name in cluster.nodes and not pod.terminal and not pod.deleting


def is_terminating(cluster: Cluster, pod: Pod) -> bool:
    """Whether a pod is being deleted and still holds room on a known node."""
    return pod.node_name in cluster.nodes and not pod.terminal and pod.deleting


def leaving_for(cluster: Cluster, pod: Pod) -> list[Pod]:
    """Pods of a lower priority that terminate on the node that a waiting pod is nominated for, or must go to, by key.

    While there are any, nobody else is evicted for it (PodEligibleToPreemptOthers of kube-scheduler's
    DefaultPreemption).
    """
    leaving = (
        cluster.pods[key] for key in sorted(cluster.terminating.get(pod.nominated_node or pod.pod_class.node_name, ()))
    )
    return [each for each in leaving if each.pod_class.priority < pod.pod_class.priority]


def gang_disruption(cluster: Cluster, key: GangKey, leaving: Iterable[Pod]) -> GangDisruption:
    """What may leave of a running gang.

    Args:
        leaving: running pods that are about to leave, and are not deleted yet.
    """
    state = cluster.gangs.state(key)
    running = state.bound_count - sum(1 for pod in leaving if pod.gang is not None and pod.gang.key == key)
    return GangDisruption(key.display_name, running, state.spec.min_member or 0, state.spec.evicted_whole)


def budgets_left(cluster: Cluster, leaving: Iterable[Pod]) -> dict[str, int]:
    """How many more pods each PodDisruptionBudget lets go.

    Args:
        leaving: running pods that are about to leave: the status counts those only that were evicted already.
    """
    left = {key: budget.allowed for key, budget in cluster.budgets.objects.items()}
    for pod in leaving:
        for key in cluster.budgets.of(pod):
            if pod.name not in cluster.budgets.objects[key].disrupted:
                left[key] = max(0, left[key] - 1)
    return left
