"""Running pods leave for gangs that keep to domains: slices with a rack each, in one block."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.eviction_clusters import running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod
from flowcore.planning.evictions.search.search import Search
from flowcore.planning.methods import domain_tries
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

#: Priorities: of pods that wait, of pods that may leave for them, and of pods that stay.
URGENT, LOW, HIGH = 10, 0, 20
#: What runs on each node, by block and rack: cores of each pod, those below zero of pods that stay; nothing is free.
Tree = dict[str, dict[str, list[list[int]]]]


def cluster(
    tree: Tree, pending: Sequence[PendingPod], gangs: Sequence[Gang], budget: int | None = None, free: int = 0
) -> Snapshot:
    """Such a cluster, in which so many cores of each node are free.

    Args:
        budget: how many pods of two cores may leave; None: any number.
    """
    nodes, pods = list[Node](), list[Pod]()
    for block, racks in tree.items():
        for rack, on_nodes in racks.items():
            for place, sizes in enumerate(on_nodes):
                name = f"{rack}-{place}"
                cores = sum(map(abs, sizes)) + free
                allocatable = (("cpu", cores), ("memory", 64), ("pods", 110))
                nodes.append(Node(name, labels=(("block", block), ("rack", rack)), allocatable=allocatable))
                for number, size in enumerate(sizes):
                    priority = LOW if size > 0 else HIGH
                    app = "two" if size == 2 else "one"
                    pods.append(running(f"{name}-{number}", name, abs(size), priority=priority, labels=(("app", app),)))
    budgets = [] if budget is None else [DisruptionBudget("default", "two", selects("two"), budget)]
    return snapshot(nodes, pods, pending, budgets, gangs=gangs)


def sliced(
    cores: Sequence[int], size: int, *, block: bool = True, **fields: Any
) -> tuple[list[PendingPod], list[Gang]]:
    """An urgent gang of slices of one rack each, of ``size`` pods; those of slice i have ``cores[i]`` cores."""
    gangs = [Gang("g", size * len(cores), topology_key="block" if block else "")]
    pending = []
    for number, each in enumerate(cores):
        name = f"g slice {number}"
        gangs.append(Gang(name, size, slice_of="g", topology_key="rack"))
        pending += [
            waiting(f"w{number}-{place}", each, priority=URGENT, gangs=("g", name), **fields) for place in range(size)
        ]
    return pending, gangs


def planned(made: Snapshot) -> RoundResult:
    """The plan, which is legal, and in which nobody leaves in vain."""
    result = run_round(made)
    check_evictions(made, result, DEFAULT_POLICIES)
    return result


def racks(result: RoundResult) -> Counter[str]:
    """How many pods get a node in each rack."""
    return Counter(each.node.partition("-")[0] for each in result.placements)


def victims(result: RoundResult) -> set[str]:
    """Who is evicted."""
    return {each.pod.key.partition("/")[2] for each in result.evictions}


# --- the whole gang, or nobody leaves ---


def test_slices_get_racks_of_one_block() -> None:
    """Pods leave two racks of the only block where both slices find room."""
    tree: Tree = {"a": {"a1": [[1], [1]], "a2": [[1], [-1]]}, "b": {"b1": [[1], [1]], "b2": [[1, 1]]}}
    result = planned(cluster(tree, *sliced((1, 1), 2)))
    assert racks(result) == {"b1": 2, "b2": 2}
    assert len(result.evictions) == 4
    assert {each.kind.value for each in result.evictions} == {"Preemption"}


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"a1": [[1], [1]], "a2": [[1], [-1]]}},
        {"a": {"a1": [[1], [1]]}, "b": {"b1": [[1], [1]]}},
        {"a": {"a1": [[1, 1, 1]], "a2": [[-1]]}},
    ],
    ids=["a pod stays", "racks of two blocks", "a rack for one slice and a half"],
)
def test_nobody_leaves_for_a_part_of_the_gang(tree: Tree) -> None:
    """Each slice but one would find room."""
    result = planned(cluster(tree, *sliced((1, 1), 2)))
    assert not result.evictions
    assert not result.placements


def test_a_gang_that_preempts_nobody() -> None:
    """It waits."""
    tree: Tree = {"a": {"a1": [[1], [1]], "a2": [[1], [1]]}}
    assert not planned(cluster(tree, *sliced((1, 1), 2, preempts=False))).evictions


def test_a_budget_decides_which_rack() -> None:
    """Two pods of two cores are cheaper than four of one, and the budget lets none of them go."""
    tree: Tree = {"a": {"a1": [[2], [2]], "a2": [[1, 1], [1, 1]]}}
    pending, gangs = sliced((1,), 4)
    assert victims(planned(cluster(tree, pending, gangs, budget=2))) == {"a1-0-0", "a1-1-0"}
    assert racks(planned(cluster(tree, pending, gangs, budget=1))) == {"a2": 4}


# --- whose racks ---


@pytest.mark.parametrize("first", [True, False])
def test_the_rack_with_fewest_victims(first: bool) -> None:  # noqa: FBT001
    """Whichever comes first by name."""
    many, few = [[1, 1]], [[2]]
    tree: Tree = {"a": {"a1": few if first else many, "a2": many if first else few}}
    pending = [waiting(f"w{place}", 1, priority=URGENT, gangs=("g",)) for place in range(2)]
    assert victims(planned(cluster(tree, pending, [Gang("g", 2, topology_key="rack")]))) == {
        "a1-0-0" if first else "a2-0-0"
    }


def test_the_rack_that_a_gang_prefers() -> None:
    """Of plans with as many victims it takes the one in one rack."""
    tree: Tree = {"a": {"a1": [[1]], "a2": [[1], [1]]}}
    pending = [waiting(f"w{place}", 1, priority=URGENT, gangs=("g",)) for place in range(2)]
    gang = Gang("g", 2, topology_key="block", preferred=(("block, rack", ""),))
    assert racks(planned(cluster(tree, pending, [gang]))) == {"a2": 2}


def test_slices_that_share_a_rack_share_its_victims() -> None:
    """One large pod leaves for both, and not a small one for the first."""
    tree: Tree = {"a": {"a1": [[1, 2]]}}
    assert victims(planned(cluster(tree, *sliced((1, 1), 1)))) == {"a1-0-1"}


def test_gangs_of_one_group_with_a_rack_each() -> None:
    """Two replicated jobs of a JobSet: no domain holds both."""
    tree: Tree = {"a": {"a1": [[1], [1]], "a2": [[2]]}}
    gangs = [Gang(name, 2, "set", topology_key="rack") for name in ("leaders", "workers")]
    pending = [
        waiting(f"{gang.name}-{place}", 1, priority=URGENT, gangs=(gang.name,)) for gang in gangs for place in (0, 1)
    ]
    result = planned(cluster(tree, pending, gangs))
    assert racks(result) == {"a1": 2, "a2": 2}
    assert len(result.evictions) == 3


def test_a_pod_in_no_slice() -> None:
    """A launcher goes to any rack, and somebody leaves for it, too."""
    tree: Tree = {"a": {"a1": [[1], [1]], "a2": [[1]]}}
    pending, gangs = sliced((1,), 2, block=False)
    launcher = waiting("launcher", 1, priority=URGENT, gangs=("g",))
    result = planned(cluster(tree, [*pending, launcher], [Gang("g", 3), gangs[1]]))
    assert racks(result) == {"a1": 2, "a2": 1}


def test_pods_with_a_port() -> None:
    """Every filter judges: two pods of a slice need two nodes."""
    port = HostPort(ANY_ADDRESS, "TCP", 80)
    tree: Tree = {"a": {"a1": [[2]], "a2": [[1], [1]]}}
    result = planned(cluster(tree, *sliced((1,), 2, host_ports=(port,))))
    assert racks(result) == {"a2": 2}


def test_slices_of_a_gang_that_has_a_block() -> None:
    """Some of it runs in block b: a slice that has no rack yet gets one there."""
    tree: Tree = {"a": {"a1": [[2]]}, "b": {"b1": [[1], [1]]}}
    pending, gangs = sliced((1,), 2)
    gangs[0] = Gang("g", 2, topology_key="block", domain="b", partially_placed=True)
    assert racks(planned(cluster(tree, pending, gangs))) == {"b1": 2}


# --- tries in vain ---

#: Racks that a budget closes for pods of two cores, and a block for two of one core.
CLOSED: Tree = {f"a{block}": {f"a{block}r{rack}": [[2]] for rack in range(8)} for block in range(4)}
OPEN: Tree = {"c": {"c1": [[1]], "c2": [[1]]}}


def pair(name: str, cores: int, priority: int, namespace: str = "default") -> tuple[list[PendingPod], list[Gang]]:
    """An urgent gang of two slices of one pod each."""
    names = [f"{name} slice {number}" for number in range(2)]
    gangs = [
        Gang(name, 2, topology_key="block"),
        *(Gang(each, 1, slice_of=name, topology_key="rack") for each in names),
    ]
    pods = [
        waiting(f"{name}-{number}", cores, priority=priority, gangs=(name, each)) for number, each in enumerate(names)
    ]
    return [msgspec.structs.replace(pod, key=pod.key.replace("default", namespace)) for pod in pods], gangs


def single(name: str, cores: int, priority: int, namespace: str = "default") -> tuple[list[PendingPod], list[Gang]]:
    """An urgent gang of one pod, which needs a rack."""
    pod = waiting(name, cores, priority=priority, gangs=(name,))
    return [msgspec.structs.replace(pod, key=pod.key.replace("default", namespace))], [
        Gang(name, 1, topology_key="rack")
    ]


MakesGangs = Callable[[str, int, int], tuple[list[PendingPod], list[Gang]]]
each_kind = pytest.mark.parametrize("kind", [pair, single])


def beside_hopeless(
    kind: MakesGangs, count: int, pending: Sequence[PendingPod] = (), gangs: Sequence[Gang] = ()
) -> Snapshot:
    """So many gangs that no rack takes, all of one namespace, and less urgent pods."""
    hopeless = [kind(f"g{number:03}", 2, URGENT + 1) for number in range(count)]
    pods = [pod for pods, _ in hopeless for pod in pods]
    return cluster(CLOSED | OPEN, [*pods, *pending], [*(each for _, of in hopeless for each in of), *gangs], budget=0)


def in_turn(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """The group that comes after so much of all others is in turn."""
    monkeypatch.setattr(domain_tries, "turn_of", lambda _: int(part * 2**32))


@each_kind
def test_gangs_that_nothing_helps_share_the_tries_of_a_round(kind: MakesGangs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many are not tried twice as often."""
    placed: list[int] = []
    place_all = Search.place_all

    def counted(self: Search, demand: int, *args: Any, **fields: Any) -> int:
        placed.append(demand)
        return place_all(self, demand, *args, **fields)

    monkeypatch.setattr(Search, "place_all", counted)
    counts = []
    for count in (12, 48):
        placed.clear()
        assert not planned(beside_hopeless(kind, count)).placements
        counts.append(len(placed))
    assert 12 < counts[1] < 2 * counts[0]


