"""What every plan leaves: never more than any plan does, evictions and moves among them, and exact where it is easy."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.large_snapshots import large_snapshots, with_gangs
from support.model import node, pod, snapshot
from support.profiles import examples
from support.repository import ROOT

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot, Victim
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, PreemptionMode, PreemptionPolicy, ReschedulingMode
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.methods.pooled_room import PooledRoom
from flowcore.planning.problem.left_at_least import LeftAtLeast, LeftOfLevel
from flowcore.planning.round import RoundResult, pods_left, run_round

_MOVES = msgspec.structs.replace(
    BUILT_IN, rescheduling=msgspec.structs.replace(BUILT_IN.rescheduling, mode=ReschedulingMode.ACT, min_age=0)
)
_NEVER = msgspec.structs.replace(BUILT_IN, preemption=PreemptionPolicy(mode=PreemptionMode.NEVER))
_HOSTNAME = "kubernetes.io/hostname"
_POLICIES = {"default": BUILT_IN, "moves": _MOVES, "never": _NEVER}

_sizes = st.tuples(st.sampled_from((1000, 2000, 3000)), st.sampled_from((0, 0, 1, 2)))
_waiting = st.lists(st.tuples(_sizes, st.sampled_from((0, 0, 10))), min_size=1, max_size=3)
_running = st.lists(st.tuples(st.integers(0, 2), _sizes, st.sampled_from((0, 0, 5, 20)), st.booleans()), max_size=2)


def _crowd(nodes: Sequence[Node], pending: Sequence[PendingPod], running: Sequence[RunningPod]) -> Snapshot:
    cluster = snapshot(nodes, pending, [(each.node, each.usage, ()) for each in running], now=1000.0)
    return replace(cluster, running=RunningPods(tuple(running)))


def _runs(name: str, on: str, requests: Amounts, priority: int, reason: str = "") -> RunningPod:
    return RunningPod(
        f"default/{name}",
        name,
        on,
        PodClass(requests=requests, priority=priority),
        usage=requests,
        started=1.0,
        policy=BUILT_IN.name,
        owner="web",
        unevictable_reason=reason,
    )


def _in_pods(result: RoundResult) -> LeftAtLeast | None:
    """What is known of every plan, but for sizes."""
    return _without_size(result.left_at_least)


def _without_size(known: LeftAtLeast | None) -> LeftAtLeast | None:
    return None if known is None else msgspec.structs.replace(known, size=0.0, least_size=0.0)


def _asking(cpu: int, gpu: int) -> Amounts:
    return tuple((name, amount) for name, amount in (("cpu", cpu), ("nvidia.com/gpu", gpu)) if amount)


def _all_outcomes(cluster: Snapshot, policy: Policy) -> Iterator[tuple[list[int], int, float]]:
    """Priorities of the pods, GPUs, and how large the pods are, that each plan leaves, if rooms alone decide.

    Waiting pods come, running ones stay, move or leave.

    A running pod leaves for a waiting one of a higher priority that got a node. It moves if the policy moves pods.
    """
    nodes = len(cluster.table.nodes)
    running = () if cluster.running is None else cluster.running.pods
    gpu = cluster.resources.index("nvidia.com/gpu") if "nvidia.com/gpu" in cluster.resources else -1
    asked = [cluster.vector(each.pod_class.requests) for each in cluster.pending]
    used = [cluster.vector(each.usage) for each in running]
    everything, offering = cluster.allocatable.sum(axis=0), np.count_nonzero(cluster.allocatable, axis=0)
    counted = (everything > 0) & np.array([name != "pods" for name in cluster.resources])
    mean = everything[counted] / offering[counted]
    sizes = [float((each[counted] / mean).max(initial=0.0)) for each in asked]
    offered = [
        (None, *range(nodes)) if {name for name, _ in each.pod_class.requests} <= set(cluster.resources) else (None,)
        for each in cluster.pending
    ]
    for chosen in product(*offered):
        preempting = (pod.pod_class.priority for pod, to in zip(cluster.pending, chosen, strict=True) if to is not None)
        highest = max(preempting, default=-1) if policy.preemption.mode is PreemptionMode.LOWER_PRIORITY else -1
        ways = []
        for each in running:
            home = cluster.table.index[each.node]
            way: list[int | None] = [home]
            if not each.unevictable_reason and policy is _MOVES:
                way += [other for other in range(nodes) if other != home]
            if not each.unevictable_reason and each.priority < highest:
                way.append(None)
            ways.append(way)
        for stays in product(*ways):
            free, come = cluster.free.copy(), np.zeros_like(cluster.free)
            for each, usage, to in zip(running, used, stays, strict=True):
                free[cluster.table.index[each.node]] += usage
                if to is not None:
                    free[to] -= usage
                    come[to] += usage * (to != cluster.table.index[each.node])
            for requests, to in zip(asked, chosen, strict=True):
                if to is not None:
                    free[to] -= requests
                    come[to] += requests
            # A node may hold more than it offers already: then nothing more of that comes.
            if ((free >= 0) | (come == 0)).all():
                left = [number for number, to in enumerate(chosen) if to is None]
                priorities = [cluster.pending[number].pod_class.priority for number in left]
                gpus = sum(int(asked[number][gpu]) for number in left) if gpu >= 0 else 0
                yield priorities, gpus, sum(sizes[number] for number in left)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((2000, 3000, 5000)), st.sampled_from((0, 1, 3))), min_size=1, max_size=3),
    _waiting,
    _running,
    st.sampled_from(sorted(_POLICIES)),
    st.sampled_from((0, 1, 200)),
)
def test_no_plan_leaves_fewer(
    nodes: list[tuple[int, int]],
    waiting: list[tuple[tuple[int, int], int]],
    running: list[tuple[int, tuple[int, int], int, bool]],
    which: str,
    most_moved: int,
) -> None:
    """Against every plan of small clusters: pods come, leave for others and move, wherever amounts let them.

    The bound tells so many kinds of pods that move apart.
    """
    policy = _POLICIES[which]
    cluster = _crowd(
        [node(f"n{number}", cpu, gpu=gpu) for number, (cpu, gpu) in enumerate(nodes)],
        [
            PendingPod(f"default/p{number}", f"p{number}", PodClass(_asking(*size), priority=priority), BUILT_IN.name)
            for number, (size, priority) in enumerate(waiting)
        ],
        [
            _runs(f"r{number}", f"n{on % len(nodes)}", _asking(*size), priority, "it is static" if is_static else "")
            for number, (on, size, priority, is_static) in enumerate(running)
        ],
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pods_left, "_MOST_MOVED", most_moved)
        result = run_round(cluster, {BUILT_IN.name: policy})
    assert (result.left_at_least is None) == (not result.unplaced)
    if result.left_at_least is None:
        return
    known, outcomes = result.left_at_least, list(_all_outcomes(cluster, policy))
    assert known.waiting == len(result.unplaced)
    assert known.pods <= min(len(pods) for pods, *_ in outcomes) <= known.waiting
    for level in known.levels:
        counts = [sum(priority >= level.priority for priority in pods) for pods, *_ in outcomes]
        assert level.waiting == sum(each.pod.pod_class.priority >= level.priority for each in result.unplaced)
        assert level.pods <= min(counts) <= level.waiting
    if known.resource:
        assert known.amount <= min(gpus for _, gpus, _ in outcomes) <= known.asked
    assert known.least_size <= min(size for *_, size in outcomes) + 1e-9
    assert known.least_size <= known.size


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(1000, 4000), min_size=1, max_size=2),
    st.lists(st.tuples(st.sampled_from((500, 1000, 2500)), st.sampled_from(("", "g", "h"))), min_size=1, max_size=5),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_no_plan_with_gangs_leaves_fewer(
    nodes: list[int], waiting: list[tuple[int, str]], needed: tuple[int, int]
) -> None:
    """A gang is in a plan with as many pods as it needs, or with none."""
    gangs = {name: Gang(name, needs) for name, needs in zip("gh", needed, strict=True)}
    pending = [
        msgspec.structs.replace(pod(f"p{number}", cpu), gangs=(gang,) if gang else ())
        for number, (cpu, gang) in enumerate(waiting)
    ]
    cluster = replace(snapshot([node(f"n{number}", cpu) for number, cpu in enumerate(nodes)], pending), gangs=gangs)
    known = run_round(cluster).left_at_least
    if known is None:
        return
    fewest = len(pending)
    for chosen in product((None, *range(len(nodes))), repeat=len(pending)):
        placed = [(each, to) for each, to in zip(waiting, chosen, strict=True) if to is not None]
        fits = all(sum(cpu for (cpu, _), to in placed if to == on) <= cpus for on, cpus in enumerate(nodes))
        sizes = {name: sum(gang == name for (_, gang), _ in placed) for name in gangs}
        if fits and all(not size or size >= gangs[name].min_placed for name, size in sizes.items()):
            fewest = min(fewest, len(pending) - len(placed))
    assert known.pods <= fewest <= known.waiting


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 3), st.integers(1, 20))
def test_it_is_exact_for_equal_pods(nodes: list[int], cores: int, pods: int) -> None:
    """One resource, pods of one size: what whole pods leave on each node helps nobody."""
    cluster = snapshot(
        [node(f"n{number}", cpu * 1000) for number, cpu in enumerate(nodes)],
        [pod(f"p{number}", cores * 1000) for number in range(pods)],
    )
    left = max(0, pods - sum(cpu // cores for cpu in nodes))
    assert _in_pods(run_round(cluster)) == (LeftAtLeast(left, left) if left else None)


@settings(max_examples=examples(60), deadline=None)
@given(large_snapshots() | with_gangs())
def test_it_is_true_of_the_plan(crowd: Snapshot) -> None:
    """The plan of a round is one of those that it speaks of."""
    result = run_round(crowd)
    known = result.left_at_least
    assert (known is None) == (not result.unplaced)
    if known is not None:
        assert 0 <= known.pods <= known.waiting == len(result.unplaced)
        assert 0 <= known.amount <= known.asked
        assert 0 <= known.least_size <= known.size


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.sampled_from((0.0, 1e-9, 1e-3, 1.0)), st.sampled_from((1, 2**40)))
def test_a_bound_from_any_prices_holds(seed: int, highest: float, unit: int) -> None:
    """Whatever prices come from a solver, right or wrong: some plan that fills the room leaves at least that."""
    random = np.random.default_rng(seed)
    requests, pods = random.integers(1, 4, (3, 2)) * unit, random.integers(1, 6, 3)
    free, weights = random.integers(0, 9, (2, 2)) * unit, random.integers(0, 4, 3)
    counts = np.array([(free // request).min(axis=1) for request in requests])
    kinds = [PodKind.of_room(at, requests[at], int(pods[at]), counts[at] > 0, counts[at]) for at in range(3)]
    pooled = PooledRoom.of(kinds, free)
    if pooled is None:
        return
    left, now = pods.copy(), free.copy()
    for number in random.permutation(3):
        for pool in range(2):
            fits = min(int(left[number]), int((now[pool] // requests[number]).min()))
            left[number] -= fits
            now[pool] -= fits * requests[number]
    for prices in (random.random(pooled.room.shape) * highest * 4 / unit, pooled.prices(weights)):
        assert 0 <= pooled.least(weights, prices) <= int((left * weights).sum())


def test_many_pods_lose_nothing_by_rounding() -> None:
    """20,000 pods of three units each, and room for half of them on nodes of two shapes."""
    free = np.repeat([[30], [12_000]], [600, 1], axis=0)
    counts = free[:, 0] // 3
    pooled = PooledRoom.of([PodKind.of_room(0, np.array([3]), 20_000, counts > 0, counts)], free)
    assert pooled is not None
    weights = np.array([1])
    assert pooled.least(weights, pooled.prices(weights)) == 20_000 - int(counts.sum())


def test_room_of_pods_that_may_leave_counts_as_free() -> None:
    """Two waiting pods want a whole node each. A plan may evict the running pod for one of them."""
    low = _runs("low", "n", _asking(4000, 0), 0)
    waiting = [pod(f"high{number}", 4000, priority=10) for number in range(2)]
    known = run_round(_crowd([node("n", 4000)], waiting, [low])).left_at_least
    assert known is not None
    assert (known.waiting, known.pods) == (1, 1)


@pytest.mark.parametrize(("policy", "least"), [(_MOVES, 1), (BUILT_IN, 2)])
def test_moves_make_no_more_room_in_all(policy: Policy, least: int) -> None:
    """Two nodes are half full, and waiting pods want whole ones: one comes if a running pod moves to the other node."""
    running = [_runs(f"r{number}", f"n{number}", _asking(1000, 0), 0) for number in range(2)]
    waiting = [pod(f"p{number}", 2000) for number in range(2)]
    cluster = _crowd([node(f"n{number}", 2000) for number in range(2)], waiting, running)
    known = run_round(cluster, {BUILT_IN.name: policy}).left_at_least
    assert known is not None
    assert (known.waiting, known.pods) == (least, least)


def test_a_budget_that_lets_nobody_go_keeps_room_taken() -> None:
    """An urgent pod needs the room of one that a PodDisruptionBudget protects."""
    guarded = msgspec.structs.replace(_runs("r", "n", _asking(2000, 0), 0), budgets=("b",))
    cluster = _crowd([node("n", 2000)], [pod("p", 2000, priority=5)], [guarded])
    cluster = replace(cluster, running=RunningPods((guarded,), budgets={"b": 0}))
    assert _in_pods(run_round(cluster)) == LeftAtLeast(1, 1)
    cluster = replace(cluster, running=RunningPods((guarded,), budgets={"b": 1}))
    assert run_round(cluster).left_at_least is None


def test_a_gang_that_cannot_be_whole_is_left_whole() -> None:
    """Five pods come together or not at all, and there are three GPUs."""
    pending = [msgspec.structs.replace(pod(f"p{number}", 100, gpu=1), gangs=("g",)) for number in range(5)]
    cluster = replace(snapshot([node("n", gpu=3)], pending), gangs={"g": Gang("g", 5)})
    assert _in_pods(run_round(cluster)) == LeftAtLeast(5, 5, "nvidia.com/gpu", 5, 5)


def test_limits_between_own_pods_count() -> None:
    """Three pods that keep apart, and two nodes with room for them all."""
    apart = InterPodConstraints(
        anti_affinity=(AffinityTerm(_HOSTNAME, LabelSelector((Requirement("app", "In", ("web",)),)), ("default",)),)
    )
    kind = PodSignature("default", (("app", "web"),), constraints=apart)
    nodes = [node(f"n{number}", labels=((_HOSTNAME, f"n{number}"),)) for number in range(2)]
    known = run_round(snapshot(nodes, [pod(f"p{number}", 100, kind=kind) for number in range(3)])).left_at_least
    assert _without_size(known) == LeftAtLeast(1, 1)


def test_pods_that_were_decided_before_the_rest_are_not_in_the_bound() -> None:
    """A pod that replaces another one has one node only, and nothing is known of other plans."""
    victim = Victim("default/old", "n", unschedulable_reason="it is gone")
    waiting = msgspec.structs.replace(pod("new", 100), victim=victim)
    known = run_round(snapshot([node("n")], [waiting])).left_at_least
    assert _without_size(known) == LeftAtLeast(1, 0, bound_notes=("Decided",))
    assert known.sentence.endswith(": the bound counts replacements as placed without room")


def test_a_bound_that_says_nothing_says_why() -> None:
    """Three pods and two nodes have room for in sum, but not each for itself: by fractions nobody has to wait."""
    nodes = [node(f"n{number}", 3000) for number in range(2)]
    known = run_round(snapshot(nodes, [pod("a", 2000), pod("b", 2000), pod("c", 1500)])).left_at_least
    assert _without_size(known) == LeftAtLeast(1, 0, bound_notes=("Fractions",))
    assert known.sentence == (
        "1 pod has no node; how few a plan must leave is not known: "
        "the bound counts pods as if they could be split among nodes"
    )
    assert known.sentence_of_all == f"in the whole cluster {known.sentence}"


def test_priorities_make_the_bound_weak() -> None:
    """An urgent pod takes the room that two others would fill."""
    waiting = [pod("urgent", 2000, priority=10), pod("low0", 1500), pod("low1", 1500)]
    known = run_round(snapshot([node("n", 3000)], waiting)).left_at_least
    assert known is not None
    assert (known.waiting, known.pods, known.bound_notes) == (2, 1, ("Fractions", "AnyCost"))


def test_rules_make_the_bound_weak() -> None:
    """One pod keeps apart from another one. Where somebody may leave, the bound does not even count domains."""
    apart = InterPodConstraints(
        anti_affinity=(AffinityTerm(_HOSTNAME, LabelSelector((Requirement("app", "In", ("db",)),)), ("default",)),)
    )
    kinds = PodSignature("default", (("app", "web"),), constraints=apart), PodSignature("default", (("app", "db"),))
    pending = [pod(f"p{number}", 100, priority=5, kind=kind) for number, kind in enumerate(kinds)]
    nodes = [node("n", labels=((_HOSTNAME, "n"),))]
    known = run_round(snapshot(nodes, pending)).left_at_least
    assert _without_size(known) == LeftAtLeast(1, 0, bound_notes=("Fractions", "Rules"))
    known = run_round(_crowd(nodes, pending, [_runs("low", "n", _asking(100, 0), 0)])).left_at_least
    assert _without_size(known) == LeftAtLeast(1, 0, bound_notes=("Fractions", "NoRules", "MayLeave"))


@pytest.mark.parametrize("nodes", [0, 1])
def test_without_room_every_pod_is_left(nodes: int) -> None:
    """No nodes, or a full one; gangs and other pods."""
    pending = [pod("p", 8000), *(msgspec.structs.replace(pod(f"g{number}", 100), gangs=("g",)) for number in range(2))]
    full = [node("n", 50) for _ in range(nodes)]
    cluster = replace(snapshot(full, pending), gangs={"g": Gang("g", 2)})
    assert _in_pods(run_round(cluster)) == LeftAtLeast(3, 3)


def test_a_resource_of_which_no_node_has_any_is_not_told() -> None:
    """A device plugin without devices: nothing of what is asked for is offered."""
    without = Node("n", allocatable=(("cpu", 4000), ("nvidia.com/gpu", 0), ("pods", 10)))
    assert _in_pods(run_round(snapshot([without], [pod("p", 100, gpu=1)]))) == LeftAtLeast(1, 1)


def test_gpus_are_counted_beside_pods() -> None:
    """A pod with two GPUs waits, and another plan would leave one with one GPU: there are three GPUs for four."""
    waiting = [pod("small0", gpu=1), pod("small1", gpu=1), pod("large", gpu=2)]
    known = run_round(snapshot([node("n", gpu=3)], waiting)).left_at_least
    assert known is not None
    assert (known.pods, known.resource, known.amount) == (1, "nvidia.com/gpu", 1)
    assert not known.least_size, "one measure is enough"


def test_each_priority_that_waits_has_a_row() -> None:
    """Two nodes, four urgent pods of a node each, two that are less urgent, and one that fits beside nobody."""
    nodes = [node(f"n{number}", 2000) for number in range(2)]
    urgent = [pod(f"u{number}", 2000, priority=10) for number in range(4)]
    others = [pod(f"o{number}", 2000, priority=5) for number in range(2)]
    known = run_round(snapshot(nodes, [*urgent, *others, pod("low", 2000)])).left_at_least
    assert known is not None
    assert known.levels == (LeftOfLevel(10, 2, 2), LeftOfLevel(5, 4, 4), LeftOfLevel(0, 5, 5))
    assert known.further_levels == 0
    assert msgspec.to_builtins(known)["levels"][0] == {"priority": 10, "waiting": 2, "pods": 2}
    known = run_round(snapshot(nodes, urgent)).left_at_least
    assert _without_size(known) == LeftAtLeast(2, 2), "one priority needs no rows"


def test_of_many_priorities_the_highest_have_rows() -> None:
    """Twelve pods that no node has room for, each of a priority of its own."""
    known = run_round(snapshot([node("n", 100)], [pod(f"p{each}", 200, priority=each) for each in range(12)]))
    assert known.left_at_least is not None
    assert [(each.priority, each.pods) for each in known.left_at_least.levels] == [
        (11 - place, place + 1) for place in range(10)
    ]
    assert known.left_at_least.further_levels == 2


@pytest.mark.slow
def test_the_trace_of_a_cluster_with_gpus() -> None:
    """8,152 pods of a production cluster ask for 120 % of its GPUs: 852 are left by every plan, and by this one.

    It counts pods; by size those that ask for several GPUs come first.
    """
    nodes = [
        node(f"n{shape}-{number}", int(cpu), int(mib) * 2**20, gpu=int(gpu))
        for shape, (cpu, mib, gpu, _, count) in enumerate(_rows("openb_shapes.csv"))
        for number in range(int(count))
    ]
    waiting = [
        pod(f"p{size}-{number}", int(cpu), int(mib) * 2**20, gpu=int(gpu))
        for size, (cpu, mib, gpu, count) in enumerate(_rows("openb_sizes.csv"))
        for number in range(int(count))
    ]
    by_pod = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, unscheduled=UnscheduledPrice(per=PricedBy.POD))}
    known = run_round(snapshot(nodes, waiting), by_pod).left_at_least
    assert _without_size(known) == LeftAtLeast(852, 852, "nvidia.com/gpu", 1221, 1221)


def _rows(name: str) -> list[list[str]]:
    return list(csv.reader((ROOT / "bench" / "harness" / name).read_text().splitlines()))[1:]


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (LeftAtLeast(66, 60), "66 pods have no node; no plan leaves fewer than 60 pods"),
        (
            LeftAtLeast(66, 60, size=12.41, least_size=12.09),
            (
                "66 pods have no node, together as large as 12.5 nodes; every plan leaves at least 60 pods, "
                "and pods that are together as large as 12 nodes"
            ),
        ),
        (LeftAtLeast(1, 1), "1 pod has no node; no plan leaves fewer"),
        (LeftAtLeast(3, 0), ""),
        (LeftAtLeast(3, 0, bound_notes=("FromALaterVersion",)), ""),
        (LeftAtLeast(66, 60, bound_notes=("Gangs",)), "66 pods have no node; no plan leaves fewer than 60 pods"),
        (
            LeftAtLeast(1066, 1066, "nvidia.com/gpu", 2060, 2058),
            (
                "1,066 pods have no node and ask for 2,060 GPUs; "
                "every plan leaves at least 1,066 pods, and requests for 2,058 GPUs"
            ),
        ),
        (
            LeftAtLeast(1, 1, "example.com/fpga", 1, 1),
            "1 pod has no node and asks for 1 example.com/fpga; no plan leaves fewer",
        ),
    ],
)
def test_sentences(known: LeftAtLeast, sentence: str) -> None:
    """What people read."""
    assert known.sentence == sentence


def test_no_amount_that_a_pod_may_ask_for_ends_a_round() -> None:
    """The API server takes any amount of an extended resource below 2**63."""
    nodes = [node("n0", 8000, gpu=4), node("n1", 8000, gpu=4)]
    pending = [pod("huge", gpu=2**63 - 1), *(pod(f"small-{number}", 100, gpu=2) for number in range(3))]
    one = (("nvidia.com/gpu", 1),)
    movable = [
        RunningPod(f"d/r{number}", f"u{number}", "n0", PodClass(requests=one), one, owner="o", policy=BUILT_IN.name)
        for number in range(2)
    ]
    for cluster in (snapshot(nodes, pending), _crowd(nodes, pending, movable)):
        result = run_round(cluster, {BUILT_IN.name: _MOVES})
        least = result.left_at_least
        assert least is not None
        assert least.pods <= len(result.unplaced) == 1
        assert least.amount <= least.asked == 2**63 - 1


@pytest.mark.parametrize("asked", [{"cpu": 2**63 - 1}, {"memory": 2**62}, {"cpu": 10**9}])
def test_nor_where_its_size_counts_beside_that_of_others(asked: dict[str, int]) -> None:
    """Others wait beside it, of which a plan might leave fewer. Sizes are in digits that people read."""
    sizes = (3000, 3000, 3000, 1500, 1500, 1500)
    pending = [pod("huge", **asked), *(pod(f"p{number}", cpu) for number, cpu in enumerate(sizes))]
    result = run_round(snapshot([node("n0", 4000, gpu=1), node("n1", 4000)], pending))
    least = result.left_at_least
    assert least is not None
    assert least.pods < least.waiting
    assert 1.0 < least.least_size <= least.size
    assert "e+" not in least.sentence
