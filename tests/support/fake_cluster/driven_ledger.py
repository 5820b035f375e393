"""A cluster and its ledger behind the real shell: events go through ``advance``, effects are kept for the test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from thalweg_operator.planning.inputs.device_takers import DeviceTakers
from thalweg_operator.planning.inputs.numa import NumaTracker
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.effects import Effect, RequestRound
from thalweg_operator.reservations.events import (
    Event,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    ObjectSet,
    PodPut,
    PodRemoved,
    PoliciesChanged,
    Synced,
    TimePassed,
)
from thalweg_operator.reservations.ledger.feasibility import conflicts_in_flight, holds, infeasible_nodes
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.reserve import reserve
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims.replaced import named_victim
from thalweg_operator.shell import Shell

from flowcore.cluster.arrays.snapshot import Victim
from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster, Population
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.cluster.kinds import (
    DEVICE_CLASSES,
    NODE_TOPOLOGIES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_OBJECTS,
)
from flowcore.model.devices import DeviceClass
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaNode
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.model.selectors import Labels
from flowcore.model.volumes import StorageKey, StorageObject, key_of

_E = TypeVar("_E")


class DrivenLedger:
    """See the module. What watches show goes through ``advance``; what plans and writes do, straight to the ledger.

    Attributes:
        effects: all so far that no handler takes; a test may clear them.
        rounds_requested: how often a round was asked for; ``request_round`` is called each time.
        policies: policy objects; what they put in force is in force here.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 1000.0,
        request_round: Callable[[RequestRound], None] = lambda _: None,
        handlers: Mapping[type[Effect], Callable[[Any], object]] | None = None,
    ) -> None:
        cluster = Cluster()
        self.rounds_requested, self.request_round = 0, request_round
        self.follow(Shell(State(cluster), self._request_round, clock))
        self.effects: list[Effect] = []
        self.shell.lead(dict.fromkeys(get_args(Effect), self.effects.append) | dict(handlers or {}))
        self.policies = PolicyStore(put_in_force=lambda accepted: self.apply(PoliciesChanged(accepted)))

    @classmethod
    def of(cls, shell: Shell) -> DrivenLedger:
        """What a shell has that somebody else drives."""
        made = cls.__new__(cls)
        made.rounds_requested, made.request_round = 0, shell._request_round
        shell._request_round = made._request_round
        made.follow(shell)
        return made

    def follow(self, shell: Shell) -> None:
        """Takes this shell for its own."""
        self.shell, self.cluster, self.ledger = shell, shell.cluster, shell.ledger
        cluster, ledger = shell.cluster, shell.ledger
        self.nodes, self.pods, self.namespaces, self.waiting = (
            cluster.nodes,
            cluster.pods,
            cluster.namespaces,
            cluster.waiting,
        )
        self.populations: dict[Any, Population] = cluster.populations
        self.storage, self.devices, self.gangs = cluster.storage, cluster.devices, cluster.gangs
        self.pod_index = cluster.occupancy.pod_index
        self.reservations: dict[str, Reservation] = ledger.reservations
        self.victims, self.held = ledger.victims, ledger.held
        self.in_flight = ledger.in_flight
        self.numa = NumaTracker(cluster, ledger)
        self.device_takers = DeviceTakers(cluster, ledger)

    def taken(self, kind: type[_E]) -> list[_E]:
        """Effects of a kind so far, which are forgotten by this."""
        taken = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects[:] = [effect for effect in self.effects if not isinstance(effect, kind)]
        return taken

    def _request_round(self, effect: RequestRound) -> None:
        self.rounds_requested += 1
        self.request_round(effect)

    def _ask(self) -> None:
        if self.ledger.round_wanted:
            effect = RequestRound(at_once=self.ledger.round_at_once)
            self.ledger.round_wanted = self.ledger.round_at_once = False
            self._request_round(effect)

    # --- events ---

    def apply(self, event: Event) -> None:
        self.shell.apply(event)

    def look_after(self) -> None:
        """Time passes; whatever is looked at now and then only is due."""
        self.shell.state.victims_seen = self.shell.state.gangs_seen = -math.inf
        self.apply(TimePassed())

    def sync(self) -> None:
        """Cluster and policies are known."""
        self.apply(Synced())

    def upsert_node(self, node: Node) -> None:
        self.apply(NodePut(node))

    def delete_node(self, name: str) -> None:
        self.apply(NodeRemoved(name))

    def upsert_pod(self, pod: Pod) -> None:
        self.apply(PodPut(pod))

    def delete_pod(self, key: str) -> None:
        self.apply(PodRemoved(key))

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        self.apply(NamespaceSet(name, labels))

    def upsert_storage(self, value: StorageObject) -> None:
        self.apply(ObjectSet(STORAGE_OBJECTS, key_of(value), value))

    def delete_storage(self, key: StorageKey) -> None:
        self.apply(ObjectSet(STORAGE_OBJECTS, key, None))

    def set_numa_node(self, name: str, report: NumaNode | None) -> None:
        self.apply(ObjectSet(NODE_TOPOLOGIES, name, report))

    def set_device_class(self, name: str, device_class: DeviceClass | None) -> None:
        self.apply(ObjectSet(DEVICE_CLASSES, name, device_class))

    def set_resource_slice(self, resource_slice: ResourceSlice) -> None:
        self.apply(ObjectSet(RESOURCE_SLICES, resource_slice.name, resource_slice))

    def set_resource_claim(self, claim: ResourceClaim) -> None:
        self.apply(ObjectSet(RESOURCE_CLAIMS, (claim.namespace, claim.name), claim))

    # --- the ledger ---

    @property
    def generation(self) -> int:
        return self.cluster.generation

    def node_changed_since(self, name: str, generation: int) -> bool:
        return self.cluster.node_changed_since(name, generation)

    def gangs_of(self, asked: Sequence[tuple[Pod, Delivery]]) -> tuple[list[tuple[str, ...]], list[Gang]]:
        """For each of these waiting pods the names of its gangs, and these gangs."""
        return gangs_for(self.gangs, asked, self.ledger.gang_pods(), self.cluster.domain)

    def reserve(self, pod: Pod, node: str, owner: Owner = Owner.BINDER) -> bool:
        reserved = reserve(self.cluster, self.ledger, pod, node, owner)
        self._ask()
        return reserved

    def release(self, key: str, uid: str) -> None:
        self.ledger.release(key, uid)
        self._ask()

    def holds(self, key: str) -> bool:
        return holds(self.cluster, self.ledger, key)

    def victim_of(self, pod: Pod) -> Victim | None:
        return named_victim(self.cluster, self.ledger, pod)

    def waits_for_victim(self, key: str) -> bool:
        return self.ledger.waits_for_victim(key)

    def infeasible_nodes(self, pod: Pod, nodes: Sequence[str]) -> list[str]:
        return infeasible_nodes(self.shell.state, pod, nodes)

    def conflicts_in_flight(self, pod: Pod, node: str, fewer: Sequence[Pod] = ()) -> bool:
        return conflicts_in_flight(self.cluster, self.ledger, pod, node, fewer)

    def plannable(self) -> list[Pod]:
        return self.ledger.plannable()

    def take_changes(self) -> ClusterChanges:
        """What changed since the last call; the drift begins anew."""
        changes = self.cluster.take_changes().complete()
        self.ledger.begin_plan()
        return changes

    def mark_all_dirty(self) -> None:
        self.cluster.mark_all_dirty()
