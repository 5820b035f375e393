"""Interference: what pods of some kinds cost beside each other, among those that run and those of the round."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, permutations, product
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import APPS, constrained_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.workload_kinds import Interference, Machines, WorkloadKind
from flowcore.planning.methods.constructive import fill
from flowcore.planning.methods.local_search import LocalSearch
from flowcore.planning.methods.without_penalties import WithoutPenalties
from flowcore.planning.problem.passes import CompileWorkloadKinds
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.portfolio import Portfolio
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.rules.reasons.codes import CHEAPER_TO_WAIT

NAMES = ("batch", "web", "noisy")
KINDS = tuple(WorkloadKind(name, LabelSelector((Requirement("kind", "In", (name,)),))) for name in NAMES)


def kind(name: str) -> PodSignature:
    return PodSignature("default", (("kind", name),) if name else ())


def policies(penalties: list[list[int]] | None = None, machines: Machines | None = None) -> dict[str, Policy]:
    found = None if penalties is None else Interference(tuple(map(tuple, penalties)))
    cost = CostPolicy(kinds=KINDS, interference=found, machines=machines)
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost)}


def pods(**counts: int) -> list[PendingPod]:
    return [pod(f"{name}-{at}", 100, kind=kind(name)) for name, count in counts.items() for at in range(count)]


def cluster(nodes: int, pending: list[PendingPod], running: dict[str, str] | None = None, cpu: int = 1000) -> Snapshot:
    """``running``: node of each running pod -> its kind."""
    index = PodIndex.of((at, kind(name)) for at, name in (running or {}).items())
    return snapshot([node(f"n{at}", cpu) for at in range(nodes)], pending, pod_index=index)


def by_node(result: RoundResult) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for placement in result.placements:
        found.setdefault(placement.node, Counter())[dict(placement.pod.signature.labels).get("kind", "")] += 1
    return found


NOISY = [[0, 0, 0], [0, 0, 0], [0, 0, 800]]


def test_two_noisy_kinds_separate_where_there_is_room_and_share_where_there_is_not() -> None:
    """One noisy pod a node while there are nodes, as many on each as must be then; nobody waits for it."""
    roomy = run_round(cluster(6, pods(noisy=6, batch=12)), policies(NOISY))
    assert {each["noisy"] for each in by_node(roomy).values()} == {1}
    tight = run_round(cluster(3, pods(noisy=6, batch=12)), policies(NOISY))
    assert [each["noisy"] for each in by_node(tight).values()] == [2, 2, 2]
    assert not roomy.unplaced
    assert not tight.unplaced


def test_kinds_that_hurt_each_other_go_to_different_nodes() -> None:
    """Neither noisy pods nor web pods mind their own kind: one kind a node, although they come in one round."""
    plan = run_round(cluster(4, pods(noisy=4, web=4)), policies([[0, 0, 0], [0, 0, 900], [0, 0, 0]]))
    assert all(len(each) == 1 for each in by_node(plan).values())


def test_those_that_run_count_in_both_directions() -> None:
    """A pod keeps away from those that hurt it and from those that it hurts."""
    penalties = [[0, 0, 0], [0, 0, 900], [0, 0, 0]]  # only web pods suffer, from noisy ones
    for running, arriving in (("noisy", "web"), ("web", "noisy")):
        plan = run_round(cluster(2, pods(**{arriving: 2}), {"n0": running}), policies(penalties))
        assert set(by_node(plan)) == {"n1"}


def test_a_pod_is_of_the_first_kind_that_selects_it() -> None:
    """A later kind that selects everything takes the rest only."""
    kinds = (*KINDS[2:], WorkloadKind("rest", LabelSelector()))
    cost = CostPolicy(kinds=kinds, interference=Interference(((0, 0), (0, 700))))
    found = run_round(
        cluster(2, [*pods(noisy=1), pod("other", 100)], {"n0": "noisy", "n1": "web"}),
        {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost)},
    )
    assert by_node(found)["n0"][""] == 1  # a noisy pod runs there, and is not of the rest


def test_fast_machines_go_to_those_that_gain_most() -> None:
    """Both kinds are faster on new machines; those that gain more get them, whoever comes first."""
    machines = Machines(
        "gen", (("batch", "new", 1000), ("batch", "old", 1100), ("web", "new", 1000), ("web", "old", 2000))
    )
    nodes = [node(f"n{at}", 400, labels=(("gen", gen),)) for at, gen in enumerate(("new", "old"))]
    for order in ({"batch": 4, "web": 4}, {"web": 4, "batch": 4}):
        plan = by_node(run_round(snapshot(nodes, pods(**order)), policies(machines=machines)))
        assert plan == {"n0": Counter(web=4), "n1": Counter(batch=4)}


def test_an_unknown_machine_counts_as_the_slowest() -> None:
    """No node is forbidden for lack of a figure; one without the label is last."""
    machines = Machines("gen", (("web", "new", 1000), ("web", "old", 1500)))
    labels = ((), (("gen", "odd"),), (("gen", "old"),), (("gen", "new"),))
    nodes = [node(f"n{at}", 100, labels=each) for at, each in enumerate(labels)]
    plan = run_round(snapshot(nodes, pods(web=1)), policies(machines=machines))
    assert plan.placements[0].node == "n3"
    assert not run_round(snapshot(nodes, pods(web=4)), policies(machines=machines)).unplaced


_penalties = st.lists(st.lists(st.sampled_from((0, 0, 50, 300, 2000)), min_size=3, max_size=3), min_size=3, max_size=3)
_pending = st.lists(st.tuples(st.sampled_from(("", *NAMES)), st.sampled_from((100, 300))), min_size=1, max_size=7)
_running = st.dictionaries(st.sampled_from(("n0", "n1", "n2")), st.sampled_from(NAMES))


def problem_of(pending: list[tuple[str, int]], running: dict[str, str], rules: dict[str, Policy]) -> Problem:
    waiting = [pod(f"p{at}", cpu, kind=kind(name)) for at, (name, cpu) in enumerate(pending)]
    return CompileWorkloadKinds().apply(Problem(cluster(3, waiting, running), rules, MODELS))


def by_hand(problem: Problem, commits: Sequence[Commit], penalties: list[list[int]], running: dict[str, str]) -> int:
    """The matrix over all ordered pairs of pods that share a node, but for pairs that run already."""
    found = 0
    for at, here in enumerate(problem.snapshot.table.nodes):
        placed = [
            dict(problem.demands[commit.demand].group.signature.labels).get("kind", "")
            for commit in commits
            if commit.node == at
            for _ in range(commit.count)
        ]
        everyone = [*placed, *([running[here.name]] if here.name in running else [])]
        for (one, suffers), (other, hurts) in permutations(enumerate(everyone), 2):
            if suffers and hurts and min(one, other) < len(placed):
                found += penalties[NAMES.index(suffers)][NAMES.index(hurts)]
    return found


@settings(max_examples=examples(40), deadline=None)
@given(_pending, _running, _penalties, st.randoms(use_true_random=False))
def test_the_cost_of_a_plan_is_the_sum_over_pairs(
    pending: list[tuple[str, int]], running: dict[str, str], penalties: list[list[int]], random: Random
) -> None:
    """Whatever the plan: what the matrix adds to its cost is that of each pair of neighbours, once for each of them."""
    problem = problem_of(pending, running, policies(penalties))
    without = problem_of(pending, running, policies([[0] * 3] * 3))
    capacity, commits = problem.start.copy(), []
    for at, demand in enumerate(problem.demands):
        for _ in demand.group.pods:
            node_at = random.randrange(3)
            if capacity.place(demand, node_at, 1):
                commits.append(Commit(at, node_at, 1))
    added = problem.objective.placed(commits) - without.objective.placed(commits)
    assert added == by_hand(problem, commits, penalties, running)
    assert sum(problem.objective.pod_prices(commits).tolist()) == problem.objective.placed(commits)


@settings(max_examples=examples(40), deadline=None)
@given(_pending, _running, _penalties)
def test_local_search_knows_what_it_gains_and_ends_where_no_change_helps(
    pending: list[tuple[str, int]], running: dict[str, str], penalties: list[list[int]]
) -> None:
    """Its gain is the difference of the plans' costs; then neither a move nor an exchange makes the plan cheaper."""
    problem = problem_of(pending, running, policies(penalties))
    first = fill(problem)
    search = LocalSearch(problem, first, seed=0)
    while search.improve():
        pass
    found = search.candidate()
    assert found.cost == first.cost - search.gain
    placed = [(commit.demand, commit.node) for commit in found.commits for _ in range(commit.count)]
    assert len(placed) == len(pending)
    for one, (at, source) in enumerate(placed):
        for target in range(3):
            assert _cost(problem, [*placed[:one], (at, target), *placed[one + 1 :]]) >= found.cost
        for other in range(one):
            changed = placed.copy()
            changed[one], changed[other] = (at, placed[other][1]), (placed[other][0], source)
            assert _cost(problem, changed) >= found.cost


