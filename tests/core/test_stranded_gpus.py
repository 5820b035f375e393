"""Moves that join fragments of GPUs: what stranded GPUs cost, and pods of a node that leave it together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import NOW, keeps_apart, running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod
from flowcore.model.policies import (
    BUILT_IN,
    DuringExecution,
    LastingRule,
    LostWork,
    Policy,
    ReschedulingMode,
    ReschedulingPolicy,
    ReschedulingReason,
)
from flowcore.planning.evictions.gains.stranded_gpus import StrandedGPUs
from flowcore.planning.problem.result import Eviction
from flowcore.planning.round import Round, RoundResult, run_round

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
_MEMORY = 2**40
STAYS: dict[str, Any] = {"owner": "", "immovable_reason": "stays"}
_FREE = ReschedulingPolicy(
    mode=ReschedulingMode.ACT,
    min_age=0,
    reasons=(ReschedulingReason.GAIN,),
    min_gain=1,
    startup=0,
    lost_work=LostWork.IGNORE,
)
#: What a waiting pod pays on a node that offers GPUs, which it does not want, is left out: it would do the work alone.
_WEIGHTS = CostWeights(idle_resources=0)


def node(name: str, cpu: int, gpu: int = 0) -> Node:
    """A node with so many cores and GPUs, and with far more memory than its pods count for."""
    allocatable = (("cpu", cpu), ("memory", _MEMORY), (GPU, gpu), ("pods", 110))
    return Node(name, labels=((HOSTNAME, name), ("zone", name[-1])), allocatable=allocatable)


def joining(model: str = "CPUMemory", **fields: Any) -> Policy:
    """The built-in policy with moves for gain that cost nothing; further words are fields of ReschedulingPolicy."""
    rescheduling = msgspec.structs.replace(_FREE, **({"per_stranded_gpu": 1000} | fields))
    return msgspec.structs.replace(BUILT_IN, rescheduling=rescheduling, cost=CostPolicy(model, weights=_WEIGHTS))


def plan(drawn: Snapshot, policy: Policy) -> RoundResult:
    """The plan of a snapshot under one policy."""
    return run_round(drawn, {policy.name: policy})


def moved(result: RoundResult) -> dict[str, str]:
    """Where pods move to, by name."""
    return {each.pod.key.partition("/")[2]: each.to for each in result.evictions}


# --- what stranded GPUs cost ---


def stranded_cost(nodes: Sequence[Node], pods: Iterable[Pod], price: int = 1000) -> int:
    """The same in plain loops, of pods that ask for cpu and GPUs and may use every node."""
    every = list(pods)
    held: Counter[tuple[int, int]] = Counter()
    for pod in every:
        cpu, gpus = dict(pod.usage)["cpu"], dict(pod.usage).get(GPU, 0)
        if gpus:
            held[cpu, gpus] += gpus
    cost = 0
    for each in nodes:
        here = [dict(pod.usage) for pod in every if pod.node_name == each.name]
        free = {name: amount - sum(pod.get(name, 0) for pod in here) for name, amount in each.allocatable}
        stranded = 0.0
        for (cpu, gpus), total in held.items():
            count = min(max(free["cpu"], 0) // cpu, max(free[GPU], 0) // gpus)
            stranded += total / held.total() * (max(free[GPU], 0) - count * gpus)
        cost += round(price * stranded)
    return cost


def test_of_seven_free_gpus_those_are_stranded_that_eight_would_be_needed_for() -> None:
    """A GPU counts as stranded for the share of the pods that find no room for it, and for all without cpu."""
    nodes = [node("n0", 16, 8), node("n1", 16, 8), node("n2", 4, 8), node("n3", 16, 8)]
    pods = [running("one", "n0", 1, gpu=1), running("eight", "n1", 8, gpu=8), running("cpu", "n2", 4)]
    drawn = snapshot(nodes, pods, [])
    assert drawn.running is not None
    measure = StrandedGPUs.of(drawn, drawn.running.pods)
    # Of 9 GPUs in use 8 are of the pod that wants 8: it finds no room on n0, and nobody finds any on n2.
    places = np.arange(4)
    assert measure.costs(drawn.free, places, 900).tolist() == [800 * 7, 0, 900 * 8, 0]
    one = drawn.vector(pods[0].usage)
    assert measure.increase(drawn.free, places, one, 900).tolist() == [-800, 0, -900, 800 * 7]
    assert measure.decrease(drawn.free, places[:1], one, 900).tolist() == [800 * 7]
    assert not measure.costs(drawn.free, places, 0).any()


def test_gpus_out_of_reach_are_not_stranded() -> None:
    """A node that takes no pods has none, and a node that some kinds may use counts those that others want."""
    large = running("large", "n0", 1, gpu=2)
    small = running("small", "n1", 1, gpu=2)
    kept = msgspec.structs.replace(small.pod_class, node_selector=((HOSTNAME, "n1"),))
    nodes = [node("n0", 8, 4), node("n1", 8, 4), msgspec.structs.replace(node("n2", 8, 4), unschedulable=True)]
    drawn = snapshot(nodes, [large, msgspec.structs.replace(small, pod_class=kept)], [])
    assert drawn.running is not None
    measure = StrandedGPUs.of(drawn, drawn.running.pods)
    assert measure.costs(drawn.free, np.arange(3), 100).tolist() == [100, 0, 0]


def test_nothing_is_stranded_where_nobody_wants_gpus() -> None:
    """Without pods that hold GPUs nothing is known of what others will ask for."""
    drawn = snapshot([node("n0", 4, 8)], [running("p", "n0", 4)], [])
    assert drawn.running is not None
    assert not StrandedGPUs.of(drawn, drawn.running.pods).kinds


def kept_to(pod: Pod, name: str) -> Pod:
    """The same pod, which only one node takes."""
    return msgspec.structs.replace(
        pod, pod_class=msgspec.structs.replace(pod.pod_class, node_selector=((HOSTNAME, name),))
    )


def costs_of(nodes: Sequence[Node], pods: Sequence[Pod], price: int = 1000) -> list[int]:
    """What the stranded GPUs of each node cost."""
    drawn = snapshot(nodes, pods, [])
    assert drawn.running is not None
    return StrandedGPUs.of(drawn, drawn.running.pods).costs(drawn.free, np.arange(len(nodes)), price).tolist()


def test_two_pods_that_are_kept_to_a_node_change_little_elsewhere() -> None:
    """Beside forty kinds that any node takes they count for their two GPUs of 42, and for no other pod's."""
    nodes = [node(f"n{place}", 640, 16) for place in range(6)]
    anywhere = [running(f"m{number}", f"n{1 + number % 4}", 1 + number, gpu=1) for number in range(40)]
    kept = [kept_to(running(f"z{number}", "n0", 1, gpu=1), "n0") for number in range(2)]
    assert costs_of(nodes, anywhere) == [0] * 6
    # Six GPUs are free on each node with pods of any kind, and all sixteen on the last one.
    assert costs_of(nodes, anywhere + kept, 4200) == [0, *[2 * 6 * 100] * 4, 2 * 16 * 100]
    large = [kept_to(running(f"z{number}", "n0", 300, gpu=1), "n0") for number in range(2)]
    assert costs_of(nodes, anywhere + large, 4200)[1:] == [*[2 * 6 * 100] * 4, 2 * 16 * 100]


