"""Gangs: all of what they need or nothing, decided together, by what leaving them costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import with_gangs
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.constraints import Constraint, Global, OneDomain
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, GangPolicy, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.admission import Admission
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.passes import RestrictToGangDomains
from flowcore.planning.problem.passes.compile_constraints import compile_constraints
from flowcore.planning.problem.passes.constraint_gangs import with_constraint_gangs
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round, RoundResult, run_one_by_one, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES


def gang(name: str, count: int, cpu: int = 1000, **fields: object) -> list[PendingPod]:
    """Pods of a gang, all alike."""
    return [msgspec.structs.replace(pod(f"{name}-{at}", cpu, **fields), gangs=(name,)) for at in range(count)]  # type: ignore[arg-type]


def cluster(nodes: list[Node], pending: list[PendingPod], *gangs: Gang, now: float = 1000.0) -> Snapshot:
    """A snapshot with these gangs; those that pods name and that are not given need all of their pods."""
    needs = Counter(name for each in pending for name in each.gangs)
    known = {name: Gang(name, count) for name, count in needs.items()} | {each.name: each for each in gangs}
    return replace(snapshot(nodes, pending, now=now), gangs=known)


def slots(count: int, label: str = "") -> list[Node]:
    """Nodes that take one pod of 1000m each."""
    labels = (("rack", label),) if label else ()
    return [node(f"n{label}{at}", 1000, labels=labels) for at in range(count)]


def placed(result: RoundResult) -> Counter[str]:
    """How many pods of each gang were placed."""
    return Counter(name for placement in result.placements for name in placement.pod.gangs or ("",) if placement)


def reasons(result: RoundResult) -> dict[str, str]:
    """Reason of each pod that is left, by its name."""
    return {left.pod.uid: left.reason for left in result.unplaced}


@settings(max_examples=examples(35), deadline=None)
@given(with_gangs())
def test_no_gang_is_ever_half_placed(crowd: Snapshot) -> None:
    """Whatever the gangs: all safety properties hold, and the same snapshot gives the same plan."""
    plan_and_check(crowd)


@settings(max_examples=examples(20), deadline=None)
@given(with_gangs(constrained_snapshots()))
def test_gangs_of_pods_that_rules_bind(crowd: Snapshot) -> None:
    """Affinity, anti-affinity, spread and ports among the pods of gangs: all safety properties hold."""
    plan_and_check(crowd)


@settings(max_examples=examples(20), deadline=None)
@given(with_gangs())
def test_whoever_stops_a_round_gets_a_whole_plan(crowd: Snapshot) -> None:
    """After each step; none makes the plan worse: by gangs that have begun, by levels, then by its cost."""
    this, key = Round(crowd), None
    for _ in range(30):
        if not this.step():
            return
        check_plan(crowd, this.result())
        before, key = key, this.key
        assert before is None or key <= before


@settings(max_examples=examples(25), deadline=None)
@given(with_gangs(), st.floats(0, 1000), st.integers(0, 1000))
def test_no_plan_with_whole_gangs_is_below_the_bound(crowd: Snapshot, scale: float, seed: int) -> None:
    """Whatever the shadow prices, more so with those of the relaxation; with groups no weaker than without."""
    problem = RestrictToGangDomains().apply(Problem(crowd, DEFAULT_POLICIES, MODELS))
    cost, free = run_round(crowd).cost, problem.start.free
    drawn = np.random.default_rng(seed).random(free.shape) * scale
    for prices in (None, drawn, drawn / np.maximum(free.max(axis=0), 1)):
        plain = lower_bound(problem.cost_matrix, shadow_prices=prices)
        bound = lower_bound(problem.cost_matrix, shadow_prices=prices, atomic_groups=problem.atomic_groups.all)
        assert plain - 1 <= bound <= cost
    admission = Admission(problem)
    for _ in admission.run():
        assert admission.bound <= min(cost, admission.best.cost)


def test_a_bound_that_is_given_is_not_raised() -> None:
    """It is of a problem in which more was open: what the gangs of this one cost at least says nothing of it."""
    sizes = (700, 900, 1100, 700, 900)
    gangs = [
        msgspec.structs.replace(pod(f"{g}-{at}", sizes[(g + at) % 5]), gangs=(f"{g}",))
        for g in range(12)
        for at in range(4)
    ]
    crowd = cluster([node(f"n{at}", (1500, 2000, 3100)[at % 3]) for at in range(20)], gangs)
    alone, given = Round(crowd), Round(crowd)
    given.bound_by(-5)
    for _ in range(20):
        alone.step()
        given.step()
        assert given.result().lower_bound <= 0
    assert alone.result().lower_bound > 0


def test_two_gangs_do_not_take_each_others_room() -> None:
    """Four slots, two gangs of three, whose pods came by turns: one by one neither ever runs, a round admits one."""
    pending = [
        msgspec.structs.replace(pod(f"{name}-{at}", 1000, created=10.0 * at + late), gangs=(name,))
        for at in range(3)
        for late, name in enumerate(("a", "b"), start=1)
    ]
    crowd = cluster(slots(4), pending, now=100.0)
    assert placed(run_one_by_one(crowd)) == {"a": 2, "b": 2}
    result = plan_and_check(crowd)
    assert placed(result) == {"a": 3}
    assert reasons(result)["b-0"] == "b needs 3 pods at once, and there is room for 1 beside what is placed."
    assert {(each.atomic_group, each.optional) for each in result.placements} == {("a", False)}


def test_figure_9_a_gang_stays_out_when_dearer_pods_need_the_room() -> None:
    """A minimum flow would place it whatever that costs; here it is in or out by what it is worth."""
    mine, dear = gang("g", 3), [pod(f"d{at}", 1000, priority=1_000_000) for at in range(2)]
    assert placed(plan_and_check(cluster(slots(5), [*mine, *dear]))) == {"g": 3, "": 2}
    assert placed(plan_and_check(cluster(slots(4), [*mine, *dear]))) == {"": 2}


def test_figure_10_two_tasks_on_one_machine_or_both_unscheduled() -> None:
    """Each of two nodes has room for one: both wait; where one has room for both, they go there."""
    pair = Gang("g", 2, topology_key="kubernetes.io/hostname")
    names = [(("kubernetes.io/hostname", name),) for name in "ab"]
    small = [node(name, 1000, labels=labels) for name, labels in zip("ab", names, strict=True)]
    result = plan_and_check(cluster(small, gang("g", 2), pair))
    assert not result.placements
    told = "g needs 2 pods at once in one domain of kubernetes.io/hostname, and none can hold them even when empty."
    assert set(reasons(result).values()) == {told}
    large = [small[0], node("b", 2000, labels=names[1])]
    assert {each.node for each in plan_and_check(cluster(large, gang("g", 2), pair)).placements} == {"b"}


def test_priority_decides_between_gangs_and_then_waiting() -> None:
    """Three slots, gangs of three: the one of higher priority; of equal ones that which waits longer."""
    dear, cheap = gang("dear", 3, priority=100, created=900.0), gang("cheap", 3, created=900.0)
    assert placed(plan_and_check(cluster(slots(3), [*cheap, *dear]))) == {"dear": 3}
    old = gang("old", 3, created=100.0)
    assert placed(plan_and_check(cluster(slots(3), [*cheap, *old]))) == {"old": 3}


def test_small_gangs_fill_what_a_large_one_leaves() -> None:
    """Among equals as many pods as there is room for."""
    crowd = cluster(slots(8), [*gang("large", 5), *gang("one", 3), *gang("two", 4), *gang("three", 2)])
    assert sum(placed(plan_and_check(crowd)).values()) == 8


def test_pods_beyond_what_a_gang_needs_are_spare() -> None:
    """They are placed where there is room, are told apart, and nothing without their gang."""
    needs = Gang("g", 3)
    result = plan_and_check(cluster(slots(4), gang("g", 5), needs))
    assert Counter(each.optional for each in result.placements) == {False: 3, True: 1}
    assert reasons(result)["g-4"].startswith("0/4 nodes are available")
    assert not plan_and_check(cluster(slots(2), gang("g", 5), needs)).placements


def test_spare_pods_give_way_to_dearer_ones_and_needed_ones_do_not() -> None:
    """A gang that is in keeps what it needs; beyond that each pod stands for itself."""
    dearer = [pod(f"d{at}", 1000, priority=10) for at in range(2)]
    result = plan_and_check(cluster(slots(5), [*gang("g", 5, priority=5), *dearer], Gang("g", 3)))
    assert placed(result) == {"g": 3, "": 2}


def test_a_gang_of_several_classes() -> None:
    """A launcher and its workers, and room for the workers alone: nothing."""
    workers, launcher = gang("g", 3), msgspec.structs.replace(pod("launcher", 500), gangs=("g",))
    assert placed(plan_and_check(cluster([*slots(3), node("small", 500)], [*workers, launcher]))) == {"g": 4}
    result = plan_and_check(cluster([*slots(3), node("small", 400)], [*workers, launcher]))
    assert not result.placements
    assert reasons(result)["launcher"] == (
        "g needs 4 pods at once, and the plan finds no room for all of them beside what is placed."
    )


def test_a_unit_of_gangs_is_placed_as_one() -> None:
    """Two gangs of two that are one unit need four slots."""
    units = [Gang(name, 2, atomic_group="group ml") for name in "ab"]
    pending = [*gang("a", 2), *gang("b", 2)]
    result = plan_and_check(cluster(slots(4), pending, *units))
    assert {each.atomic_group for each in result.placements} == {"group ml"}
    result = plan_and_check(cluster(slots(3), pending, *units))
    assert set(reasons(result).values()) == {
        "group ml needs 4 pods at once, and there is room for 3 beside what is placed."
    }
    absent = plan_and_check(cluster(slots(4), gang("a", 2), *units))
    assert set(reasons(absent).values()) == {"B needs 2 pods at once, none waits."}


def test_gangs_that_share_pods_are_placed_as_one() -> None:
    """A shared pod counts for both."""
    shared = msgspec.structs.replace(pod("shared", 1000), gangs=("a", "b"))
    crowd = [*gang("a", 1), *gang("b", 1), shared]
    assert placed(plan_and_check(cluster(slots(3), crowd))) == {"a": 2, "b": 2}
    assert not plan_and_check(cluster(slots(2), crowd)).placements


def test_what_no_gang_can_be_is_said_and_holds_nobody_up() -> None:
    """More needed than wait, a flaw, a name that nobody knows: those wait with the reason, all others are placed."""
    pending = [*gang("short", 2), *gang("flawed", 1), *gang("stranger", 1), pod("plain", 1000)]
    crowd = cluster(
        slots(9), pending, Gang("short", 5), Gang("flawed", 1, unschedulable_reason="flawed contradicts itself")
    )
    crowd = replace(crowd, gangs={name: each for name, each in crowd.gangs.items() if name != "stranger"})
    result = plan_and_check(crowd)
    assert [each.pod.uid for each in result.placements] == ["plain"]
    assert reasons(result) == {
        "short-0": "Short needs 5 pods at once, 2 wait.",
        "short-1": "Short needs 5 pods at once, 2 wait.",
        "flawed-0": "Flawed contradicts itself.",
        "stranger-0": "Stranger is not known.",
    }


def test_late_pods_of_a_gang_are_pods_like_any_other() -> None:
    """It has what it needs: they go one by one, but to its domain."""
    racks = [*slots(1, "a"), *slots(2, "b")]
    late = plan_and_check(cluster(racks, gang("g", 2), Gang("g", 0)))
    assert {(each.atomic_group, each.optional) for each in late.placements} == {("", False)}
    kept = plan_and_check(cluster(racks, gang("g", 2), Gang("g", -1, topology_key="rack", domain="a")))
    assert [each.node for each in kept.placements] == ["na0"]
    assert set(reasons(kept).values()) == {"g keeps to rack a, where no node has room for it."}


def test_together_in_a_rack() -> None:
    """The only rack with room for all of it, though others have cheaper nodes; the others' pods go beside."""
    racks = [*slots(3, "a"), *slots(4, "b"), *slots(2, "c")]
    both = Gang("g", 4, topology_key="rack")
    result = plan_and_check(cluster(racks, [*gang("g", 4), pod("plain", 1000)], both))
    assert {each.node[:2] for each in result.placements if each.atomic_group} == {"nb"}
    assert len(result.placements) == 5


