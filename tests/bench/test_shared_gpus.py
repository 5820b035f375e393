"""The experiment of bench/shared_gpus.py: its measures beside plain loops, and what holds of every placement."""

from collections.abc import Sequence

import numpy as np
import pytest
from harness.shared_gpus.fragments import Fragments
from harness.shared_gpus.one_by_one import Cluster, Method, place_one_by_one
from harness.shared_gpus.prices import LEVELS, Fluid, fill, mean_prices
from harness.shared_gpus.room_worth import RoomWorth
from harness.shared_gpus.rounds import place_in_rounds
from harness.shared_gpus.workload import Demand, Int64s, Remaining, Shape, Workload
from hypothesis import given
from hypothesis import strategies as st

SHAPES = (Shape(32_000, 4, "A"), Shape(96_000, 8, "B"), Shape(16_000, 1, "A"))
DEMANDS = (
    Demand(4_000, 1, 470, ()),
    Demand(3_000, 1, 810, ()),
    Demand(2_000, 1, 160, ("A",)),
    Demand(11_000, 1, 1000, ()),
    Demand(60_000, 8, 1000, ("B",)),
    Demand(8_000, 2, 1000, ()),
    Demand(12_000, 0, 0, ()),
)


def drawn(seed: int, nodes: int = 5, pods: int = 60) -> Workload:
    random = np.random.default_rng(seed)
    return Workload(
        shapes=SHAPES,
        shape_of=random.integers(len(SHAPES), size=nodes),
        memory=random.integers(50, 200, size=nodes),
        demands=DEMANDS,
        pods=np.concatenate([np.arange(len(DEMANDS)), random.integers(len(DEMANDS), size=pods)]),
        pod_memory=random.integers(1, 20, size=pods + len(DEMANDS)),
    )


def by_plain_loops(load: Workload, cpu: int, free: Sequence[int], shape: int) -> float:
    """Fragments as the paper says them, with all demands of the list: these are few, so that all are typical."""
    total = 0.0
    for at, demand in enumerate(load.demands):
        enough = sum(left >= demand.thousandths for left in free)
        may = load.allowed[at, shape] and demand.gpus > 0 and enough >= demand.gpus and demand.cpu <= cpu
        total += load.frequencies[at] * sum(left for left in free if not may or left < demand.thousandths)
    return total


@given(st.integers(0, 96_000), st.lists(st.integers(0, 100), min_size=8, max_size=8), st.integers(0, 2))
def test_fragments_are_those_of_the_paper(cpu: int, tens: list[int], shape: int) -> None:
    """What typical pods could not use of what is left."""
    load = drawn(3)
    load = Workload(load.shapes, load.shape_of, load.memory, load.demands, np.arange(len(DEMANDS)), load.pod_memory)
    free = [10 * each for each in tens]
    found = Fragments(load, in_points=False).of(Remaining(np.array([cpu]), np.array([free])), shape)
    assert found == pytest.approx([by_plain_loops(load, cpu, free, shape)])


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0.1, 9.0)), min_size=1, max_size=4))
def test_a_gpu_is_filled_with_what_is_worth_the_most(demands: list[tuple[int, float]]) -> None:
    """Beside all multisets of pods, one after the other."""
    best = [0.0] * LEVELS
    for level in range(LEVELS):
        fitting = [worth + best[level - size] for size, worth in demands if size <= level]
        best[level] = max([best[max(level - 1, 0)], *fitting])
    sizes, worth = (np.array(each) for each in zip(*demands, strict=True))
    assert fill(worth.astype(np.float64), sizes)[0] == pytest.approx(best)


def methods(load: Workload) -> list[Method]:
    return [Fragments(load, in_points=True), Fragments(load, in_points=False), RoomWorth(load)]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_placed_fits_and_what_is_left_fits_nowhere(seed: int) -> None:
    """So it makes no difference whether a pod that finds no room is dropped or waits: it fits nowhere later."""
    load = drawn(seed)
    for method in methods(load):
        cluster = Cluster(load, method)
        left = [
            pod for pod in load.arrivals(seed, 130) if not cluster.place(int(load.pods[pod]), int(load.pod_memory[pod]))
        ]
        assert (cluster.cpu >= 0).all()
        assert (cluster.memory >= 0).all()
        assert (cluster.free >= 0).all()
        assert left
        assert not any(cluster.place(int(load.pods[pod]), int(load.pod_memory[pod])) for pod in left)


