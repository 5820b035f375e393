"""Units, and pods whose rules only forbid, decided exactly: one program over units, classes and nodes for CP-SAT.

What the program leaves aside is what a node costs beyond its first pod; so its answer is a proposal like any other,
placed for real and kept if the round's true cost falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.gangs.admission import Choice, Contest, completed
from flowcore.rounds.keeping_apart import most_in_all, with_rules
from flowcore.rounds.placing import Bundles, Pairs, merged, placing_program
from flowcore.rounds.pricing import unplaced
from flowcore.rounds.room import Room
from flowcore.solve import solve_whole

#: Programs with more columns take longer than a round has.
_MOST_COLUMNS = 12_000
#: Without units: classes and nodes that go together. With more CP-SAT seldom finds a better plan in a round's time.
_MOST_PAIRS = 1_500
#: Nodes decided at once, and units of those that are in and of those that are out.
_NODES, _UNITS = 12, 30
#: Runs that a class's prices are merged into.
_STEPS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What is decided: pods on these nodes, bool[N], and whether these units are in, bool[U]. The rest stays."""

    nodes: Bools
    units: Bools

    @classmethod
    def all(cls, contest: Contest) -> Part:
        """Everything."""
        return cls(np.ones(len(contest.start.free), dtype=np.bool_), np.ones(len(contest.units.all), dtype=np.bool_))

    @classmethod
    def drawn(cls, contest: Contest, choice: Choice, seed: int) -> Part:
        """Some nodes, some units that are out and some that are in."""
        random = np.random.default_rng(seed)
        nodes = np.zeros(len(contest.start.free), dtype=np.bool_)
        nodes[random.permutation(len(nodes))[:_NODES]] = True
        units = np.zeros(len(choice.chosen), dtype=np.bool_)
        for whose in (choice.chosen, ~choice.chosen):
            units[random.permutation(np.nonzero(whose)[0])[:_UNITS]] = True
        return cls(nodes, units)


def decide(contest: Contest, choice: Choice, part: Part, *, work: float, seed: int) -> Choice | None:
    """Another choice than one that is known, with all that fits beside; None where none seems better.

    Pods that hold ports, or have rules that do not only forbid, stay where the known choice has them, and so do units
    that have such pods. Units that must be in one domain keep the one that they have, or stay out.

    Args:
        work: CP-SAT's deterministic time.
    """
    units, demands, still = contest.units.all, choice.demands, contest.still
    whole = [
        not unit.flaw and (unit.anywhere or bool(choice.chosen[at])) and not still[list(unit.demands)].any()
        for at, unit in enumerate(units)
    ]
    going = np.array(whole, dtype=np.bool_) & part.units
    staying = choice.chosen & ~going
    room, kept = contest.start.copy(), []
    for commit in choice.commits:
        if still[commit.demand] or not part.nodes[commit.node]:
            taken = room.take(demands[commit.demand], commit.node, commit.count)
            kept.append(Commit(commit.demand, commit.node, taken))
    free = [
        np.zeros(0, dtype=np.int64)
        if still[at]
        else demand.prices[~contest.units.needed[at] & _placeable(contest.units.owner[at], choice.chosen)]
        for at, demand in enumerate(demands)
    ]
    more = contest.required[staying].sum(axis=0)
    for commit in kept:
        more[commit.demand] -= commit.count
    more[still] = 0  # all of them stay
    supply = contest.required[going].sum(axis=0) + np.array([len(prices) for prices in free]) + more
    counts = np.array([room.counts(demand) for demand in demands]) * part.nodes
    counts = np.minimum(counts, supply[:, np.newaxis])
    who, where = np.nonzero(counts)
    if not len(who) or len(who) + int(going.sum()) > _MOST_COLUMNS:
        return None
    runs = [merged(prices, _STEPS) for prices in free]
    wanted = np.array([demand.wanted for demand in demands], dtype=np.float64)
    pairs = Pairs(who, where, contest.field.opening[who, where], counts[who, where].astype(np.float64))
    value = np.array([unit.value for unit in units], dtype=np.float64)
    # Units that have begun come before all others.
    value[[unit.started for unit in units]] += value.sum() + sum(float(prices.sum()) for prices in free)
    bundles = Bundles(contest.required[going].astype(np.float64), value[going])
    places = np.cumsum(part.nodes) - 1
    inside = replace(pairs, places=places[where])
    left = np.maximum(room.free[part.nodes], 0).astype(np.float64)
    program = placing_program(inside, wanted, left, runs, bundles, more.astype(np.float64))
    columns = len(program.costs)
    program, opens = with_rules(program, pairs, demands, room)
    if len(program.costs) > _MOST_COLUMNS:
        return None
    hint = _hint(choice, contest, free, who, where, runs, going)
    hint = np.concatenate([hint, [float(hint[each].any()) for each in opens]])
    solution = solve_whole(program, work=work, seed=seed, hint=hint)
    if solution is None or program.costs @ solution.values >= program.costs @ hint:
        return None
    chosen = staying.copy()
    chosen[going] = solution.values[columns - int(going.sum()) : columns] < 0.5
    pods = solution.values[: len(who)].astype(np.int64)
    for at in range(len(demands)):
        # Spare pods of a unit that is out now are not to be placed.
        mine = np.nonzero(who == at)[0]
        allowed = len(contest.units.turns(at, chosen)) - sum(each.count for each in kept if each.demand == at)
        pods[mine] = np.diff(np.minimum(np.cumsum(pods[mine]), max(0, allowed)), prepend=0)
    commits = [*kept, *_carried_out(demands, room, who, where, pods)]
    placed = np.zeros(len(demands), dtype=np.int64)
    for commit in commits:
        placed[commit.demand] += commit.count
    most = np.array([len(contest.units.turns(at, chosen)) for at in range(len(demands))])
    if (placed < contest.required[chosen].sum(axis=0)).any() or (placed > most).any():
        return None
    found = replace(
        choice,
        method="gangs by CP-SAT" if units else "rules by CP-SAT",
        chosen=chosen,
        commits=tuple(commits),
        room=room,
    )
    return completed(contest, found, full=True)[0]


