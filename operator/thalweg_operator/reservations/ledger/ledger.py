"""The ledger: one reservation for each placement that is on its way.

The ledger adds its reservations to the cluster's occupancy, so the usage of a node is always bound pods + ledger. A
nomination is a reservation, also one of others: that is how reservations come back after a restart. One event loop owns
cluster and ledger, so nothing here locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.volumes import VolumeChoice
from flowcore.rules.topology.drift import Drift
from thalweg_operator.reservations.ledger.records.arrivals import Arrivals
from thalweg_operator.reservations.ledger.records.awaited_room import AwaitedRoomIndex
from thalweg_operator.reservations.ledger.records.bound_together import BoundTogether
from thalweg_operator.reservations.ledger.records.devices.device_claims import DeviceClaimRecords
from thalweg_operator.reservations.ledger.records.devices.device_turns import DeviceTurns
from thalweg_operator.reservations.ledger.records.helped import Helped
from thalweg_operator.reservations.ledger.records.in_flight import InFlight
from thalweg_operator.reservations.ledger.records.in_vain import PodsInVain
from thalweg_operator.reservations.ledger.records.pending import PendingRecord, WaitingGroup
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase, check_transition
from thalweg_operator.reservations.ledger.victim_record import UnevictablePod, VictimRecord


class Ledger:
    """All reservations, indexed by node, phase and gang.

    Attributes:
        reservations: by key of the pod.
        by_node: keys of the pods with a reservation, by node.
        victims: running pods that are to leave, by key.
        waiting_groups: atomic groups that wait for victims, by name.
        unevictable: running pods whose eviction was refused, by UID.
        awaiting: keys of the pods in phase AWAITING_VICTIM.
        held: keys of the pods in phase HELD.
        paused: keys of the pods in phase PAUSED.
        withdrawing: keys of the pods in phase WITHDRAWING: they are not on their way any more.
        preparing: keys of the pods in phase PREPARING.
        bound_together: groups of pods that are bound once all have what they need before.
        in_flight: what binder and kube-scheduler may not know of each other yet.
        device_claims: claims to devices of pods that we bind, and what others took of devices.
        device_turns: where kube-scheduler or the binder chooses devices.
        nominated_in_vain: reservations of pods that we bind, with a nomination, that ended in this step without that.
        pending: what is remembered of waiting pods, by key.
        in_vain: waiting pods that a plan had no node for, and that have none since.
        arrivals: in which order pods came to nodes.
        drift: what changed since the plan in hand was asked for.
        ends: the operator ends: no eviction begins, but for those that others of the same group began.
        last_id: number of the last reservation.
        round_wanted: a round may place more, or must look at something, since this was last taken back.
        round_at_once: a pod began to wait, and a round is to plan it at once.
        helped: what may have given a node to pods that were planned in vain.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._occupancy = cluster, cluster.occupancy
        self.reservations: dict[str, Reservation] = {}
        self.by_node: dict[str, set[str]] = {}
        self.victims: dict[str, VictimRecord] = {}
        self.waiting_groups: dict[str, WaitingGroup] = {}
        self.unevictable: dict[str, UnevictablePod] = {}
        self._awaited_room = AwaitedRoomIndex(self._occupancy)
        self.awaiting: set[str] = set()
        self.held: set[str] = set()
        self.paused: set[str] = set()
        self.withdrawing: set[str] = set()
        self.preparing: set[str] = set()
        self.bound_together = BoundTogether()
        self.in_flight = InFlight()
        self.device_claims = DeviceClaimRecords()
        self.device_turns = DeviceTurns()
        self.drift = Drift()
        #: Whether changes of the cluster count in ``drift``.
        self.drifts = True
        self.nominated_in_vain: list[Reservation] = []
        self.pending: dict[str, PendingRecord] = {}
        self.in_vain = PodsInVain()
        self.arrivals = Arrivals()
        self.ends = False
        self.round_wanted = self.round_at_once = False
        self.helped = Helped()
        self.last_id = 0

    def record(self, pod: Pod) -> PendingRecord:
        """What is remembered of a waiting pod. Of another pod nothing is kept."""
        record = self.known_record(pod)
        if record is None:
            record = PendingRecord(pod.uid)
            current = self._cluster.waiting.get(pod.key)
            if current is not None and current.uid == pod.uid:
                self.pending[pod.key] = record
        return record

    def known_record(self, pod: Pod) -> PendingRecord | None:
        """What is remembered of a pod; None: nothing."""
        record = self.pending.get(pod.key)
        return record if record is not None and record.uid == pod.uid else None

    def forget_waiting(self, key: str) -> None:
        """The pod of this name waits no more, or another one has its name: what was remembered of it goes."""
        self.pending.pop(key, None)
        self.in_vain.drop(key)

    def plannable_since(self, pod: Pod, now: float) -> float:
        """When a pod could first be planned, by the wall clock: the first round that could, or what is written on it.

        After a restart the latter is all that is known. A pod that was never told it waits counts as new.
        """
        record = self.record(pod)
        if record.plannable_since is None:
            record.plannable_since = pod.unschedulable_since or now
        return record.plannable_since

    # --- reservations ---

    def add(
        self,
        pod: Pod,
        node: str,
        owner: Owner,
        phase: Phase,
        victims: Sequence[VictimRecord] = (),
        waiting_group: str = "",
        *,
        optional: bool = False,
        planned: bool = False,
        device_claims: tuple[PlannedClaim, ...] = (),
        volumes: tuple[VolumeChoice, ...] = (),
    ) -> None:
        """Adds a reservation. Whether there is room is not asked.

        Args:
            victims: pods that must leave first; one that leaves for other pods already is the same victim.
            waiting_group: its atomic group, which waits for victims as a whole.
            optional: whether the group does without it.
            planned: whether the plan in hand places it.
            device_claims, volumes: see ``Reservation``.
        """
        check_transition(pod.key, None, phase)
        self.last_id += 1
        self.in_vain.drop(pod.key)
        self.arrivals.add(node, pod.pod_class, planned=planned)
        for victim in victims:
            record = self.victims.get(victim.pod.key)
            if record is None:
                record = self.victims[victim.pod.key] = victim
                self._cluster.set_leaving(victim.pod.key, leaving=True)
            record.for_pods.add(pod.key)
        if waiting_group:
            group = self.waiting_groups.setdefault(waiting_group, WaitingGroup())
            group.add(pod.key, optional=optional)
            group.leaving += sum(self.victims[victim.pod.key].is_leaving for victim in victims)
        keys = tuple(victim.pod.key for victim in victims)
        generation = self._cluster.generation
        reservation = Reservation(
            pod,
            node,
            owner,
            phase,
            self.last_id,
            keys,
            waiting_group,
            optional,
            generation,
            device_claims=device_claims,
            volumes=volumes,
        )
        self.reservations[pod.key] = reservation
        self.device_claims.replace(None, reservation)
        self._promise_volumes(None, reservation)
        self.by_node.setdefault(node, set()).add(pod.key)
        self._cluster.numa.claims_changed(node)
        if phase is Phase.AWAITING_VICTIM:
            self.awaiting.add(pod.key)
        elif phase is Phase.HELD:
            self.held.add(pod.key)
        self._count(reservation, 1)
        signature = pod.signature
        self._occupancy.change_pods(signature, node, 1)
        if reservation.owner is Owner.OTHERS:
            self.drift.pods.change(signature, node, 1)
        if reservation.owner is Owner.BINDER:
            self.in_flight.binding_started(signature, node)

    def change(self, key: str, **fields: object) -> Reservation:
        """Changes fields of a reservation, and returns it.

        Raises:
            IllegalTransition: its phase must not become this one.
        """
        before = self.reservations[key]
        after = msgspec.structs.replace(before, **fields)
        if "phase" in fields:
            check_transition(key, before.phase, after.phase)
        counts_anew = (before.phase is Phase.AWAITING_VICTIM) != (after.phase is Phase.AWAITING_VICTIM)
        if counts_anew:
            self._count(before, -1)
        self.reservations[key] = after
        if before.device_claims != after.device_claims:
            self.device_claims.replace(before, after)
        for node in {before.node, after.node}:
            self._cluster.numa.claims_changed(node)
        if counts_anew:
            self._count(after, 1)
        if before.waiting_group and not after.waiting_group:
            self._leave_group(before, confirmed=True)
        if before.volumes != after.volumes:
            self._promise_volumes(before, after)
        self.bound_together.replace(before, after)
        if "phase" in fields:
            (self.awaiting.add if after.phase is Phase.AWAITING_VICTIM else self.awaiting.discard)(key)
            (self.held.add if after.phase is Phase.HELD else self.held.discard)(key)
            (self.paused.add if after.phase is Phase.PAUSED else self.paused.discard)(key)
            (self.withdrawing.add if after.phase is Phase.WITHDRAWING else self.withdrawing.discard)(key)
            (self.preparing.add if after.phase is Phase.PREPARING else self.preparing.discard)(key)
        return after

    def drop(self, key: str, *, fulfilled: bool = False) -> None:
        """Ends a reservation; no round is asked for.

        Args:
            fulfilled: the pod is bound to its node. For the rules between pods it still counts as reserved: the caller
                exchanges that for the pod as it is now, in the cluster (``Cluster.put_pod``) and in ``drift``.
        """
        check_transition(key, self.reservations[key].phase, None)
        reservation = self.reservations.pop(key)
        self.awaiting.discard(key)
        self.withdrawing.discard(key)
        self.held.discard(key)
        self.paused.discard(key)
        self.preparing.discard(key)
        self.bound_together.ended(reservation, fulfilled=fulfilled)
        self.device_claims.replace(reservation, None)
        if reservation.devices_asked_for and not fulfilled:
            self.device_claims.ended.append(reservation)  # its turn lasts until they are given back
        else:
            self.device_turns.leave(reservation.pod, reservation.id)
        if reservation.owner is Owner.BINDER and reservation.write and not fulfilled:
            self.nominated_in_vain.append(reservation)
        self._promise_volumes(reservation, None)
        _discard(self.by_node, reservation)
        signature, node = reservation.pod.signature, reservation.node
        if reservation.owner is Owner.BINDER:
            self.in_flight.binding_ended(signature, node)
        self._count(reservation, -1)
        self._cluster.numa.claims_changed(node)
        if reservation.waiting_group:
            self._leave_group(reservation, confirmed=False)
        for victim in reservation.victims:
            self.victims[victim].for_pods.discard(key)
            self._forget_unwanted(victim)
        if not fulfilled:
            self._occupancy.change_pods(signature, node, -1)
            self.drift.pods.change(signature, node, -1)

    def _promise_volumes(self, before: Reservation | None, after: Reservation | None) -> None:
        """A reservation with volumes came, changed or went."""
        storage = self._cluster.storage
        if before is not None:
            for choice in before.volumes:
                storage.take_back(choice, before.pod.key)
        if after is not None:
            for choice in after.volumes:
                storage.promise(choice, after.node, after.pod.key)

    def _count(self, reservation: Reservation, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) the room of a reservation."""
        pod, node = reservation.pod, reservation.node
        if reservation.phase is not Phase.AWAITING_VICTIM:
            self._occupancy.change_usage(node, pod.pod_class.requests, pod.pod_class, sign)
        elif sign > 0:
            self._awaited_room.add(pod, node, [self.victims[key].pod for key in reservation.victims])
        else:
            self._awaited_room.remove(pod, node)

    def release(self, key: str, uid: str) -> None:
        """Ends a reservation: the pod does not come."""
        reservation = self.reservations.get(key)
        if reservation is not None and reservation.pod.uid == uid:
            self.drop(key)
            self.round_wanted = True

    def shift(self, key: str, node: str, *, swapped: bool) -> None:
        """A reservation goes to another node, which has room for it. Plans that are being made count on the old one.

        Args:
            swapped: whether an equal pod leaves that node for it, so that the node costs as much as before.
        """
        before = self.reservations[key]
        _discard(self.by_node, before)
        self._count(before, -1)
        after = self.reservations[key] = msgspec.structs.replace(before, node=node)
        if not swapped:
            self.arrivals.add(node, before.pod.pod_class)
        self.by_node.setdefault(node, set()).add(key)
        self._count(after, 1)
        for name, change in ((before.node, -1), (node, 1)):
            self._occupancy.change_pods(before.pod.signature, name, change)
            self.drift.pods.change(before.pod.signature, name, change)
            self._cluster.numa.claims_changed(name)

    def abandon(self, pod: Pod, node: str) -> None:
        """A placement of the plan in hand is not carried out: others of the same plan may have counted on it."""
        self.drift.pods.change(pod.signature, node, -1)

    # --- victims ---

    def waits_for_victim(self, key: str) -> bool:
        """Whether other pods must leave before this one gets the place that is reserved for it."""
        return key in self.awaiting

    def awaiting_on(self, node: str) -> list[Reservation]:
        """Reservations on a node that wait for victims."""
        return [self.reservations[key] for key in self._awaited_room.awaiting(node)]

    def usage_without_awaiting(self, node: str) -> NodeUsageSums:
        """What is taken on a node, the pods aside that wait there for victims. A copy."""
        usage = self._occupancy.usage_of(node).copy()
        usage.change_excess(self._awaited_room.counted(node), -1)
        for reservation in self.awaiting_on(node):
            usage.change_claims(reservation.pod.pod_class, -1)
        return usage

    def members_of(self, reservation: Reservation) -> list[Reservation]:
        """The reservations that wait together with this one, itself among them."""
        waiting_group = self.waiting_groups.get(reservation.waiting_group)
        return (
            [reservation]
            if waiting_group is None
            else [self.reservations[key] for key in sorted(waiting_group.members)]
        )

    def _leave_group(self, reservation: Reservation, *, confirmed: bool) -> None:
        waiting_group = self.waiting_groups[reservation.waiting_group]
        waiting_group.leave(reservation.pod.key, confirmed=confirmed)
        waiting_group.leaving -= sum(self.victims[victim].is_leaving for victim in reservation.victims)
        if not waiting_group.members:
            del self.waiting_groups[reservation.waiting_group]

    def victim_changed(self, pod: Pod, now: float) -> None:
        """A victim that has not left changed."""
        record = self.victims[pod.key]
        self._count_leaving(record, -1)
        record.pod = pod
        self._count_leaving(record, 1)
        if pod.deleting and record.leaving_since is None:
            record.leaving_since = now
        for node in {self.reservations[key].node for key in record.for_pods & self.awaiting}:
            self._awaited_room.victim_changed(pod, node)

    def victim_leaves(self, record: VictimRecord) -> None:
        """A victim leaves for sure."""
        self._count_leaving(record, -1)
        record.leaves = True
        self._count_leaving(record, 1)

    def victim_left(self, key: str) -> list[str]:
        """A victim is gone or has ended; keys of the pods that waited for it."""
        record = self.victims[key]
        keys = sorted(record.for_pods)
        self._count_leaving(record, -1)
        for waiting in keys:
            reservation = self.reservations[waiting]
            self._count(reservation, -1)
            victims = tuple(victim for victim in reservation.victims if victim != key)
            self.reservations[waiting] = reservation = msgspec.structs.replace(reservation, victims=victims)
            self._count(reservation, 1)
        record.for_pods.clear()
        self._forget_unwanted(key)
        return keys

    def _count_leaving(self, record: VictimRecord, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) a victim that leaves for sure, in the groups that wait for it."""
        for key in record.for_pods if record.is_leaving else ():
            if name := self.reservations[key].waiting_group:
                self.waiting_groups[name].leaving += sign

    def _forget_unwanted(self, key: str) -> None:
        """Forgets a victim that no pod waits for any more."""
        if not self.victims[key].for_pods:
            del self.victims[key]
            self._cluster.set_leaving(key, leaving=False)

    # --- for rounds ---

    def plannable(self) -> list[Pod]:
        """Pods that wait without a reservation, or with a place that is kept for them, in the order in which they came.

        One whose claims are being given back is planned after that: until then they may say either. A resize whose node
        has room is for the kubelet.
        """
        reservations, held, records = self.reservations, self.held, self.device_claims
        return [
            pod
            for key, pod in self._cluster.waiting.items()
            if (key not in reservations or key in held)
            and not records.is_releasing(pod)
            and (not pod.grows or self._cluster.lacks_room(pod))
        ]

    def gang_pods(self) -> dict[str, str]:
        """Keys of gangs' pods that are on their way to a node, and the node."""
        return {
            key: reservation.node
            for key, reservation in self.reservations.items()
            if reservation.pod.gang is not None and key not in self.withdrawing
        }

    def refused(self, now: float) -> set[str]:
        """Keys of pods that pause since a write for them was refused, at a time of the monotonic clock."""
        return {key for key, record in self.pending.items() if record.backoff_tries and record.backoff_until > now}

    def begin_plan(self, *, asked: bool = True) -> None:
        """A plan is asked for: what changes from now on it does not know.

        Args:
            asked: False: until the next call there is no plan that changes of the cluster could break.
        """
        self.arrivals.begin_plan()
        self.device_claims.forget_pool_changes()
        self.drift, self.drifts = Drift(PodIndex(self._cluster.namespaces)), asked


@dataclass(frozen=True, slots=True)
class KeysOnTheWay:
    """Keys of pods on their way to a node. The place of a pod that pauses is kept, but may be given up."""

    ledger: Ledger

    def __contains__(self, key: object) -> bool:
        ledger = self.ledger
        return key in ledger.reservations and key not in ledger.paused and key not in ledger.withdrawing


def _discard(by_node: dict[str, set[str]], reservation: Reservation) -> None:
    keys = by_node[reservation.node]
    keys.discard(reservation.pod.key)
    if not keys:
        del by_node[reservation.node]
