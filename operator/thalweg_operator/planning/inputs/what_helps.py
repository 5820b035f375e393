"""What may give a node to a pod that a round had none for.

Each change that may help any pod is counted (``Helped``): a node or a policy that changed, a reservation that ended.
Of a pod that left its node others get its room there. It helps a pod that fits there now, one for which others may
leave, and one that waits for something that the pod may have had beside its room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import PodsToComeMode, Policy, PreemptionMode, ReschedulingMode
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageKey
from flowcore.rules.filters.registry import IN_ORDER
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, GANG_WITHOUT_ROOM, NO_NODES
from thalweg_operator.planning.inputs.round_facts import is_overdue
from thalweg_operator.reservations.ledger.feasibility import fits_now
from thalweg_operator.reservations.ledger.ledger import Ledger

#: Codes of pods that no node takes as the cluster is. Others wait for time, prices, networks, limits or other pods.
_LASTING = frozenset({NO_NODES, GANG_INCOMPLETE, GANG_WITHOUT_ROOM, *(each.name for each in IN_ORDER)})
#: Kinds of storage objects as their keys have them.
_CLAIM, _VOLUME = str(Claim.__struct_config__.tag), str(PersistentVolume.__struct_config__.tag)


class WhatHelps:
    """Reads cluster and ledger."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._ledger = cluster, ledger

    @property
    def anyone_moves(self) -> bool:
        """Whether a policy moves running pods.

        Those may be moved for pods of any policy, within limits that follow the time. And moves for gain leave room
        that a waiting pod may need: the round has to know it.
        """
        return any(each.rescheduling.mode is not ReschedulingMode.OFF for each in self._cluster.policies.ordered)

    @staticmethod
    def lowest_that_stays(placed: Iterable[tuple[Pod, Policy]]) -> float:
        """The lowest priority of pods that a round placed and could not take back for others; infinite: none.

        Once they run they may be evicted for a pod of a higher priority that the round left.
        """
        return min(
            (
                pod.pod_class.priority
                for pod, policy in placed
                if pod.gang is not None or victim_key(pod) or policy.unscheduled.aging_crosses_priorities
            ),
            default=float("inf"),
        )

    def may_rest(self, pod: Pod, policy: Policy, code: str, lowest_placed: float = float("inf")) -> bool:
        """Whether a pod that a round left with this code gets no node by placements of others.

        They may satisfy affinity and spread constraints, and the constraints of a policy. In which order a queue lets
        pods in depends on all that wait. A pod that takes the place of another follows that one. Of pods that are only
        observed nothing is reserved, so nothing tells that another plan has room for one.

        Args:
            lowest_placed: see ``lowest_that_stays``.
        """
        cluster, rules = self._cluster, pod.constraints
        return (
            code in _LASTING
            and policy.delivery.acts
            and not (_may_evict(pod, policy) and pod.pod_class.priority > lowest_placed)
            and not policy.constraints
            and (rules is None or not (rules.affinity or rules.spread))
            and not cluster.queues.of(pod, cluster.namespaces)
            and not victim_key(pod)
            and (pod.gang is None or self._gang_may_rest(pod, pod.gang.key, policy))
        )

    def _gang_may_rest(self, pod: Pod, key: GangKey, policy: Policy) -> bool:
        """Whether a gang of a pod may rest.

        Gangs with a domain, or with a claim for all their pods, share the tries of a round, and each has its turn in
        another one. Pods that come once a gang runs may need other room than its own pods, and those of other gangs
        count beside them.
        """
        devices = pod.pod_class.devices
        shares = devices is not None and any(map(devices.is_of_group, devices.claims))
        must_fit = policy.gangs.pods_to_come is PodsToComeMode.MUST_FIT
        return not (shares or must_fit or self._cluster.gangs.state(key).spec.topologies)

    def by(
        self, freed: Collection[str], stored: Collection[StorageKey], now: float
    ) -> Callable[[Pod, Policy, float], bool]:
        """Says of pods that were planned in vain at a time, by whom they are governed, whether they are helped now.

        Args:
            freed: nodes that gave up room since the last round.
            stored: storage objects that came, changed or went since then.
            now: seconds since the epoch, as the times that the answer is asked with.
        """
        cluster = self._cluster
        known: dict[PodClass, bool] = {}

        def is_helped(pod: Pod, policy: Policy, since: float) -> bool:
            if is_overdue(pod, policy, now) or self._came_of_age(pod, policy, since, now):
                return True
            if stored and self._storage_helps(pod, stored):
                return True
            if not freed:
                return False
            if _shares(pod) or self._others_may_leave(pod, policy):
                return True
            fits = known.get(pod.pod_class)
            if fits is None:
                fits = known[pod.pod_class] = any(fits_now(cluster, pod, node) for node in freed)
            return fits

        return is_helped

    def _storage_helps(self, pod: Pod, stored: Collection[StorageKey]) -> bool:
        """Whether other storage objects may let a pod in. One whose claims are all bound reads these volumes alone."""
        own = {(_CLAIM, *each.key) for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)}
        for key in tuple(own):
            claim = self._cluster.storage.objects.get(key)
            if not isinstance(claim, Claim) or not claim.bound:
                return True
            own.add((_VOLUME, "", claim.volume_name))
        return bool(pod.pod_class.volumes) and any(key in own or key[0] not in (_CLAIM, _VOLUME) for key in stored)

    def fits_any(self, pods: Iterable[Pod], nodes: Collection[str]) -> bool:
        """Whether one of these pods fits one of these nodes now, as far as room goes."""
        return any(fits_now(self._cluster, pod, node) for pod in pods for node in nodes)

    def _came_of_age(self, pod: Pod, policy: Policy, since: float, now: float) -> bool:
        """Whether others may be evicted for a pod now, and it had not waited for long enough then."""
        waits_since = self._ledger.plannable_since(pod, now)
        return (
            policy.preemption.mode is not PreemptionMode.NEVER
            and max(0.0, since - waits_since) < policy.preemption.after <= now - waits_since
        )

    def _others_may_leave(self, pod: Pod, policy: Policy) -> bool:
        """Whether running pods may be evicted for a pod: free room may be a part of its room."""
        lowest = min(self._cluster.bound_priorities, default=None)
        return _may_evict(pod, policy) and lowest is not None and pod.pod_class.priority > lowest


def _may_evict(pod: Pod, policy: Policy) -> bool:
    return policy.preemption.mode is not PreemptionMode.NEVER and pod.preempts


def _shares(pod: Pod) -> bool:
    """Whether a pod that leaves any node may give it more than room: a claim, or a domain without such pods."""
    return pod.constraints is not None or bool(pod.pod_class.volumes) or pod.pod_class.devices is not None
