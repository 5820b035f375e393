"""The order in which a plan with evictions is carried out: pods that come at once, and pods that wait for victims.

Those who come at once are placed first, and replacements have their room then. All victims leave, and the others come.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
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
    where these do not suffice; and those that leave it what limits of queues lack.
    """
    # Who leaves for gain goes by itself: the plan held before.
    leavers = [resident for resident, leaving in state.leaving.items() if leaving.kind is not None and not leaving.gain]
    gaining = {arrival.node for arrival in state.arrivals}
    by_node: dict[int, list[int]] = {}
    for resident in leavers:
        node = int(state.residents.nodes[resident])
        by_node.setdefault(node if node in gaining else _NO_NODE, []).append(resident)
    below_limits = _waited_for_below_limits(state, order.later, leavers)
    asked: dict[int, Int64s] = {}
    for arrival in order.later:
        asked[arrival.node] = asked.get(arrival.node, 0) + state.demands[arrival.demand].requests
    waited: dict[str, tuple[int, ...]] = {}
    for place, arrival in enumerate(order.later):
        below, wanted = below_limits.get(arrival.pod.key, ()), asked[arrival.node]
        fits_now = bool((state.free_now(arrival.node) >= wanted)[wanted > 0].all())
        chosen = [] if below and fits_now else by_node.get(arrival.node, [])
        if arrival.demand not in order.plain:
            before = [*order.at_once, *order.later[:place]]
            chosen = [*chosen, *by_node.get(_NO_NODE, ())]
            if not chosen or not _passes(state, arrival, _before(state, before, chosen)):
                chosen = leavers
        waited[arrival.pod.key] = tuple(dict.fromkeys([*chosen, *below]))
    return waited


def _waited_for_below_limits(
    state: Plan, later: Sequence[Arrival], leavers: Sequence[int]
) -> Mapping[str, Sequence[int]]:
    """Numbers of the victims that leave pods what limits of queues lack, by the pod's key.

    What one leaves counts for one pod only: so each pod may come once its own have left, in whatever order.
    """
    limits, pods = state.limits, state.residents.pods
    waited: dict[str, list[int]] = {}
    if not limits.names:
        return waited
    now = limits.left - limits.awaited
    # With a replacement that has a node nothing comes free below a limit.
    leaving = {each: limits.rows(pods[each].queue).tolist() for each in leavers if state.leaving[each].to < 0}
    rest = {(each, row): limits.of_running(pods[each].usage) for each, rows in leaving.items() for row in rows}
    chosen_for: dict[str, list[int]] = {}
    for resident in leaving:
        for key in state.leaving[resident].for_pods:
            chosen_for.setdefault(key, []).append(resident)
    for arrival in later:
        key, added = arrival.pod.key, limits.of_waiting(arrival.pod)
        chosen = chosen_for.get(key, [])
        for row in limits.rows(arrival.pod.queue).tolist() if not arrival.at_once else ():
            missing = np.where(np.isfinite(now[row]), added, 0.0)
            if ((missing > 0) & (now[row] < 0)).any():
                below = [each for each, rows in leaving.items() if row in rows]
                waited.setdefault(key, []).extend(below)  # the limit is passed already
                continue
            free = np.minimum(missing, np.maximum(now[row], 0.0))
            now[row] -= free
            missing -= free
            # Those that were chosen for it come first.
            for resident in itertools.chain(chosen, leaving):
                if not missing.any():
                    break
                if row not in leaving[resident]:
                    continue
                freed = np.minimum(missing, rest[resident, row])
                if freed.any():
                    waited.setdefault(key, []).append(resident)
                    rest[resident, row] = rest[resident, row] - freed
                    missing -= freed
    return waited


def _before(state: Plan, arrivals: Sequence[Arrival], gone: Sequence[int] = (), *, replaced: bool = True) -> Snapshot:
    """The cluster with some arrivals and without some that leave; all others of them are still there."""
    revoked = [resident for resident, leaving in state.leaving.items() if leaving.kind is None]
    return state.snapshot([*revoked, *gone], leavers_stay=True, arrivals=arrivals, replaced=replaced)


def _passes(state: Plan, arrival: Arrival, snapshot: Snapshot) -> bool:
    group = state.demands[arrival.demand].group
    return bool(run_filters(group.pod_class, snapshot, group.signature).fits[arrival.node])
