"""Ruin and rebuild (Schrimpf et al. 2000): some pods leave the plan and are placed again, with pods that wait.

What is built is kept if the plan is better by the key that plans are compared by, else all is taken back. What leaves:

- *Room*: pods that have room elsewhere, or that cost less to leave than all that come in their place: two or more.
- *Exchange*: the same, where one pod may come for one.
- *Class*: all pods of a class, which then take the cheapest slots that there are beside the others. As slots of a node
  rise in cost, no places are cheaper for them. So the first pods of fill, which do not know the others, know them here.
- *Nodes*: all pods of a few nodes, which CP-SAT fills again with them and with pods that wait (Shaw 1998).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.constructive import completed
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.methods.packing import coarse_values, packing_program
from flowcore.planning.plan_key import AtLevel, PlanKey
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import solve_mip
from flowcore.rules.topology.round_constraints.rising_price import RisingPrice

#: Pairs of a class and a node that are looked at in one step; four programs of some nodes are a step.
_WORK = 20_000
#: How many are looked at for room at most.
_MOST_WORK = 10_000_000
#: A pass over all classes that lowers the cost by less than this part of it is the last.
_LEAST_GAIN = 3e-4
#: Pods give way to others only if these are dearer to leave by more than this part of one: nodes cost something too.
_DEARER = 0.1
#: Nodes of a program, from and to, and classes of waiting pods that compete for them.
_NODES, _RIVALS = (4, 8), 8
#: CP-SAT's deterministic time for it: some ten milliseconds.
_SOLVING = 0.006
#: Programs in a row without a gain that end the search, or a tenth of the number of nodes.
_PATIENCE = 18

#: Numbers of pods by demand and node.
Pods = Mapping[tuple[int, int], int]


class RuinAndRebuild:
    """Improves a plan. Pods with rules other than limits, and those that take more than amounts of a node, stay there.

    Room is made for pods with rules too, but not for those that must be near others.

    Attributes:
        gain: by how much the cost of the plan has fallen.
    """

    def __init__(
        self, problem: Problem, candidate: Candidate, seed: int, shadow_prices: Float64s | None = None
    ) -> None:
        """Begins with a candidate of the problem.

        Args:
            shadow_prices: float64[N, R], what a unit of each resource of a node is worth to others; None: nothing.
        """
        self._problem, self._demands, self._shadow_prices = problem, problem.demands, shadow_prices
        self._random, self._seed, self._first_cost = np.random.default_rng(seed), seed, candidate.cost
        self._plan, self.gain = candidate.capacity.copy(), 0
        self._movable = _movable(problem) & problem.cost_matrix.placeable
        #: Demands that pay prices which rise with their pods, by the price.
        self._rising: dict[RisingPrice, list[int]] = {}
        for number, demand in enumerate(self._demands):
            for rising in demand.constraints.rising:
                self._rising.setdefault(rising, []).append(number)
        self._requests = np.array([demand.requests for demand in self._demands], dtype=np.int64)
        self._left = unplaced_counts(candidate.commits, self._demands)
        #: int64[C], what it costs to leave the last pod that is placed of each demand.
        self._worth = np.array([self._worth_of_last(number, 1).max(initial=0) for number in range(len(self._left))])
        #: Demands of which no node has room for one more.
        self._full = set[int]()
        #: Pods that stay, in their order.
        self._staying = [commit for commit in candidate.commits if not self._movable[commit.demand]]
        #: The others: demand, node and number of pods of each row, and the number of each row.
        self._of = self._nodes = self._counts = np.zeros(0, dtype=np.int64)
        self._rows: dict[tuple[int, int], int] = {}
        placed = pods_by_node(commit for commit in candidate.commits if self._movable[commit.demand])
        self._change({(demand, node): count for demand, on in placed.items() for node, count in on.items()})

    def candidate(self) -> Candidate:
        """The plan as it is now, completed with what fits."""
        rows = np.nonzero(self._counts)[0]
        columns = (each[rows].tolist() for each in (self._of, self._nodes, self._counts))
        # Rules hold in the order in which pods were placed that they bind.
        commits = [*self._staying, *(Commit(*row) for row in zip(*columns, strict=True))]
        return completed(self._problem, "ruin and rebuild", commits, self._plan.copy())

    def run(self, *draws: str) -> Generator[None, None, None]:
        """Draws of these kinds, one kind after the other, until each brings no more; yields after each step."""
        kinds: dict[str, Callable[[], Generator[int, None, None]]] = {
            "room": partial(self._room, 2),
            "exchange": partial(self._room, 1),
            "class": self._classes,
            "nodes": self._few_nodes,
        }
        done = 0
        for draw in draws:
            for work in kinds[draw]():
                done += work
                if done >= _WORK:
                    done = 0
                    yield

    # --- room for pods that wait ---

    def _room(self, least: int) -> Generator[int, None, None]:
        """For each class that waits, small pods first: most places will do for them.

        Args:
            least: how many pods come at least for one that waits in their place.
        """
        work = 0
        for index in self._problem.by_size[::-1]:
            again = bool(self._problem.cost_matrix.placeable[index]) and _may_come(self._demands[index])
            while again and self._left[index] and work < _MOST_WORK:
                again = False
                for leaver, nodes in self._in_the_way_of(index, least):
                    work += len(self._plan.free)
                    yield len(self._plan.free)
                    order = [index] if leaver in self._full else [index, leaver]
                    leaving = {(leaver, node): 1 for node in nodes.tolist()}
                    again = self._rebuild(leaving, partial(self._greedy, order, self._shadow_prices))
                    if again:
                        break

    def _in_the_way_of(self, index: int, least: int) -> Generator[tuple[int, Int64s], None, None]:
        """A class and nodes: one pod of it on each is in the way of a demand. Those with room elsewhere come first."""
        demand, plan = self._demands[index], self._plan
        allowed = demand.allowed
        if demand.constraints.constrained:
            allowed = allowed & plan.domain_counts.allowed(demand.constraints)
        rows = np.nonzero((self._counts > 0) & allowed[self._nodes] & (self._of != index))[0]
        come = np.full(len(rows), self._left[index] if self._movable[index] else 1)
        for resource in np.nonzero(demand.requests > 0)[0].tolist():
            room = plan.free[self._nodes[rows], resource] + self._requests[self._of[rows], resource]
            fits = room >= demand.requests[resource]
            rows, come = rows[fits], np.minimum(come[fits], room[fits] // demand.requests[resource])
        others = set(self._of[rows].tolist()) - self._full
        for leaver in (number for number in self._problem.by_size[::-1] if number in others):
            elsewhere = int(plan.fit_counts(self._demands[leaver]).sum())
            if elsewhere:
                nodes = self._nodes[rows[self._of[rows] == leaver]]
                yield leaver, self._cheapest(demand, nodes)[: min(elsewhere, self._left[index])]
            else:
                self._full.add(leaver)
        paid = np.concatenate([[0], np.cumsum(demand.prices_of_last(self._left[index]))])
        gains = np.where(come >= least, paid[come] - self._worth[self._of[rows]], 0)
        enough = _DEARER * paid[1]
        if gains.max(initial=0) > enough:
            leaver = int(self._of[rows[gains.argmax()]])
            own = np.nonzero((self._of[rows] == leaver) & (gains > enough))[0]
            own = own[np.argsort(-gains[own], kind="stable")]
            came = np.cumsum(come[own])
            own, came = own[came <= self._left[index]], came[came <= self._left[index]]
            # The more pods leave, the dearer is the next one, and the cheaper are those that come.
            pays = paid[came] - paid[came - come[own]] - self._worth_of_last(leaver, len(own)) > enough
            own = own[: int(np.argmin(np.append(pays, [False])))]
            if len(own):
                yield leaver, self._nodes[rows[own]]

    def _cheapest(self, demand: Demand, nodes: Int64s) -> Int64s:
        """Nodes in the order of what a pod takes from others there."""
        if self._shadow_prices is None:
            return nodes
        order: Int64s = nodes[np.argsort(self._shadow_prices[nodes] @ demand.requests, kind="stable")]
        return order

    def _worth_of_last(self, index: int, count: int) -> Int64s:
        """int64[count], rising: what it costs to leave the last placed pods of a demand, one after the other."""
        placed = self._demands[index].count - self._left[index]
        last: Int64s = self._demands[index].prices[max(0, placed - count) : placed][::-1]
        return last

    # --- all pods of a class ---

    def _classes(self) -> Generator[int, None, None]:
        before = -self._first_cost
        while self.gain - before > _LEAST_GAIN * self._first_cost:
            before = self.gain
            for index in self._problem.by_size[::-1]:
                rows = np.nonzero((self._of == index) & (self._counts > 0))[0]
                if len(rows):
                    nodes, counts = self._nodes[rows].tolist(), self._counts[rows].tolist()
                    leaving = {(index, node): count for node, count in zip(nodes, counts, strict=True)}
                    self._rebuild(leaving, partial(self._greedy, [index], None))
                    yield len(self._plan.free)

    # --- a few nodes ---

    def _few_nodes(self) -> Generator[int, None, None]:
        fruitless = 0
        while fruitless < max(_PATIENCE, len(self._plan.free) // 10):
            waiting = np.nonzero(self._movable & (np.array(self._left) > 0))[0]
            if not len(waiting):
                return
            worth = np.array([max(1, self._left[number] * int(self._demands[number].prices[-1])) for number in waiting])
            wanted = int(self._random.choice(waiting, p=worth / worth.sum()))
            usable = np.nonzero(self._demands[wanted].counts)[0]
            size = min(int(self._random.integers(_NODES[0], _NODES[1] + 1)), len(usable))
            nodes = np.sort(self._random.choice(usable, size=size, replace=False))
            rows = np.nonzero(np.isin(self._nodes, nodes) & (self._counts > 0))[0]
            rivals = self._random.permutation(waiting)[:_RIVALS]
            classes = np.unique(np.concatenate([self._of[rows], rivals, [wanted]]))
            keys = zip(self._of[rows].tolist(), self._nodes[rows].tolist(), strict=True)
            leaving = dict(zip(keys, self._counts[rows].tolist(), strict=True))
            build = partial(self._packed, nodes, classes, leaving)
            fruitless = 0 if self._rebuild(leaving, build) else fruitless + 1
            yield _WORK // 4

    def _packed(self, nodes: Int64s, classes: Int64s, before: Pods, left: Sequence[int]) -> list[Commit]:
        """Commits pods of some classes to some nodes, such that the least is left; none where ``before`` is as good."""
        demands = [self._demands[number] for number in classes.tolist()]
        counts = np.array([left[number] for number in classes.tolist()], dtype=np.int64)
        prices = [demand.prices_of_last(count).mean() for demand, count in zip(demands, counts.tolist(), strict=True)]
        program, of, place = packing_program(
            requests=self._requests[classes],
            free=self._plan.free[nodes],
            most=np.minimum(
                np.array([self._plan.fit_counts_at(demand, nodes) for demand in demands]), counts[:, np.newaxis]
            ),
            counts=counts,
            least=np.zeros_like(counts),
            values=coarse_values(np.array(prices)),
        )
        pairs = list(zip(classes[of].tolist(), nodes[place].tolist(), strict=True))
        hint = np.array([before.get(pair, 0) for pair in pairs], dtype=np.float64)
        self._seed += 1
        solution = solve_mip(program, deterministic_time=_SOLVING, seed=self._seed, hint=hint)
        if solution is None or program.costs @ solution.values >= program.costs @ hint:
            return []
        pods = solution.values.astype(np.int64).tolist()
        commits = [Commit(*pair, count) for pair, count in zip(pairs, pods, strict=True) if count]
        for commit in commits:
            if self._plan.place(self._demands[commit.demand], commit.node, commit.count) < commit.count:
                return []
        return commits

    # --- one draw ---

    def _greedy(self, order: Sequence[int], prices: Float64s | None, left: Sequence[int]) -> list[Commit]:
        return greedy(self._problem.cost_matrix, [(index, left[index]) for index in order], self._plan, prices)

    def _rebuild(self, leaving: Pods, build: Callable[[Sequence[int]], Sequence[Commit]]) -> bool:
        """Takes pods out and builds again; keeps what was built if the plan is better, and says whether it is.

        Args:
            leaving: pods that leave their nodes.
            build: commits pods to the plan, given how many of each demand are left.
        """
        checkpoint, left = self._plan.checkpoint(), list(self._left)
        changed = Counter[tuple[int, int]]()
        for index in dict.fromkeys(index for index, _ in leaving):
            on = {node: count for (number, node), count in leaving.items() if number == index}
            nodes, counts = (np.array(list(each), dtype=np.int64) for each in (on, on.values()))
            self._plan.release(self._demands[index], nodes, counts)
            left[index] += int(counts.sum())
        changed.subtract(leaving)
        commits = build(left)
        for commit in commits:
            changed[commit.demand, commit.node] += commit.count
            left[commit.demand] -= commit.count
        changes = {pair: count for pair, count in changed.items() if count}
        touched = {index for index, _ in changes}
        before, after = self._key(touched, self._left), self._key(touched, left)
        after = after._replace(cost=after.cost + self._added_cost(changes))
        if after < before:
            self.gain += before.cost - after.cost
            self._left = left
            for index in touched:
                self._worth[index] = self._worth_of_last(index, 1).max(initial=0)
            self._staying += [commit for commit in commits if not self._movable[commit.demand]]
            self._change({pair: count for pair, count in changes.items() if self._movable[pair[0]]})
            return True
        self._plan.roll_back(checkpoint)
        return False

    def _change(self, changes: Pods) -> None:
        """Changes the number of movable pods on their nodes."""
        new = [pair for pair in changes if pair not in self._rows]
        if new:
            self._rows |= {pair: len(self._rows) + place for place, pair in enumerate(new)}
            columns = np.array(new, dtype=np.int64).T
            self._of, self._nodes = np.concatenate([self._of, columns[0]]), np.concatenate([self._nodes, columns[1]])
            self._counts = np.concatenate([self._counts, np.zeros(len(new), dtype=np.int64)])
        self._counts[[self._rows[pair] for pair in changes]] += np.array(list(changes.values()), dtype=np.int64)

    def _key(self, touched: set[int], left: Sequence[int]) -> PlanKey:
        """The key of a plan that leaves so many pods, as far as it depends on some demands; without costs of nodes."""
        missing, cost, waiting = 0, 0, Counter[int]()
        for index in touched:
            demand = self._demands[index]
            missing += max(0, self._problem.must_place[index] - demand.count + left[index])
            cost += int(demand.prices_of_last(left[index]).sum())
            waiting[demand.level] += int(demand.worth[demand.count - left[index] :].sum())
        levels = tuple(AtLevel(waiting[level]) for level in sorted(waiting, reverse=True))
        return PlanKey(missing, levels if self._problem.by_levels else (), cost=cost)

    def _added_cost(self, changes: Pods) -> int:
        """By how much more the placed pods cost since so many more of each demand are on each node."""
        demand, node = np.array(list(changes), dtype=np.int64).reshape(-1, 2).T
        counts = np.array(list(changes.values()), dtype=np.int64)
        cost = sum(int(self._demands[index].arc[place]) * count for (index, place), count in changes.items())
        for potential in {self._demands[index].potential for index, _ in changes}:
            rows = [place for place, (index, _) in enumerate(changes) if self._demands[index].potential == potential]
            nodes, place = np.unique(node[rows], return_inverse=True)
            more = np.zeros((len(nodes), 4), dtype=np.int64)
            counted = np.array([self._demands[index].counted for index in demand[rows].tolist()])
            np.add.at(more, place, counted * counts[rows, np.newaxis])
            values = [potential.values(self._plan.load_at(nodes, potential, added)) for added in (0 * more, -more)]
            cost += int((values[0] - values[1]).sum())
        return cost + sum(self._risen(rising, demand, node, counts) for rising in self._rising)

    def _risen(self, rising: RisingPrice, demand: Int64s, node: Int64s, counts: Int64s) -> int:
        """By how much more they cost by a price that rises, beside what their arcs have of it."""
        counter = rising.counter
        counted = counter.counted_nodes[node] & np.isin(demand, self._rising[rising])
        domains, place = np.unique(counter.domains.codes[node[counted]], return_inverse=True)
        more = np.zeros(len(domains), dtype=np.int64)
        np.add.at(more, place, counts[counted])
        now = self._plan.domain_counts.of(counter)[domains]
        return int((rising.beside_arcs(domains, now) - rising.beside_arcs(domains, now - more)).sum())


def _movable(problem: Problem) -> Bools:
    """bool[C]: demands whose pods may go wherever there is room."""
    return np.array(
        [
            demand.constraints.only_limits
            and demand.group.pod_class.fits_by_amounts
            and not demand.waits
            and not demand.has_wish(problem.snapshot)
            for demand in problem.demands
        ],
        dtype=np.bool_,
    )


def _may_come(demand: Demand) -> bool:
    """Whether room is made for pods of a demand: amounts and rules that forbid say whether they fit."""
    return not demand.waits and demand.group.pod_class.fits_by_amounts and not demand.constraints.affinity
