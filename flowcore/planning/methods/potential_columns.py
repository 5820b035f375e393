"""The potentials of nodes in a relaxation: what is added to a state fills its emptiest nodes first.

So one state may hold nodes of a shape however full they are: its slope is that at the level to which they fill up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.costs.potential import NodePotential
from flowcore.planning.methods.node_states import NodeStates
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.placements.plans import Plan

#: Potentials may have kinks. Slopes are interpolated between points that are so far apart, as a share of a node.
_GRID = 0.1
#: How many points of a state's levels are known.
_POINTS = 16
#: A node that gets less than this of a mean pod is expected to stay as it is.
_EXPECTED = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Levels:
    """How full the nodes of each state get in one resource, as a share of their capacity.

    Attributes:
        shares: float64[S, P], rising; added: float64[S, P], how much each node gets on average until then.
        capacity: float64[S], of a mean node.
    """

    shares: Float64s
    added: Float64s
    capacity: Float64s

    @classmethod
    def of(cls, taken: Float64s, capacity: Float64s, states: NodeStates) -> _Levels:
        """Args: float64[N] each."""
        nodes = np.nonzero(states.of >= 0)[0]
        state, size = states.of[nodes], np.maximum(capacity[nodes], 1.0)
        share = taken[nodes] / size
        order = np.lexsort((share, state))
        share, size = share[order], size[order]
        ends = np.cumsum(states.sizes).astype(np.int64)
        starts = ends - states.sizes.astype(np.int64)
        before, filled = np.cumsum(size) - size, np.cumsum(size * share) - size * share
        first, counts = starts[:, np.newaxis], states.sizes[:, np.newaxis]
        points = first + np.rint(np.linspace(0, 1, _POINTS) * (counts - 1)).astype(np.int64)
        added = (share[points] * (before[points] - before[first]) - (filled[points] - filled[first])) / counts
        return cls(share[points], np.maximum.accumulate(added, axis=1), np.add.reduceat(size, starts) / states.sizes)

    def at(self, added: Float64s) -> tuple[Float64s, Float64s]:
        """float64[S] levels and how fast they rise, for float64[S], what each node gets on average."""
        rows = np.arange(len(added))
        place = np.maximum((self.added <= added[:, np.newaxis]).sum(axis=1) - 1, 0)
        after = np.minimum(place + 1, _POINTS - 1)
        width = self.added[rows, after] - self.added[rows, place]
        rise = np.where(
            width > 0,
            (self.shares[rows, after] - self.shares[rows, place]) / np.where(width > 0, width, 1.0),
            1.0 / self.capacity,
        )
        # No level rises more slowly than with all nodes below it.
        rise = np.maximum(rise, 1.0 / self.capacity)
        return self.shares[rows, place] + rise * (added - self.added[rows, place]), rise


@dataclass(frozen=True, slots=True, eq=False)
class PotentialColumns:
    """The columns of one potential in the program.

    Attributes:
        alike: places of its kinds; counted: float64[C, A], what a pod of each kind adds, in shares of ``scale``.
        columns: what they are in a Load: cpu, memory, bandwidth, pods.
        first: place of the first among all columns of the program.
        scale: float64[A], capacity of the largest node.
        load: of a mean node of each state.
    """

    potential: NodePotential
    alike: list[int]
    counted: Float64s
    columns: list[int]
    first: int
    scale: Float64s
    load: Load
    levels: list[_Levels]

    @classmethod
    def of(cls, capacity: Plan, kinds: Sequence[PodKind], states: NodeStates) -> list[PotentialColumns]:
        """One for each potential of the kinds."""
        blocks: list[PotentialColumns] = []
        for potential in dict.fromkeys(kind.potential for kind in kinds if kind.potential is not None):
            alike = [index for index, kind in enumerate(kinds) if kind.potential == potential]
            load = capacity.load(potential.utilisation)
            sizes = np.zeros((len(kinds), 4))
            sizes[alike] = [kinds[index].counted for index in alike]
            full = Load(load.table, load.capacity, load.capacity + 1.0, load.pods_allowed, load.pods_allowed + 1.0)
            columns = np.nonzero(potential.steepest(full).any(axis=0) & sizes.any(axis=0))[0].tolist()
            scale = np.array([max(float(_capacity(load, column).max()), 1.0) for column in columns])
            levels = [_Levels.of(_taken(load, column), _capacity(load, column), states) for column in columns]
            first = sum(len(block.columns) for block in blocks)
            mean = _mean(load, states)
            blocks.append(cls(potential, alike, sizes[:, columns] / scale, columns, first, scale, mean, levels))
        return blocks

    @property
    def places(self) -> slice:
        """Positions of its columns in the program."""
        return slice(self.first, self.first + len(self.columns))

    def slopes(self, added: Float64s) -> tuple[Float64s, Float64s]:
        """Slopes float64[S, A] and how they change float64[S, A, A], for float64[S, A] added to each node."""
        if not self.columns:
            return np.zeros_like(added), np.zeros((*added.shape, 0))
        filled, rises = np.empty_like(added), np.empty_like(added)
        for place, levels in enumerate(self.levels):
            level, rise = levels.at(added[:, place] * self.scale[place])
            filled[:, place], rises[:, place] = level * levels.capacity, rise * levels.capacity
        width = self._width(self.load)
        corners = _corners(filled, width)
        gradients = [self.potential.gradient(self._at(self.load, point))[:, self.columns] for point, _ in corners]
        weights = [weight for _, weight in corners]
        slopes = sum(weight[:, np.newaxis] * each for each, weight in zip(gradients, weights, strict=True)) * self.scale
        turn = self.scale * np.sqrt(rises)
        bends = _bends(gradients, weights, width) * turn[:, :, np.newaxis] * turn[:, np.newaxis, :]
        return slopes, bends

    def expected(self, added: Float64s, placed: Float64s, states: NodeStates, capacity: Plan) -> Mixture | None:
        """How full nodes are that get pods; None: no pods fill them.

        Args:
            added: float64[S, A], to each node of a state.
            placed: float64[C, S], pods.
        """
        if not self.columns:
            return None
        start = capacity.load(self.potential.utilisation)
        pods = placed[self.alike].sum(axis=0) / states.sizes
        known = np.nonzero(states.of >= 0)[0]
        state, own = states.of[known], start.at(known)
        filled = np.empty((len(known), len(self.columns)))
        share = np.zeros(len(known))
        for place, (column, levels) in enumerate(zip(self.columns, self.levels, strict=True)):
            more = added[:, place] * self.scale[place]
            level, _ = levels.at(more)
            before = _taken(own, column)
            filled[:, place] = np.maximum(level[state] * np.maximum(_capacity(own, column), 1.0), before)
            mean = np.maximum(more / np.maximum(pods, 1e-9), 1e-9)[state]
            share = np.maximum(share, (filled[:, place] - before) / mean)
        touched = np.nonzero(share >= _EXPECTED)[0]
        nodes, load = known[touched], own.at(touched)
        corners = _corners(filled[touched], self._width(load))
        return Mixture(
            nodes, tuple(self._at(load, point) for point, _ in corners), tuple(weight for _, weight in corners)
        )

    def _at(self, load: Load, filled: Float64s) -> Load:
        """The load with its columns at these values, float64[M, A]."""
        taken, pods = load.taken.copy(), load.pods
        for place, column in enumerate(self.columns):
            if column < taken.shape[1]:
                taken[:, column] = filled[:, place]
            else:
                pods = filled[:, place]
        return Load(load.table, load.capacity, taken, load.pods_allowed, pods)

    def _width(self, load: Load) -> Float64s:
        """float64[M, A]: of the grid on these nodes."""
        return np.column_stack([_GRID * np.maximum(_capacity(load, column), 1.0) for column in self.columns])


def _corners(filled: Float64s, width: Float64s) -> list[tuple[Float64s, Float64s]]:
    """The points of a grid around others, float64[M, A] each, with their weights, float64[M]; M points of A columns."""
    place = filled / width
    lower = np.floor(place)
    fraction = place - lower
    corners = []
    for corner in range(2 ** filled.shape[1]):
        upper = (corner >> np.arange(filled.shape[1])) & 1
        corners.append(((lower + upper) * width, np.where(upper, fraction, 1 - fraction).prod(axis=1)))
    return corners


def _bends(gradients: Sequence[Float64s], weights: Sequence[Float64s], width: Float64s) -> Float64s:
    """float64[M, A, A]: how slopes change that are interpolated between corners, made symmetric and convex."""
    columns = width.shape[1]
    bends = np.zeros((len(width), columns, columns))
    for column in range(columns):
        for corner, gradient in enumerate(gradients):
            opposite = corner ^ (1 << column)
            sign = 1.0 if corner >> column & 1 else -1.0
            bends[:, :, column] += (sign * (weights[corner] + weights[opposite]))[:, np.newaxis] * gradient
        bends[:, :, column] /= width[:, column, np.newaxis]
    bends = (bends + np.swapaxes(bends, 1, 2)) / 2
    diagonal_places = np.arange(columns)
    diagonal = np.maximum(bends[:, diagonal_places, diagonal_places], 0.0)
    largest = np.sqrt(diagonal[:, :, np.newaxis] * diagonal[:, np.newaxis, :])
    bends = np.clip(bends, -largest, largest)
    bends[:, diagonal_places, diagonal_places] = diagonal
    return bends


def _mean(load: Load, states: NodeStates) -> Load:
    """The load of a mean node of each state."""
    pods = states.mean(np.column_stack([load.pods_allowed, load.pods]))
    return Load(load.table, states.mean(load.capacity), states.mean(load.taken), pods[:, 0], pods[:, 1])


def _taken(load: Load, column: int) -> Float64s:
    return load.taken[:, column] if column < load.taken.shape[1] else load.pods


def _capacity(load: Load, column: int) -> Float64s:
    return load.capacity[:, column] if column < load.capacity.shape[1] else load.pods_allowed
