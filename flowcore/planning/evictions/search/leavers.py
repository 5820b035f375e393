"""What a plan with evictions costs, and who may leave or move in any plan of the round, as lower bounds read it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot, non_zero_requests
from flowcore.planning.evictions.eligibility import highest_preempting
from flowcore.planning.evictions.residents import Residents
from flowcore.planning.evictions.state import EvictionState
from flowcore.planning.problem.bounds.resident_room import NEVER, ResidentRoom
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.commits import Commit
from flowcore.planning.problem.placements.free_capacity import FreeCapacity
from flowcore.planning.problem.problem import Problem


def prices_beside(problem: Problem, state: EvictionState, commits: Sequence[Commit]) -> list[int]:
    """What each placed pod of a plan pays: what it adds to the cost of its node, without the pods that leave there.

    Replacements of these count where they go. So the sum does not depend on who came first, and a pod that is placed
    pays nothing for one whose room it takes.

    Args:
        commits: all placements of the plan, a pod each; demands by their number in the problem.
    """
    arrived = {arrival.demand for arrival in state.arrivals}
    demands = [state.priced(number) if number in arrived else demand for number, demand in enumerate(problem.demands)]
    leaving = [resident for resident in state.leaving if state.residents.is_running(resident)]
    moved = [(resident, to) for resident in leaving if (to := state.leaving[resident].to) >= 0]
    beside = _with_residents(problem.snapshot, state.residents, leaving, moved)
    prices: list[int] = Objective(demands, FreeCapacity(beside)).pod_prices(commits).tolist()
    return prices


def _with_residents(
    snapshot: Snapshot, residents: Residents, without: Sequence[int] | Int64s, more: Iterable[tuple[int, int]] = ()
) -> Snapshot:
    """A snapshot by what is used: without some residents, and with some on other nodes too."""
    used, assumed = snapshot.used.copy(), snapshot.non_zero_requested.copy()

    def change(chosen: Int64s, nodes: Int64s, sign: int) -> None:
        _, first, size_of = np.unique(residents.sizes[chosen], return_index=True, return_inverse=True)
        counted = [non_zero_requests(residents.pods[resident].usage) for resident in chosen[first].tolist()]
        np.add.at(used, nodes, sign * residents.usage[chosen])
        np.add.at(assumed, nodes, sign * np.array(counted, dtype=np.int64).reshape(-1, 2)[size_of])

    gone, came = np.array(without, dtype=np.int64), np.array(list(more), dtype=np.int64).reshape(-1, 2)
    change(gone, residents.nodes[gone], -1)
    change(came[:, 0], came[:, 1], 1)
    return snapshot.with_usage(used, np.maximum(assumed, 0), snapshot.ports, snapshot.pod_index)


def resident_room(
    problem: Problem, before: Snapshot | None, state: EvictionState, others: Bools, movable: Bools
) -> ResidentRoom:
    """The room of running pods that leave in some plan: for a pod of a higher priority, or for another reason.

    Args:
        before: the cluster before any pod of the round was decided; None: that of the problem.
        state: of a plan; its residents run, or are placed in the same round.
        others: bool[V], residents that may leave for anything but a pod of a higher priority.
        movable: bool[V], residents that may move.
    """
    residents, start = state.residents, problem.snapshot if before is None else before
    pods = itertools.chain.from_iterable(demand.group.pods for demand in problem.demands)
    highest = highest_preempting(pods, problem.policies, problem.snapshot.now)
    leaves = (residents.evictable & (residents.priorities < highest)) | others
    leaves[list(state.leaving)] = True
    chosen = np.nonzero((leaves | movable)[: residents.running_count])[0]
    nodes, usage = residents.nodes[chosen], residents.usage[chosen]
    return ResidentRoom(
        nodes,
        usage,
        leave_prices=np.where(leaves[chosen], 0, NEVER),
        move_prices=np.where(movable[chosen], 0, NEVER),
        before=FreeCapacity(start),
        emptied=FreeCapacity(_with_residents(start, residents, chosen)),
    )
