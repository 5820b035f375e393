"""Pods that wait while that is cheaper than every node that has room: the same of every method, and of gangs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import check_capacity, check_complete, check_costs, check_filters, check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, DataLocality, UnscheduledPrice
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import GangPolicy, Policy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.admission import complete
from flowcore.planning.methods.constructive import (
    FixedPart,
    constrained_first,
    fill,
    interleaved,
    kube_scheduler_order,
    one_by_one,
)
from flowcore.planning.methods.cp_sat import solve_exact
from flowcore.planning.methods.flow import solve_by_flow
from flowcore.planning.methods.relaxation import relax
from flowcore.planning.methods.rounded_relaxation import roundings
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import may_wait, waiting_demands, without_dear_groups
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from flowcore.planning.round.cheaper_to_wait import rounded_down, rounded_up
from flowcore.planning.round.round import Round
from flowcore.rules.reasons.codes import CHEAPER_TO_WAIT

NOW = 1000.0
NEAR = CostPolicy(data_locality=DataLocality(node=100, rack=0, zone=0))


def policies(base: int, *, wait: bool = True, per_second: int = 1) -> dict[str, Policy]:
    """``waits`` waits for cheaper nodes, ``goes`` does not."""
    price = UnscheduledPrice(base, per_priority=10, per_waiting_second=per_second, wait_for_cheaper_node=wait)
    return {"waits": Policy("waits", cost=NEAR, unscheduled=price), "goes": Policy("goes", cost=NEAR)}


def wants(name: str, where: str, gib: int, *, cpu: int = 1000, policy: str = "waits", **fields: object) -> PendingPod:
    """A pod whose data is on a node."""
    data = (DataSource((DataPlace(Level.NODE, where),), gib * GI),)
    gang = fields.pop("gang", "")
    found = pod(name, cpu, GI, policy=policy, data=data, **fields)
    return msgspec.structs.replace(found, gangs=(str(gang),)) if gang else found


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


def assert_gangs_settled(problem: Problem, found: Candidate) -> None:
    """No gang that may wait costs more than that, whichever of its interchangeable pods are taken to be its own."""
    for group in np.nonzero(found.admitted)[0].tolist():
        if not may_wait(problem, group):
            continue
        admitted = found.admitted.copy()
        admitted[group] = False
        ways = []
        for at in sorted(problem.atomic_groups.all[group].demands):
            there = [each.node for each in found.commits if each.demand == at for _ in range(each.count)]
            needed = problem.atomic_groups.all[group].required.get(at, 0)
            kept = min(len(there) - needed, len(problem.atomic_groups.placement_order(at, admitted)))
            ways.append([[(at, node) for node in each] for each in combinations(there, kept)])
        others = [each for each in found.commits if each.demand not in problem.atomic_groups.all[group].demands]
        for way in product(*ways):
            pairs = Counter(pair for pods in way for pair in pods)
            commits = [*others, *(Commit(at, node, count) for (at, node), count in pairs.items())]
            assert problem.cost(commits, admitted) >= found.cost, f"{found.method}: a gang should have waited"


def _by_methods(problem: Problem) -> Iterator[Candidate]:
    yield fill(problem)
    yield constrained_first(problem)
    first = one_by_one(problem, kube_scheduler_order(problem))
    yield first
    yield interleaved(problem)
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
        yield from (build() for build in roundings(problem, relaxed, fixed))
    search = RuinAndRebuild(problem, first, seed=0)
    for _ in search.run("room", "exchange", "nodes", "class"):
        pass
    yield search.candidate()
    exact = solve_exact(problem, first, work=0.05, seed=0)
    if exact is not None:
        yield exact


@settings(max_examples=examples(25), deadline=None)
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


@settings(max_examples=examples(15), deadline=None)
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
        assert_gangs_settled(this._problem, this._best_candidate())
    problem, found = this._problem, this._best_candidate()
    assert_settled(problem, found)
    known = complete(problem, found)
    assert known.cost >= found.cost, "a gang waits in vain"
    for at in range(len(problem.atomic_groups.all)):
        assert may_wait(problem, at) == any(
            problem.demands[each].waits for each in problem.atomic_groups.all[at].required
        )


def test_prices_of_pods_that_wait_are_not_lifted() -> None:
    """Neither above the dearest placement nor above the age of lower priorities; those of other policies are."""
    pending = [
        wants("old", "n0", 0, created=NOW - 900, priority=0, policy="goes"),
        wants("waits", "gone", 80, created=NOW - 10, priority=100),
        wants("goes", "n0", 80, created=NOW - 10, priority=100, policy="goes"),
    ]
    terms = policies(50, per_second=3)
    demands = {each.group.pods[0].uid: each for each in Problem(_now(pending), terms, MODELS).demands}
    size = 10 * 1000 / 4000
    assert demands["waits"].prices.tolist() == [50 + 10 * 100 + int(10 * 3 * size)]
    assert demands["waits"].price_growth == 3 * size
    assert demands["waits"].arc.max() > demands["waits"].prices[0]
    assert demands["goes"].prices[0] >= demands["old"].prices[0] > demands["waits"].prices[0]


def _now(pending: Sequence[PendingPod], *gangs: Gang, nodes: int = 2) -> Snapshot:
    machines = [node(f"n{at}") for at in range(nodes)]
    return replace(snapshot(machines, pending, now=NOW), gangs={each.name: each for each in gangs})


def test_without_the_field_a_policy_plans_as_before() -> None:
    """A pod with room anywhere is placed however cheap it is to leave."""
    result = run_round(_now([wants("p", "gone", 80)]), policies(0, wait=False))
    assert len(result.placements) == 1


def test_of_equal_pods_those_that_waited_longest_go() -> None:
    """Slots rise in cost and prices fall: they meet somewhere within the class."""
    pending = [wants(f"p{at}", "n0", 0, cpu=500, created=NOW - 400 * at) for at in range(8)]
    terms = policies(0, per_second=1)
    result = run_round(_now(pending), terms)
    placed = {each.pod.created for each in result.placements}
    left = {each.pod.created for each in result.unplaced}
    assert placed
    assert left
    assert max(placed) < min(left)
    assert all(each.code == CHEAPER_TO_WAIT for each in result.unplaced)
    assert result.lower_bound <= result.cost


def test_a_gang_decides_by_the_sum_of_its_pods() -> None:
    """One dear pod does not keep the gang back while the others pay for it; dearer still, it does. No room is held."""
    gang = Gang("gang default/g", 3)

    def plan(gib: int) -> RoundResult:
        pending = [
            wants(f"p{at}", "n0" if at else "gone", 0 if at else gib, cpu=100, gang=gang.name, created=NOW - 5000)
            for at in range(3)
        ]
        terms = {
            name: msgspec.structs.replace(each, gangs=GangPolicy(hold_room_after=1))
            for name, each in policies(3000, per_second=0).items()
        }
        return run_round(_now(pending, gang), terms)

    whole = plan(30)
    assert len(whole.placements) == 3
    dearest = max(each.price for each in whole.placements)
    assert dearest > 3000, "one pod alone would wait"
    absent = plan(120)
    assert not absent.placements
    assert {each.code for each in absent.unplaced} == {CHEAPER_TO_WAIT}
    assert absent.unplaced[0].reason.startswith("gang default/g needs 3 pods at once. Waiting costs 9000, and the")
    assert absent.unplaced[0].settles_in == 0, "its price does not grow"


def test_a_gang_that_is_too_dear_where_its_pods_are_is_taken_out() -> None:
    """Whoever put them there: with them goes what they cost, and a cheaper gang and other pods stay."""
    pending = [
        *(wants(f"far{at}", "gone", 80, cpu=500, gang="gang default/far") for at in range(2)),
        *(wants(f"near{at}", "n0", 80, cpu=500, gang="gang default/near") for at in range(2)),
        wants("other", "gone", 80, cpu=500, policy="goes"),
    ]
    gangs = Gang("gang default/far", 2), Gang("gang default/near", 2)
    problem = Problem(_now(pending, *gangs, nodes=1), policies(4000, per_second=0), MODELS)
    capacity = problem.start.copy()
    commits = [Commit(at, 0, demand.count) for at, demand in enumerate(problem.demands)]
    assert [capacity.place(problem.demands[each.demand], 0, each.count) for each in commits] == [2, 2, 1]
    by_hand = problem.candidate("by hand", commits, capacity, np.ones(2, dtype=np.bool_))
    found = without_dear_groups(problem, by_hand)
    assert [problem.atomic_groups.all[at].name for at in np.nonzero(found.admitted)[0]] == ["gang default/near"]
    assert found.commits == tuple(commits[1:])
    assert found.cost == problem.cost(found.commits, found.admitted) < by_hand.cost
    assert without_dear_groups(problem, found) is found


def test_a_gang_that_is_partially_placed_does_not_wait() -> None:
    """Its other pods run already and are worth nothing without it."""
    pending = [wants("p", "gone", 80, gang="gang default/g")]
    gang = Gang("gang default/g", 1, partially_placed=True)
    assert len(run_round(_now(pending, gang, nodes=1), policies(0)).placements) == 1


def test_the_reason_has_both_costs_in_two_digits() -> None:
    """Rounded so that waiting never looks dearer than it is, nor the node cheaper."""
    assert [rounded_down(each) for each in (0, 9, 99, 101, 1299, 98_765)] == [0, 9, 99, 100, 1200, 98_000]
    assert [rounded_up(each) for each in (0, 9, 99, 101, 1201, 98_765)] == [0, 9, 99, 110, 1300, 99_000]


@settings(max_examples=examples(25), deadline=None)
@given(clusters(), st.integers(0, 3))
def test_nobody_leaves_for_a_pod_that_would_rather_wait(case: tuple[Snapshot, dict[str, Policy]], filled: int) -> None:
    """Where others are evicted for a pod that may wait, its node costs less than its waiting."""
    cluster, terms = case
    residents = [
        RunningPod(
            key=f"default/r{at}",
            uid=f"r{at}",
            node=each.name,
            pod_class=PodClass(amounts(1000, GI), priority=-10),
            usage=amounts(1000, GI),
            signature=PodSignature("default"),
            started=1.0,
            policy="goes",
            owner="o",
        )
        for at, each in enumerate(cluster.table.nodes[:filled])
    ]
    busy = snapshot(
        cluster.table.nodes, cluster.pending, [(each.node, each.usage, ()) for each in residents], now=NOW,
    )  # fmt: skip
    for each in residents:
        busy.pod_index.change(each.signature, each.node, 1)
    result = run_round(replace(busy, running=RunningPods(pods=tuple(residents))), terms)
    check_complete(busy, result)
    check_costs(result)
    problem = Problem(busy, terms, MODELS)
    prices = {
        pod.key: (demand.waits, price)
        for demand in problem.demands
        for pod, price in zip(demand.group.pods, demand.prices.tolist(), strict=True)
    }
    for each in result.placements:
        waits, price = prices[each.pod.key]
        if each.victims and waits:
            assert each.price < price
