"""The round in fractions: pods may be split, and nodes in one state are one pool.

The convex program of ``solve.interior_point`` over demands and states of nodes, with the nodes' potentials. Its prices
of classes, resources and loads give lower bounds (``problem.bounds``) and say what each pod is worth on each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.potential import NodePotential
from flowcore.methods.assignment_program import AtomicBundles, price_runs
from flowcore.methods.node_states import NodeStates
from flowcore.problem.cost_matrix import CostMatrix
from flowcore.problem.demands import Demand
from flowcore.problem.tangents import Mixture
from flowcore.solve.interior_point import FluidProgram, FluidSolution, solve_fluid

#: Runs that the prices of a demand are merged into; the bound uses each pod's own price.
_STEPS = 4
#: Pairs of demand and state at most, and demands: more take longer than they help.
_MOST_PAIRS, _MOST_DEMANDS = 60_000, 300
#: Potentials may have kinks. Slopes are interpolated between points that are so far apart, as a share of a node.
_GRID = 0.1
#: A node that gets fewer pods than this is expected to stay as it is.
_EXPECTED = 0.75


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedSolution:
    """The optimum in fractions, or nearly.

    Attributes:
        shadow_prices: float64[N, R], of a unit of each resource on each node.
        placed: float64[C], how many pods of each demand it places.
        bundles: float64[U], which share of each bundle it places.
        class_prices: float64[C], what one pod more of each demand would cost; infinite where no node has room.
        spread: float64[C, S], pods of each demand on each state of nodes.
        states: of the nodes.
        loads: how full nodes are for pods of each potential, as mixtures of loads.
    """

    shadow_prices: Float64s
    placed: Float64s
    bundles: Float64s
    class_prices: Float64s
    spread: Float64s
    states: NodeStates
    loads: dict[NodePotential, Mixture]


def relax(
    cost_matrix: CostMatrix, prices: Sequence[Int64s] | None = None, bundles: AtomicBundles | None = None
) -> RelaxedSolution | None:
    """Solves the program; None where it is too large or the solver failed.

    Args:
        prices: of the pods of each demand that are in no bundle; None: of all.
        bundles: pods that are placed or left pending together.
    """
    demands = cost_matrix.demands
    if bundles is None:
        bundles = AtomicBundles(np.zeros((0, len(demands))), np.zeros(0))
    leaving = [demand.prices for demand in demands] if prices is None else list(prices)
    fits = np.array([bool(demand.counts.any()) for demand in demands], dtype=np.bool_)
    placeable = ~(bundles.counts[:, ~fits] > 0).any(axis=1)
    pods = np.array([len(each) for each in leaving]) + bundles.counts[placeable].sum(axis=0)
    chosen = np.nonzero(fits & (pods > 0))[0]
    if not len(chosen) or len(chosen) > _MOST_DEMANDS:
        return None
    mine = [demands[at] for at in chosen.tolist()]
    states = NodeStates.at_most(cost_matrix, mine, _MOST_PAIRS // len(chosen))
    scaled = _Scaled.of(cost_matrix, mine, states)
    runs = [(at, run) for at, place in enumerate(chosen.tolist()) for run in price_runs(leaving[place], _STEPS)]
    of_runs = np.zeros((len(runs), len(chosen)))
    of_runs[np.arange(len(runs)), [at for at, _ in runs]] = 1.0
    solution = solve_fluid(
        FluidProgram(
            arcs=scaled.arcs,
            usable=scaled.usable,
            counted=scaled.counted,
            requests=scaled.requests,
            room=scaled.room,
            nodes=states.sizes,
            pods=pods[chosen].astype(np.float64),
            leaving_prices=np.concatenate([[run.mean() for _, run in runs], bundles.prices[placeable]]),
            leaving_most=np.concatenate([[float(len(run)) for _, run in runs], np.ones(int(placeable.sum()))]),
            leaving_pods=np.concatenate([of_runs, bundles.counts[np.ix_(placeable, chosen)]]),
            slopes=scaled.slopes,
        )
    )
    if solution is None:
        return None
    spread = np.zeros((len(demands), len(states.sizes)))
    spread[chosen] = np.where(scaled.usable, solution.placed, 0.0)
    class_prices = np.full(len(demands), np.inf)
    class_prices[chosen] = solution.class_prices
    share = np.zeros(len(bundles.prices))
    share[placeable] = 1.0 - solution.left[len(runs) :]
    return RelaxedSolution(
        shadow_prices=scaled.tolls(solution, states, cost_matrix.capacity.free.shape),
        placed=spread.sum(axis=1),
        bundles=share,
        class_prices=class_prices,
        spread=spread,
        states=states,
        loads=scaled.loads(solution, states, cost_matrix, mine),
    )


def min_shadow_costs(cost_matrix: CostMatrix, shadow_prices: Float64s) -> list[float]:
    """What a pod of each demand pays in shadow prices on the node where it pays least."""
    return [
        float((shadow_prices[demand.counts > 0] @ demand.requests).min(initial=np.inf))
        for demand in cost_matrix.demands
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The columns of one potential: what they are in a Load, their place among all columns, and their scale.

    ``load`` is that of a mean node of each state.
    """

    potential: NodePotential
    columns: list[int]
    first: int
    scale: Float64s
    load: Load

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + len(self.columns))

    def corners(self, added: Float64s, load: Load, width: Float64s) -> list[tuple[Float64s, Float64s]]:
        """Points of a grid around a load, float64[M, A] each, with their weights, float64[M].

        Args:
            added: float64[M, A], what is added to each node, in units of the cost model.
            load: of those nodes.
            width: float64[M, A], of the grid.
        """
        start = np.column_stack([_column(load, column) for column in self.columns])
        place = (start + added) / width
        lower = np.floor(place)
        part = place - lower
        found = []
        for corner in range(2 ** len(self.columns)):
            bits = (corner >> np.arange(len(self.columns))) & 1
            weight = np.where(bits, part, 1 - part).prod(axis=1)
            found.append(((lower + bits) * width - start, weight))
        return found

    def gradient(self, load: Load, added: Float64s) -> Float64s:
        """float64[M, A]: slopes along the block's columns."""
        return self.potential.gradient(self.at(load, added))[:, self.columns]

    def at(self, load: Load, added: Float64s) -> Load:
        """The load with so much more, float64[M, A]."""
        more = np.zeros((len(added), 4))
        more[:, self.columns] = added
        return replace(load, taken=load.taken + more[:, :3], pods=load.pods + more[:, 3])

    def width(self, load: Load) -> Float64s:
        """float64[M, A]: of the grid on these nodes."""
        return np.column_stack([_GRID * np.maximum(_capacity(load, column), 1.0) for column in self.columns])