def _cost(problem: Problem, placed: list[tuple[int, int]]) -> float:
    """Infinite where a node has no room for what is placed."""
    capacity = problem.start.copy()
    commits = [Commit(at, node_at, 1) for at, node_at in placed if capacity.place(problem.demands[at], node_at, 1)]
    return problem.objective.placed(commits) if len(commits) == len(placed) else float("inf")


@settings(max_examples=examples(15), deadline=None)
@given(_pending.filter(lambda pending: len(pending) <= 5), _running, _penalties)
def test_no_plan_is_below_the_bound(
    pending: list[tuple[str, int]], running: dict[str, str], penalties: list[list[int]]
) -> None:
    """The bound holds for the best of all plans; a plan that equals it is the best."""
    problem = problem_of(pending, running, policies(penalties))
    result = run_round(problem.snapshot, problem.policies)
    check_plan(problem.snapshot, result, problem.policies)
    pods_of = [at for at, demand in enumerate(problem.demands) for _ in demand.group.pods]
    best = min(
        _cost(problem, list(zip(pods_of, where, strict=True))) for where in product(range(3), repeat=len(pods_of))
    )
    assert result.lower_bound <= best <= result.cost


_size = st.sampled_from([(100, 1), (200, 4), (300, 2), (500, 8), (700, 1)])
_crowd = st.lists(st.tuples(st.sampled_from(NAMES), _size), min_size=8, max_size=16)


