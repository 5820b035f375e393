"""Takes evictions back: once a plan is found, each victim that can stay does, the most important first.

One stays too for which only pods have to wait that it may not leave for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.problem.placements.decisions import Arrival
from flowcore.planning.problem.placements.plans import Plan


def take_back(state: Plan, holds: Callable[[], bool]) -> None:
    """Lets stay who need not leave, until nobody more may: one that stays gives its place elsewhere back.

    Who breaks a rule leaves for its own sake.

    Args:
        holds: whether every filter still passes for the whole plan; asked only where more than resources may decide.
    """
    while _take_some_back(state, holds):
        pass


def _take_some_back(state: Plan, holds: Callable[[], bool]) -> bool:
    """Asks each of them once. Whether any stays."""
    arrived = state.arrived
    done: set[int] = set()
    any_stays = False
    arriving, arriving_now = _Arriving(state, now=False), _Arriving(state, now=True)
    for resident in _leaving_for_others(state):
        if resident in done:
            continue
        eviction = _together(state, resident, arrived)
        done.update(eviction)
        # A placement that stays is there at once.
        placements = [member for member in eviction if not state.residents.is_running(member)]
        has_enough = arriving.has_enough_beside(eviction) and arriving_now.has_enough_beside(placements)
        if not eviction or not has_enough:
            continue
        before = state.checkpoint()
        for member in reversed(eviction):
            state.stay(member)
        if holds():
            any_stays = True
        else:
            state.roll_back(before)
    return any_stays


def _leaving_for_others(state: Plan) -> list[int]:
    """The most important first; no placement whose pod has got another node: it does not come back."""
    pods, arrived = state.residents.pods, state.arrived
    for_others = (
        resident
        for resident, leaving in state.leaving.items()
        if leaving.kind is not EvictionKind.RULE and pods[resident].key not in arrived
    )
    return sorted(for_others, key=lambda resident: (-pods[resident].priority, pods[resident].started or 0.0))


def let_lower_wait(
    state: Plan,
    is_lower: Callable[..., bool],
    let_wait: Callable[..., bool],
    rejected: Callable[[], Arrival | None],
) -> None:
    """Lets those stay who are preempted, and would not be if only those came that they may leave for: others wait then.

    Args:
        is_lower: whether a resident may not leave for a pod; ``at_once``: which comes before anybody leaves.
        let_wait: takes a pod with its gang out of the plan; ``for_pods``: for the sake of these. Whether that may be.
        rejected: the first pod that a filter rejects in the whole plan; None: none.
    """
    residents, arrived, leaving = state.residents, state.arrived, state.leaving
    preempted = [each for each in _leaving_for_others(state) if leaving[each].kind is EvictionKind.PREEMPTION]
    # Of them the first is the most important: whoever may have its room may have that of each.
    suspects = [
        (arrival.pod, arrival.at_once)
        for arrival in (state.arrivals if preempted else ())
        if is_lower(preempted[0], arrival.pod, at_once=arrival.at_once)
    ]
    for resident in preempted:
        if resident not in leaving:
            continue
        eviction, for_pods = _together(state, resident, arrived), leaving[resident].for_pods
        nodes = {int(residents.nodes[member]) for member in eviction}
        placed = [(residents.placement(each).pod, True) for node in nodes for each in _placed_on(state, node)]
        lower = {
            pod.key: pod
            for pod, at_once in (*suspects, *placed)
            if all(is_lower(each, pod, at_once=at_once) for each in eviction)
        }
        if lower:
            before = state.checkpoint()
            for member in reversed(eviction):
                state.stay(member)
            if not _make_wait(state, nodes, lower, partial(let_wait, for_pods=for_pods), rejected):
                state.roll_back(before)


def _make_wait(
    state: Plan,
    nodes: Collection[int],
    lower: Mapping[str, PendingPod],
    let_wait: Callable[[PendingPod], bool],
    rejected: Callable[[], Arrival | None],
) -> bool:
    """Takes lower pods out of the plan until all others have room, and no filter rejects any. Whether that did."""
    residents = state.residents
    for node in nodes:
        while (lacking := state.free[node] < 0).any():
            here = {each.pod.key: state.demands[each.demand].requests for each in state.arrivals if each.node == node}
            here |= {residents.pods[each].key: residents.usage[each] for each in _placed_on(state, node)}
            wanting = [key for key, amounts in here.items() if (amounts > 0)[lacking].any()]
            if not wanting:
                break
            last = min((lower[key] for key in wanting if key in lower), key=_priority, default=None)
            if last is None or not let_wait(last):
                return False
    while (arrival := rejected()) is not None:
        if arrival.pod.key not in lower or not let_wait(arrival.pod):
            return False
    return _Arriving(state, now=False).has_enough_beside(())


def _placed_on(state: Plan, node: int) -> list[int]:
    """Placements on a node that stay there."""
    residents = state.residents
    return [each for each in residents.on(node) if not residents.is_running(each) and each not in state.leaving]


def _priority(pod: PendingPod) -> int:
    return pod.pod_class.priority


def _together(state: Plan, resident: int, arrived: Collection[str]) -> Sequence[int]:
    """Residents that stay together: a gang that leaves as a whole does. None: it is nothing before its gang stays."""
    residents, pods = state.residents, state.residents.pods
    name = residents.gang_of(resident)
    if name and not residents.is_running(resident):
        needed = [member for member in residents.by_gang[name] if pods[member].gang and member in state.leaving]
        if pods[resident].gang:
            return needed
        return () if any(pods[member].key not in arrived for member in needed) else (resident,)
    gang = residents.running.gangs.get(name)
    if gang is None:
        return (resident,)
    if gang.whole or gang.running - state.leaving_by_gang[name] + 1 < gang.min_member:
        return [member for member in residents.by_gang[name] if member in state.leaving]
    return (resident,)


class _Arriving:
    """Pods that come once all have left, or at once: what they ask for."""

    def __init__(self, state: Plan, *, now: bool) -> None:
        """``now``: those that come at once."""
        self._state, self._now, limits = state, now, state.limits
        #: int64[R] for each node that they come to, and bool[L, R] below the limits of queues.
        self._on_nodes: dict[int, Int64s] = {}
        self._below_limits = np.zeros_like(limits.left, dtype=np.bool_)
        for arrival in state.arrivals:
            if arrival.at_once or not now:
                requests = state.demands[arrival.demand].requests
                self._on_nodes[arrival.node] = self._on_nodes.get(arrival.node, 0) + requests
                self._below_limits[limits.rows(arrival.pod.queue)] |= limits.of_waiting(arrival.pod) > 0

    def has_enough_beside(self, staying: Sequence[int]) -> bool:
        """Whether they have all that they ask for if these residents stay."""
        state, residents = self._state, self._state.residents
        rest: dict[int, Int64s] = {}
        for member in staying:
            node = int(residents.nodes[member])
            free = state.free_now(node) if self._now else state.free[node]
            rest[node] = rest.get(node, free) - residents.usage[member]
        for node, free in rest.items():
            lacking = free < 0
            if not lacking.any():
                continue
            if node in self._on_nodes and (lacking & (self._on_nodes[node] > 0)).any():
                return False
            if any(leaving.to == node for resident, leaving in state.leaving.items() if resident not in staying):
                return False
        limits, pods = state.limits, residents.pods
        left = limits.left - limits.awaited if self._now else limits.left.copy()
        for member in staying if limits.names else ():
            left[limits.rows(pods[member].queue)] -= limits.of_running(pods[member].usage)
        return not ((left < 0) & self._below_limits).any()
