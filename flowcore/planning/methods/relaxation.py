"""The round in fractions: pods may be split, nodes in one state are one pool, and so are classes beyond some hundreds.

The convex program of ``solvers.interior_point`` over kinds of pods and states of nodes, with the nodes' potentials. Its
prices of resources and its loads give lower bounds (``problem.bounds``) and say what each pod is worth on each node.
Where pods pay for nothing but room there are no potentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.costs.potential import NodePotential
from flowcore.planning.methods.assignment_program import AtomicBundles, price_runs
from flowcore.planning.methods.node_states import NodeStates
from flowcore.planning.methods.own_prices import own_prices
from flowcore.planning.methods.pod_kinds import PodKind, merged
from flowcore.planning.methods.potential_columns import PotentialColumns
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.solvers.interior_point import FluidProgram, FluidSolution, solve_fluid

#: Runs that the prices of a kind are merged into; the bound uses each pod's own price.
_STEPS = 4
#: Pairs of kind and state at most, and kinds: more take longer than they help. Beyond that kinds are merged.
_MOST_PAIRS, _MOST_KINDS = 45_000, 200

#: How many pods of a kind a state takes counts where that is less than this part of what its room is enough for.
_NARROW = 0.9
#: Kinds and states of the rough solution by which nodes are told apart where room is short. Room for so many times what
#: is asked of a node is as good as more.
_ROUGH_KINDS, _ROUGH_STATES, _ENOUGH = 40, 150, 4.0
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
    most_kinds: int = _MOST_KINDS,
    most_pairs: int = _MOST_PAIRS,
) -> RelaxedSolution | None:
    """Solves the program; None where no pod is left to place or the solver failed.

    Args:
        prices: of the pods of each demand that are in no bundle; None: of all.
        bundles: pods that are placed or left pending together.
        most_kinds: with more demands, equal ones count as one.
        most_pairs: with more pairs of kind and state, nodes that are alike are one state.
    """
    demands, capacity = cost_matrix.demands, cost_matrix.capacity
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
    raised = _raised(cost_matrix)
    single = [
        PodKind.of_demand(cost_matrix, index, float(pods[index]), raised.get(index, 0)) for index in chosen.tolist()
    ]
    kinds = merged(single, most_kinds)
    most = most_pairs // len(kinds)
    used = dict.fromkeys(demands[kind.members[0]].potential.utilisation for kind in kinds)
    alike = [*capacity.free.T, *(column for each in used for column in capacity.load(each).taken.T)]
    states = NodeStates.at_most(kinds, capacity.before.allocatable, alike, most)
    wanted, spare = np.sum([kind.requests * kind.pods for kind in kinds], axis=0), cost_matrix.spare
    solved: _Solved | None = None
    if not states.is_exact and len(states.sizes) < most and (wanted > spare.sum(axis=0, dtype=np.float64)).any():
        # What room of single nodes is worth by a rough solution says which nodes are alike.
        by_room = NodeStates.by_room(kinds, spare, _for_what_is_asked(kinds, spare), min(most, _ROUGH_STATES))
        program = RoundInFractions.of(merged(single, _ROUGH_KINDS), by_room, spare, capacity)
        rough = program.solve(leaving, bundles)
        if rough is not None:
            finer = states.divided(rough.worth_of_room(spare), min(most, len(states.sizes) + _TOLD_APART))
            solved = RoundInFractions.of(kinds, finer, spare, capacity).solve(leaving, bundles)
    if solved is None:
        solved = RoundInFractions.of(kinds, states, spare, capacity).solve(leaving, bundles)
    return None if solved is None else solved.as_relaxed(capacity)


def _raised(cost_matrix: CostMatrix) -> dict[int, Int64s]:
    """By how much dearer nodes are for demands whose pods pay a price that rises, int64[N]: the last pod pays it."""
    raised: dict[int, Int64s] = {}
    for row in cost_matrix.shared_limits:
        last = row.price_of(sum(cost_matrix.demands[place].count for place in row.demands)) if row.rises else ()
        if last:
            raised |= dict.fromkeys(row.demands, row.raised(last[-1], 1))
    return raised


@dataclass(frozen=True, slots=True, eq=False)
class RoundInFractions:
    """The program: amounts of kinds and states, in shares of the largest node."""

    kinds: Sequence[PodKind]
    states: NodeStates
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
    def of(
        cls, kinds: Sequence[PodKind], states: NodeStates, spare: Int64s, capacity: Plan | None = None
    ) -> RoundInFractions:
        """The program for some kinds and states.

        Args:
            spare: int64[N, R], what pods can take of nodes, whatever the plan.
            capacity: whose nodes have potentials; None: they have none.
        """
        pods = np.array([kind.pods for kind in kinds])
        most = states.total(np.array([np.minimum(kind.most, kind.pods) for kind in kinds]).T).T
        usable = most > 0
        arcs = states.mean(np.array([kind.arc for kind in kinds]).T).T
        requests = np.array([kind.requests for kind in kinds], dtype=np.float64)
        resources = np.nonzero(requests.any(axis=0))[0].tolist()
        free = spare[:, resources]
        scale = np.maximum(free.max(axis=0, initial=1), 1).astype(np.float64)
        requests = requests[:, resources] / scale
        asked = (usable.T.astype(np.float64) @ requests) > 0
        blocks = [] if capacity is None else PotentialColumns.of(capacity, kinds, states)
        counted = np.concatenate([np.zeros((len(kinds), 0)), *(block.counted for block in blocks)], axis=1)
        room = np.where(asked, states.total(free) / scale, pods @ requests + 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [room[:, each] / requests[:, each, np.newaxis] for each in range(len(resources))]
        by_room = np.fmin.reduce(parts)  # 0/0 says nothing
        most = np.where(most < _NARROW * by_room, most, np.inf)
        return cls(kinds, states, blocks, arcs, usable, most, counted, requests, room, resources, scale, asked)

    def solve(self, leaving: Sequence[Int64s], bundles: AtomicBundles | None = None) -> _Solved | None:
        """Solves it; None where the solver failed.

        Args:
            leaving: of each class the prices of its pods that are in no bundle.
            bundles: pods of classes that leave together.
        """
        runs = [
            (number, run)
            for number, kind in enumerate(self.kinds)
            for run in price_runs(_falling(leaving, kind), _STEPS)
        ]
        of_runs = np.zeros((len(runs), len(self.kinds)))
        of_runs[np.arange(len(runs)), [number for number, _ in runs]] = 1.0
        prices, most = [run.mean() for _, run in runs], [float(len(run)) for _, run in runs]
        if bundles is not None:
            bundled = np.column_stack([bundles.counts[:, kind.members].sum(axis=1) for kind in self.kinds])
            of_runs = np.concatenate([of_runs, bundled])
            prices, most = [*prices, *bundles.prices], [*most, *np.ones(len(bundles.prices))]
        solution = solve_fluid(
            FluidProgram(
                arcs=self.arcs,
                usable=self.usable,
                most=self.most,
                counted=self.counted,
                requests=self.requests,
                room=self.room,
                nodes=self.states.sizes,
                pods=np.array([kind.pods for kind in self.kinds]),
                leaving_prices=np.array(prices),
                leaving_most=np.array(most),
                leaving_pods=of_runs,
                slopes=self.slopes,
            )
        )
        return None if solution is None else _Solved(self, solution)

    def slopes(self, added: Float64s) -> tuple[Float64s, Float64s]:
        """Slopes float64[S, A] of the potential, and their changes float64[S, A, A], with ``added`` float64[S, A]."""
        slopes = np.zeros_like(added)
        bends = np.zeros((*added.shape, added.shape[1]))
        for block in self.blocks:
            columns = block.places
            slopes[:, columns], bends[:, columns, columns] = block.slopes(added[:, columns])
        return slopes, bends


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """The optimum of a program, or nearly."""

    program: RoundInFractions
    solution: FluidSolution

    @property
    def prices(self) -> Float64s:
        """float64[S, R]: shadow prices of resources in each state."""
        program = self.program
        prices = np.zeros((len(program.states.sizes), len(program.kinds[0].requests)))
        prices[:, program.resources] = np.where(program.asked, self.solution.shadow_prices / program.scale, 0.0)
        return prices

    @property
    def placed(self) -> Float64s:
        """float64[M, S]: pods of each kind in each state."""
        placed: Float64s = np.where(self.program.usable, self.solution.placed, 0.0)
        return placed

    @property
    def shadow_prices(self) -> Float64s:
        """float64[N, R]: of nodes."""
        prices, of = self.prices, self.program.states.of
        by_node: Float64s = np.where(of[:, np.newaxis] >= 0, prices[of], 0.0)
        return by_node

    def as_relaxed(self, capacity: Plan) -> RelaxedSolution:
        """The same by node and by demand."""
        program, solution = self.program, self.solution
        return RelaxedSolution(
            shadow_prices=self.shadow_prices,
            members=tuple(kind.members for kind in program.kinds),
            placed=self.placed.sum(axis=1),
            loads={
                block.potential: block.expected(
                    solution.added[:, block.places], solution.placed, program.states, capacity
                )
                for block in program.blocks
            },
        )

    def worth_of_room(self, spare: Int64s) -> Float64s:
        """float64[N, R]: what each resource of a node is worth that a mean pod takes, told apart by node."""
        kinds = self.program.kinds
        requests = np.array([kind.requests for kind in kinds])
        of_states = self.shadow_prices
        nodes = np.nonzero(of_states.any(axis=1))[0]
        first_costs = [kind.first_cost[nodes] for kind in kinds]
        worth = [price - cost for price, cost in zip(self.solution.prices.tolist(), first_costs, strict=True)]
        prices = np.zeros_like(of_states)
        prices[nodes] = own_prices(
            of_states[nodes],
            requests,
            np.array(worth, dtype=np.float32),
            np.array([kind.most[nodes] for kind in kinds], dtype=np.float32),
            spare[nodes],
        )
        pods = np.array([kind.pods for kind in kinds])
        of_mean_pod: Float64s = prices * (pods @ requests / pods.sum())
        return of_mean_pod


def _for_what_is_asked(kinds: Sequence[PodKind], spare: Int64s) -> Float64s:
    """float64[N, R]: how often there is room for what is asked of a node.

    Each kind asks for as much of each node that it may use.
    """
    usable = np.array([kind.counts > 0 for kind in kinds], dtype=np.float64)
    wanted = np.array([kind.requests * kind.pods for kind in kinds])
    asked = usable.T @ (wanted / usable.sum(axis=1)[:, np.newaxis])
    often: Float64s = np.where(asked > 0, np.minimum(spare / np.where(asked > 0, asked, 1.0), _ENOUGH), _ENOUGH)
    return often


def _falling(prices: Sequence[Int64s], kind: PodKind) -> Int64s:
    """int64[pods]: prices of all pods of a kind, the dearest to leave first."""
    if len(kind.members) == 1:
        return prices[kind.members[0]]
    ordered: Int64s = np.sort(np.concatenate([prices[member] for member in kind.members]))[::-1]
    return ordered


def min_shadow_costs(cost_matrix: CostMatrix, shadow_prices: Float64s) -> list[float]:
    """What a pod of each demand pays in shadow prices on the node where it pays least."""
    return [
        float(np.where(demand.counts > 0, shadow_prices @ demand.requests, np.inf).min(initial=np.inf))
        for demand in cost_matrix.demands
    ]
