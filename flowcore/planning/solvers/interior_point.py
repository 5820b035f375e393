"""A convex program of classes of pods and states of nodes in fractions, by an interior-point method.

Minimise ``sum(arcs * x) + sum(nodes * potential(load)) + leaving_prices @ w`` so that each class's pods are placed or
leave, and no state gives more than its room or takes more pods of a class than fit. A predictor-corrector method
(Mehrotra, On the implementation of a primal-dual interior point method, SIAM Journal on Optimization 2, 1992). States
meet each other in the classes only, so each step is one small system for each state and one for all classes: its work
grows with classes times states.

Answers are approximate, and what is proved from them is proved elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: The method stops when what is left to gain is this part of the cost, or after this number of steps.
_CLOSE = 1e-3
_MOST_STEPS = 40
#: How far a step goes towards the border.
_TOWARDS = 0.95
#: Nothing is smaller than this.
_TINY = 1e-300
#: Largest multiplication of matrices, in products, in one thread: threads of a library that wait for each other
#: take more time of all cores than they save.
_ONE_THREAD, _ROWS = 200_000, 40


@dataclass(frozen=True, eq=False)
class FluidProgram:
    """Columns are scaled by the caller: amounts of one resource should be about one for a node.

    Attributes:
        arcs: float64[C, S], what a pod of each class pays on each state beside the potential.
        usable: bool[C, S]; each class has a state.
        most: float64[C, S], how many pods of each class a state takes if no others come; positive where usable.
        counted: float64[C, A], what a pod adds to the load of a state.
        requests: float64[C, R]; room: float64[S, R], of all nodes of a state together.
        nodes: float64[S], how many nodes are in each state.
        pods: float64[C], positive.
        leaving_prices, leaving_most: float64[J], cost of one unit of each way to leave, and how many units there are.
        leaving_pods: float64[J, C], pods of each class that leave with a unit.
        slopes: for float64[S, A], what is added to each node of a state, float64[S, A] slopes of its potential and
            float64[S, A, A] how they change.
    """

    arcs: Float64s
    usable: Bools
    most: Float64s
    counted: Float64s
    requests: Float64s
    room: Float64s
    nodes: Float64s
    pods: Float64s
    leaving_prices: Float64s
    leaving_most: Float64s
    leaving_pods: Float64s
    slopes: Callable[[Float64s], tuple[Float64s, Float64s]]

    @cached_property
    def limited(self) -> Bools:
        """bool[C, S]: where a state does not take all pods of a class."""
        limited: Bools = self.usable & (self.most < self.pods[:, np.newaxis])
        return limited

    @cached_property
    def together(self) -> Bools:
        """bool[J]: ways by which pods of several classes leave."""
        together: Bools = np.count_nonzero(self.leaving_pods, axis=1) > 1
        return together

    def below_most(self, placed: Float64s) -> Float64s:
        """float64[C, S]: how many more pods a state takes, where that is limited; 1 elsewhere."""
        return np.where(self.limited, self.most - placed, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class FluidSolution:
    """Where the method stopped.

    Attributes:
        placed: float64[C, S], pods.
        left: float64[J], units that leave.
        prices: float64[C], what one pod more of each class would cost.
        shadow_prices: float64[S, R], price of a unit of each resource.
        added: float64[S, A], load that each node of a state gets.
        steps: taken.
    """

    placed: Float64s
    left: Float64s
    prices: Float64s
    shadow_prices: Float64s
    added: Float64s
    steps: int


@dataclass(slots=True, eq=False)
class _Point:
    """Pods, units that leave, unused room; prices of classes; and of each bound its multiplier."""

    placed: Float64s
    left: Float64s
    spare: Float64s
    prices: Float64s
    placed_dual: Float64s
    most_dual: Float64s
    left_dual: Float64s
    stay_dual: Float64s
    shadow_prices: Float64s

    def moved(self, by: _Point, amounts: float, multipliers: float) -> _Point:
        """So far along a direction, amounts and prices each as far as they may."""
        steps = 3 * (amounts,) + 6 * (multipliers,)
        return _Point(
            *(getattr(self, name) + step * getattr(by, name) for name, step in zip(self.__slots__, steps, strict=True))
        )


def solve_fluid(program: FluidProgram) -> FluidSolution | None:
    """An approximate optimum with its prices; None where numbers went out of range."""
    with np.errstate(all="ignore"):
        point, steps = _start(program), 0
        while steps < _MOST_STEPS:
            steps += 1
            try:
                moved, cost = _step(program, point)
            except np.linalg.LinAlgError:
                return None
            if not all(np.isfinite(getattr(moved, name)).all() for name in _Point.__slots__):
                return None
            point = moved
            if _products(program, point) < _CLOSE * max(cost, 1.0):
                break
    added = (point.placed.T @ program.counted) / program.nodes[:, np.newaxis]
    return FluidSolution(point.placed, point.left, point.prices, point.shadow_prices, added, steps)


def _start(program: FluidProgram) -> _Point:
    """Half of all pods, evenly over their nodes, or as many as there is room for; and prices above all that is paid."""
    share = program.usable * program.nodes
    placed = share * (program.pods / 2 / share.sum(axis=1))[:, np.newaxis]
    used = placed.T @ program.requests
    placed /= max(1.0, 2 * float((used.sum(axis=0) / np.maximum(program.room.sum(axis=0), _TINY)).max(initial=0.0)))
    placed = np.where(program.limited, np.minimum(placed, program.most / 2), placed)
    stays = np.clip(1 - placed.sum(axis=1) / program.pods, 0.1, 0.9)
    leaving_share = program.leaving_pods @ stays / np.maximum(program.leaving_pods.sum(axis=1), _TINY)
    spare = np.maximum(program.room - placed.T @ program.requests, 0.3 * program.room)
    price = 1.5 * max(float(program.leaving_prices.max()), float(program.arcs.max()), 1.0)
    mean = float(placed[program.usable].mean())
    return _Point(
        placed=placed,
        left=program.leaving_most * leaving_share,
        spare=spare,
        prices=np.full(len(program.pods), price / 1.5),
        placed_dual=np.where(program.usable, price, 1.0),
        most_dual=np.where(program.limited, price, 0.0),
        left_dual=np.full(len(leaving_share), price),
        stay_dual=np.full(len(leaving_share), price),
        shadow_prices=price * mean / spare,
    )


def _products(program: FluidProgram, point: _Point) -> float:
    """Sum of all bounds' distances times their multipliers: what is left to gain."""
    stay = program.leaving_most - point.left
    pods = float((point.placed * point.placed_dual).sum())  # nothing is placed where a class may not go
    pods += float((program.below_most(point.placed) * point.most_dual).sum())
    return pods + float(
        (point.shadow_prices * point.spare).sum() + point.left_dual @ point.left + point.stay_dual @ stay
    )