def test_a_gang_that_has_begun_comes_first() -> None:
    """What some of it holds already is no use until the rest is there."""
    pending = [*gang("dear", 3, priority=10), *gang("begun", 2)]
    result = plan_and_check(cluster(slots(3), pending, Gang("begun", 2, partially_placed=True)))
    assert placed(result) == {"begun": 2}


def governed(*constraints: Constraint) -> dict[str, Policy]:
    """The built-in policy with these constraints."""
    return {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, name=BUILT_IN.name, constraints=constraints)}


WEB = LabelSelector((Requirement("app", "In", ("web",)),))


def webs(count: int, cpu: int = 1000) -> list[PendingPod]:
    """Pods that the description speaks of."""
    return [pod(f"w{at}", cpu, kind=PodSignature("default", (("app", "web"),))) for at in range(count)]


def test_together_as_a_policy_says_it() -> None:
    """All in one rack or none; where some run, the others go there; where they run in two, the reason says so."""
    policies = governed(OneDomain("pair", WEB, "rack"))
    racks = [*slots(2, "a"), *slots(3, "b")]

    def plan(count: int, *running: str) -> RoundResult:
        near = PodIndex.of((name, PodSignature("default", (("app", "web"),))) for name in running)
        crowd = snapshot(racks, webs(count), [(name, amounts(1000), ()) for name in running], pod_index=near)
        result = run_round(crowd, policies)
        check_plan(with_constraint_gangs(crowd, policies), result)
        return result

    assert {each.node[:2] for each in plan(3).placements} == {"nb"}
    whole = "constraint pair of policy (built-in) needs 4 pods at once in one domain of rack"
    assert set(reasons(plan(4)).values()) == {f"{whole}, and none can hold them even when empty."}
    assert [each.node for each in plan(1, "na0").placements] == ["na1"]
    assert not plan(2, "na0").placements
    assert reasons(plan(1, "na0", "nb0"))["w0"] == (
        "Constraint pair of policy (built-in) keeps its pods in one rack, and some run in a and b already."
    )


