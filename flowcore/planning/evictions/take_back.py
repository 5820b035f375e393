"""Takes evictions back: once a plan is found, each victim that can stay does, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.running_pods import EvictionKind
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
    pods, arrived = state.residents.pods, state.arrived
    # A placement does not come back where its pod has got another node.
    for_others = (
        resident
        for resident, leaving in state.leaving.items()
        if leaving.kind is not EvictionKind.RULE and pods[resident].key not in arrived
    )
    order = sorted(for_others, key=lambda resident: (-pods[resident].priority, pods[resident].started or 0.0))
    done: set[int] = set()
    any_stays = False
    arriving, arriving_now = _Arriving(state, now=False), _Arriving(state, now=True)
    for resident in order:
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