@each_kind
def test_they_take_few_tries_of_another_namespace(kind: MakesGangs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs of it are placed in the same round."""
    in_turn(monkeypatch, 0)
    assert racks(planned(beside_hopeless(kind, 12, *pair("last", 1, URGENT, "other")))) == {"c1": 1, "c2": 1}
    assert racks(planned(beside_hopeless(kind, 12, *single("last", 1, URGENT, "other")))) == {"c1": 1}


@each_kind
def test_a_gang_of_their_namespace_has_its_turn(kind: MakesGangs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then its reason is what keeps it waiting without evictions."""
    made = beside_hopeless(kind, 12, *pair("last", 1, URGENT))
    in_turn(monkeypatch, 0)
    result = planned(made)
    assert not result.placements
    reasons = {each.reason for each in result.unplaced if each.pod.key.startswith("default/last")}
    assert reasons == {"0/34 nodes are available: 34 Insufficient cpu."}
    in_turn(monkeypatch, 0.999)
    assert racks(planned(made)) == {"c1": 1, "c2": 1}


def test_each_domain_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a gang has fewer tries than domains: the only one that does is the last by what leaves there."""
    monkeypatch.setattr(domain_tries, "_MOST", 16)
    pending, gangs = single("g", 2, URGENT)
    made = cluster(CLOSED | {"c": {"c1": [[1, 1]]}}, pending, gangs, budget=0)
    plans = []
    for turn in range(16):
        in_turn(monkeypatch, turn / 16)
        plans.append(racks(planned(made)))
    assert Counter(c1=1) in plans
    assert Counter() in plans


@given(
    st.lists(st.sampled_from([single, pair]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["default", "other"])), min_size=4, max_size=4),
    st.lists(
        st.lists(st.lists(st.sampled_from([1, 2, -1]), min_size=1, max_size=2), min_size=1, max_size=3), max_size=3
    ),
    st.integers(0, 1),
)
@settings(max_examples=examples(30))
def test_tries_change_nothing_where_there_are_enough(
    kinds: list[Any], asked: list[tuple[int, str]], drawn: list[list[list[int]]], budget: int
) -> None:
    """The plan is the one without a limit."""
    tree: Tree = {
        f"b{block}": {f"b{block}r{rack}": [sizes] for rack, sizes in enumerate(of)} for block, of in enumerate(drawn)
    }
    made = [
        kind(f"g{at}", cores, URGENT, namespace)
        for at, (kind, (cores, namespace)) in enumerate(zip(kinds, asked, strict=False))
    ]
    pods, gangs = [pod for of, _ in made for pod in of], [gang for _, of in made for gang in of]
    limited = planned(cluster(OPEN | tree, pods, gangs, budget))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain_tries, "_MOST", 10**9)
        free = planned(cluster(OPEN | tree, pods, gangs, budget))
    assert (limited.placements, limited.evictions) == (free.placements, free.evictions)


# --- beside all ways ---


def least_victims(tree: Tree, slices: Sequence[tuple[int, int]], free: int, budget: int | None) -> int | None:
    """How many pods must leave at least for slices (pods, cores of each); None: it cannot be. All ways are tried."""

    def packs(rooms: Sequence[int], inside: Sequence[tuple[int, int]]) -> bool:
        # With pods of one and two cores: the large ones anywhere, the small ones in what is left.
        large = sum(pods for pods, cores in inside if cores == 2)
        return large <= sum(room // 2 for room in rooms) and sum(pods * cores for pods, cores in inside) <= sum(rooms)

    def fits(rooms: dict[str, list[int]]) -> bool:
        return any(
            all(packs(rooms[rack], [slices[at] for at, where in enumerate(way) if where == rack]) for rack in rooms)
            for way in itertools.product(rooms, repeat=len(slices))
        )

    best: int | None = None
    for inside in tree.values():
        leavers = [
            (rack, place, size)
            for rack, on_nodes in inside.items()
            for place, sizes in enumerate(on_nodes)
            for size in sizes
            if size > 0
        ]
        for count in range(len(leavers) + 1 if best is None else best):
            for gone in itertools.combinations(leavers, count):
                if budget is not None and sum(size == 2 for _, _, size in gone) > budget:
                    continue
                rooms = {rack: [free] * len(on_nodes) for rack, on_nodes in inside.items()}
                for rack, place, size in gone:
                    rooms[rack][place] += size
                if fits(rooms):
                    best = count
                    break
            if best == count:
                break
    return best


NODES = st.lists(st.sampled_from([1, 1, 2, -1]), min_size=1, max_size=2)
RACKS = st.lists(st.lists(NODES, min_size=1, max_size=2), min_size=1, max_size=2)
TREES = st.lists(RACKS, min_size=1, max_size=2).map(
    lambda drawn: {
        f"b{block}": {f"b{block}r{rack}": on_nodes for rack, on_nodes in enumerate(inside)}
        for block, inside in enumerate(drawn)
    }
)


@given(
    TREES,
    st.integers(1, 2),
    st.lists(st.integers(1, 2), min_size=1, max_size=3),
    st.integers(0, 1),
    st.sampled_from([None, None, 1]),
)
@example({"a": {"a1": [[1]], "a2": [[1], [2]]}}, 1, [1, 1], 0, None)
@settings(max_examples=examples(60))
def test_as_few_leave_as_may(tree: Tree, size: int, cores: list[int], free: int, budget: int | None) -> None:
    """The gang is placed where that can be, and no more pods leave than must."""
    result = planned(cluster(tree, *sliced(cores, size), budget, free))
    least = least_victims(tree, [(size, each) for each in cores], free, budget)
    assert bool(result.placements) == (least is not None)
    assert len(result.evictions) == (least or 0)


@given(TREES, st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.sampled_from([None, None, 1]))
@settings(max_examples=examples(40))
def test_as_few_leave_as_may_in_one_rack(tree: Tree, size: int, cores: int, free: int, budget: int | None) -> None:
    """The same for a gang without slices."""
    pending = [waiting(f"w{place}", cores, priority=URGENT, gangs=("g",)) for place in range(size)]
    result = planned(cluster(tree, pending, [Gang("g", size, topology_key="rack")], budget, free))
    by_rack: Tree = {rack: {rack: on_nodes} for inside in tree.values() for rack, on_nodes in inside.items()}
    least = least_victims(by_rack, [(size, cores)], free, budget)
    assert bool(result.placements) == (least is not None)
    assert len(result.evictions) == (least or 0)
