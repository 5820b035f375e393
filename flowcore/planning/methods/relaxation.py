"""The round in fractions: pods may be split, nodes in one state are one pool, and so are demands beyond some hundreds.

The convex program of ``solve.interior_point`` over demands and states of nodes, with the nodes' potentials. Its prices
of resources and its loads give lower bounds (``problem.bounds``) and say what each pod is worth on each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.costs.potential import NodePotential
from flowcore.planning.methods.assignment_program import AtomicBundles, price_runs
from flowcore.planning.methods.merged_demands import MergedDemand, merged
from flowcore.planning.methods.node_states import NodeStates
from flowcore.planning.methods.own_prices import own_prices
from flowcore.planning.methods.potential_columns import PotentialColumns
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.solvers.interior_point import FluidProgram, FluidSolution, solve_fluid

#: Runs that the prices of a demand are merged into; the bound uses each pod's own price.
_STEPS = 4
#: Pairs of demand and state at most, and demands: more take longer than they help. Beyond that demands are merged.
_MOST_PAIRS, _MOST_DEMANDS = 45_000, 200

#: How many pods of a demand a state takes counts where that is less than this part of what its room is enough for.
_NARROW = 0.9
#: Demands and states of the rough solution by which nodes are told apart where room is short.
_ROUGH_DEMANDS, _ROUGH_STATES = 40, 150
#: So many states more there are then at most.
_TOLD_APART = 100


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedSolution:
    """The optimum in fractions, or nearly.

    Attributes:
        shadow_prices: float64[N, R], of a unit of each resource on each node.
        members: places of the demands that it took for one.
        placed: float64[M], how many pods of these together it places.
        loads: how full nodes are for pods of each potential, as mixtures of loads.
    """

    shadow_prices: Float64s
    members: tuple[tuple[int, ...], ...]
    placed: Float64s
    loads: dict[NodePotential, Mixture | None]


def relax(
    cost_matrix: CostMatrix,
    prices: Sequence[Int64s] | None = None,
    bundles: AtomicBundles | None = None,
    most_demands: int = _MOST_DEMANDS,
    most_pairs: int = _MOST_PAIRS,
) -> RelaxedSolution | None:
    """Solves the program; None where no pod is left to place or the solver failed.

    Args:
        prices: of the pods of each demand that are in no bundle; None: of all.
        bundles: pods that are placed or left pending together.
        most_demands: with more demands, equal ones count as one.
        most_pairs: with more pairs of demand and state, nodes that are alike are one state.
    """
    demands = cost_matrix.demands
    if bundles is None:
        bundles = AtomicBundles(np.zeros((0, len(demands))), np.zeros(0))
    leaving = [demand.prices for demand in demands] if prices is None else list(prices)
    fits = np.array([bool(most.any()) for most in cost_matrix.most], dtype=np.bool_)
    placeable = ~(bundles.counts[:, ~fits] > 0).any(axis=1)
    bundles = AtomicBundles(bundles.counts[placeable], bundles.prices[placeable])
    pods = np.array([len(each) for each in leaving]) + bundles.counts.sum(axis=0)
    chosen = np.nonzero(fits & (pods > 0))[0]
    if not len(chosen):
        return None
    classes = merged(demands, chosen, pods, most_demands)
    most = most_pairs // len(classes)
    states = NodeStates.at_most(cost_matrix, classes, most)
    solved: _Solved | None = None
    if states.room is not None and len(states.sizes) < most:
        # What room of single nodes is worth by a rough solution says which nodes are alike.
        by_room = states.divided(states.room, min(most, _ROUGH_STATES), anew=True)
        rough = _solve(cost_matrix, merged(demands, chosen, pods, _ROUGH_DEMANDS), by_room, leaving, bundles)
        if rough is not None:
            finer = states.divided(rough.worth_of_room(cost_matrix), min(most, len(states.sizes) + _TOLD_APART))
            solved = _solve(cost_matrix, classes, finer, leaving, bundles)
    if solved is None:
        solved = _solve(cost_matrix, classes, states, leaving, bundles)
    return None if solved is None else solved.as_relaxed(cost_matrix)


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """The optimum for some classes and states, or nearly."""

    classes: Sequence[MergedDemand]
    states: NodeStates
    scaled: _Scaled
    solution: FluidSolution

    def as_relaxed(self, cost_matrix: CostMatrix) -> RelaxedSolution:
        """The same by node and by demand."""
        scaled, solution = self.scaled, self.solution
        return RelaxedSolution(
            shadow_prices=scaled.shadow_prices(solution, self.states, cost_matrix.capacity.free.shape),
            members=tuple(each.members for each in self.classes),
            placed=np.where(scaled.usable, solution.placed, 0.0).sum(axis=1),
            loads={
                block.potential: block.expected(
                    solution.added[:, block.places], solution.placed, self.states, cost_matrix.capacity
                )
                for block in scaled.blocks
            },
        )

    def worth_of_room(self, cost_matrix: CostMatrix) -> Float64s:
        """float64[N, R]: what each resource of a node is worth that a mean pod takes, told apart by node."""
        requests = np.array([each.requests for each in self.classes])
        of_states = self.scaled.shadow_prices(self.solution, self.states, cost_matrix.capacity.free.shape)
        nodes = np.nonzero(of_states.any(axis=1))[0]
        first_costs = [each.demand.first_cost[nodes] for each in self.classes]
        worth = [price - cost for price, cost in zip(self.solution.prices.tolist(), first_costs, strict=True)]
        prices = np.zeros_like(of_states)
        prices[nodes] = own_prices(
            of_states[nodes],
            requests,
            np.array(worth, dtype=np.float32),
            np.array([_most_of(cost_matrix, each)[nodes] for each in self.classes], dtype=np.float32),
            cost_matrix.spare[nodes],
        )
        pods = np.array([each.pods for each in self.classes])
        of_mean_pod: Float64s = prices * (pods @ requests / pods.sum())
        return of_mean_pod


def _solve(
    cost_matrix: CostMatrix,
    classes: Sequence[MergedDemand],
    states: NodeStates,
    leaving: Sequence[Int64s],
    bundles: AtomicBundles,
) -> _Solved | None:
    """Solves the program for some classes and states; None where the solver failed."""
    scaled = _Scaled.of(cost_matrix, classes, states)
    runs = [
        (number, run)
        for number, merged_demand in enumerate(classes)
        for run in price_runs(_falling(leaving, merged_demand), _STEPS)
    ]
    of_runs = np.zeros((len(runs), len(classes)))
    of_runs[np.arange(len(runs)), [number for number, _ in runs]] = 1.0
    bundled = np.column_stack([bundles.counts[:, each.members].sum(axis=1) for each in classes])
    solution = solve_fluid(
        FluidProgram(
            arcs=scaled.arcs,
            usable=scaled.usable,
            most=scaled.most,
            counted=scaled.counted,
            requests=scaled.requests,
            room=scaled.room,
            nodes=states.sizes,
            pods=np.array([each.pods for each in classes]),
            leaving_prices=np.concatenate([[run.mean() for _, run in runs], bundles.prices]),
            leaving_most=np.concatenate([[float(len(run)) for _, run in runs], np.ones(len(bundles.prices))]),
            leaving_pods=np.concatenate([of_runs, bundled]),
            slopes=scaled.slopes,
        )
    )
    return None if solution is None else _Solved(classes, states, scaled, solution)


def _most_of(cost_matrix: CostMatrix, merged_demand: MergedDemand) -> Int64s:
    """int64[N]: how many of its pods a node gets at most."""
    members = [cost_matrix.most[index] for index in merged_demand.members]
    most: Int64s = members[0] if len(members) == 1 else np.minimum(np.sum(members, axis=0), merged_demand.demand.counts)
    return most


def _falling(prices: Sequence[Int64s], of: MergedDemand) -> Int64s:
    """int64[pods]: prices of all pods of merged demands, the dearest to leave first."""
    if len(of.members) == 1:
        return prices[of.members[0]]
    ordered: Int64s = np.sort(np.concatenate([prices[member] for member in of.members]))[::-1]
    return ordered


def min_shadow_costs(cost_matrix: CostMatrix, shadow_prices: Float64s) -> list[float]:
    """What a pod of each demand pays in shadow prices on the node where it pays least."""
    return [
        float((shadow_prices[demand.counts > 0] @ demand.requests).min(initial=np.inf))
        for demand in cost_matrix.demands
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Scaled:
    """The program's amounts: of demands and states, in shares of the largest node."""

    blocks: list[PotentialColumns]
    arcs: Float64s
    usable: Bools
    most: Float64s
    counted: Float64s
    requests: Float64s
    room: Float64s
    resources: list[int]
    scale: Float64s
    asked: Bools

    @classmethod
    def of(cls, cost_matrix: CostMatrix, classes: Sequence[MergedDemand], states: NodeStates) -> _Scaled:
        demands = [each.demand for each in classes]
        pods = np.array([each.pods for each in classes])
        taken = [_most_of(cost_matrix, each) for each in classes]
        most = states.total(np.minimum(taken, pods[:, np.newaxis]).T).T
        usable = most > 0
        arcs = states.mean(np.array([demand.arc for demand in demands]).T).T
        requests = np.array([each.requests for each in classes], dtype=np.float64)
        resources = np.nonzero(requests.any(axis=0))[0].tolist()
        free = cost_matrix.spare[:, resources]
        scale = np.maximum(free.max(axis=0, initial=1), 1).astype(np.float64)
        requests = requests[:, resources] / scale
        asked = (usable.T.astype(np.float64) @ requests) > 0
        blocks = PotentialColumns.of(cost_matrix.capacity, demands, states)
        counted = np.concatenate([block.counted for block in blocks], axis=1)
        room = np.where(asked, states.total(free) / scale, pods @ requests + 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [room[:, each] / requests[:, each, np.newaxis] for each in range(len(resources))]
        by_room = np.fmin.reduce(parts)  # 0/0 says nothing
        most = np.where(most < _NARROW * by_room, most, np.inf)
        return cls(blocks, arcs, usable, most, counted, requests, room, resources, scale, asked)

    def slopes(self, added: Float64s) -> tuple[Float64s, Float64s]:
        """Slopes float64[S, A] of the potential, and their changes float64[S, A, A], with ``added`` float64[S, A]."""
        slopes = np.zeros_like(added)
        bends = np.zeros((*added.shape, added.shape[1]))
        for block in self.blocks:
            columns = block.places
            slopes[:, columns], bends[:, columns, columns] = block.slopes(added[:, columns])
        return slopes, bends

    def shadow_prices(self, solution: FluidSolution, states: NodeStates, shape: tuple[int, ...]) -> Float64s:
        """float64[N, R]: shadow prices of nodes."""
        by_node = np.zeros(shape)
        nodes = np.nonzero(states.of >= 0)[0]
        shadow_prices = np.where(self.asked, solution.shadow_prices / self.scale, 0.0)
        by_node[nodes[:, np.newaxis], self.resources] = shadow_prices[states.of[nodes]]
        return by_node