def test_global_all_or_none_as_a_policy_says_it() -> None:
    """One on each matching node or none placed; what is beyond that waits, and nodes that have one need none."""
    gpu = LabelSelector((Requirement("gpu", "Exists"),))
    policies = governed(Global("agent", WEB, gpu, all_or_none=True))
    nodes = [node(name, 4000, labels=(("gpu", "yes"), ("kubernetes.io/hostname", name))) for name in "abc"]
    nodes.append(node("d", labels=(("kubernetes.io/hostname", "d"),)))

    def plan(count: int, *running: str, cpu: int = 1000) -> RoundResult:
        near = PodIndex.of((name, PodSignature("default", (("app", "web"),))) for name in running)
        crowd = snapshot(nodes, webs(count, cpu), [(name, amounts(1000), ()) for name in running], pod_index=near)
        result = run_round(crowd, policies)
        check_plan(with_constraint_gangs(compile_constraints(crowd, policies)[0], policies), result)
        return result

    assert sorted(each.node for each in plan(4).placements) == ["a", "b", "c"]
    assert not plan(2).placements
    assert reasons(plan(2))["w0"] == "Constraint agent of policy (built-in) needs 3 pods at once, 2 wait."
    assert sorted(each.node for each in plan(2, "b").placements) == ["a", "c"]
    assert not plan(2, "b", cpu=5000).placements


