"""The placements and evictions of a reply as the ledger takes them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from flowcore.model.pods import Pod
from flowcore.planning.plan_document import PlanEviction
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.reservations.events import CheapestPlanned, PlannedPlacement, PricesPlanned


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
    for each in reply.placements:
        victims.setdefault(each.pod, {}).update({place: reply.evictions[place] for place in each.victims})
    groups = (*reply.atomic_groups, "")
    waiting = {
        groups[each.atomic_group] for each in reply.placements if victims.get(each.pod) and each.atomic_group >= 0
    }
    for each in reply.placements:
        policy, group = request.policies[request.pending[each.pod].policy], groups[each.atomic_group]
        leaving = tuple(victims.get(each.pod, {}).values())
        waits = bool(leaving) or group in waiting
        turn = each.chain, each.wave
        yield PlannedPlacement(
            pods[each.pod], policy, each.node, turn, group, each.optional, leaving, waits, each.saving
        )


def planned_prices(request: RoundRequest, reply: RoundReply, pods: Sequence[Pod]) -> Iterator[PricesPlanned]:
    """What nodes cost one more pod of each class that kube-scheduler binds."""
    positions = _positions(reply.node_names)
    for entry in reply.node_prices:
        policy = request.policies[request.pending[entry.pod].policy].name
        above = array("H", entry.above)
        yield PricesPlanned(
            pods[entry.pod].pod_class, policy, positions, entry.least, above, entry.tolerance, reply.generation
        )


def cheapest_nodes(request: RoundRequest, reply: RoundReply, pods: Sequence[Pod]) -> Iterator[CheapestPlanned]:
    """Which nodes cost one more pod of each class least, for pods that we bind."""
    for index, nodes in reply.cheapest:
        policy = request.policies[request.pending[index].policy].name
        yield CheapestPlanned(pods[index].pod_class, policy, nodes, reply.generation)


@lru_cache(maxsize=2)
def _positions(names: bytes) -> Mapping[str, int]:
    """Position of each node by name. The names are mostly those of the last reply."""
    return {name: at for at, name in enumerate(msgspec.msgpack.decode(names, type=list[str]))} if names else {}