def _step(program: FluidProgram, point: _Point) -> tuple[_Point, float]:
    """The next point, and the cost of this one."""
    system = _System(program, point)
    stay = program.leaving_most - point.left
    products = (
        point.placed * point.placed_dual,
        program.below_most(point.placed) * point.most_dual,
        point.shadow_prices * point.spare,
        point.left_dual * point.left,
        point.stay_dual * stay,
    )
    ahead = system.direction(*(-each for each in products))
    now = _products(program, point)
    after = max(_products(program, point.moved(ahead, *_longest(program, point, ahead))), 0.0)
    count = int(program.usable.sum()) + int(program.limited.sum()) + point.shadow_prices.size + 2 * len(point.left)
    target = (after / max(now, _TINY)) ** 3 * now / count
    direction = system.direction(
        np.where(program.usable, target - products[0] - ahead.placed * ahead.placed_dual, 0.0),
        np.where(program.limited, target - products[1] + ahead.placed * ahead.most_dual, 0.0),
        target - products[2] - ahead.shadow_prices * ahead.spare,
        target - products[3] - ahead.left_dual * ahead.left,
        target - products[4] + ahead.stay_dual * ahead.left,
    )
    amounts, multipliers = _longest(program, point, direction)
    return point.moved(direction, _TOWARDS * amounts, _TOWARDS * multipliers), system.cost