def test_what_a_gang_must_not_and_what_it_needs_hold_both() -> None:
    """Anti-affinity among the pods of a gang: three nodes hold three of them whatever room there is; four wait."""
    term = AffinityTerm("kubernetes.io/hostname", WEB, ("default",))
    kind = PodSignature("default", (("app", "web"),), constraints=InterPodConstraints(anti_affinity=(term,)))
    nodes = [node(name, 9000, labels=(("kubernetes.io/hostname", name),)) for name in "abc"]

    def plan(count: int) -> RoundResult:
        pending = [msgspec.structs.replace(pod(f"w{at}", 1000, kind=kind), gangs=("g",)) for at in range(count)]
        return plan_and_check(cluster(nodes, pending))

    assert sorted(each.node for each in plan(3).placements) == ["a", "b", "c"]
    assert reasons(plan(4))["w0"] == "g needs 4 pods at once, and there is room for 3 beside what is placed."


def test_a_large_gang_does_not_starve_beside_small_ones() -> None:
    """Small gangs come and end for ever, two slots at a time: room is kept for the large one as it comes free."""
    nodes, terms = slots(8), GangPolicy(hold_room_after=300)
    policies = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, gangs=terms)}
    running = [(f"n{at}", amounts(1000), ()) for at in range(8)]
    large = gang("large", 8, created=1.0)
    taken: list[int] = []
    for number in range(12):
        now = 200.0 + 60 * number
        # The two pods that ran longest end; two more small gangs are there.
        running = running[2:]
        small = [each for at in range(2) for each in gang(f"small{number}{at}", 2, created=now - 1)]
        crowd = replace(snapshot(nodes, [*large, *small], running, now=now))
        crowd = replace(
            crowd, gangs={each.gangs[0]: Gang(each.gangs[0], 2) for each in small} | {"large": Gang("large", 8)}
        )
        result = run_round(crowd, policies)
        check_plan(crowd, result)
        if placed(result)["large"]:
            assert taken
            return
        if now - 1.0 > 300:
            taken.append(number)
            kept = f"large needs 8 pods at once, and room for {len(taken) * 2} pods is held for it."
            assert reasons(result)["large-0"] == kept
            assert not result.placements
        running += [(each.node, amounts(1000), ()) for each in result.placements]
    raise AssertionError("the large gang never ran")
