"""Progressive filling by sorted levels gives what filling step by step gives, with work that grows with the queues."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.filling import filled_step_by_step
from support.profiles import examples
from support.work import lines_run

from flowcore.costs.shares.filling import EPSILON, FilledQueue, Float64s, fill

_DEMANDS = st.sampled_from((0.0, 0.0, 5.0, 7.3, 20.0, 50.0, 100.0))
_GUARANTEES = st.sampled_from((np.nan, np.nan, np.nan, 0.0, 5.0, 20.0))
_LIMITS = st.sampled_from((np.inf, np.inf, np.inf, 0.0, 10.0, 30.0, 90.0))
_CAPACITIES = st.sampled_from((0.0, 50.0, 100.0, 400.0))


def _tree(drawn: list[tuple[int, int, list[float], list[float], list[float]]], capacity: Float64s) -> list[FilledQueue]:
    """Nodes under some earlier one; those with children ask for nothing themselves."""
    parents = [min(parent, at - 1) for at, (parent, *_) in enumerate(drawn)]
    nodes = []
    for at, (_, weight, demand, guarantee, limit) in enumerate(drawn):
        asked = np.where(capacity > 0, demand, 0.0) if at not in parents else np.zeros(len(capacity))
        nodes.append(FilledQueue(parents[at], weight, asked, np.array(guarantee), np.array(limit)))
    return _with_children(nodes)


def _with_children(nodes: list[FilledQueue]) -> list[FilledQueue]:
    for at, node in enumerate(nodes):
        if node.parent >= 0:
            nodes[node.parent].children.append(at)
    return nodes


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-4, 5), st.sampled_from((1, 1, 2, 3, 10)), st.lists(_DEMANDS, min_size=3, max_size=3),
            st.lists(_GUARANTEES, min_size=3, max_size=3), st.lists(_LIMITS, min_size=3, max_size=3),
        ),
        min_size=1, max_size=9,
    ),
    st.lists(_CAPACITIES, min_size=3, max_size=3),
)  # fmt: skip
@example([(-1, 1, [5.0, 0.0, 0.0], [np.nan] * 3, [np.inf] * 3)] * 2, [0.0, 0.0, 0.0])
def test_the_shares_are_those_of_filling_step_by_step(
    drawn: list[tuple[int, int, list[float], list[float], list[float]]], room: list[float]
) -> None:
    """In trees with weights, guarantees and limits of several resources."""
    capacity = np.array(room)
    nodes = _tree(drawn, capacity)
    for due, expected in zip(fill(nodes, capacity), filled_step_by_step(nodes, capacity), strict=True):
        assert due == pytest.approx(expected, abs=10 * EPSILON * max(float(capacity.max()), 1.0))


def test_a_limit_stops_those_that_ask_for_the_resource_and_no_others() -> None:
    """Of a parent that may have two GPUs one child waits for these; its sister goes on with cpu alone."""
    none, free = np.full(2, np.nan), np.full(2, np.inf)
    parent = FilledQueue(-1, 1, np.zeros(2), none, np.array([np.inf, 2.0]))
    gpus, cpus = (FilledQueue(0, 1, np.array(asked), none, free) for asked in ([10.0, 10.0], [90.0, 0.0]))
    due = fill(_with_children([parent, gpus, cpus]), np.array([100.0, 20.0]))
    assert [amounts.tolist() for amounts in due] == [
        pytest.approx([92.0, 2.0]), pytest.approx([2.0, 2.0]), pytest.approx([90.0, 0.0])
    ]  # fmt: skip


@pytest.mark.parametrize("bounds", ["none", "guarantees", "limits above"])
def test_the_work_grows_with_the_queues(bounds: str) -> None:
    """Four times as many queues, each with another demand: about four times the work, and not sixteen times."""

    def lines(count: int) -> int:
        nodes = [
            FilledQueue(-1, 1 + at % 3, np.array([1.0 + at, 2.0 * count - at]), np.full(2, np.nan), np.full(2, np.inf))
            for at in range(count)
        ]
        if bounds == "guarantees":
            for at, node in enumerate(nodes):
                nodes[at] = replace(node, guarantee=np.array([0.3 * at, np.nan]))
        if bounds == "limits above":
            tops = [
                FilledQueue(-1, 1, np.zeros(2), np.full(2, np.nan), np.array([count * 3.0 + at, np.inf]))
                for at in range(count // 10)
            ]
            nodes = [*tops, *(replace(node, parent=at % len(tops)) for at, node in enumerate(nodes))]
        capacity = 0.6 * np.sum([node.demand for node in nodes], axis=0)
        tree = _with_children(nodes)
        return lines_run(lambda: fill(tree, capacity))

    assert lines(120) < 6 * lines(30)
