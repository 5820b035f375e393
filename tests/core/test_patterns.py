"""Many urgent pods of one priority: who leaves for them is decided for all of them together."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model
from support.eviction_clusters import node, running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples, is_quick

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, PreemptionPolicy, VictimOrder
from flowcore.planning.evictions.patterns.node_patterns import LeavingKind, NodePatterns
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

_CPUS = 16
LEAST = msgspec.structs.replace(BUILT_IN, preemption=PreemptionPolicy(victims=VictimOrder.LEAST_LOST_WORK))


def _full(draw: random.Random, nodes: int, priorities: tuple[int, ...] = (0,)) -> list[Pod]:
    """Running pods that fill nodes of 16 CPUs."""
    pods: list[Pod] = []
    for number in range(nodes):
        free = _CPUS
        while free:
            size = draw.choice([each for each in (1, 2, 4) if each <= free])
            labels = (("app", draw.choice("abc")),)
            pods.append(running(f"r{len(pods)}", f"n{number}", size, priority=draw.choice(priorities), labels=labels))
            free -= size
    return pods


def _urgent(draw: random.Random, nodes: int, count: int, **fields: object) -> Snapshot:
    pods = _full(draw, nodes, fields.pop("priorities", (0,)))  # type: ignore[arg-type]
    pending = [waiting(f"w{number}", draw.choice((2, 3, 6)), priority=1000) for number in range(count)]
    return snapshot([node(f"n{number}", _CPUS) for number in range(nodes)], pods, pending, **fields)  # type: ignore[arg-type]


def _fewest(drawn: Snapshot) -> int:
    """The fewest victims with which all pods that wait have a node, by a program of its own."""
    assert drawn.running is not None
    model = cp_model.CpModel()
    sizes = Counter(dict(pod.pod_class.requests)["cpu"] for pod in drawn.pending)
    names = list(drawn.table.index)
    leaves = {pod.key: model.new_bool_var(pod.key) for pod in drawn.running.pods}
    come = {
        (name, size): model.new_int_var(0, count, f"{name}{size}") for name in names for size, count in sizes.items()
    }
    for name in names:
        freed = sum(dict(pod.usage)["cpu"] * leaves[pod.key] for pod in drawn.running.pods if pod.node == name)
        model.add(sum(size * come[name, size] for size in sizes) <= freed)
    for size, count in sizes.items():
        model.add(sum(come[name, size] for name in names) == count)
    model.minimize(sum(leaves.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, 20.0
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_as_few_leave_as_any_plan_needs_or_hardly_more() -> None:
    """Beside the exact fewest of drawn full clusters: 1 % more in sum at most."""
    ours = fewest = 0
    for seed in range(2 if is_quick() else 60):
        drawn = _urgent(random.Random(seed), nodes=30, count=24)
        result = run_round(drawn)
        check_evictions(drawn, result, DEFAULT_POLICIES)
        assert len(result.placements) == 24
        ours += len(result.evictions)
        fewest += _fewest(drawn)
    assert ours <= 1.01 * fewest


@pytest.mark.parametrize("seed", range(3 if is_quick() else 100))
def test_plans_are_legal_and_nobody_leaves_in_vain(seed: int) -> None:
    """With several priorities among those that run, and PodDisruptionBudgets."""
    draw = random.Random(seed)
    budgets = [DisruptionBudget("default", f"b-{app}", selects(app), draw.randint(0, 6)) for app in "ab"]
    drawn = _urgent(draw, nodes=20, count=30, priorities=(0, 10, 20), budgets=budgets)
    check_evictions(drawn, run_round(drawn), DEFAULT_POLICIES)


def test_a_gang_that_finds_no_domain_changes_nothing_for_others() -> None:
    """Two of its pods do not fit on one node."""
    for seed in range(6):
        drawn = _urgent(random.Random(seed), 3, 4)
        gang = Gang("g", 2, topology_key="kubernetes.io/hostname")
        pods = tuple(waiting(f"g{number}", _CPUS, priority=1000, gangs=("g",)) for number in range(2))
        beside = replace(drawn, pending=(*drawn.pending, *pods), gangs={"g": gang})
        evictions, others = run_round(drawn).evictions, run_round(beside)
        assert not any(each.pod.gangs for each in others.placements)
        assert {each.pod.key for each in evictions} == {each.pod.key for each in others.evictions}


def test_a_small_pod_leaves_the_room_that_a_large_one_needs() -> None:
    """One after the other, a small pod takes half of what one large victim frees, and a large pod needs four."""
    pods = [running(f"large{number}", f"n{number}", 4, started=1.0) for number in range(6)]
    pods += [running(f"small{number}", f"n{6 + number // 4}", 1, started=2.0) for number in range(24)]
    pending = [waiting(f"a{number}", 1, priority=10) for number in range(6)]
    pending += [waiting(f"b{number}", 4, priority=10) for number in range(6)]
    drawn = snapshot([node(f"n{number}", 4) for number in range(12)], pods, pending)
    result = run_round(drawn)
    assert len(result.placements) == 12
    assert len(result.evictions) == 12


@pytest.mark.parametrize("policy", [BUILT_IN, LEAST])
def test_a_node_with_more_kinds_of_pods_than_an_array_has_dimensions(policy: Policy) -> None:
    """A hundred pods of a hundred sizes."""
    pods = [running(f"r{number}", "n0", 1 + number, started=1.0 + number) for number in range(100)]
    pending = [waiting(f"w{number}", 200 + number, priority=10) for number in range(2)]
    drawn = snapshot([node("n0", sum(range(101)))], pods, pending, policy=policy)
    result = run_round(drawn, {policy.name: policy})
    assert len(result.placements) == 2
    check_evictions(drawn, result, {policy.name: policy})


def test_the_plan_of_lower_priorities_is_as_before() -> None:
    """Only for the lowest priority of those that wait victims are chosen anew: others may need the room."""
    for seed in range(5 if is_quick() else 50):
        draw = random.Random(seed)
        pods = _full(draw, 12, (0, 5))
        pending = [
            waiting(f"w{number}", draw.choice((2, 3, 6)), priority=draw.choice((10, 20))) for number in range(24)
        ]
        drawn = snapshot([node(f"n{number}", _CPUS) for number in range(12)], pods, pending)
        result = run_round(drawn)
        check_evictions(drawn, result, DEFAULT_POLICIES)
        assert len(result.placements) == 24


def test_amounts_whose_sums_are_no_64_bit_numbers() -> None:
    """The search pod by pod decides, with numbers of any size."""
    huge = 2**61
    pods = [running(f"r{number}", f"n{number}", huge, started=1.0) for number in range(4)]
    pending = [waiting(f"w{number}", huge, priority=10) for number in range(4)]
    drawn = snapshot([node(f"n{number}", huge) for number in range(4)], pods, pending)
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    assert len(result.placements) == len(result.evictions) == 4


# -- patterns ----------------------------------------------------------------------------------------------------------

_KINDS = st.lists(
    st.tuples(st.integers(1, 3), st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(1, 5), st.booleans()),
    max_size=4,
)
_AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(_KINDS, _AMOUNTS, st.lists(_AMOUNTS.filter(any), min_size=1, max_size=2), st.integers(0, 3))
@settings(max_examples=examples(200))
def test_patterns_are_the_cheapest_of_all_sets(
    drawn: list[tuple[int, tuple[int, int], int, bool]],
    free: tuple[int, int],
    requests: list[tuple[int, int]],
    allowed: int,
) -> None:
    """Beside all subsets of the pods that may leave: what a pattern loses, and which patterns there are."""
    numbers = iter(range(100))
    kinds = [
        LeavingKind(tuple(next(numbers) for _ in range(count)), np.array(usage), loss, ("budget b",) if limited else ())
        for count, usage, loss, limited in drawn
    ]
    pods = [(kind.usage, kind.loss, bool(kind.limits)) for kind in kinds for _ in kind.members]
    asked, most = np.array(requests), np.array([2] * len(requests))
    subsets = [chosen for size in range(len(pods) + 1) for chosen in combinations(pods, size)]
    subsets = [chosen for chosen in subsets if sum(limited for _, _, limited in chosen) <= allowed]

    def least(counts: tuple[int, ...]) -> int | None:
        needed = np.array(counts) @ asked
        losses = [
            sum(loss for _, loss, _ in chosen)
            for chosen in subsets
            if all(
                room >= need or need <= 0
                for room, need in zip(np.array(free) + sum(usage for usage, _, _ in chosen), needed, strict=True)
            )
        ]
        return min(losses, default=None)

    known = {
        counts: loss
        for counts in product(range(3), repeat=len(requests))
        if any(counts) and (loss := least(counts)) is not None
    }
    patterns = NodePatterns(np.array(free), kinds, {"budget b": allowed}).patterns(asked, most)
    found = dict(zip(map(tuple, patterns.counts.tolist()), patterns.losses.tolist(), strict=True))
    assert all(known[counts] == loss for counts, loss in found.items())
    for counts, loss in known.items():
        assert any(
            all(more >= count for more, count in zip(others, counts, strict=True)) and other <= loss
            for others, other in found.items()
        )
