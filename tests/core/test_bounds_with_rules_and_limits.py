"""Lower bounds where running pods leave within rules between pods, budgets, limits of moves and shares of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.model import amounts, node, pod, snapshot
from support.plans_with_leavers import costs_of_all_plans, keeps_shares
from support.plans_with_rules import costs_of_reachable_plans, without_leavers
from support.profiles import examples

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import BUILT_IN_MODELS, MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    MaxPerDomain,
    SpreadConstraint,
)
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.resident_bound import resident_bound
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.bounds.leaving_limits import LeavingLimit
from flowcore.planning.problem.bounds.resident_room import NEVER, ResidentRoom, demands_beside
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round

ZONE = "zone"


def _app(*names: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", names),))


_keys = st.sampled_from((ZONE, HOSTNAME))
_selectors = st.sampled_from((_app("web"), _app("web", "db")))
_terms = st.builds(AffinityTerm, _keys, _selectors, st.just(("default",)), st.none())
_caps = st.builds(
    MaxPerDomain, st.just("c"), st.sampled_from((ZONE, HOSTNAME, "")), _selectors.map(lambda each: (each,)),
    st.none(), st.integers(1, 2),
)  # fmt: skip
_spreads = st.builds(SpreadConstraint, _keys, st.integers(1, 2), _selectors, st.sampled_from((1, 1, 3)))
_rules = st.one_of(
    st.none(),
    st.builds(lambda term: InterPodConstraints(anti_affinity=(term,)), _terms),
    st.builds(lambda cap: InterPodConstraints(limits=(cap,)), _caps),
    st.builds(lambda spread: InterPodConstraints(spread=(spread,)), _spreads),
    st.builds(lambda term, spread: InterPodConstraints(anti_affinity=(term,), spread=(spread,)), _terms, _spreads),
)
#: App, node, millicores and priority of running pods.
_running = st.lists(
    st.tuples(st.sampled_from(("web", "web", "db")), st.integers(0, 2), st.sampled_from((500, 1000, 2000)),
              st.sampled_from((0, 0, 5))),
    min_size=1, max_size=2,
)  # fmt: skip
_zones = st.lists(st.sampled_from("ab"), min_size=2, max_size=3)
#: Millicores and priority of waiting pods of the app web; millicores of one of db, 0: there is none.
_waiting = st.lists(st.tuples(st.sampled_from((500, 1000)), st.sampled_from((0, 5, 5))), min_size=1, max_size=2)
_weights = st.sampled_from((0, 3))
_base = st.sampled_from((1_000, 100_000))
_modes = st.sampled_from((ReschedulingMode.OFF, ReschedulingMode.ACT))


def _ruled(
    zones: Sequence[str],
    rules: Sequence[InterPodConstraints | None],
    running: Sequence[tuple[str, int, int, int]],
    waiting: Sequence[tuple[int, int]],
    other: int,
) -> Snapshot:
    """Nodes of 2,000 millicores with zones, and pods of the apps web and db, each with its rules."""
    nodes = [
        node(f"n{at}", 2000, labels=tuple(sorted({HOSTNAME: f"n{at}", ZONE: zone}.items())))
        for at, zone in enumerate(zones)
    ]
    kinds = {
        name: PodSignature("default", (("app", name),), constraints=of)
        for name, of in zip(("web", "db"), rules, strict=True)
    }
    used: Counter[str] = Counter()
    pods: list[RunningPod] = []
    for number, (name, at, cpu, priority) in enumerate(running):
        where = nodes[at % len(nodes)].name
        used[where] += cpu
        if used[where] <= 2000:
            pod_class = PodClass(requests=amounts(cpu, 0), priority=priority)
            pods.append(
                RunningPod(f"default/r{number}", f"r{number}", where, pod_class, pod_class.requests, kinds[name],
                           started=1.0, policy=BUILT_IN.name, owner="web" if number else "")
            )  # fmt: skip
    pending = [
        pod(f"p{at}", cpu, priority=priority, kind=kinds["web"]) for at, (cpu, priority) in enumerate(waiting)
    ] + ([pod("d", other, priority=5, kind=kinds["db"])] if other else [])
    index = PodIndex.of((each.node, each.signature) for each in pods)
    cluster = snapshot(nodes, pending, [(each.node, each.usage, ()) for each in pods], now=1000.0, pod_index=index)
    return replace(cluster, running=RunningPods(tuple(pods)))


def _leavers(cluster: Snapshot) -> list[RunningPod]:
    """Running pods of a lower priority than some waiting pod."""
    assert cluster.running is not None
    highest = max(each.pod_class.priority for each in cluster.pending)
    return [each for each in cluster.running.pods if each.priority < highest]


def _policy(weight: int, base: int, mode: ReschedulingMode) -> Policy:
    return Policy(
        BUILT_IN.name,
        cost=CostPolicy("CPUMemory", CostWeights(least_requested=weight, balance=0)),
        unscheduled=UnscheduledPrice(base=base),
        rescheduling=ReschedulingPolicy(mode=mode, min_age=0),
    )


@settings(max_examples=examples(25), deadline=None)
@given(_zones, _rules, _rules, _running, _waiting, st.sampled_from((0, 0, 1000)), _weights, _base, _modes)
def test_no_plan_with_rules_beats_the_bound_whoever_leaves(
    zones: list[str], web: InterPodConstraints | None, db: InterPodConstraints | None,
    running: list[tuple[str, int, int, int]], waiting: list[tuple[int, int]], other: int, weight: int, base: int,
    mode: ReschedulingMode,
) -> None:  # fmt: skip
    """Against all plans that any order leads to: pods come where every filter passes, before or after others leave."""
    cluster = _ruled(zones, (web, db), running, waiting, other)
    policies = {BUILT_IN.name: _policy(weight, base, mode)}
    result = run_round(cluster, policies)
    assert cluster.running is not None
    moves = cluster.running.pods if mode is ReschedulingMode.ACT else ()
    leave, move = (_leavers(cluster), moves) if result.evictions else ([], ())
    best = min(costs_of_reachable_plans(cluster, policies, leave, move))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best


@settings(max_examples=examples(25), deadline=None)
@given(
    _zones, _rules, _rules, _running, _waiting, st.sampled_from((0, 0, 1000)), _weights, _base, _modes,
    st.integers(0, 2**32), st.sampled_from((0.0, 1.0, 50.0)), st.integers(0, 2),
)  # fmt: skip
# One domain has a pod that may leave: with it gone from there, and back in the other one, both take one more.
@example(
    ["a", "b"], InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, _app("web"), 1),)), None, [("web", 0, 500, 0)],
    [(500, 5), (500, 5)], 0, 0, 100_000, ReschedulingMode.ACT, 0, 0.0, 2,
)  # fmt: skip
def test_any_prices_give_a_bound_within_rules_and_limits(
    zones: list[str], web: InterPodConstraints | None, db: InterPodConstraints | None,
    running: list[tuple[str, int, int, int]], waiting: list[tuple[int, int]], other: int, weight: int, base: int,
    mode: ReschedulingMode, seed: int, highest: float, most: int,
) -> None:  # fmt: skip
    """Whatever shadow prices are, whether or not the round lets anybody leave; so many may leave together."""
    cluster = _ruled(zones, (web, db), running, waiting, other)
    policies = {BUILT_IN.name: _policy(weight, base, mode)}
    assert cluster.running is not None
    pods, leave = cluster.running.pods, _leavers(cluster)
    move = pods if mode is ReschedulingMode.ACT else ()
    everybody = np.arange(len({*leave, *move}))
    room = _room(cluster, leave, move, [LeavingLimit.of_count(everybody, most)])
    best = min(costs_of_reachable_plans(cluster, policies, leave, move, lambda leavers: len(leavers) <= most))
    problem = Problem(cluster, policies, MODELS)
    matrix = CostMatrix(demands_beside(problem, room), room.before)
    prices = np.random.default_rng(seed).random(room.before.free.shape) * highest
    prices /= np.maximum(cluster.allocatable / 1000, 1)
    assert lower_bound(matrix, shadow_prices=prices, residents=room) <= best
    assert resident_bound(problem, room) <= best


def _room(
    cluster: Snapshot, leave: Collection[RunningPod], move: Collection[RunningPod], limits: Sequence[LeavingLimit]
) -> ResidentRoom:
    """The room of these pods, for nothing; pods of limits by their place among those that leave, then that move."""
    chosen = list(dict.fromkeys([*leave, *move]))
    usage = np.array([cluster.vector(each.usage) for each in chosen], dtype=np.int64)
    return ResidentRoom(
        np.array([cluster.table.index[each.node] for each in chosen], dtype=np.int64),
        usage.reshape(len(chosen), len(cluster.resources)),
        np.array([0 if each in leave else NEVER for each in chosen], dtype=np.int64),
        np.array([0 if each in move else NEVER for each in chosen], dtype=np.int64),
        Plan(cluster),
        Plan(without_leavers(cluster, dict.fromkeys(chosen, ""))),
        tuple(limits),
    )


def test_rules_of_pods_that_stay_are_counted() -> None:
    """Two urgent pods keep apart from each other and from one that stays, and there are two nodes: one waits."""
    apart = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, _app("web"), ("default",)),))
    cluster = _ruled("ab", (apart, None), [("web", 0, 500, 5), ("db", 1, 2000, 0)], [(500, 5), (500, 5)], 0)
    result = run_round(cluster)
    assert [each.pod.key for each in result.evictions] == ["default/r1"]
    (left,) = result.unplaced
    assert result.lower_bound >= left.price


def test_a_spread_constraint_is_counted_where_others_leave() -> None:
    """Zone a has no room for its app whoever leaves: of three pods zone b takes one more than that."""
    spread = InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, _app("web")),))
    cluster = _ruled("ab", (spread, None), [("db", 0, 2000, 5), ("db", 1, 2000, 0)], [(500, 5)] * 3, 0)
    result = run_round(cluster)
    assert [each.pod.key for each in result.evictions] == ["default/r1"]
    assert len(result.unplaced) == 2
    assert result.lower_bound >= sum(each.price for each in result.unplaced)


def test_a_limit_that_classes_share_is_counted() -> None:
    """Six pods of two sizes keep apart, and there are three nodes: three of them wait, and no size by itself would."""
    apart = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, _app("web"), ("default",)),))
    cluster = _ruled("abc", (apart, None), [], [(500, 0), (1000, 0)] * 3, 0)
    result = run_round(cluster)
    assert len(result.unplaced) == 3
    assert result.lower_bound >= sum(each.price for each in result.unplaced)


def test_prices_that_rise_on_different_nodes_are_counted_together() -> None:
    """The first pod of each node pays nothing and all others 1,000, by an aggregator over fast nodes or slow ones."""
    segments = [{"upTo": 1, "each": 0}, {"each": 1000}]
    arcs = [{"to": "Nodes", "maximum": 9, "cost": segments}]
    aggregators = [{"name": name, "over": {"nodeLabel": name}, "arcs": arcs} for name in ("fast", "slow")]
    network = {
        "aggregators": aggregators,
        "arcs": [{"from": {"podSelector": {}}, "to": name} for name in ("fast", "slow")],
    }
    policy = parse_policy("p", {"selects": {"podSelector": {}}, "network": network}, BUILT_IN_MODELS)
    nodes = [node(f"n{at}", 4000, labels=((("fast", "slow")[at % 2], f"n{at}"),)) for at in range(8)]
    waiting = [pod(f"p{at}", (500, 700)[at % 2], policy="p") for at in range(20)]
    result = run_round(snapshot(nodes, waiting), {"p": policy})
    assert result.cost == 12_000
    assert result.lower_bound >= 0.99 * result.cost


# -- limits of how many leave ------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=7),
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_no_pods_within_a_limit_save_more(pods: list[tuple[int, int, int]], most: tuple[int, int]) -> None:
    """Against all sets of pods that one of two ways lets leave."""
    saved = np.array([each for each, *_ in pods], dtype=np.int64)
    ways = np.array([[each[way] for each in pods] for way in (1, 2)], dtype=np.float64)
    limit = LeavingLimit(np.arange(len(pods)), ways, np.array(most, dtype=np.float64))
    sets = [list(members) for size in range(len(pods) + 1) for members in combinations(range(len(pods)), size)]
    allowed = [
        members
        for members in sets
        if not members
        or any(sum(way[members]) - max(way[members]) < most for way, most in zip(ways, limit.most, strict=True))
    ]
    assert max(int(saved[members].sum()) for members in allowed) <= limit.most_saved(saved)
    assert limit.is_idle == (sets[-1] in allowed)
    assert limit.is_closed == (len(allowed) == 1)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from((2000, 4000)), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from((500, 1000, 2000)), st.sampled_from((0, 0, 3)), st.booleans()),
        min_size=1, max_size=4,
    ),
    st.lists(st.tuples(st.sampled_from((500, 1000, 2000)), st.sampled_from((0, 5))), min_size=1, max_size=2),
    st.integers(0, 2), st.integers(0, 2), _weights, _base, _modes,
)  # fmt: skip
# All the room is that of pods of which a budget lets one go.
@example([4000], [(0, 2000, 0, True), (0, 2000, 0, True)], [(2000, 5), (2000, 5)], 1, 0, 0, 1_000, ReschedulingMode.OFF)
def test_no_plan_within_budgets_and_limits_of_moves_beats_the_bound(
    nodes: list[int], running: list[tuple[int, int, int, bool]], waiting: list[tuple[int, int]], budget: int,
    per_round: int, weight: int, base: int, mode: ReschedulingMode,
) -> None:  # fmt: skip
    """Against all plans in which a PodDisruptionBudget lets so many go, and a policy moves so many."""
    pods: list[RunningPod] = []
    used: Counter[str] = Counter()
    for number, (at, cpu, priority, guarded) in enumerate(running):
        where = f"n{at % len(nodes)}"
        used[where] += cpu
        if used[where] <= nodes[at % len(nodes)]:
            pod_class = PodClass(requests=amounts(cpu, 0), priority=priority)
            pods.append(
                RunningPod(f"default/r{number}", f"r{number}", where, pod_class, pod_class.requests, started=1.0,
                           policy=BUILT_IN.name, budgets=("b",) if guarded else (), owner="web" if number else "")
            )  # fmt: skip
    pending = [pod(f"p{at}", cpu, priority=priority) for at, (cpu, priority) in enumerate(waiting)]
    table = [node(f"n{at}", cpu) for at, cpu in enumerate(nodes)]
    cluster = snapshot(table, pending, [(each.node, each.usage, ()) for each in pods], now=1000.0)
    cluster = replace(cluster, running=RunningPods(tuple(pods), budgets={"b": budget}))
    policy = _policy(weight, base, mode)
    policy = msgspec.structs.replace(
        policy, rescheduling=msgspec.structs.replace(policy.rescheduling, per_round=per_round)
    )
    policies = {BUILT_IN.name: policy}
    result = run_round(cluster, policies)
    leave = _leavers(cluster)

    def may_leave(chosen: Collection[RunningPod]) -> bool:
        only_moved = sum(each not in leave for each in chosen)
        return sum(bool(each.budgets) for each in chosen) <= budget and only_moved <= per_round

    move = pods if mode is ReschedulingMode.ACT else ()
    some = (leave, move) if result.evictions else ([], ())
    best = min(costs_of_reachable_plans(cluster, policies, *some, may_leave))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best


def test_a_budget_is_counted() -> None:
    """Ten nodes are full of pods of which one may leave: one of ten urgent pods comes, and nine wait."""
    nodes = [node(f"n{at}", 2000) for at in range(10)]
    pod_class = PodClass(requests=amounts(2000, 0))
    pods = tuple(
        RunningPod(f"default/r{at}", f"r{at}", f"n{at}", pod_class, pod_class.requests, started=1.0, budgets=("b",))
        for at in range(10)
    )
    pending = [pod(f"p{at}", 2000, priority=5) for at in range(10)]
    cluster = snapshot(nodes, pending, [(each.node, each.usage, ()) for each in pods], now=1000.0)
    result = run_round(replace(cluster, running=RunningPods(pods, budgets={"b": 1})))
    assert (len(result.evictions), len(result.unplaced)) == (1, 9)
    assert result.lower_bound >= 0.95 * sum(each.price for each in result.unplaced)


# -- shares of queues --------------------------------------------------------------------------------------------------


class _Lending:
    """A cluster of two queues of which b has more than its share, as a test of all plans reads it."""

    def __init__(
        self, nodes: Sequence[int], running: Sequence[tuple[int, int, str]], waiting: Sequence[tuple[int, str]]
    ) -> None:
        """Running pods have a node, millicores and a queue; those that do not fit are left out."""
        pods: list[RunningPod] = []
        used: Counter[str] = Counter()
        held: Counter[str] = Counter()
        for number, (at, cpu, queue) in enumerate(running):
            where = f"n{at % len(nodes)}"
            if used[where] + cpu > nodes[at % len(nodes)]:
                continue
            used[where] += cpu
            held[queue] += cpu
            pod_class = PodClass(requests=amounts(cpu, 0))
            pods.append(
                RunningPod(f"default/r{number}", f"r{number}", where, pod_class, pod_class.requests, started=1.0,
                           policy=BUILT_IN.name, queue=queue)
            )  # fmt: skip
        pending = tuple(
            msgspec.structs.replace(pod(f"p{at}", cpu), queue=queue) for at, (cpu, queue) in enumerate(waiting)
        )
        table = [node(f"n{at}", cpu) for at, cpu in enumerate(nodes)]
        cluster = snapshot(table, pending, [(each.node, each.usage, ()) for each in pods])
        counts = Counter(each.queue for each in pods)
        usage = {name: QueueUsage((("cpu", cpu), ("pods", counts[name]))) for name, cpu in held.items()}
        queues = QueueState((Queue("a"), Queue("b")), usage)
        self.pods = tuple(pods)
        self.cluster = replace(cluster, queues=queues, running=RunningPods(self.pods), now=10_000.0)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from((2000, 4000)), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from((500, 1000, 2000)), st.sampled_from("bbba")),
        min_size=1, max_size=4,
    ),
    st.lists(st.tuples(st.sampled_from((500, 1000, 2000)), st.sampled_from("aab")), min_size=1, max_size=3),
)  # fmt: skip
# Four pods of b have everything, two of a want half of it.
@example([4000], [(0, 1000, "b")] * 4, [(1000, "a")] * 3)
def test_no_plan_within_shares_beats_the_bound(
    nodes: list[int], running: list[tuple[int, int, str]], waiting: list[tuple[int, str]]
) -> None:
    """Against all plans in which a queue gives back no more than what it has beyond its share."""
    drawn = _Lending(nodes, running, waiting)
    policies = {BUILT_IN.name: BUILT_IN}
    result = run_round(drawn.cluster, policies)
    leave = drawn.pods if result.evictions else ()

    best = min(costs_of_all_plans(drawn.cluster, policies, leave, (), keeps=partial(keeps_shares, drawn.cluster)))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best
    leavers = [each.pod for each in result.evictions]
    assert keeps_shares(drawn.cluster, leavers, [each.pod for each in result.placements]), "the plan is one of those"


@pytest.mark.parametrize("count", [4, 12])
def test_a_share_is_counted(count: int) -> None:
    """A queue has all nodes, and another one asks for them: half of its pods leave, and half of the others wait."""
    drawn = _Lending([1000] * count, [(at, 1000, "b") for at in range(count)], [(1000, "a")] * count)
    result = run_round(drawn.cluster)
    assert len(result.evictions) == len(result.unplaced) == count // 2
    # What a queue gives back is known but for one pod.
    assert result.lower_bound >= (count // 2 - 1) / (count // 2) * sum(each.price for each in result.unplaced)
    assert result.lower_bound > 0