@dataclass(frozen=True, slots=True, eq=False)
class _Scaled:
    """The program's amounts: of demands and states, in shares of the largest node."""

    blocks: list[_Block]
    arcs: Float64s
    usable: Bools
    counted: Float64s
    requests: Float64s
    room: Float64s
    resources: list[int]
    scale: Float64s
    asked: Bools

    @classmethod
    def of(cls, cost_matrix: CostMatrix, demands: Sequence[Demand], states: NodeStates) -> _Scaled:
        capacity = cost_matrix.capacity
        usable = states.total(np.array([demand.counts > 0 for demand in demands]).T).T > 0
        arcs = states.mean(np.array([demand.arc for demand in demands]).T).T
        requests = np.array([demand.requests for demand in demands], dtype=np.float64)
        resources = np.nonzero(requests.any(axis=0))[0].tolist()
        free = np.maximum(capacity.free[:, resources], 0)
        scale = np.maximum(free.max(axis=0, initial=1), 1).astype(np.float64)
        requests = requests[:, resources] / scale
        room = states.total(free) / scale
        asked = (usable.T.astype(np.float64) @ requests) > 0
        pods = np.array([demand.count for demand in demands], dtype=np.float64)
        blocks: list[_Block] = []
        counted = []
        for potential in dict.fromkeys(demand.potential for demand in demands):
            load = _mean_load(capacity.load(potential.utilisation), states)
            alike = np.array([demand.potential == potential for demand in demands])
            sizes = np.array([demand.counted for demand in demands], dtype=np.float64) * alike[:, np.newaxis]
            full = replace(load, taken=load.capacity, pods=load.pods_allowed)
            columns = np.nonzero(potential.gradient(full).any(axis=0) & sizes.any(axis=0))[0].tolist()
            of_columns = np.array([max(float(_capacity(load, column).max()), 1.0) for column in columns])
            blocks.append(_Block(potential, columns, sum(len(each.columns) for each in blocks), of_columns, load))
            counted.append(sizes[:, columns] / of_columns)
        return cls(
            blocks, arcs, usable, np.concatenate(counted, axis=1), requests,
            np.where(asked, room, pods @ requests + 1.0), resources, scale, asked,
        )  # fmt: skip

    def slopes(self, added: Float64s) -> tuple[Float64s, Float64s]:
        """See ``FluidProgram``: interpolated, so that they have no steps at kinks."""
        slopes = np.zeros_like(added)
        bends = np.zeros((*added.shape, added.shape[1]))
        for block in self.blocks:
            if not block.columns:
                continue
            width = block.width(block.load)
            gradients = []
            corners = block.corners(added[:, block.places] * block.scale, block.load, width)
            for point, weight in corners:
                gradient = block.gradient(block.load, point) * block.scale
                gradients.append(gradient)
                slopes[:, block.places] += weight[:, np.newaxis] * gradient
            bends[:, block.places, block.places] = _bends(gradients, [weight for _, weight in corners], width / block.scale)
        return slopes, bends

    def tolls(self, solution: FluidSolution, states: NodeStates, shape: tuple[int, ...]) -> Float64s:
        """float64[N, R]: shadow prices of nodes."""
        found = np.zeros(shape)
        nodes = np.nonzero(states.of >= 0)[0]
        tolls = np.where(self.asked, solution.tolls / self.scale, 0.0)
        found[np.ix_(nodes, self.resources)] = tolls[states.of[nodes]]
        return found

    def loads(
        self, solution: FluidSolution, states: NodeStates, cost_matrix: CostMatrix, demands: Sequence[Demand]
    ) -> dict[NodePotential, Mixture]:
        """How full nodes are that get pods: as in their state."""
        found: dict[NodePotential, Mixture] = {}
        for block in self.blocks:
            alike = [at for at, demand in enumerate(demands) if demand.potential == block.potential]
            expected = solution.placed[alike].sum(axis=0) / states.sizes >= _EXPECTED
            nodes = np.nonzero((states.of >= 0) & expected[states.of])[0]
            state, own = states.of[nodes], cost_matrix.capacity.load(block.potential.utilisation).at(nodes)
            added = solution.added[:, block.places] * block.scale
            more = np.empty((len(nodes), len(block.columns)))
            for place, column in enumerate(block.columns):
                # Nodes of a state end equally full.
                full = (_column(block.load, column) + added[:, place])[state]
                offered, mean = _capacity(own, column), np.maximum(_capacity(block.load, column)[state], 1.0)
                more[:, place] = np.where(offered > 0, full * offered / mean, full) - _column(own, column)
            corners = block.corners(more, own, block.width(own))
            found[block.potential] = Mixture(
                nodes, tuple(block.at(own, point) for point, _ in corners), tuple(weight for _, weight in corners)
            )
        return found


