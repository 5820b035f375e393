"""Bounds and first plans where pods are large beside what nodes have left, or keep apart."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.constrained_snapshots import constrained_snapshots
from support.eviction_clusters import HOSTNAME, keeps_apart
from support.large_snapshots import large_snapshots
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.methods.constructive import fill
from flowcore.planning.methods.relaxation import relax
from flowcore.planning.methods.rounded_relaxation import shares_first
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

#: Waiting costs the same for pods of all sizes.
BY_POD = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, unscheduled=UnscheduledPrice(per=PricedBy.POD))}
_APART = PodSignature("default", (("app", "a"),), constraints=keeps_apart("a"))


def _problem(cluster: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> Problem:
    return apply_all((CompileConstraints(),), Problem(cluster, policies, MODELS))


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from((2000, 4000, 6000)), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.sampled_from((1000, 1500, 3500, 4000)), st.sampled_from((1, 3)), st.sampled_from("--ag")),
        min_size=1, max_size=5,
    ),
    st.integers(0, 2**32),
)  # fmt: skip
def test_no_plan_beats_a_bound_from_any_expected_loads(
    nodes: list[int], wishes: list[tuple[int, int, str]], seed: int
) -> None:
    """Pods lead beyond what nodes are expected to get; some keep apart, some come together or not at all."""
    pending = []
    for place, (cpu, gi, kind) in enumerate(wishes):
        waiting = pod(f"p{place}", cpu, gi * GI, kind=_APART if kind == "a" else None)
        pending.append(msgspec.structs.replace(waiting, gangs=("g",)) if kind == "g" else waiting)
    together = sum(kind == "g" for *_, kind in wishes)
    cluster = snapshot(
        [node(f"n{at}", cpu, 8 * GI, labels=((HOSTNAME, f"n{at}"),)) for at, cpu in enumerate(nodes)], pending
    )
    cluster = replace(cluster, gangs={"g": Gang("g", together)} if together else {})
    problem = _problem(cluster)
    start, demands = problem.start, problem.demands
    in_gang = [bool(demand.group.pods[0].gangs) for demand in demands]
    best = min(
        Objective(demands, start).total(commits)
        for commits in all_plans(demands, start)
        if sum(commit.count for commit in commits if in_gang[commit.demand]) in (0, together)
    )
    random, potential = np.random.default_rng(seed), demands[0].potential
    own = start.load(potential.utilisation)
    for _ in range(5):
        loads = tuple(replace(own, taken=random.random(own.taken.shape) * own.capacity * 0.7) for _ in range(2))
        expected = Mixture(np.arange(len(nodes)), loads, tuple(random.random(len(nodes)) for _ in loads))
        prices = random.random(start.free.shape) * 10 ** random.uniform(2, 6) / np.maximum(start.free.max(axis=0), 1)
        bound = lower_bound(
            problem.cost_matrix,
            shadow_prices=prices * random.integers(0, 2, len(prices.T)),
            loads={potential: expected},
            atomic_groups=problem.atomic_groups.all,
        )
        assert bound <= best


def test_scattered_room_is_none_for_large_pods() -> None:
    """Nodes with 2 to 3 cores left, all different: as one state they place no pod of 4 cores but on the empty node."""
    nodes = [node(f"n{at:02}", 8000) for at in range(41)]
    running = [(f"n{at:02}", amounts(5000 + 20 * at), ()) for at in range(40)]
    pods = [pod(f"large-{at}", 4000) for at in range(20)] + [pod(f"small-{at}", 900 + at) for at in range(40)]
    matrix = Problem(snapshot(nodes, pods, running), DEFAULT_POLICIES, MODELS).cost_matrix
    relaxed = relax(matrix, most_pairs=1)
    assert relaxed is not None
    large = next(index for index, demand in enumerate(matrix.demands) if demand.count == 20)
    of_large = [members == (large,) for members in relaxed.members].index(True)
    assert relaxed.placed[of_large] <= 2


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(large_snapshots(), constrained_snapshots()))
def test_shares_as_a_first_plan_break_no_rule(cluster: Snapshot) -> None:
    """Pods with rules too: the plan can be placed once more from the start, and costs what it says."""
    problem = _problem(cluster)
    relaxed = relax(problem.cost_matrix) if problem.demands else None
    if relaxed is None:
        return
    plan, capacity = shares_first(problem, relaxed), problem.start.copy()
    for commit in plan.commits:
        assert capacity.place(problem.demands[commit.demand], commit.node, commit.count) == commit.count
    assert plan.cost == problem.cost(plan.commits, plan.admitted)


def _crowd() -> Snapshot:
    """3,100 pods of four sizes, for a tenth less room."""
    sizes = ((250, 4), (500, 1), (1000, 2), (3000, 1))
    nodes = [node(f"n{at}", 66_000 + 1000 * (at % 5), 130 * GI) for at in range(40)]
    pods = [pod(f"p{at}", sizes[at % 4][0], sizes[at % 4][1] * GI, created=float(at)) for at in range(3_100)]
    return snapshot(nodes, pods)


def test_the_first_plan_of_many_pods_is_nearly_the_cheapest() -> None:
    """After the one step that any round has time for."""
    first = Round(_crowd(), BY_POD)
    first.step()
    result = first.result()
    assert "shares" in first.improved_by
    assert result.gap < 0.1
    assert result.cost < fill(_problem(_crowd(), BY_POD)).cost
    assert 0 < result.left_at_least.pods <= len(result.unplaced) <= 1.1 * result.left_at_least.pods


def test_many_pods_in_gangs_have_a_bound_after_one_step() -> None:
    """1,200 pods in gangs of four, with room for most: the first order takes all the time that a round has."""
    pending = [
        msgspec.structs.replace(pod(f"p{at}", 300 + 230 * (at // 4 % 7), GI), gangs=(f"g{at // 4}",))
        for at in range(1_200)
    ]
    cluster = snapshot([node(f"n{at}", 16_000, 64 * GI) for at in range(60)], pending)
    cluster = replace(cluster, gangs={f"g{at}": Gang(f"g{at}", 4) for at in range(300)})
    result = run_round(cluster, steps=1)
    assert result.unplaced
    assert result.gap < 0.2
