"""What a plan with evictions costs, and who may leave or move in any plan of the round, as lower bounds read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.planning.evictions.eligibility import highest_preempting
from flowcore.planning.evictions.moves.move_prices import leaving_prices
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.search.limits import limits_of_leaving, renumbered
from flowcore.planning.evictions.search.reclaims import ReclaimEligibility
from flowcore.planning.problem.bounds.resident_room import NEVER, ResidentRoom
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem


def prices_beside(problem: Problem, state: Plan, commits: Sequence[Commit]) -> list[int]:
    """What each placed pod of a plan pays: what it adds to the cost of its node, without the pods that leave there.

    Replacements of these count where they go. So the sum does not depend on who came first, and a pod that is placed
    pays nothing for one whose room it takes. Who moves for gain counts where it was: it moves when all others have
    come, and its gain is the difference.

    Args:
        commits: all placements of the plan, a pod each; demands by their number in the problem.
    """
    arrived = {arrival.demand for arrival in state.arrivals}
    demands = [state.priced(number) if number in arrived else demand for number, demand in enumerate(problem.demands)]
    leaving = [number for number, each in state.leaving.items() if state.residents.is_running(number) and not each.gain]
    moved = [(resident, to) for resident in leaving if (to := state.leaving[resident].to) >= 0]
    beside = with_residents(problem.snapshot, state.residents, leaving, moved)
    prices: list[int] = Objective(demands, Plan(beside)).pod_prices(commits).tolist()
    return prices


def with_residents(
    snapshot: Snapshot, residents: Residents, without: Sequence[int] | Int64s, more: Iterable[tuple[int, int]] = ()
) -> Snapshot:
    """A snapshot by what is used: without some residents, and with some on other nodes too."""
    used, assumed = snapshot.used.copy(), snapshot.non_zero_requested.copy()

    def change(chosen: Int64s, nodes: Int64s, sign: int) -> None:
        np.add.at(used, nodes, sign * residents.usage[chosen])
        np.add.at(assumed, nodes, sign * residents.counted[chosen])

    gone, came = np.array(without, dtype=np.int64), np.array(list(more), dtype=np.int64).reshape(-1, 2)
    change(gone, residents.nodes[gone], -1)
    change(came[:, 0], came[:, 1], 1)
    return snapshot.with_usage(used, np.maximum(assumed, 0), snapshot.ports, snapshot.pod_index)


def resident_room(
    problem: Problem,
    before: Snapshot | None,
    state: Plan,
    moves: Movers,
    reclaims: ReclaimEligibility | None,
    breaking: Bools,
) -> ResidentRoom:
    """The room of running pods that leave in some plan: for a pod of a higher priority, or for another reason.

    Args:
        before: the cluster before any pod of the round was decided; None: that of the problem.
        state: of a plan; its residents run, or are placed in the same round.
        reclaims: None: there are no queues.
        breaking: bool[V], residents that may leave for a rule, whoever allows it.
    """
    residents, start = state.residents, problem.snapshot if before is None else before
    running = np.arange(len(residents.pods)) < residents.running_count
    comers = [pod for demand in problem.demands for pod in demand.group.pods]
    highest = highest_preempting(comers, problem.policies, problem.snapshot.now)
    movable = moves.movable
    preempted = residents.evictable & (residents.priorities < highest)
    reclaimed = np.zeros_like(preempted) if reclaims is None else reclaims.reclaimable
    leaves = preempted | reclaimed | breaking
    only_moved = movable & ~leaves
    leaves[[number for number, each in state.leaving.items() if not each.gain]] = True
    limits = limits_of_leaving(
        residents,
        (leaves | movable) & running & ~breaking,
        reclaimed & ~preempted & ~movable,
        only_moved,
        moves,
        reclaims,
        comers,
    )
    may_leave = (leaves | movable) & running
    for limit in limits:
        if limit.is_closed:
            may_leave[limit.pods] = False
    limits = [limit for limit in limits if not limit.is_closed]
    chosen = np.nonzero(may_leave)[0]
    nodes, usage = residents.nodes[chosen], residents.usage[chosen]
    prices = leaving_prices([residents.pods[number] for number in chosen.tolist()], usage, problem.policies, start)
    expected = None
    if limits:
        # As much room as may come free, spread over all that may leave: single nodes would have no price.
        shares = np.ones(len(residents.pods))
        for limit in limits:
            shares[limit.pods] = limit.share
        room = np.zeros(start.used.shape)
        np.add.at(room, nodes, usage * shares[chosen, np.newaxis])
        used = start.used - room.astype(np.int64)
        expected = Plan(start.with_usage(used, start.non_zero_requested, start.ports, start.pod_index))
    emptied = with_residents(start, residents, chosen)
    if start.pod_index.has_terms or any(demand.group.signature.constraints is not None for demand in problem.demands):
        gone = [(residents.pods[number].node, residents.pods[number].signature) for number in chosen.tolist()]
        emptied = replace(emptied, pod_index=emptied.pod_index.with_changes((), gone))
    return ResidentRoom(
        nodes,
        usage,
        leave_prices=np.where(leaves[chosen], prices, NEVER),
        move_prices=np.where(movable[chosen], prices, NEVER),
        before=Plan(start),
        emptied=Plan(emptied),
        limits=renumbered(limits, may_leave),
        expected=expected,
        others_come=before is not None,
    )