@settings(max_examples=examples(10, quick=3), deadline=None)
@given(_crowd, st.integers(1, 2), _penalties)
def test_a_penalty_keeps_no_pod_out_of_a_crowded_round(
    crowd: list[tuple[str, tuple[int, int]]], nodes: int, penalties: list[list[int]]
) -> None:
    """By its true cost no plan is worse than one made without penalties; if all are 1, as many pods are placed."""
    pending = [pod(f"p{at}", cpu, memory * GI, kind=kind(name)) for at, (name, (cpu, memory)) in enumerate(crowd)]
    found = snapshot([node(f"n{at}", 1500, 10 * GI) for at in range(nodes)], pending)
    for each in ([[1] * 3] * 3, penalties):
        relaxation = WithoutPenalties(CompileWorkloadKinds().apply(Problem(found, policies(each), MODELS)))
        quick = Portfolio(relaxation.problem)
        for _ in chain(quick.construct(), quick.decide()):
            pass
        plan = plan_and_check(found, policies(each))
        assert plan.lower_bound <= plan.cost <= relaxation.restore(quick.best).cost
        if each is not penalties:
            assert len(plan.placements) >= sum(commit.count for commit in quick.best.commits)


def test_a_penalty_of_one_leaves_hardly_more_pods_out_than_none() -> None:
    """180 pods crowd 30 nodes: what they cost beside each other keeps 5 % more of them out at most."""
    draw = Random(0)
    nodes = [node(f"n{at}", draw.choice((4000, 8000))) for at in range(30)]
    pending = [
        pod(
            f"p{at}",
            draw.choice((500, 1000, 2000, 3000)),
            draw.choice((1, 4, 8, 16)) * GI,
            kind=kind(draw.choice(NAMES)),
        )
        for at in range(180)
    ]
    found = snapshot(nodes, pending)
    none, one = (len(run_round(found, policies([[each] * 3] * 3)).placements) for each in (0, 1))
    assert one >= 0.95 * none


