"""What a search decided on a few nodes is decided once more, for all pods of the round together.

One pod after the other takes the node where its victims are least, and so takes what others need more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.program.coming import ChoosingGang, Coming, Levels
from flowcore.planning.evictions.program.eviction_program import EvictionProgram
from flowcore.planning.plan_key import NOBODY, AtLevel, PlanKey
from flowcore.planning.problem.placements.decisions import Checkpoint
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import loss_of

#: Nodes of a program, and CP-SAT's deterministic time: some tenths of a second.
_MOST_NODES, _WORK = 48, 0.15
#: Programs that are solved: after each, those stay who would leave for pods that may not have it so.
_ATTEMPTS = 3


def decide_again(
    state: Plan,
    eligibility: Eligibility,
    movers: Movers,
    checkpoint: Checkpoint,
    coming: Sequence[Coming],
    gangs: Sequence[ChoosingGang],
    check_of: Callable[[int], FitCheck],
    node_order: Callable[[int, Bools], Int64s],
    replace_victims: Callable[[], None],
    let_lower_wait: Callable[..., None],
    holds: Callable[[], bool],
    seed: int,
) -> None:
    """Decides otherwise what was decided since a checkpoint, where that is better.

    Args:
        coming: all pods that came since, or wait, and placements that may change.
        gangs: those that choose a domain.
        check_of: the fit check of a demand, by number.
        node_order: nodes for a demand where some residents may leave, bool[V], the most promising first.
        replace_victims: gives victims other nodes, as the round does in the end.
        let_lower_wait: lets those stay who would leave for pods that may not have it so. ``anybody``: placements wait
            too that keep their nodes.
        holds: whether every filter passes for the whole plan.
        seed: of the integer program.
    """
    decisions, known_pods = state.since(checkpoint), {pod.key for each in coming for pod in each.pods}
    if any(arrival.pod.key not in known_pods for arrival in decisions.arrivals) or any(
        leaving.kind is EvictionKind.RECLAIM for _, leaving in decisions.leaving
    ):
        return
    decided = {arrival.node for arrival in decisions.arrivals}
    decided |= {int(state.residents.nodes[resident]) for each in coming for resident in each.residents}
    for resident, leaving in decisions.leaving:
        decided |= {int(state.residents.nodes[resident]), leaving.to} - {-1}
    if len(decided) > _MOST_NODES:
        return
    replace_victims()
    let_lower_wait()
    known = _key(state, movers, checkpoint, coming)
    state.roll_back(checkpoint)
    nodes = _nodes(state, eligibility, movers, sorted(decided), coming, node_order)
    if nodes and (known.moves or any(level != AtLevel() for level in known.levels)):
        checks = [check_of(each.demand) for each in coming]
        for by_filters in (True, False):
            stay = set[int]()
            for _ in range(_ATTEMPTS):
                program = EvictionProgram(
                    state, eligibility, movers, coming, gangs, checks, nodes, decisions, stay, by_filters=by_filters
                )
                has_plan = program.decide(work=_WORK, seed=seed)
                leave = set(state.leaving)
                if has_plan:
                    replace_victims()
                    let_lower_wait(anybody=True)
                back = leave - state.leaving.keys()
                if has_plan and not back and _key(state, movers, checkpoint, coming) < known and holds():
                    return
                state.roll_back(checkpoint)
                if not back:
                    break
                stay |= back
            if not program.has_rules:
                break  # it would be the same program
    state.redo(decisions)


def _key(state: Plan, movers: Movers, checkpoint: Checkpoint, coming: Sequence[Coming]) -> PlanKey:
    """What is decided since a checkpoint. A victim with a new node counts as moved where a policy governs it."""
    residents, levels, arrived = state.residents, Levels(coming), state.arrived
    waiting, lost = [0] * len(levels.priorities), [list[int]() for _ in levels.priorities]
    for alike in coming:
        stay = [resident not in state.leaving for resident in alike.residents] or [False] * len(alike.pods)
        waiting[levels.priorities.index(alike.priority)] += sum(
            worth
            for pod, worth, stays in zip(alike.pods, alike.worths, stay, strict=True)
            if not stays and pod.key not in arrived
        )
    kept = []
    for resident, leaving in state.since(checkpoint).leaving:
        if leaving.to >= 0 and movers.is_made_again(resident):
            kept.append(resident)
        elif residents.pods[resident].key not in arrived:
            lost[levels.of_victim(residents.pods[resident].priority)].append(resident)
    losses = [loss_of(residents, members) if members else NOBODY for members in (*lost, kept)]
    at_levels = tuple(AtLevel(count, lost=loss) for count, loss in zip(waiting, losses, strict=False))
    return PlanKey(levels=at_levels, moves=len(kept), moved=losses[-1])


def _nodes(
    state: Plan,
    eligibility: Eligibility,
    movers: Movers,
    decided: Sequence[int],
    coming: Sequence[Coming],
    node_order: Callable[[int, Bools], Int64s],
) -> list[int]:
    """Some nodes, then the best of each demand in turn. None of them is overcommitted; if some were, there are none."""
    sound = np.all(state.free >= 0, axis=1)
    if not sound[decided].all():
        return []
    orders = []
    for alike in coming:
        may_leave = movers.let_go(alike.priority) | (eligibility.mask(alike.priority) & alike.preempts)
        orders.append(node_order(alike.demand, may_leave)[:_MOST_NODES].tolist())
    in_turn = [node for turn in zip_longest(*orders) for node in turn if node is not None]
    room = np.argsort(-state.free_now().astype(np.float64).sum(axis=1), kind="stable").tolist()
    return [node for node in dict.fromkeys((*decided, *in_turn, *room)) if sound[node]][:_MOST_NODES]
