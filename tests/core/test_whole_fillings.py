"""Nodes filled with whole pods: no filling is worth more than is said, and no plan costs less than the bound."""

from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.eviction_clusters import HOSTNAME, keeps_apart
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs import MODELS
from flowcore.costs.model import Float64s
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import PodSignature
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.bounds.whole_fillings import fill_nodes
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round.round import DEFAULT_POLICIES

_APART = PodSignature("default", (("app", "a"),), constraints=keeps_apart("a"))


def _best(worth: Float64s, requests: Int64s, room: Int64s, most: Int64s) -> float:
    """What the best filling of one node is worth, of all that there are."""
    best = 0.0
    for pods in product(*(range(int(count) + 1) for count in most)):
        if (np.array(pods) @ requests <= room).all():
            best = max(best, float(np.array(pods) @ worth))
    return best


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 3), st.sampled_from((2, 6, 20)))
def test_no_filling_is_worth_more(seed: int, classes: int, resources: int, size: int) -> None:
    """Whatever pods are measured by; and of few classes, three pods of which fill a node, the best is worth as much."""
    random = np.random.default_rng(seed)
    requests = random.integers(0, size, (classes, resources))
    requests[:, 0] += 3
    room = random.integers(0, 12, (4, resources))
    most = random.integers(0, 3, (classes, 4))
    worth = random.integers(-5, 100, (classes, 4)).astype(np.float64)
    measure = random.random((4, resources)) * random.integers(0, 2, resources)
    filled = fill_nodes(worth, requests, room, most, measure)
    for place in range(4):
        best = _best(worth[:, place], requests, room[place], most[:, place])
        assert filled.worth[place] >= best
        if classes <= 6:  # a node has room for three pods at most
            assert filled.worth[place] <= best * (1 + 1e-6)


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from((2000, 4000, 6000)), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.sampled_from((1000, 1500, 3500, 4000)), st.sampled_from((1, 3)), st.sampled_from("--ag")),
        min_size=1, max_size=5,
    ),
    st.integers(0, 2**32),
)  # fmt: skip
def test_no_plan_beats_a_bound_with_whole_pods(nodes: list[int], wishes: list[tuple[int, int, str]], seed: int) -> None:
    """From any prices and expected loads; some pods keep apart, some come together or not at all."""
    pending = []
    for place, (cpu, gi, kind) in enumerate(wishes):
        waiting = pod(f"p{place}", cpu, gi * GI, kind=_APART if kind == "a" else None)
        pending.append(msgspec.structs.replace(waiting, gangs=("g",)) if kind == "g" else waiting)
    together = sum(kind == "g" for *_, kind in wishes)
    cluster = snapshot(
        [node(f"n{at}", cpu, 8 * GI, labels=((HOSTNAME, f"n{at}"),)) for at, cpu in enumerate(nodes)], pending
    )
    cluster = replace(cluster, gangs={"g": Gang("g", together)} if together else {})
    problem = apply_all((CompileConstraints(),), Problem(cluster, DEFAULT_POLICIES, MODELS))
    start, demands = problem.start, problem.demands
    in_gang = [bool(demand.group.pods[0].gangs) for demand in demands]
    best = min(
        Objective(demands, start).total(commits)
        for commits in all_plans(demands, start)
        if sum(commit.count for commit in commits if in_gang[commit.demand]) in (0, together)
    )
    random, potential = np.random.default_rng(seed), demands[0].potential
    own = start.load(potential.utilisation)
    for _ in range(3):
        loads = tuple(replace(own, taken=random.random(own.taken.shape) * own.capacity * 1.5) for _ in range(2))
        expected = Mixture(np.arange(len(nodes)), loads, tuple(random.random(len(nodes)) for _ in loads))
        prices = random.random(start.free.shape) * 10 ** random.uniform(2, 6) / np.maximum(start.free.max(axis=0), 1)
        bound = lower_bound(
            problem.cost_matrix,
            shadow_prices=prices * random.integers(0, 2, len(prices.T)),
            loads={potential: expected},
            atomic_groups=problem.atomic_groups.all,
            known_cost=int(best * random.choice([0.5, 1.0, 3.0])),
        )
        assert bound <= best


def test_room_that_no_whole_pod_can_use_is_not_counted() -> None:
    """Ten nodes with 6 cores, ten pods of 4 and ten of 5: each node takes one, and half of the pods wait."""
    sizes = [4000] * 10 + [5000] * 10
    cluster = snapshot([node(f"n{at}", 6000) for at in range(10)], [pod(f"p{at}", cpu) for at, cpu in enumerate(sizes)])
    problem = Problem(cluster, DEFAULT_POLICIES, MODELS)
    cpu = cluster.resources.index("cpu")
    prices = np.zeros(problem.start.free.shape)
    prices[:, cpu] = float(problem.demands[0].prices[0]) / 4000
    waiting = [int(demand.prices[0]) for demand in problem.demands]
    in_parts = lower_bound(problem.cost_matrix, shadow_prices=prices)
    whole = lower_bound(problem.cost_matrix, shadow_prices=prices, known_cost=sum(waiting) * 10)
    assert in_parts < 7 * min(waiting)
    assert whole >= 10 * min(waiting)