@pytest.mark.parametrize("seed", range(6))
def test_no_method_places_more_than_the_bound(seed: int) -> None:
    """And with room for all the bound is all."""
    load = drawn(seed)
    fluid = Fluid(load)
    for percent in (60, 130):
        arrivals = load.arrivals(seed, percent)
        most = 100 * fluid.most(arrivals) / load.room
        for method in methods(load):
            assert place_one_by_one(load, method, arrivals).at(percent) <= most + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_what_leaves_gives_back_what_it_had(seed: int) -> None:
    """Amounts, and what every pod would cost."""
    load = drawn(seed)
    cluster = Cluster(load, RoomWorth(load))
    for pod in load.arrivals(seed, 60):
        cluster.place(int(load.pods[pod]), int(load.pod_memory[pod]))
    for demand in range(len(DEMANDS)):
        before = [each.copy() for each in (cluster.cpu, cluster.memory, cluster.free)]
        placement = cluster.place(demand, 1)
        if placement is not None:
            assert (cluster.free[placement.node] != before[2][placement.node]).sum() == load.demands[demand].gpus
            cluster.remove(placement)
            assert cluster.place(demand, 1) == placement
            cluster.remove(placement)
        for amounts, known in zip((cluster.cpu, cluster.memory, cluster.free), before, strict=True):
            assert (amounts == known).all()


@pytest.mark.parametrize("seed", range(6))
def test_rounds_keep_the_bound_and_rounds_of_one_pod_are_one_by_one(seed: int) -> None:
    """In a round of one pod nothing else is known when it is placed again."""
    load = drawn(seed)
    arrivals = load.arrivals(seed, 130)
    worth = RoomWorth(load)
    alone, one_by_one = place_in_rounds(load, worth, arrivals, 1), place_one_by_one(load, worth, arrivals)
    assert (alone.allocated == one_by_one.allocated).all()
    together = place_in_rounds(load, worth, arrivals, 20)
    assert together.at(130) <= 100 * Fluid(load).most(arrivals) / load.room + 1e-6
    assert together.waiting > 0


def test_gpus_without_cpu_are_worth_little() -> None:
    """A node with cpu for its GPUs is worth more by them than one without; cpu beside no free GPU is worth nothing."""
    load = drawn(3)
    worth = RoomWorth(load)
    full, empty = np.zeros((1, 8), dtype=np.int64), np.array([[1000] * 8])

    def of(cpu: int, free: Int64s) -> float:
        return float(worth.of(Remaining(np.array([cpu]), free), 1)[0])

    assert of(96_000, full) == of(0, full) == 0
    assert of(96_000, empty) < of(48_000, empty) < of(0, empty)


def test_more_that_name_their_model_make_it_scarce() -> None:
    """At 100 % what is named suffices in parts; with twice as many it has a price above the others."""
    demands = (Demand(1_000, 1, 1000, ("A",)), Demand(1_000, 1, 1000, ()))
    load = Workload(
        shapes=(Shape(32_000, 4, "A"), Shape(32_000, 4, "B")),
        shape_of=np.array([0, 1, 1, 1]),
        memory=np.full(4, 1000),
        demands=demands,
        pods=np.array([0] * 2 + [1] * 8),
        pod_memory=np.ones(10, dtype=np.int64),
    )
    fluid = Fluid(load)
    few, many = fluid.prices(99), fluid.prices(99, 2.0)
    assert few[0] == few[1]
    assert many[0] > many[1]


def test_a_scarce_model_has_a_price_before_the_others() -> None:
    """At half of all GPUs nothing is scarce but the model that most pods ask for."""
    demands = (Demand(1_000, 1, 1000, ("A",)), Demand(1_000, 1, 1000, ()))
    load = Workload(
        shapes=(Shape(32_000, 4, "A"), Shape(32_000, 4, "B")),
        shape_of=np.array([0, 1, 1, 1]),
        memory=np.full(4, 1000),
        demands=demands,
        pods=np.array([0] * 9 + [1]),
        pod_memory=np.ones(10, dtype=np.int64),
    )
    of_a, of_any = Fluid(load).prices(50)
    assert of_a > of_any == 0
    assert mean_prices(load)[0] > mean_prices(load)[1]