def worth_deciding(contest: Contest, choice: Choice) -> bool:
    """Whether pods that rules bind are left out of a plan without units of which some might yet find room.

    Where a class's own rules let no more of its pods in than are placed, another plan has no more of them either.
    """
    if sum(np.count_nonzero(demand.counts) for demand in contest.demands) > _MOST_PAIRS:
        return False
    left = unplaced(choice.commits, contest.demands)
    return any(
        left[at] > 0 and not contest.still[at] and demand.count - left[at] < most_in_all(demand.ties, demand.counts)
        for at, demand in enumerate(contest.demands)
        if demand.ties.bound
    )


def _placeable(owner: Int64s, chosen: Bools) -> Bools:
    """bool[pods]: those that may be placed by themselves: of no unit, or spare pods of one that is in already."""
    found: Bools = (owner < 0) | (chosen[owner] if len(chosen) else False)
    return found


def _hint(
    choice: Choice,
    contest: Contest,
    free: Sequence[Int64s],
    who: Int64s,
    where: Int64s,
    runs: Sequence[Sequence[Float64s]],
    going: Bools,
) -> Float64s:
    """What the known choice comes to in the program's columns."""
    now: dict[tuple[int, int], int] = {}
    placed = np.zeros(len(choice.demands), dtype=np.int64)
    for commit in choice.commits:
        now[commit.demand, commit.node] = now.get((commit.demand, commit.node), 0) + commit.count
        placed[commit.demand] += commit.count
    out: list[float] = []
    required = contest.required[choice.chosen].sum(axis=0)
    for at, mine in enumerate(runs):
        rest, held = int(len(free[at]) - (placed[at] - required[at])) if mine else 0, []
        for run in reversed(mine):
            held.append(float(min(rest, len(run))))
            rest -= int(held[-1])
        out += reversed(held)
    pods = [float(now.get(pair, 0)) for pair in zip(who.tolist(), where.tolist(), strict=True)]
    return np.array([*pods, *out, *(~choice.chosen[going]).astype(np.float64)])


def _carried_out(demands: tuple[Demand, ...], room: Room, who: Int64s, where: Int64s, pods: Int64s) -> list[Commit]:
    used = pods > 0
    arcs = list(zip(who[used].tolist(), where[used].tolist(), pods[used].tolist(), strict=True))
    fits = room.take_all(demands, who[used], where[used], pods[used])
    commits = []
    for (at, node, count), whole in zip(arcs, fits.tolist(), strict=True):
        taken = count if whole else room.take(demands[at], node, count)
        if taken:
            commits.append(Commit(at, node, taken))
    return commits