def _longest(program: FluidProgram, point: _Point, by: _Point) -> tuple[float, float]:
    """How far a direction leads amounts and multipliers before they leave their bounds, at most 1 each."""
    stay = program.leaving_most - point.left
    below, rise = program.below_most(point.placed), np.where(program.limited, by.placed, 0.0)
    amounts = (
        (point.placed, by.placed), (point.spare, by.spare), (point.left, by.left), (stay, -by.left), (below, -rise),
    )  # fmt: skip
    multipliers = (
        (point.placed_dual, by.placed_dual), (point.shadow_prices, by.shadow_prices), (point.left_dual, by.left_dual),
        (point.stay_dual, by.stay_dual), (point.most_dual, by.most_dual),
    )  # fmt: skip

    def longest(pairs: Iterable[tuple[Float64s, Float64s]]) -> float:
        steepest = (float((-change / np.maximum(value, _TINY)).max(initial=0.0)) for value, change in pairs)
        return 1.0 / max(1.0, *steepest)

    return longest(amounts), longest(multipliers)


class _System:
    """Newton's equations at a point: everything eliminated down to one system for all classes."""

    def __init__(self, program: FluidProgram, point: _Point) -> None:
        self._program, self._at = program, point
        classes, states = program.arcs.shape
        counted, requests = program.counted, program.requests
        amounts = np.concatenate([counted, requests], axis=1)
        columns, first = amounts.shape[1], counted.shape[1]
        slopes, bends = program.slopes((point.placed.T @ counted) / program.nodes[:, np.newaxis])
        paid = program.arcs + counted @ slopes.T + requests @ point.shadow_prices.T
        self._reduced = paid - point.prices[:, np.newaxis] - point.placed_dual + point.most_dual
        leaving = program.leaving_prices - _times(program.leaving_pods, point.prices)
        self._leaving = leaving - point.left_dual + point.stay_dual
        self._pods = program.pods - point.placed.sum(axis=1) - _times(program.leaving_pods.T, point.left)
        self._room = program.room - point.placed.T @ requests - point.spare
        self.cost = float(
            (point.placed * (program.arcs + counted @ slopes.T)).sum() + point.left @ program.leaving_prices
        )
        # By how much pods follow prices, and prices the loads.
        self._stay = program.leaving_most - point.left
        self._below = program.below_most(point.placed)
        held = point.placed_dual / np.maximum(point.placed, _TINY) + point.most_dual / self._below
        self._follow = np.where(program.usable, 1.0 / held, 0.0)
        self._leave = 1.0 / (point.left_dual / point.left + point.stay_dual / self._stay)
        rise = np.zeros((states, columns, columns))
        rise[:, :first, :first] = bends / program.nodes[:, np.newaxis, np.newaxis]
        of = np.arange(first, columns)
        rise[:, of, of] = point.shadow_prices / point.spare
        pairs = (amounts[:, :, np.newaxis] * amounts[:, np.newaxis, :]).reshape(classes, columns * columns)
        loads = _product(self._follow.T, pairs).reshape(states, columns, columns)
        identity = np.eye(columns)
        self._rise, self._react = rise, np.linalg.solve(identity + rise @ loads, np.broadcast_to(identity, rise.shape))
        self._weighed = self._follow.T[:, :, np.newaxis] * amounts  # [S, C, K]
        self._answer = (self._weighed @ np.swapaxes(self._react @ rise, 1, 2)).transpose(1, 0, 2)  # [C, S, K]
        flat = np.ascontiguousarray(self._weighed.transpose(1, 0, 2)).reshape(classes, states * columns)
        schur = -_product(self._answer.reshape(classes, states * columns), flat.T, is_symmetric=True)
        together = program.leaving_pods[program.together]
        schur += _product(together.T * self._leave[program.together], together, is_symmetric=True)
        alone = _times(program.leaving_pods.T**2, np.where(program.together, 0.0, self._leave))
        schur[np.diag_indices(classes)] += self._follow.sum(axis=1) * (1 + 1e-12) + alone
        self._schur = schur
        self._amounts, self._flat, self._first = amounts, flat, first

    def direction(self, placed: Float64s, most: Float64s, spare: Float64s, left: Float64s, stay: Float64s) -> _Point:
        """Where the products of bounds and multipliers change by so much, and all else gets right."""
        program, point = self._program, self._at
        states = program.arcs.shape[1]
        pull = placed / np.maximum(point.placed, _TINY) - most / self._below - self._reduced
        push = left / point.left - stay / self._stay - self._leaving
        drawn = self._follow * pull
        shift = np.zeros((states, self._amounts.shape[1]))
        shift[:, self._first :] = (spare - point.shadow_prices * self._room) / point.spare
        shift += (self._rise @ (drawn.T @ self._amounts)[:, :, np.newaxis])[:, :, 0]
        shift = (self._react @ shift[:, :, np.newaxis])[:, :, 0]
        missing = self._pods - drawn.sum(axis=1) - _times(program.leaving_pods.T, self._leave * push)
        missing += _times(self._flat, shift.ravel())
        prices = _solve(self._schur, missing[:, np.newaxis])[:, 0]
        node_prices = shift + np.einsum("c,csk->sk", prices, self._answer)
        pods = self._follow * (pull - _product(self._amounts, node_prices.T) + prices[:, np.newaxis])
        leaves = self._leave * (push + _times(program.leaving_pods, prices))
        return _Point(
            placed=pods,
            left=leaves,
            spare=self._room - pods.T @ program.requests,
            prices=prices,
            placed_dual=np.where(
                program.usable, (placed - point.placed_dual * pods) / np.maximum(point.placed, _TINY), 0.0
            ),
            most_dual=np.where(program.limited, (most + point.most_dual * pods) / self._below, 0.0),
            left_dual=(left - point.left_dual * leaves) / point.left,
            stay_dual=(stay + point.stay_dual * leaves) / self._stay,
            shadow_prices=node_prices[:, self._first :],
        )


