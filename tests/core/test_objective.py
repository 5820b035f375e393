"""The cost of a plan is one function of the plan: no order of commits, no method, no second account of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import large_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import recount_pods

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS, preferences
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.problem.demands.demands import Demand, demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from flowcore.planning.round.portfolio import Portfolio

_takes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 3)), max_size=12)
_weights = st.builds(CostWeights, *[st.sampled_from((0, 1, 5))] * 6)
_ZONE = "zone"


def _demands(cluster: Snapshot, policy: Policy = BUILT_IN) -> tuple[tuple[Demand, ...], Plan]:
    start = Plan(cluster)
    return demands_of(cluster, start.load(), {BUILT_IN.name: policy}), start


def _placed(demands: Sequence[Demand], start: Plan, takes: list[tuple[int, int, int]]) -> list[Commit]:
    """Commits that fit, each no more pods than the demand has."""
    capacity, placed, commits = start.copy(), Counter[int](), []
    for which, where, pods in takes:
        at, to = which % len(demands), where % len(start.free)
        count = capacity.place(demands[at], to, min(pods, demands[at].count - placed[at]))
        if count:
            placed[at] += count
            commits.append(Commit(at, to, count))
    return commits


def _by_hand(cluster: Snapshot, demands: Sequence[Demand], commits: Sequence[Commit], policy: Policy) -> int:
    """What placed pods cost, pod by pod and node by node, from the definition."""
    pods = [(demands[commit.demand], commit.node) for commit in commits for _ in range(commit.count)]
    load, cost = Plan(cluster).load(), 0
    for at in {to for _, to in pods}:
        here = np.array([at])
        counted = sum(np.append(demand.size, 1.0) for demand, to in pods if to == at)
        before, after = load.at(here), load.at(here, counted[:3], int(counted[3]))
        unit = np.array(demands[0].potential.unit)
        model = MODELS[policy.cost.model]
        cost += int(np.rint(model.potential(after, unit, policy.cost.weights)[0]))
        cost -= int(np.rint(model.potential(before, unit, policy.cost.weights)[0]))
    for mine, (demand, at) in enumerate(pods):
        others = replace(cluster, pod_index=recount_pods(cluster))
        for other, (its, to) in enumerate(pods):
            if other != mine:
                kind, rules = its.group.signature, its.group.signature.constraints
                # Required affinity of pods of the round is left out.
                kind = msgspec.structs.replace(kind, constraints=rules and msgspec.structs.replace(rules, affinity=()))
                others.pod_index.change(kind, cluster.table.nodes[to].name, 1)
        group = demand.group
        prices = [
            preferences(group.pod_class, group.signature, when, demand.passing, policy.cost)[at]
            for when in (cluster, others)
        ]
        cost += int(demand.arc[at] + prices[1] - prices[0])
    return cost


@settings(max_examples=examples(60), deadline=None)
@given(constrained_snapshots(), _takes, st.sampled_from(sorted(MODELS)), _weights)
def test_the_cost_is_what_the_definition_says(
    cluster: Snapshot, takes: list[tuple[int, int, int]], model: str, weights: CostWeights
) -> None:
    """Arcs, increases of potentials, and what each pod prefers if all others run already."""
    policy = Policy(BUILT_IN.name, cost=CostPolicy(model, weights))
    demands, start = _demands(cluster, policy)
    commits = _placed(demands, start, takes)
    assert Objective(demands, start).placed(commits) == _by_hand(cluster, demands, commits, policy)


@settings(max_examples=examples(70), deadline=None)
@given(constrained_snapshots(), _takes, st.randoms(use_true_random=False))
def test_the_order_of_commits_changes_no_cost(cluster: Snapshot, takes: list[tuple[int, int, int]], random) -> None:
    """Nor whether pods come together or one by one; prices of pods differ, their sum does not."""
    demands, start = _demands(cluster)
    commits = _placed(demands, start, takes)
    objective = Objective(demands, start)
    cost = objective.total(commits)
    single = [Commit(commit.demand, commit.node, 1) for commit in commits for _ in range(commit.count)]
    for _ in range(3):
        random.shuffle(single)
        assert objective.total(single) == cost
        prices = objective.pod_prices(single)
        assert (prices >= 0).all()
        assert int(prices.sum()) == objective.placed(commits)


def random_commits(result: RoundResult, demands: Sequence[Demand], cluster: Snapshot) -> list[Commit]:
    at = {pod.key: place for place, demand in enumerate(demands) for pod in demand.group.pods}
    return [Commit(at[each.pod.key], cluster.table.index[each.node], 1) for each in result.placements]


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(large_snapshots(), constrained_snapshots()))
def test_a_result_reports_the_cost_of_its_plan(cluster: Snapshot) -> None:
    """Of a round and of one-by-one scheduling; the prices of its pods add up to it."""
    demands, start = _demands(cluster)
    for result in (run_round(cluster), run_one_by_one(cluster)):
        prices = [entry.price for entry in (*result.placements, *result.unplaced)]
        cost = Objective(demands, start).total(random_commits(result, demands, cluster))
        assert result.cost == sum(prices) == cost
        assert result.lower_bound <= cost


@settings(max_examples=examples(30), deadline=None)
@given(st.one_of(large_snapshots(), constrained_snapshots()))
def test_every_method_is_judged_by_the_same_function(cluster: Snapshot) -> None:
    """Whatever a method believed, the portfolio compares candidates by what the function says of them.

    A problem of independent parts has a portfolio for each: a candidate of a part costs what the part does.
    """
    demands, start = _demands(cluster)
    offered: list[tuple[Problem, Candidate]] = []
    with pytest.MonkeyPatch.context() as patch:
        plain = Portfolio.offer
        patch.setattr(
            Portfolio, "offer", lambda self, each: (offered.append((self._problem, each)), plain(self, each))[1]
        )
        result = run_round(cluster)
    assert offered or not demands
    for problem, candidate in offered:
        cost = Objective(problem.demands, start).total(candidate.commits)
        assert candidate.cost == cost, candidate.method
        if len(problem.demands) == len(demands):
            assert result.cost <= cost
            assert result.lower_bound <= cost


def _mixed(number: int, cpu: int, app: str, policy: str, preferred: int, *, spread: bool) -> PendingPod:
    selector = LabelSelector((Requirement("app", "In", (app,)),))
    wishes = (WeightedTerm(preferred, AffinityTerm(_ZONE, selector, ("default",))),) if preferred else ()
    soft = (SpreadConstraint(_ZONE, 1, selector),) if spread else ()
    constraints = InterPodConstraints(preferred=wishes, soft_spread=soft) if wishes or soft else None
    signature = PodSignature("default", (("app", app),), constraints=constraints)
    return pod(f"p{number}", cpu, cpu * GI // 1000, policy=policy, kind=signature)


_POLICIES = {
    each.name: each
    for each in (
        Policy("even"),
        Policy("balanced", cost=CostPolicy(weights=CostWeights(least_requested=1, balance=5))),
        Policy("packed", cost=CostPolicy("BinPacking")),
        Policy("counted", cost=CostPolicy("LoadSpreading")),
    )
}
_mixed_pods = st.lists(
    st.tuples(
        st.sampled_from((300, 1000, 2500)), st.sampled_from("ab"), st.sampled_from(sorted(_POLICIES)),
        st.sampled_from((0, 0, 100, -100)), st.booleans(),
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.sampled_from((2000, 4000)), min_size=1, max_size=3), _mixed_pods)
def test_no_plan_beats_the_bound_whatever_pods_prefer(nodes: list[int], drawn: list[tuple]) -> None:
    """Against all plans of small clusters, with several policies and preferences among the pods of the round."""
    cluster = snapshot(
        [node(f"n{at}", cpu, labels=((_ZONE, f"z{at % 2}"),)) for at, cpu in enumerate(nodes)],
        [_mixed(number, *each[:4], spread=each[4]) for number, each in enumerate(drawn)],
    )
    start = Plan(cluster)
    demands = demands_of(cluster, start.load(), _POLICIES)
    objective, pods = Objective(demands, start), [at for at, demand in enumerate(demands) for _ in range(demand.count)]
    best = None
    for places in product((None, *range(len(nodes))), repeat=len(pods)):
        capacity = start.copy()
        commits = [Commit(at, to, 1) for at, to in zip(pods, places, strict=True) if to is not None]
        if all(capacity.place(demands[commit.demand], commit.node, 1) for commit in commits):
            cost = objective.total(commits)
            best = cost if best is None else min(best, cost)
    result = run_round(cluster, _POLICIES)
    assert best is not None
    assert result.lower_bound <= best <= result.cost
    if result.certified:
        assert result.cost == best


def test_equal_pods_pay_the_rising_slots_of_the_seeds() -> None:
    """The i-th pod of a kind pays for the node as the ones before it make it, in equal steps."""
    cluster = snapshot([node("n", 16_384, 16_384 * 2**20)], [pod(f"p{at}", 1024, 1024 * 2**20) for at in range(16)])
    demands, start = _demands(cluster, Policy(BUILT_IN.name, cost=CostPolicy(weights=CostWeights(balance=0))))
    prices = Objective(demands, start).pod_prices([Commit(0, 0, 16)]) - 1000
    # Half of one pod's share of 1000 for the first, then a whole share more each.
    assert prices.tolist() == [
        round(1000 * (2 * (at + 1) ** 2) / 64) - round(1000 * (2 * at**2) / 64) for at in range(16)
    ]
    assert abs(np.diff(prices) - 1000 / 16).max() <= 1


def test_a_large_pod_pays_as_the_small_ones_that_take_as_much() -> None:
    """Beside the constant of each: so no plan is better for being cut in other pieces."""
    nodes = [node("n", 8000, 8 * GI)]
    whole = snapshot(nodes, [pod("large", 4000, 4 * GI), *[pod(f"p{at}", 1000, GI) for at in range(4)]])
    demands, start = _demands(whole)
    large, small = sorted(range(2), key=lambda at: demands[at].count)
    objective = Objective(demands, start)
    assert objective.placed([Commit(large, 0, 1)]) - 1000 == objective.placed([Commit(small, 0, 4)]) - 4 * 1000
