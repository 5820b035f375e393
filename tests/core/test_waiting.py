"""Pods that wait while that is cheaper than every node that has room: the same of every method, and of gangs."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import check_capacity, check_complete, check_costs, check_filters, check_gangs

from flowcore.cluster.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.methods.admission import complete
from flowcore.methods.constructive import FixedPart, constrained_first, fill, one_by_one
from flowcore.methods.cp_sat import Subproblem, solve_exact
from flowcore.methods.flow import solve_by_flow
from flowcore.methods.lns import LargeNeighbourhoodSearch
from flowcore.methods.relaxation import relax
from flowcore.methods.rounded_relaxation import rounded_candidates
from flowcore.model.cost_policy import CostPolicy, DataLocality, UnscheduledPrice
from flowcore.model.data import DataSource, Level, Place
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning import run_one_by_one, run_round
from flowcore.planning.round import Round
from flowcore.problem.candidate import Candidate
from flowcore.problem.commits import Commit
from flowcore.problem.problem import Problem
from flowcore.problem.waiting import may_wait, waiting_demands, without_dear_groups

NOW = 1000.0
NEAR = CostPolicy(data_locality=DataLocality(node=100, rack=0, zone=0))


def policies(base: int, *, wait: bool = True, per_second: int = 1) -> dict[str, Policy]:
    """``waits`` waits for cheaper nodes, ``goes`` does not."""
    price = UnscheduledPrice(base, per_priority=10, per_waiting_second=per_second, wait_for_cheaper_node=wait)
    return {"waits": Policy("waits", cost=NEAR, unscheduled=price), "goes": Policy("goes", cost=NEAR)}


def wants(name: str, where: str, gib: int, *, cpu: int = 1000, policy: str = "waits", **fields: object) -> PendingPod:
    """A pod whose data is on a node."""
    data = (DataSource((Place(Level.NODE, where),), gib * GI),)
    gang = fields.pop("gang", "")
    found = pod(name, cpu, GI, policy=policy, data=data, **fields)
    return replace(found, gangs=(str(gang),)) if gang else found


_apart = InterPodConstraints(
    anti_affinity=(
        AffinityTerm("kubernetes.io/hostname", LabelSelector((Requirement("app", "In", ("a",)),)), ("default",)),
    )
)


@st.composite
def clusters(draw: st.DrawFn, *, gangs: bool = False, rules: bool = False) -> tuple[Snapshot, dict[str, Policy]]:
    """A few nodes and pods with data, some that wait for cheaper nodes and some that do not."""
    nodes = [
        node(f"n{at}", cpu, labels=(("kubernetes.io/hostname", f"n{at}"),))
        for at, cpu in enumerate(draw(st.lists(st.sampled_from((1000, 2000, 4000)), min_size=1, max_size=4)))
    ]
    pending, known = [], {}
    for at in range(draw(st.integers(1, 6))):
        kind = PodSignature("default", (("app", "a"),), constraints=_apart) if rules and draw(st.booleans()) else None
        gang = f"gang default/g{draw(st.integers(0, 1))}" if gangs and draw(st.booleans()) else ""
        pending.append(
            wants(
                f"p{at}",
                f"n{draw(st.integers(0, 3))}",
                draw(st.sampled_from((0, 5, 20, 80))),
                cpu=draw(st.sampled_from((500, 1000))),
                policy=draw(st.sampled_from(("waits", "waits", "goes"))),
                created=NOW - draw(st.sampled_from((0, 500, 3000))),
                priority=draw(st.sampled_from((0, 100))),
                kind=kind,
                gang=gang,
            )
        )
    for name in {name for each in pending for name in each.gangs}:
        size = sum(name in each.gangs for each in pending)
        known[name] = Gang(name, draw(st.integers(1, size)))
    found = replace(snapshot(nodes, pending, now=NOW), gangs=known)
    return found, policies(draw(st.sampled_from((0, 500, 2000, 6000))), per_second=draw(st.sampled_from((0, 1, 3))))


def assert_settled(problem: Problem, found: Candidate) -> None:
    """No pod that may wait costs more than that where it is, and none that waits would cost less somewhere."""
    placed = [sum(each.count for each in found.commits if each.demand == at) for at in range(len(problem.demands))]
    assert found.cost == problem.cost(found.commits, found.admitted)
    for at in waiting_demands(problem):
        order = problem.atomic_groups.placement_order(at, found.admitted)
        needed = max(problem.must_place[at], problem.atomic_groups.required(at, found.admitted))
        for place, commit in enumerate(found.commits):
            if commit.demand == at and placed[at] > needed:
                without = [
                    replace(each, count=each.count - (other == place)) for other, each in enumerate(found.commits)
                ]
                without = [each for each in without if each.count]
                assert problem.cost(without, found.admitted) >= found.cost, f"{found.method}: a pod should have waited"
        if placed[at] < len(order):
            for to in np.nonzero(found.capacity.max_pods(found.demands[at]))[0].tolist():
                more = [*found.commits, Commit(at, to, 1)]
                assert problem.cost(more, found.admitted) >= found.cost, f"{found.method}: a pod waits in vain"
    for at, demand in enumerate(problem.demands):
        if not demand.waits and placed[at] < len(problem.atomic_groups.placement_order(at, found.admitted)):
            assert not found.capacity.max_pods(found.demands[at]).any(), f"{found.method}: a pod was left out"


def _by_methods(problem: Problem) -> Iterator[Candidate]:
    yield fill(problem)
    yield constrained_first(problem)
    first = one_by_one(problem)
    yield first
    decided = np.array([demand.constraints.fits_flow for demand in problem.demands], dtype=np.bool_)
    fixed = FixedPart.of(problem, first, decided)
    flow = solve_by_flow(problem, fixed, first)
    while True:
        try:
            next(flow)
        except StopIteration as end:
            yield end.value.candidate
            break
    relaxed = relax(problem.cost_matrix)
    if relaxed is not None:
        yield from rounded_candidates(problem, relaxed, fixed)
    search = LargeNeighbourhoodSearch(problem, first, 0)
    for turn in range(4):
        if not search.improve(wider=turn % 2 == 1):
            break
    yield search.candidate()
    exact = solve_exact(problem, first, Subproblem.all(problem), work=0.05, seed=0)
    if exact is not None:
        yield exact


@settings(max_examples=examples(40), deadline=None)
@given(st.booleans().flatmap(lambda rules: clusters(rules=rules)))
def test_every_method_settles(case: tuple[Snapshot, dict[str, Policy]]) -> None:
    """Each leaves a pod pending if and only if that costs less than every node that has room."""
    problem = Problem(*case, MODELS)
    for found in _by_methods(problem):
        assert_settled(problem, found)


def _best_cost(problem: Problem) -> int:
    """The optimum over all plans of single pods, tried one by one."""
    nodes = len(problem.start.free)
    choices = []
    for at, demand in enumerate(problem.demands):
        ways = [
            [Commit(at, to, count) for to, count in enumerate(counts) if count]
            for counts in product(range(demand.count + 1), repeat=nodes)
            if sum(counts) <= demand.count
        ]
        choices.append(ways)
    best = 2**62
    for ways in product(*choices):
        commits = [each for way in ways for each in way]
        capacity = problem.start.copy()
        if all(capacity.place(problem.demands[each.demand], each.node, each.count) == each.count for each in commits):
            best = min(best, problem.objective.total(commits))
    return best


@settings(max_examples=examples(25), deadline=None)
@given(clusters())
def test_no_bound_is_above_the_optimum(case: tuple[Snapshot, dict[str, Policy]]) -> None:
    """Plans of a round cost no less than the optimum over all plans, those that leave pods for free room too."""
    cluster, terms = case
    cluster = replace(cluster, pending=cluster.pending[:4])
    nodes = {each.node for each in run_round(cluster, terms).placements}
    result, best = run_round(cluster, terms), _best_cost(Problem(cluster, terms, MODELS))
    assert result.lower_bound <= best <= result.cost, nodes


@settings(max_examples=examples(60), deadline=None)
@given(st.booleans().flatmap(lambda gangs: clusters(gangs=gangs)))
def test_rounds_settle(case: tuple[Snapshot, dict[str, Policy]]) -> None:
    """A round and one-by-one scheduling: safe, whole gangs, and no pod or gang where waiting is cheaper."""
    for result in (run_round(*case), run_one_by_one(*case)):
        check_complete(case[0], result)
        check_capacity(case[0], result)
        check_filters(case[0], result)
        check_costs(result)
    check_gangs(case[0], run_round(*case))
    this = Round(*case)
    for _ in range(40):
        if not this.step():
            break
        problem, candidate = this._problem, this._best_candidate()[0]
        if this._admission is None or this._admitted is not None:
            assert without_dear_groups(problem, candidate).cost == candidate.cost
    problem, found = this._problem, this._best_candidate()[0]
    assert_settled(problem, found)
    known = complete(problem, found)
    assert known.cost >= found.cost, "a gang waits in vain"
    for at in range(len(problem.atomic_groups.all)):
        assert may_wait(problem, at) == any(
            problem.demands[each].waits for each in problem.atomic_groups.all[at].required
        )