def _bends(gradients: Sequence[Float64s], weights: Sequence[Float64s], width: Float64s) -> Float64s:
    """float64[S, A, A]: how slopes change that are interpolated between the corners of a cell, made symmetric."""
    columns = width.shape[1]
    found = np.zeros((len(width), columns, columns))
    for column in range(columns):
        rise, whole = np.zeros_like(width), np.zeros(len(width))
        for corner, (gradient, weight) in enumerate(zip(gradients, weights, strict=True)):
            other = corner ^ (1 << column)
            both = weight + weights[other]
            rise += (both if corner >> column & 1 else -both)[:, np.newaxis] * gradient
            whole += both / 2
        found[:, :, column] = rise / (np.maximum(whole, 1e-9) * width[:, column])[:, np.newaxis]
    found = (found + np.swapaxes(found, 1, 2)) / 2
    # Convex, whatever interpolation makes of it.
    at = np.arange(columns)
    diagonal = np.maximum(found[:, at, at], 0.0)
    largest = np.sqrt(diagonal[:, :, np.newaxis] * diagonal[:, np.newaxis, :])
    found = np.clip(found, -largest, largest)
    found[:, at, at] = diagonal
    return found


def _mean_load(load: Load, states: NodeStates) -> Load:
    """Of a mean node of each state."""
    pods = states.mean(np.column_stack([load.pods_allowed, load.pods]))
    return Load(load.table, states.mean(load.capacity), states.mean(load.taken), pods[:, 0], pods[:, 1])


def _column(load: Load, column: int) -> Float64s:
    return load.taken[:, column] if column < 3 else load.pods


def _capacity(load: Load, column: int) -> Float64s:
    return load.capacity[:, column] if column < 3 else load.pods_allowed