@settings(max_examples=examples(20), deadline=None)
@given(constrained_snapshots(), _penalties)
def test_plans_pass_between_a_problem_and_the_one_without_penalties(
    found: Snapshot, penalties: list[list[int]]
) -> None:
    """Both place the same pods under the same rules, and without penalties no plan costs more."""
    problem = CompileWorkloadKinds().apply(Problem(found, app_policies(penalties), MODELS))
    relaxation = WithoutPenalties(problem)
    assert not WithoutPenalties.any(relaxation.problem)
    plan = fill(problem)
    without = relaxation.remove(plan)
    assert set(without.commits) == set(plan.commits)
    assert without.cost <= plan.cost
    assert relaxation.restore(without).cost == plan.cost


def test_no_pod_waits_for_what_it_costs_its_neighbours() -> None:
    """Penalties of any size never keep a pod out that has room: prices of waiting are above them."""
    worst = [[100_000] * 3] * 3
    plan = run_round(cluster(2, pods(noisy=10, web=10), {"n0": "noisy", "n1": "web"}), policies(worst))
    assert not plan.unplaced


def test_a_policy_that_says_nothing_of_kinds_plans_as_before() -> None:
    """The problem stays the same object. Kinds whose penalties are all 0 cost nothing and stay in the flow."""
    found = cluster(3, pods(noisy=3, web=5), {"n0": "noisy"})
    problem = Problem(found, DEFAULT_POLICIES, MODELS)
    assert CompileWorkloadKinds().apply(problem) is problem
    idle = CompileWorkloadKinds().apply(Problem(found, policies([[0] * 3] * 3), MODELS))
    assert not any(demand.constraints.sequential for demand in idle.demands)
    assert run_round(found, idle.policies).cost == run_round(found).cost


def test_pods_of_other_policies_hurt_too() -> None:
    """A noisy pod that another policy governs is a neighbour as bad as any."""
    mine = policies(NOISY)[BUILT_IN.name]
    waiting = pods(noisy=2)
    other = Policy("other")
    plan = run_round(
        cluster(2, [waiting[0], msgspec.structs.replace(waiting[1], policy="other")]),
        {BUILT_IN.name: mine, other.name: other},
    )
    assert len(by_node(plan)) == 2


@settings(max_examples=examples(30), deadline=None)
@given(constrained_snapshots(), _penalties)
def test_penalties_and_rules_hold_together(found: Snapshot, penalties: list[list[int]]) -> None:
    """Pods with rules of all kinds, of which some cost something beside each other: no rule is broken for it."""
    plan_and_check(found, app_policies(penalties))


def app_policies(penalties: list[list[int]]) -> dict[str, Policy]:
    kinds = tuple(WorkloadKind(app, LabelSelector((Requirement("app", "In", (app,)),))) for app in APPS)
    cost = CostPolicy(kinds=kinds, interference=Interference(tuple(map(tuple, penalties))))
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost)}


def test_a_gang_of_noisy_pods_stays_whole() -> None:
    """Its pods move and change places, and as many of it are placed as it needs."""
    gang = Gang("g", min_placed=4)
    members = [msgspec.structs.replace(each, gangs=("g",)) for each in pods(noisy=4)]
    found = replace(cluster(3, [*members, *pods(web=6)], {"n0": "noisy"}), gangs={"g": gang})
    plan = plan_and_check(found, policies([[0, 0, 0], [0, 0, 300], [0, 0, 800]]))
    assert not plan.unplaced
    assert sorted(each["noisy"] for each in by_node(plan).values()) == [1, 1, 2]


def test_a_pod_waits_for_a_quieter_node_where_its_policy_says_so() -> None:
    """While waiting costs less than what its neighbours would suffer, it stays pending; later it goes beside them."""
    cost = policies([[0, 0, 0], [0, 0, 900], [0, 0, 0]])[BUILT_IN.name].cost
    price = UnscheduledPrice(base=500, per_waiting_second=10, wait_for_cheaper_node=True)
    rules = {BUILT_IN.name: Policy(BUILT_IN.name, cost=cost, unscheduled=price)}
    loud = cluster(1, pods(web=1), {"n0": "noisy"})
    assert [each.code for each in run_round(replace(loud, now=1.0), rules).unplaced] == [CHEAPER_TO_WAIT]
    assert not run_round(
        replace(loud, now=1000.0, pending=(msgspec.structs.replace(loud.pending[0], created=1.0),)), rules
    ).unplaced
