"""The interior-point method comes close to the optimum of the simplex method, and its prices prove that."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.planning.solvers import LinearProgram, solve_lp
from flowcore.planning.solvers.interior_point import Float64s, FluidProgram, solve_fluid


def _flat(added: Float64s) -> tuple[Float64s, Float64s]:
    return np.zeros_like(added), np.zeros((*added.shape, added.shape[1]))


def _drawn(seed: int, classes: int, states: int, scarce: float) -> FluidProgram:
    random = np.random.default_rng(seed)
    usable = random.random((classes, states)) < 0.7
    usable[np.arange(classes), random.integers(states, size=classes)] = True
    requests = random.choice([0.02, 0.1, 0.3], (classes, 2))
    pods = random.integers(1, 40, classes).astype(np.float64)
    room = np.outer(random.random(states) + 0.2, pods @ requests) * scarce / states
    return FluidProgram(
        arcs=random.integers(1000, 1400, (classes, states)).astype(np.float64),
        usable=usable,
        most=random.choice([1.0, 4.0, 30.0, np.inf], (classes, states)),
        counted=np.ones((classes, 1)),
        requests=requests,
        room=room,
        nodes=np.ones(states),
        pods=pods,
        leaving_prices=random.integers(2000, 9000, classes).astype(np.float64),
        leaving_most=pods,
        leaving_pods=np.eye(classes),
        slopes=_flat,
    )


def _linear(program: FluidProgram) -> LinearProgram:
    """The same with the matrix written out: pairs, then pods that leave; classes, then resources of states."""
    classes, _ = program.arcs.shape
    which, where = np.nonzero(program.usable)
    pairs, resources = len(which), program.room.shape[1]
    pair, resource = np.nonzero(program.requests[which] > 0)
    return LinearProgram(
        costs=np.concatenate([program.arcs[which, where], program.leaving_prices]),
        variable_upper=np.concatenate([program.most[which, where], program.leaving_most]),
        row_lower=np.concatenate([program.pods, np.full(program.room.size, -np.inf)]),
        row_upper=np.concatenate([program.pods, program.room.ravel()]),
        rows=np.concatenate([which, np.arange(classes), classes + where[pair] * resources + resource]),
        columns=np.concatenate([np.arange(pairs + classes), pair]),
        coefficients=np.concatenate([np.ones(pairs + classes), program.requests[which[pair], resource]]),
    )


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 12), st.sampled_from((0.3, 0.9, 3.0)))
def test_the_optimum_in_fractions_is_that_of_the_simplex_method(
    seed: int, classes: int, states: int, scarce: float
) -> None:
    """Within a hundredth, whether room is short or not; and nothing goes where it may not."""
    program = _drawn(seed, classes, states, scarce)
    linear = _linear(program)
    exact, found = solve_lp(linear), solve_fluid(program)
    assert exact is not None
    assert found is not None
    best = float(linear.costs @ exact.values)
    cost = float((found.placed * program.arcs).sum() + found.left @ program.leaving_prices)
    assert abs(cost - best) <= 0.01 * best
    assert not found.placed[~program.usable].any()
    assert (found.placed <= program.most).all()
    # What the prices prove: pods of a class take its cheapest places, as many as there are, or leave.
    paid = np.where(program.usable, program.arcs + program.requests @ np.maximum(found.shadow_prices, 0).T, np.inf)
    proved = 0.0
    for costs, most, pods, leaving in zip(paid, program.most, program.pods, program.leaving_prices, strict=True):
        order = np.argsort(costs)
        taken = np.diff(np.minimum(np.cumsum(most[order]), pods), prepend=0.0)
        proved += float((taken * np.minimum(costs[order], leaving)).sum() + (pods - taken.sum()) * leaving)
    proved -= float((np.maximum(found.shadow_prices, 0) * program.room).sum())
    assert 0.98 * best <= proved <= best * (1 + 1e-9)
