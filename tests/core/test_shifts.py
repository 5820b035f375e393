"""Shifts: placed pods take other nodes, or give way to several others, so that pods that wait have room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.eviction_clusters import HOSTNAME, keeps_apart
from support.large_snapshots import large_snapshots, with_gangs
from support.mixed_snapshots import mixed_snapshots
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.methods.constructive import fill
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round
from flowcore.planning.round.round import DEFAULT_POLICIES

_BY_POD = {BUILT_IN.name: Policy(BUILT_IN.name, unscheduled=UnscheduledPrice(per=PricedBy.POD))}


def _problem(cluster: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> Problem:
    return apply_all((CompileConstraints(),), Problem(cluster, policies, MODELS))


def _name(problem: Problem, index: int) -> str:
    """Of the first pod of a demand."""
    return problem.demands[index].group.pods[0].key.removeprefix("default/")


def _placed(problem: Problem, *placements: tuple[str, str]) -> Candidate:
    """A candidate with these pods, whose names begin so, on these nodes; all others are left."""
    names = [_name(problem, index) for index in range(len(problem.demands))]
    capacity, commits = problem.start.copy(), []
    for name, on in placements:
        index = next(place for place, key in enumerate(names) if key.startswith(name))
        where = [each.name for each in problem.snapshot.table.nodes].index(on)
        assert capacity.place(problem.demands[index], where, 1)
        commits.append(Commit(index, where, 1))
    return problem.candidate("given", commits, capacity)


def shifted(problem: Problem, candidate: Candidate) -> Candidate | None:
    """A better plan than a candidate with room made for pods that wait; None: there is none."""
    search = RuinAndRebuild(problem, candidate, seed=0)
    for _ in search.run("room"):
        pass
    return search.candidate() if search.gain else None


def _where(problem: Problem, candidate: Candidate) -> Counter[tuple[str, str]]:
    nodes = [each.name for each in problem.snapshot.table.nodes]
    return Counter({(_name(problem, commit.demand), nodes[commit.node]): commit.count for commit in candidate.commits})


def test_a_small_pod_goes_to_a_small_gap() -> None:
    """The small pod has taken the large node, where the large pod would fit; it fits the small one too."""
    problem = _problem(snapshot([node("large", 4000), node("small", 1000)], [pod("big", 4000), pod("tiny", 500)]))
    better = shifted(problem, _placed(problem, ("tiny", "large")))
    assert better is not None
    assert _where(problem, better) == {("big", "large"): 1, ("tiny", "small"): 1}
    assert better.method == "ruin and rebuild"


def test_a_large_pod_gives_way_to_several() -> None:
    """One pod waits in place of four: where pods count, that costs less, whatever the node."""
    pods = [pod("big", 4000), *(pod(f"tiny-{at}", 1000) for at in range(4))]
    problem = _problem(snapshot([node("n", 4000)], pods), _BY_POD)
    better = shifted(problem, _placed(problem, ("big", "n")))
    assert better is not None
    assert _where(problem, better) == {("tiny-0", "n"): 4}


def test_nobody_moves_where_that_places_no_more() -> None:
    """The only other node has no room for the small pod, and where pods count one is as dear to leave as the other."""
    running = [("small", amounts(800), ())]
    nodes = [node("large", 4000), node("small", 1000)]
    problem = _problem(snapshot(nodes, [pod("big", 4000), pod("tiny", 500)], running), _BY_POD)
    assert shifted(problem, _placed(problem, ("tiny", "large"))) is None


def test_room_is_made_within_rules() -> None:
    """Two pods keep apart: the second has no place beside the first, wherever others go."""
    apart = PodSignature("default", (("app", "a"),), constraints=keeps_apart("a"))
    nodes = [node(name, cpu, labels=((HOSTNAME, name),)) for name, cpu in (("one", 2000), ("two", 4000), ("gap", 600))]
    waiting = [pod("apart-0", 1800, kind=apart), pod("apart-1", 1800, kind=apart), pod("tiny", 500), pod("big", 3900)]
    problem = _problem(snapshot(nodes, waiting))
    better = shifted(problem, _placed(problem, ("apart", "one"), ("tiny", "two"), ("apart", "two")))
    assert better is None
    better = shifted(problem, _placed(problem, ("tiny", "two"), ("apart", "one")))
    assert better is not None
    placed = _where(problem, better)
    assert placed["apart-0", "one"] == 1
    assert placed["tiny", "gap"] + placed["tiny", "two"] == 1
    assert placed["apart-0", "two"] + placed["big", "two"] == 1


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(large_snapshots(), constrained_snapshots()))
def test_a_shifted_plan_keeps_room_and_rules(cluster: Snapshot) -> None:
    """It can be placed once more from the start in its order, places no pod twice, and costs what it says."""
    problem = _problem(cluster)
    first = fill(problem)
    better = shifted(problem, first)
    if better is None:
        return
    capacity = problem.start.copy()
    for commit in better.commits:
        assert capacity.place(problem.demands[commit.demand], commit.node, commit.count) == commit.count
    assert (capacity.free == better.capacity.free).all()
    placed = Counter[int]()
    for commit in better.commits:
        placed[commit.demand] += commit.count
    assert all(count <= problem.demands[index].count for index, count in placed.items())
    assert sum(placed.values()) > sum(commit.count for commit in first.commits)
    assert better.cost == problem.cost(better.commits, better.admitted)


@settings(max_examples=examples(40), deadline=None)
@given(st.one_of(mixed_snapshots(rules=True), with_gangs(constrained_snapshots())))
def test_rounds_are_sound_from_the_first_step(cluster: Snapshot) -> None:
    """With gangs too: a plan that has been shifted after admission is one that any check lets pass."""
    first = Round(cluster)
    first.step()
    check_plan(cluster, first.result())


def test_many_pods_have_shifts_in_the_first_step() -> None:
    """Pods of four sizes, for a tenth less room than they want: the plan of the one step is not worse by them."""
    sizes = ((250, 4), (500, 1), (1000, 2), (3000, 1))
    nodes = [node(f"n{at}", 66_000 + 1000 * (at % 5), 130 * GI) for at in range(40)]
    pods = [pod(f"p{at}", sizes[at % 4][0], sizes[at % 4][1] * GI, created=float(at)) for at in range(3_100)]
    plans = []
    for without in (frozenset[str](), frozenset({"ruin and rebuild"})):
        first = Round(snapshot(nodes, pods), without=without)
        first.step()
        plans.append(first.result())
    assert plans[0].cost <= plans[1].cost