def test_kinds_that_count_together_keep_their_nodes() -> None:
    """Twenty pods are each kept to a node of their own: the GPUs there are of use to one of twenty."""
    nodes = [node(f"n{place:02}", 64, 8) for place in range(20)]
    pods = [kept_to(running(f"p{each.name}", each.name, 1, gpu=2), each.name) for each in nodes]
    for in_order in (pods, pods[::-1]):
        assert costs_of(nodes, in_order) == [6 * 19 * 50] * 20


def test_of_very_many_sets_of_nodes_those_count_whose_pods_hold_the_most() -> None:
    """Forty pods are each kept to a node of their own: those with the most GPUs say what is stranded."""
    nodes = [node(f"n{place:02}", 64, 8) for place in range(40)]
    pods = [kept_to(running(f"p{row}", each.name, 1, gpu=1 + (row < 32)), each.name) for row, each in enumerate(nodes)]
    # The others' nodes take nobody of those that count.
    assert costs_of(nodes, pods, 32) == [6 * 31] * 32 + [0] * 8


@given(st.permutations(range(24)))
@settings(max_examples=examples(20))
def test_which_kinds_count_does_not_depend_on_the_order_of_pods(order: Sequence[int]) -> None:
    """Of 24 kinds as many hold the same, and sixteen count."""
    nodes = [node(f"n{place}", 64, 8) for place in range(8)]
    pods = [kept_to(running(f"p{row}", f"n{row // 3}", 1 + row // 8, gpu=2), f"n{row % 8}") for row in range(24)]
    assert costs_of(nodes, [pods[row] for row in order]) == costs_of(nodes, pods)


# --- who moves ---


def two_halves(policy: Policy, budgets: Sequence[DisruptionBudget] = (), **fields: Any) -> Snapshot:
    """Two pods with a GPU on each of two nodes with eight, and a pod with eight on a third one."""
    nodes = [node(f"n{place}", 64, 8) for place in range(3)]
    own = {"labels": (("app", "a"),), **fields}
    pods = [running(f"p{number}", f"n{number // 2}", 1, gpu=1, **own) for number in range(4)]
    return snapshot(nodes, [*pods, running("eight", "n2", 8, gpu=8, **STAYS)], [], budgets, policy)


def test_a_node_comes_free_by_one_move() -> None:
    """One pod on each of two nodes: it moves to the other, and a whole node is free."""
    policy = joining()
    nodes = [node(f"n{place}", 64, 8) for place in range(3)]
    pods = [running("p", "n0", 1, gpu=1), running("q", "n1", 1, gpu=1), running("eight", "n2", 8, gpu=8, **STAYS)]
    assert moved(plan(snapshot(nodes, pods, [], policy=policy), policy)) in ({"p": "n1"}, {"q": "n0"})


def test_pods_of_a_node_leave_it_together() -> None:
    """One of two would free nothing. Both say what both gain, and the gains are parts of it."""
    policy = joining(startup=10)
    drawn = two_halves(policy)
    result = plan(drawn, policy)
    assert moved(result) in ({"p0": "n1", "p1": "n1"}, {"p2": "n0", "p3": "n0"})
    first, second = result.evictions
    total, price = first.gain + second.gain, 10 * policy.unscheduled.per_waiting_second * 1.25
    assert abs(first.gain - second.gain) <= 1
    assert min(first.gain, second.gain) >= int(price) + policy.rescheduling.min_gain
    said = (
        f"it and another pod of {first.pod.node} cost {total:,} less elsewhere, and their moves cost {2 * int(price):,}"
    )
    assert {first.reason, second.reason} == {said}
    check_evictions(drawn, result, {policy.name: policy})


def test_cpu_comes_free_for_gpus() -> None:
    """Two pods without GPUs leave none of the cpu that the GPUs beside them need: both go to a node without any."""
    policy = joining()
    nodes = [node("n0", 8, 4), node("n1", 8, 4), node("n2", 8)]
    pods = [running(f"p{number}", "n0", 1) for number in range(2)]
    pods += [running("four", "n1", 8, gpu=4, **STAYS), running("q", "n2", 5, **STAYS)]
    drawn = snapshot(nodes, pods, [], policy=policy)
    assert moved(plan(drawn, policy)) == {"p0": "n2", "p1": "n2"}
    assert not plan(drawn, joining(per_stranded_gpu=0)).evictions


@pytest.mark.parametrize("above", [0, 1])
def test_the_margin_of_moves_together_is_exact(above: int) -> None:
    """They are worth their prices and as many margins, not one less."""
    result = plan(two_halves(joining(startup=10)), joining(startup=10))
    price = int(10 * BUILT_IN.unscheduled.per_waiting_second * 1.25)
    stricter = joining(startup=10, min_gain=sum(each.gain for each in result.evictions) // 2 - price + above)
    assert len(plan(two_halves(stricter), stricter).evictions) == 2 * (1 - above)


@pytest.mark.parametrize(
    "fields",
    [{"per_stranded_gpu": 0}, {"per_round": 1}, {"per_hour": 1}, {"per_node": 1}, {"per_owner": 1}, {"startup": 600}],
    ids=lambda fields: next(iter(fields)),
)
def test_half_of_them_do_not_leave(fields: dict[str, Any]) -> None:
    """Where a limit lets only one of two leave, or their moves cost too much, both stay."""
    policy = joining(**fields)
    assert not plan(two_halves(policy), policy).evictions


def test_budgets_hold_for_pods_that_leave_together() -> None:
    """A PodDisruptionBudget that lets one of two go keeps both."""
    policy = joining()
    for allowed, leave in ((1, 0), (2, 2)):
        budgets = [DisruptionBudget("default", "b", selects("a"), allowed)]
        assert len(plan(two_halves(policy, budgets), policy).evictions) == leave


def near(app: str) -> InterPodConstraints:
    """Beside a pod of an app."""
    return InterPodConstraints(affinity=(AffinityTerm(HOSTNAME, selects(app), ("default",)),))


@pytest.mark.parametrize(
    "fields",
    [STAYS, {"static": True}, {"constraints": near("a")}],
    ids=["opted out", "static", "with rules"],
)
def test_one_that_stays_keeps_the_others_of_its_node(fields: dict[str, Any]) -> None:
    """The node comes free only if all leave; where one stays on both nodes nobody moves, else the other node does."""
    policy = joining()
    nodes = [node(f"n{place}", 64, 8) for place in range(3)]

    def pods(*staying: int) -> list[Pod]:
        own = [
            running(f"p{number}", f"n{number // 2}", 1, gpu=1, labels=(("app", "ab"[number in staying]),))
            for number in range(4)
        ]
        for number in staying:
            own[number] = msgspec.structs.replace(own[number], labels=(("app", "a"),), **fields)
        return [*own, running("eight", "n2", 8, gpu=8, **STAYS)]

    assert moved(plan(snapshot(nodes, pods(), [], policy=policy), policy)) != {}
    assert not moved(plan(snapshot(nodes, pods(0, 2), [], policy=policy), policy))
    if fields is STAYS:
        assert moved(plan(snapshot(nodes, pods(0), [], policy=policy), policy)) == {"p2": "n0", "p3": "n0"}


def test_young_pods_stay() -> None:
    """Those that run for less than minAge do not join anything."""
    policy = joining(min_age=600)
    assert not plan(two_halves(policy, started=NOW - 599), policy).evictions
    assert plan(two_halves(policy, started=NOW - 600), policy).evictions


def test_no_pod_joins_others_where_one_that_waits_may_go() -> None:
    """While a pod waits its nodes are not filled; when it is gone they are."""
    policy = joining()
    drawn = two_halves(policy)
    assert plan(drawn, policy).evictions
    waits = replace(drawn, pending=(waiting("w", 1, gpu=8),))
    result = plan(waits, policy)
    assert result.unplaced
    assert not result.evictions


def test_rules_of_pods_hold_where_they_go() -> None:
    """Two pods that keep apart cannot leave for one node, and go to two."""
    policy = joining()
    nodes = [node(f"n{place}", 64, 8) for place in range(4)]
    apart = keeps_apart("lonely")
    pods = [
        running("a", "n0", 1, gpu=1, labels=(("app", "lonely"),), constraints=apart, **STAYS),
        running("b", "n1", 1, gpu=1, labels=(("app", "lonely"),), constraints=apart),
        running("c", "n1", 1, gpu=1),
        running("d", "n2", 1, gpu=2, **STAYS),
        running("eight", "n3", 8, gpu=8, **STAYS),
    ]
    drawn = snapshot(nodes, pods, [], policy=policy)
    result = plan(drawn, policy)
    assert moved(result).get("b") == "n2"
    assert "c" in moved(result)
    check_evictions(drawn, result, {policy.name: policy})


def test_a_policy_that_proposes_shows_them() -> None:
    """The proposals are the moves of a policy that acts, and nobody leaves."""
    proposing, acting = joining(mode=ReschedulingMode.PROPOSE), joining()
    result = plan(two_halves(proposing), proposing)
    assert not result.evictions
    expected = [(each.pod.key, each.to, each.gain, each.reason) for each in plan(two_halves(acting), acting).evictions]
    assert [(each.pod.key, each.to, each.gain, each.reason) for each in result.proposals] == expected
    assert expected
    assert all(not each.for_pods for each in result.proposals)


def test_while_a_pod_of_the_node_ends_nobody_leaves_it() -> None:
    """What comes free is not known before it has ended."""
    policy = joining()
    nodes = [node(f"n{place}", 64, 8) for place in range(3)]
    pods = [running(f"p{number}", f"n{number // 2}", 1, gpu=1) for number in range(4)]
    pods.append(running("eight", "n2", 8, gpu=8, **STAYS))
    for place in range(2):
        ends = running("d", f"n{place}", 1, owner="d", deleting=True)
        assert not plan(snapshot(nodes, [*pods, ends], [], policy=policy), policy).evictions


def test_a_pod_that_leaves_for_a_rule_joins_others_at_once() -> None:
    """It goes where it strands no GPUs: from another node it would leave again."""
    reasons = tuple(ReschedulingReason)
    policy = msgspec.structs.replace(
        joining(reasons=reasons), during_execution=DuringExecution.REPLACE, lasting_rules=(LastingRule.TAINTS,)
    )
    tainted = msgspec.structs.replace(node("n0", 64, 8), taints=(Taint("dedicated", "x", "NoSchedule"),))
    nodes = [tainted, node("n1", 64, 8), node("n2", 64, 8), node("n3", 64, 8)]
    pods = [
        running("p", "n0", 1, gpu=1),
        running("q", "n1", 1, gpu=1, **STAYS),
        running("eight", "n3", 8, gpu=8, **STAYS),
    ]
    assert moved(plan(snapshot(nodes, pods, [], policy=policy), policy)) == {"p": "n1"}


@pytest.mark.parametrize("most", [2, 50])
def test_no_pod_goes_to_a_node_that_others_had_better_leave(most: int) -> None:
    """The best single move is to a node whose two pods gain more together elsewhere: they leave, and it stays.

    In the next round all three would have left, and the one that had just come would have been back where it was. What
    stays after all takes nothing of limits and budgets that let two go.
    """
    policy = joining(min_gain=100, per_round=most)
    budgets = [DisruptionBudget("default", "b", selects("a"), most)]
    labels = (("app", "a"),)
    nodes = [node("n0", 64, 8), node("n1", 64, 4), node("n2", 64, 8), *(node(f"f{place}", 64, 4) for place in range(5))]
    pods = [running(name, home, 1, gpu=1, labels=labels) for name, home in (("a", "n0"), ("b", "n0"), ("x", "n1"))]
    pods += [running("eight", "n2", 8, gpu=8, **STAYS)]
    pods += [running(f"four{place}", f"f{place}", 4, gpu=4, **STAYS) for place in range(5)]
    only_x = [msgspec.structs.replace(pod, **STAYS) if pod.name != "x" else pod for pod in pods]
    assert moved(plan(snapshot(nodes, only_x, [], policy=policy), policy)) == {"x": "n0"}
    drawn = snapshot(nodes, pods, [], budgets, policy)
    result = plan(drawn, policy)
    assert moved(result) == {"a": "n1", "b": "n1"}
    check_evictions(drawn, result, {policy.name: policy})
    carry_out_rounds(nodes, pods, policy)


@pytest.mark.parametrize("startup", [0, 1, 2, 5])
def test_no_pod_leaves_with_others_in_vain(startup: int) -> None:
    """Four pods that leave a large node for two small ones: a pod that it is not better without comes back later."""
    nodes = [node("n4", 32, 8), node("n5", 16, 4), node("n6", 32, 2)]
    asked = {"p9": (1, 1), "p10": (3, 0), "p11": (4, 4), "p12": (1, 1)}
    pods = [running(name, "n4", cpu, gpu=gpu, owner=name) for name, (cpu, gpu) in asked.items()]
    carry_out_rounds(nodes, pods, joining(min_gain=100, startup=startup))


# --- properties ---

_models = st.sampled_from(["CPUMemory", "LoadSpreading", "BinPacking"])


#: cpu and GPUs of pods: of one cpu, since a round in which one pod waits counts by its cpu; and of many.
ONE_CPU = [[(2, 0), (2, 1), (2, 2)], [(2, 0), (2, 1), (2, 4)], [(2, 1), (2, 4)]]
MANY = [*ONE_CPU, [(1, 0), (1, 1), (2, 2)], [(2, 0), (4, 1), (8, 4)], [(1, 1), (4, 4)]]


class Shape(NamedTuple):
    """Cores and GPUs of the nodes of a drawn cluster, how many of them there are, and how many pods on each at most."""

    cpus: list[int]
    gpus: list[int]
    nodes: tuple[int, int]
    pods: int


FEW = Shape([4, 8, 16], [2, 4], (4, 4), 4)
PIECES = Shape([8, 16, 32], [2, 4, 8], (3, 7), 5)


@st.composite
def fragments(draw: st.DrawFn, kinds: list[list[tuple[int, int]]], shape: Shape = FEW) -> tuple[list[Node], list[Pod]]:
    """Pods with and without GPUs on nodes of some sizes and one without GPUs; some pods stay where they are."""
    places = range(draw(st.integers(*shape.nodes)))
    nodes = [node(f"n{row}", draw(st.sampled_from(shape.cpus)), draw(st.sampled_from(shape.gpus))) for row in places]
    nodes.append(node("n9", draw(st.integers(2, 16))))
    sizes = draw(st.sampled_from(kinds))
    pods: list[Pod] = []
    for each in nodes:
        cpu, gpus = dict(each.allocatable)["cpu"], dict(each.allocatable)[GPU]
        for _ in range(draw(st.integers(0, shape.pods))):
            size, wanted = draw(st.sampled_from(sizes))
            if size > cpu or wanted > gpus:
                continue
            cpu, gpus = cpu - size, gpus - wanted
            name = f"p{len(pods)}"
            stays = draw(st.integers(0, 5)) == 0
            fields = STAYS if stays else {"owner": name}
            labels = (("app", draw(st.sampled_from("ab"))),)
            pods.append(running(name, each.name, size, gpu=wanted, labels=labels, **fields))
    return nodes, pods


@given(fragments(ONE_CPU), _models, st.integers(0, 3))
@settings(max_examples=examples(80))
def test_what_moves_claim_to_gain_is_what_all_costs_less_afterwards(
    drawn: tuple[list[Node], list[Pod]], model: str, allowed: int
) -> None:
    """Costs of pods by rounds in which they wait, and of stranded GPUs by plain loops, before and after the moves."""
    nodes, pods = drawn
    policy = joining(model)
    budgets = [DisruptionBudget("default", "b", selects("a"), allowed)]
    before = snapshot(nodes, pods, [], budgets, policy)
    result = plan(before, policy)
    check_evictions(before, result, {policy.name: policy})
    by_key = {pod.key: pod for pod in pods}
    own = 0
    for move in result.evictions:
        pod = by_key.pop(move.pod.key)
        own += _dearer_at_home(nodes, list(by_key.values()), pod, move.to, policy)
        by_key[pod.key] = msgspec.structs.replace(pod, node_name=move.to)
    freed = stranded_cost(nodes, pods) - stranded_cost(nodes, by_key.values())
    claimed = sum(move.gain for move in result.evictions)
    # Both round the costs of each node.
    assert abs(claimed - own - freed) <= len(nodes)
    assert claimed >= len(result.evictions)


def _dearer_at_home(nodes: list[Node], others: list[Pod], pod: Pod, to: str, policy: Policy) -> int:
    """By how much its node costs a pod more than another one, where it waits."""
    pending = PendingPod(pod.key, pod.uid, pod.pod_class, policy.name, signature=pod.signature)
    this = Round(snapshot(nodes, others, [pending], policy=policy), {policy.name: policy})
    (demand,) = this._problem.demands
    index = this._problem.snapshot.table.index
    return int(demand.first_cost[index[pod.node_name]] - demand.first_cost[index[to]])


@given(fragments(MANY), _models, st.integers(1, 300))
@settings(max_examples=examples(60))
def test_never_to_and_fro(drawn: tuple[list[Node], list[Pod]], model: str, min_gain: int) -> None:
    """Moves are carried out round by round: they end, and no pod returns to a node it left."""
    carry_out_rounds(*drawn, joining(model, min_gain=min_gain))


@given(fragments(ONE_CPU, PIECES), _models)
@settings(max_examples=examples(80))
def test_each_move_gains_its_margin_beside_all_others(drawn: tuple[list[Node], list[Pod]], model: str) -> None:
    """No pod could stay, with all others moved as planned, and everything cost less. In plain loops, as above."""
    nodes, pods = drawn
    policy = joining(model, min_gain=100)
    result = plan(snapshot(nodes, pods, [], policy=policy), policy)
    by_key = {pod.key: pod for pod in pods}
    afterwards = by_key | {
        move.pod.key: msgspec.structs.replace(by_key[move.pod.key], node_name=move.to) for move in result.evictions
    }
    cost = stranded_cost(nodes, afterwards.values())
    for move in result.evictions:
        pod = by_key[move.pod.key]
        others = [each for each in afterwards.values() if each.key != pod.key]
        gain = _dearer_at_home(nodes, others, pod, move.to, policy) + stranded_cost(nodes, [*others, pod]) - cost
        # Both round the costs of each node.
        assert gain >= policy.rescheduling.min_gain - len(nodes), f"{pod.key} leaves in vain"


@given(fragments(MANY, PIECES), _models, st.sampled_from([0, 10]), st.sampled_from([2, 50]))
@settings(max_examples=examples(60))
def test_rounds_end(drawn: tuple[list[Node], list[Pod]], model: str, startup: int, per_round: int) -> None:
    """On more and larger nodes, also where few may leave in a round. There a pod may return, but none does for ever."""
    policy = joining(model, min_gain=100, startup=startup, per_round=per_round)
    carry_out_rounds(*drawn, policy, may_return=True)


@given(fragments(MANY, PIECES), _models, st.randoms(use_true_random=False))
@settings(max_examples=examples(40))
def test_who_moves_does_not_depend_on_the_order_of_pods(
    drawn: tuple[list[Node], list[Pod]], model: str, random: Random
) -> None:
    """The same pods move to the same nodes for the same gains."""
    nodes, pods = drawn
    policy = joining(model)
    shuffled = random.sample(pods, len(pods))
    plans = [
        sorted((move.pod.key, move.to, move.gain, move.reason) for move in plan(each, policy).evictions)
        for each in (snapshot(nodes, in_order, [], policy=policy) for in_order in (pods, shuffled))
    ]
    assert plans[0] == plans[1]


def carry_out_rounds(nodes: list[Node], pods: list[Pod], policy: Policy, *, may_return: bool = False) -> None:
    """Moves are carried out round by round, each pod by a new one: they end, and no pod returns to a node it left.

    Args:
        may_return: a pod does; that moves end is all that is asked then.
    """
    by_key = {pod.key: pod for pod in pods}
    left: defaultdict[str, set[str]] = defaultdict(set)
    for _ in range(3 * len(pods) + 3):
        result = plan(snapshot(nodes, list(by_key.values()), [], policy=policy), policy)
        if not result.evictions:
            break
        for move in result.evictions:
            left[move.pod.key].add(move.pod.node)
            assert may_return or move.to not in left[move.pod.key], f"{move.pod.key} returns to {move.to}"
            by_key[move.pod.key] = _replaced(by_key, move)
    else:
        pytest.fail(f"moves do not end: {dict(left)}")


def _replaced(by_key: Mapping[str, Pod], move: Eviction) -> Pod:
    pod = by_key[move.pod.key]
    return msgspec.structs.replace(pod, node_name=move.to, uid=f"{pod.uid}'", started=NOW)
