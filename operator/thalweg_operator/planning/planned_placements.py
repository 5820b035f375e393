"""The placements and evictions of a reply as the ledger takes them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.planning.plan_document import PlanEviction
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest
from thalweg_operator.reservations.events import PlannedPlacement, PricesPlanned, PricesUnknown

#: Bytes of a node's code in ``NodePricesEntry.codes``.
_CODE_BYTES: Final = 2


def independent_evictions(reply: RoundReply) -> list[PlanEviction]:
    """Running pods that leave though no placement waits for their room."""
    awaited = {place for placement in reply.placements for place in placement.victims}
    return [
        entry
        for place, entry in enumerate(reply.evictions)
        if place not in awaited and (entry.by_controller or not entry.for_pods)
    ]


def planned_placements(request: RoundRequest, reply: RoundReply, pods: Sequence[Pod]) -> Iterator[PlannedPlacement]:
    """The placements, each with the running pods that leave for it.

    Args:
        pods: the pods of ``request.pending``, in this order.
    """
    victims: dict[int, dict[int, PlanEviction]] = {}
    for place, eviction in enumerate(reply.evictions):
        for index in eviction.for_pods if not eviction.by_controller else ():
            victims.setdefault(index, {})[place] = eviction
    for placement in reply.placements:
        victims.setdefault(placement.pod, {}).update({place: reply.evictions[place] for place in placement.victims})
    groups, claims = (*reply.atomic_groups, ""), dict(reply.claims)
    waiting = {
        groups[placement.atomic_group]
        for placement in reply.placements
        if placement.atomic_group >= 0 and (victims.get(placement.pod) or _replaces(request.pending[placement.pod]))
    }
    for placement in reply.placements:
        policy, group = request.policies[request.pending[placement.pod].policy], groups[placement.atomic_group]
        leaving = tuple(victims.get(placement.pod, {}).values())
        waits = bool(leaving) or group in waiting
        turn = placement.chain, placement.wave
        yield PlannedPlacement(
            pods[placement.pod],
            policy,
            placement.node,
            turn,
            group,
            placement.optional,
            leaving,
            waits,
            placement.saving,
            claims.get(placement.pod) if _gets_devices(pods[placement.pod], policy) else (),
            placement.volumes,
        )


def _replaces(entry: PendingEntry) -> bool:
    """Whether a pod takes the place of one that has not left."""
    return entry.victim is not None and not entry.victim.has_left


def _gets_devices(pod: Pod, policy: Policy) -> bool:
    """Whether we give the claims of a pod their devices."""
    return pod.pod_class.devices is not None and policy.delivery.binds


class PriceReader:
    """Reads the prices of each reply. It remembers the order of the nodes, which a reply has only where it changed."""

    def __init__(self) -> None:
        self._positions: Mapping[str, int] = {}

    def read(
        self, request: RoundRequest, reply: RoundReply, pods: Sequence[Pod]
    ) -> Iterator[PricesPlanned | PricesUnknown]:
        """What nodes cost one more pod of each class, and of which planned classes nothing is known any more.

        Args:
            pods: the pods of ``request.pending``, in this order.
        """
        if reply.node_names is not None:
            self._positions = {name: position for position, name in enumerate(reply.node_names)}
        planned = {(entry.pod_class, entry.policy): place for place, entry in enumerate(request.pending)}
        priced = [entry for entry in reply.node_prices if len(entry.codes) == _CODE_BYTES * len(self._positions)]
        for entry in priced:
            pending = request.pending[entry.pod]
            planned.pop((pending.pod_class, pending.policy), None)
        for (_, policy), place in planned.items():
            yield PricesUnknown(pods[place].pod_class, request.policies[policy].name)
        for entry in priced:
            yield PricesPlanned(
                pods[entry.pod].pod_class,
                request.policies[request.pending[entry.pod].policy].name,
                self._positions,
                entry.base,
                entry.step,
                array("H", entry.codes),
                entry.tolerance,
                reply.generation,
            )