def _product(left: Float64s, right: Float64s, *, is_symmetric: bool = False) -> Float64s:
    """``left @ right`` in parts that stay in one thread; of a symmetric one a half is enough."""
    rows, columns = left.shape[0], right.shape[1]
    if rows * columns * right.shape[0] <= _ONE_THREAD:
        product: Float64s = left @ right
        return product
    width = max(1, _ONE_THREAD // (64 * min(columns, 64)))
    product = np.empty((rows, columns))
    for row in range(0, rows, 64):
        for column in range(row if is_symmetric else 0, columns, 64):
            block = np.zeros((min(64, rows - row), min(64, columns - column)))
            for begin in range(0, right.shape[0], width):
                block += (
                    left[row : row + 64, begin : begin + width] @ right[begin : begin + width, column : column + 64]
                )
            product[row : row + 64, column : column + 64] = block
            if is_symmetric:
                product[column : column + 64, row : row + 64] = block.T
    return product


def _solve(matrix: Float64s, right: Float64s) -> Float64s:
    """Solves a symmetric system in one thread, some rows after others; right: float64[n, M]."""
    rows = len(matrix)
    if rows <= _ROWS:
        return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    first, rest = slice(0, _ROWS), slice(_ROWS, rows)
    eliminated = np.linalg.solve(matrix[first, first], np.concatenate([matrix[first, rest], right[first]], axis=1))
    lower, above = matrix[rest, first], eliminated[:, : rows - _ROWS]
    last = _solve(matrix[rest, rest] - _product(lower, above), right[rest] - lower @ eliminated[:, rows - _ROWS :])
    solved: Float64s = np.concatenate([eliminated[:, rows - _ROWS :] - above @ last, last])
    return solved


def _times(matrix: Float64s, vector: Float64s) -> Float64s:
    """``matrix @ vector`` in one thread."""
    product: Float64s = np.einsum("ij,j->i", matrix, vector)
    return product
