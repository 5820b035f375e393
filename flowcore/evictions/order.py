"""In which order a plan with evictions is carried out: who comes at once, who waits for whom to leave.

Those who come at once are placed first. Replacements have their room then, all victims leave, and the others come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowcore.cluster.snapshot import Snapshot
from flowcore.evictions.fit_checks import is_plain
from flowcore.evictions.state import Arrival, EvictionState
from flowcore.filters import run_filters


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """The waiting pods that get a node, in the order in which they come.

    Attributes:
        at_once: every filter passes while everybody is still there.
        later: these wait for somebody to leave.
        plain: numbers of the demands whose pods only resources decide about, whatever else of the plan has come.
    """

    at_once: tuple[Arrival, ...]
    later: tuple[Arrival, ...]
    plain: frozenset[int]


def order_arrivals(state: EvictionState) -> ArrivalOrder:
    """Splits the arrivals of a plan; within each part they keep their order."""
    everybody = _before(state, state.arrivals)
    plain = frozenset(
        at
        for at in {arrival.demand for arrival in state.arrivals}
        if is_plain(state.demands[at].group.pod_class, state.demands[at].group.signature, everybody)
    )
    at_once: list[Arrival] = []
    later: list[Arrival] = []
    for arrival in state.arrivals:
        now = arrival.at_once and (arrival.demand in plain or _passes(state, arrival, _before(state, at_once)))
        (at_once if now else later).append(arrival)
    return ArrivalOrder(tuple(at_once), tuple(later), plain)


def first_rejected(state: EvictionState, order: ArrivalOrder) -> Arrival | None:
    """The first of those that wait that a filter rejects once everybody has left."""
    for place, arrival in enumerate(order.later):
        if arrival.demand not in order.plain:
            there = [*order.at_once, *order.later[:place]]
            if not _passes(state, arrival, state.snapshot(arrivals=there)):
                return arrival
    return None


def waited_for(state: EvictionState, order: ArrivalOrder) -> dict[str, tuple[int, ...]]:
    """Whose leaving each pod waits for, by the pod's key: those of its node, or all where they do not suffice."""
    leavers = [at for at, leaving in state.leaving.items() if leaving.kind is not None]
    by_node: dict[int, list[int]] = {}
    for at in leavers:
        by_node.setdefault(int(state.residents.nodes[at]), []).append(at)
    found: dict[str, tuple[int, ...]] = {}
    for place, arrival in enumerate(order.later):
        here = by_node.get(arrival.node, [])
        if arrival.demand not in order.plain:
            there = [*order.at_once, *order.later[:place]]
            if not here or not _passes(state, arrival, _before(state, there, here)):
                here = leavers
        found[arrival.pod.key] = tuple(here)
    return found


def _before(state: EvictionState, arrivals: Sequence[Arrival], gone: Sequence[int] = ()) -> Snapshot:
    """The cluster with some arrivals and without some that leave; all others of them are still there."""
    revoked = [at for at, leaving in state.leaving.items() if leaving.kind is None]
    return state.snapshot([*revoked, *gone], leavers_stay=True, arrivals=arrivals)


def _passes(state: EvictionState, arrival: Arrival, snapshot: Snapshot) -> bool:
    group = state.demands[arrival.demand].group
    return bool(run_filters(group.pod_class, snapshot, group.signature).fits[arrival.node])
