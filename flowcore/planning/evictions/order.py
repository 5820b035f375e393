"""The order in which a plan with evictions is carried out: pods that come at once, and pods that wait for victims.

Those who come at once are placed first, and replacements have their room then. All victims leave, and the others come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.evictions.fit_checks import is_plain
from flowcore.planning.problem.placements.decisions import Arrival
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import run_filters

_NO_NODE = -1


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """The waiting pods that get a node, in the order in which they come.

    Attributes:
        at_once: every filter passes while all victims are still there.
        later: these wait for victims to leave.
        plain: numbers of the demands whose pods only resources decide about, whatever else of the plan has come.
    """

    at_once: tuple[Arrival, ...]
    later: tuple[Arrival, ...]
    plain: frozenset[int]


def order_arrivals(state: Plan) -> ArrivalOrder:
    """Splits the arrivals of a plan; within each part they keep their order."""
    plain = plain_demands(state, {arrival.demand for arrival in state.arrivals})
    at_once: list[Arrival] = []
    later: list[Arrival] = []
    for arrival in state.arrivals:
        # With replacements and without: nobody waits for them to come.
        now = arrival.at_once and (
            arrival.demand in plain
            or all(_passes(state, arrival, _before(state, at_once, replaced=replaced)) for replaced in (True, False))
        )
        (at_once if now else later).append(arrival)
    return ArrivalOrder(tuple(at_once), tuple(later), plain)


def plain_demands(state: Plan, demands: Collection[int]) -> frozenset[int]:
    """Demands for whose pods only resources count, whichever pods leave and come."""
    everybody = state.snapshot(leavers_stay=True, arrivals=state.arrivals)
    groups = {demand: state.demands[demand].group for demand in demands}
    return frozenset(
        demand for demand, group in groups.items() if is_plain(group.pod_class, group.signature, everybody)
    )


def first_rejected(state: Plan, order: ArrivalOrder) -> Arrival | None:
    """The first waiting arrival that a filter rejects even after all victims have left; None: none."""
    for place, arrival in enumerate(order.later):
        if arrival.demand not in order.plain:
            before = [*order.at_once, *order.later[:place]]
            if not _passes(state, arrival, state.snapshot(arrivals=before)):
                return arrival
    return None


def waited_for(state: Plan, order: ArrivalOrder) -> dict[str, tuple[int, ...]]:
    """Numbers of the victims that each pod waits for, by the pod's key.

    These are the leavers of its node; where rules decide about it, also leavers whose node gains no pod, or all
    where these do not suffice.
    """
    # Who leaves for gain goes by itself: the plan held before.
    leavers = [resident for resident, leaving in state.leaving.items() if leaving.kind is not None and not leaving.gain]
    gaining = {arrival.node for arrival in state.arrivals}
    by_node: dict[int, list[int]] = {}
    for resident in leavers:
        node = int(state.residents.nodes[resident])
        by_node.setdefault(node if node in gaining else _NO_NODE, []).append(resident)
    waited: dict[str, tuple[int, ...]] = {}
    for place, arrival in enumerate(order.later):
        chosen = by_node.get(arrival.node, [])
        if arrival.demand not in order.plain:
            before = [*order.at_once, *order.later[:place]]
            chosen = [*chosen, *by_node.get(_NO_NODE, ())]
            if not chosen or not _passes(state, arrival, _before(state, before, chosen)):
                chosen = leavers
        waited[arrival.pod.key] = tuple(chosen)
    return waited


def _before(state: Plan, arrivals: Sequence[Arrival], gone: Sequence[int] = (), *, replaced: bool = True) -> Snapshot:
    """The cluster with some arrivals and without some that leave; all others of them are still there."""
    revoked = [resident for resident, leaving in state.leaving.items() if leaving.kind is None]
    return state.snapshot([*revoked, *gone], leavers_stay=True, arrivals=arrivals, replaced=replaced)


def _passes(state: Plan, arrival: Arrival, snapshot: Snapshot) -> bool:
    group = state.demands[arrival.demand].group
    return bool(run_filters(group.pod_class, snapshot, group.signature).fits[arrival.node])
