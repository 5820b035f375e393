"""Parts of a cluster that have nothing in common are solved by themselves, and their plans and bounds add up."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.constructive import fill
from flowcore.planning.problem.passes import CompileConstraints, CompileWorkloadKinds, apply_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import replay
from flowcore.planning.round.parts import PartedPortfolio, independent_parts, solver_of
from flowcore.planning.round.portfolio import Portfolio

POLICIES = {BUILT_IN.name: BUILT_IN}
POOLS = 4


def _signature(app: str, rule: str) -> PodSignature:
    own = LabelSelector((Requirement("app", "In", (app,)),))
    rules = {
        "apart": InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, own, ("default",), None),)),
        "near": InterPodConstraints(affinity=(AffinityTerm("zone", own, ("default",), None),)),
        "spread": InterPodConstraints(spread=(SpreadConstraint("zone", 1, own),)),
    }
    return PodSignature("default", (("app", app),), constraints=rules.get(rule))


@st.composite
def pools(draw: st.DrawFn, rules: tuple[str, ...] = ("", "", "apart", "near", "spread")) -> Snapshot:
    """Pools of nodes; most pods select one, some fit nowhere, and apps with rules may have pods in several."""
    nodes = [
        node(f"n{at}", draw(st.sampled_from((1000, 2000, 4000))),
             labels=(("pool", str(draw(st.integers(0, POOLS - 1)))), ("zone", str(at % 2))))
        for at in range(draw(st.integers(2, 8)))
    ]  # fmt: skip
    pending: list[PendingPod] = []
    apps = [_signature(f"app{at}", draw(st.sampled_from(rules))) for at in range(3)]
    for at in range(draw(st.integers(2, 16))):
        pool = draw(st.integers(0, 4 * POOLS))
        where: dict[str, Any] = {} if pool > 4 * POOLS - 1 else {"node_selector": (("pool", str(pool % POOLS)),)}
        cpu = draw(st.sampled_from((300, 500, 700, 1100, 9000)))
        kind = draw(st.sampled_from([PodSignature("default"), *apps]))
        ports = draw(st.sampled_from(((), (), (HostPort(ANY_ADDRESS, "TCP", 80),))))
        pending.append(pod(f"p{at}", cpu, created=float(at), kind=kind, host_ports=ports, **where))
    return snapshot(nodes, pending, now=100.0)


def stated(found: Snapshot) -> Problem:
    return apply_all((CompileConstraints(), CompileWorkloadKinds()), Problem(found, POLICIES, MODELS))


@settings(max_examples=examples(40), deadline=None)
@given(pools())
def test_parts_share_nothing(found: Snapshot) -> None:
    """Each demand is in one part; no node and no counter of a rule belongs to two."""
    problem = stated(found)
    parts = independent_parts(problem)
    assert sorted(at for part in parts for at in part) == list(range(len(problem.demands)))
    seen: set[object] = set()
    for part in parts:
        mine: set[object] = set()
        for at in part:
            demand = problem.demands[at]
            if demand.counts.any():
                mine.update(demand.counts.nonzero()[0].tolist())
                mine.update((*demand.constraints.increments, *demand.constraints.reads))
        assert seen.isdisjoint(mine)
        seen |= mine


@settings(max_examples=examples(40), deadline=None)
@given(pools())
def test_a_plan_of_parts_is_a_plan(found: Snapshot) -> None:
    """It breaks no rule, leaves no room unused, adds up, and is the same each time."""
    plan_and_check(found, POLICIES)


@settings(max_examples=examples(25), deadline=None)
@given(pools())
def test_bounds_of_parts_add_up(found: Snapshot) -> None:
    """The sum holds for plans that know no parts, and the other way round; and no step makes the plan dearer."""
    problem = stated(found)
    parted, whole = solver_of(problem, 0), Portfolio(problem)
    for _ in whole.run():
        pass
    cost = fill(problem).cost
    for _ in parted.run():
        best = parted.conclude()
        _, capacity = replay(problem, best.commits)
        assert (capacity.free == best.capacity.free).all()
        assert capacity.ports == best.capacity.ports
        assert parted.bound <= min(best.cost, whole.conclude().cost)
        assert best.cost <= cost
        cost = best.cost
    assert whole.bound <= parted.conclude().cost


def test_each_part_is_solved_as_it_needs() -> None:
    """Equal pods in a pool with room are certified and done with, although another pool is short of room."""
    nodes = [node(f"n{at}", 4000, labels=(("pool", str(at % 2)),)) for at in range(6)]
    sizes = ((500,) * 6, (1500, 2500, 900, 3100, 700, 2200, 1900, 2700, 1300))
    pending = [
        pod(f"p{pool}-{at}", cpu, created=float(at), node_selector=(("pool", str(pool)),))
        for pool, each in enumerate(sizes)
        for at, cpu in enumerate(each)
    ]
    problem = stated(snapshot(nodes, pending, now=100.0))
    solver = solver_of(problem, 0)
    assert isinstance(solver, PartedPortfolio)
    steps = sum(1 for _ in solver.run())
    _, roomy = solver._portfolios
    assert roomy.best.cost == roomy.bound
    assert not sum(1 for _ in roomy.decide())
    assert steps > 1


def test_a_rule_joins_parts() -> None:
    """Pods of one app that spread over two pools are decided together; without the rule they are not."""
    nodes = [node(f"n{at}", labels=(("pool", str(at)), ("zone", str(at)))) for at in range(2)]
    for rule, count in (("spread", 1), ("", 2)):
        kind = _signature("app", rule)
        pending = [pod(f"p{at}", 100 + at, kind=kind, node_selector=(("pool", str(at)),)) for at in range(2)]
        assert len(independent_parts(stated(snapshot(nodes, pending)))) == count


def test_there_are_at_most_sixteen_parts() -> None:
    """Of thirty pools the small ones are solved together, and pods without a node with the largest."""
    nodes = [node(f"n{at}", labels=(("pool", str(at)),)) for at in range(30)]
    pending = [
        pod(f"p{at}-{turn}", 100, node_selector=(("pool", str(at)),)) for at in range(30) for turn in range(at + 1)
    ]
    problem = stated(snapshot(nodes, [*pending, pod("nowhere", 10**6)]))
    parts = independent_parts(problem)
    assert len(parts) == 16
    assert [sum(problem.demands[at].count for at in part) for part in parts[:3]] == [31, 29, 28]
    assert len(parts[-1]) == 15
