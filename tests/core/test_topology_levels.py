"""Gangs and levels of topology: domains that fit tightly, slices, preferred levels, ranks, and reasons to wait."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gang_topology import RANK_LABELS
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PreferredTerm
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.problem.demands.atomic_groups import MAX_CHOOSING
from flowcore.planning.round import RoundResult

INDEX = "batch.kubernetes.io/job-completion-index"
#: Cores of each node, by block and rack: ``TREE["a"]["a1"]``.
Tree = dict[str, dict[str, list[int]]]


def nodes_of(tree: Tree) -> list[Node]:
    """Nodes of such a tree; those of rack a1 are a1-0, a1-1 and so on."""
    return [
        node(f"{rack}-{place}", 1000 * cores, labels=(("block", block), ("rack", rack)))
        for block, racks in tree.items()
        for rack, sizes in racks.items()
        for place, cores in enumerate(sizes)
    ]


def ranked(name: str, count: int, *gangs: str, cores: int = 1, begin: int = 0) -> list[PendingPod]:
    """Pods of a gang with ranks from ``begin`` on, of so many cores each."""
    return [
        msgspec.structs.replace(
            pod(f"{name}-{rank:02}", 1000 * cores, kind=PodSignature("default", ((INDEX, str(rank)),))), gangs=gangs
        )
        for rank in range(begin, begin + count)
    ]


def sliced(count: int, size: int, cores: tuple[int, ...] = ()) -> tuple[list[PendingPod], list[Gang]]:
    """A gang of one block and its slices of one rack each; pods of slice i have ``cores[i]`` cores."""
    waiting, gangs = list[PendingPod](), [Gang("g", count, topology_key="block")]
    for number, begin in enumerate(range(0, count, size)):
        name, of_slice = f"g slice {number}", min(size, count - begin)
        each = cores[number] if cores else 1
        waiting += ranked("g", of_slice, "g", name, cores=each, begin=begin)
        gangs.append(Gang(name, of_slice, slice_of="g", topology_key="rack"))
    return waiting, gangs


def with_gangs(tree: Tree, waiting: list[PendingPod], *gangs: Gang, used: dict[str, int] | None = None) -> Snapshot:
    """A cluster with cores of some nodes in use."""
    running = [(name, amounts(1000 * cores), ()) for name, cores in (used or {}).items()]
    made = snapshot(nodes_of(tree), waiting, running=running, now=100.0)
    return replace(made, gangs={gang.name: gang for gang in gangs})


def racks(result: RoundResult) -> Counter[str]:
    """How many pods are placed in each rack."""
    return Counter(each.node.partition("-")[0] for each in result.placements)


# --- domains that fit tightly ---


def test_the_rack_with_least_left_over() -> None:
    """Of a whole rack and one that has begun to fill the gang takes the one that it fills up."""
    tree: Tree = {"a": {"a1": [4, 4], "a2": [4, 4]}}
    gang = Gang("g", 6, topology_key="rack")
    result = plan_and_check(with_gangs(tree, ranked("g", 6, "g"), gang, used={"a2-0": 2}))
    assert racks(result) == {"a2": 6}


def test_of_equal_remainders_the_rack_that_has_begun_to_fill() -> None:
    """The other one stays whole, whichever comes first by name."""
    for used, tree in (("a2-0", {"a1": [8], "a2": [12]}), ("a1-0", {"a1": [12], "a2": [8]})):
        made = with_gangs({"a": tree}, ranked("g", 6, "g"), Gang("g", 6, topology_key="rack"), used={used: 4})
        assert racks(plan_and_check(made)) == {used[:2]: 6}


def test_what_its_pods_prefer_goes_before_a_tight_fit() -> None:
    """A rack that the pods' node affinity prefers, though more is left over there."""
    term = NodeSelectorTerm((Requirement("rack", "In", ("a1",)),))
    waiting = [
        msgspec.structs.replace(pod(f"g-{at}", 1000, preferred_affinity=(PreferredTerm(100, term),)), gangs=("g",))
        for at in range(2)
    ]
    tree: Tree = {"a": {"a1": [8], "a2": [2]}}
    assert racks(plan_and_check(with_gangs(tree, waiting, Gang("g", 2, topology_key="rack")))) == {"a1": 2}


# --- slices ---


def test_two_slices_do_not_choose_a_rack_with_room_for_one() -> None:
    """The second one takes what the first has left."""
    waiting, gangs = sliced(4, 2)
    assert racks(plan_and_check(with_gangs({"a": {"a1": [2], "a2": [3]}}, waiting, *gangs))) == {"a1": 2, "a2": 2}


@pytest.mark.parametrize("others", [1, 20])
def test_a_block_with_room_for_all_pods_and_not_for_all_slices(others: int) -> None:
    """However many such blocks fit more tightly, the gang finds the one that holds its slices."""
    tree: Tree = {f"o{at:02}": {f"o{at:02}r{rack}": [3] for rack in range(3)} for at in range(others)}
    waiting, gangs = sliced(8, 4)
    result = plan_and_check(with_gangs(tree | {"z": {"z1": [2, 2], "z2": [6]}}, waiting, *gangs))
    assert racks(result) == {"z1": 4, "z2": 4}


@pytest.mark.parametrize("inside", [(), (Gang("part", 1, topology_key="rack"),)], ids=["alone", "with another gang"])
def test_the_only_rack_that_holds_the_gang_may_be_the_last(inside: tuple[Gang, ...]) -> None:
    """By amounts each rack holds its pods of three, three and two cores, and only those of the last one find nodes."""
    waiting = [*ranked("large", 2, "g", cores=3), *ranked("small", 1, "g", *(gang.name for gang in inside), cores=2)]
    tree: Tree = {"a": {**{f"a{at:02}": [4, 4] for at in range(20)}, "z": [3, 3, 2]}}
    assert racks(plan_and_check(with_gangs(tree, waiting, Gang("g", 3, topology_key="rack"), *inside))) == {"z": 3}


def test_a_pod_that_nobody_needs_rules_out_no_domain() -> None:
    """The gang within has a pod more than it needs, which fits no node."""
    waiting = [*ranked("g", 4, "wide", "g"), *ranked("large", 1, "wide", "g", cores=100)]
    gangs = Gang("wide", 4, topology_key="block"), Gang("g", 4, topology_key="rack")
    assert racks(plan_and_check(with_gangs({"a": {"a1": [4]}}, waiting, *gangs))) == {"a1": 4}


def test_a_group_with_too_many_slices() -> None:
    """It waits, and says why; the rest of the round is placed."""
    waiting, gangs = list[PendingPod](), list[Gang]()
    for number in range(MAX_CHOOSING // 64 + 1):
        name = f"g{number}"
        gangs.append(Gang(name, 64, "group"))
        for rank in range(64):
            gangs.append(Gang(f"{name} slice {rank}", 1, "group", slice_of=name, topology_key="rack"))
            waiting += ranked(name, 1, name, gangs[-1].name, begin=rank)
    result = plan_and_check(with_gangs({"a": {"a1": [400]}}, [*waiting, pod("alone", 1000)], *gangs))
    assert [each.pod.uid for each in result.placements] == ["alone"]
    assert {each.reason for each in result.unplaced} == {
        "G0 is placed together with 320 gangs and slices that choose a domain, 256 are allowed."
    }


def test_a_slice_comes_back_to_its_rack() -> None:
    """Its other pods run there; without room in that rack it waits, and says so."""
    gang = Gang("g", 1, topology_key="block", domain="a", partially_placed=True)
    part = Gang("g slice 1", 1, topology_key="rack", domain="a2", partially_placed=True)
    waiting = ranked("g", 1, "g", "g slice 1", begin=3)
    tree: Tree = {"a": {"a1": [4], "a2": [4]}}
    assert racks(plan_and_check(with_gangs(tree, waiting, gang, part))) == {"a2": 1}
    assert not plan_and_check(with_gangs(tree, waiting, gang, part, used={"a2-0": 4})).placements


def exists(tree: Tree, slices: list[tuple[int, int]]) -> bool:
    """Whether some block holds these slices (pods, cores of each), each in one rack: all ways are tried."""

    def packs(sizes: list[int], inside: list[tuple[int, int]]) -> bool:
        # With pods of one and two cores: the large ones anywhere, the small ones in what is left.
        large = sum(pods for pods, cores in inside if cores == 2)
        return large <= sum(size // 2 for size in sizes) and sum(p * c for p, c in inside) <= sum(sizes)

    def held(sizes: list[int], rack: str, way: tuple[str, ...]) -> bool:
        return packs(sizes, [slices[at] for at, where in enumerate(way) if where == rack])

    return any(
        all(held(sizes, rack, way) for rack, sizes in inside.items())
        for inside in tree.values()
        for way in itertools.product(inside, repeat=len(slices))
    )


def drawn_tree(drawn: list[list[list[int]]]) -> Tree:
    """Blocks of racks of nodes, with names."""
    return {
        f"b{block}": {f"b{block}r{rack}": sizes for rack, sizes in enumerate(inside)}
        for block, inside in enumerate(drawn)
    }


RACKS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3)
TREES = st.lists(RACKS, min_size=1, max_size=3).map(drawn_tree)


@given(TREES, st.integers(1, 3), st.lists(st.integers(1, 2), min_size=1, max_size=3))
@settings(max_examples=examples(200))
def test_a_sliced_gang_is_placed_where_that_can_be(tree: Tree, size: int, cores: list[int]) -> None:
    """As trying all ways says, and never against its topology."""
    waiting, gangs = sliced(size * len(cores), size, tuple(cores))
    result = plan_and_check(with_gangs(tree, waiting, *gangs))
    assert bool(result.placements) == exists(tree, [(size, each) for each in cores])
    assert result.lower_bound <= result.cost


# --- preferred levels ---

LEVELS = (("block", ""), ("block, rack", ""))


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": {"a1": [2], "a2": [3]}, "b": {"b1": [4]}}, {"b1"}),
        ({"a": {"a1": [2], "a2": [3]}, "b": {"b1": [3]}}, {"a1", "a2"}),
        ({"a": {"a1": [1], "a2": [2], "a3": [3]}, "b": {"b1": [1]}}, {"a1", "a3"}),
        ({"a": {"a1": [1]}, "b": {"b1": [3]}, "c": {"c1": [2]}}, {"a1", "b1"}),
    ],
    ids=["a rack", "a block", "the fewest racks of a block", "the fewest blocks"],
)
def test_the_narrowest_level_that_holds_the_gang(tree: Tree, expected: set[str]) -> None:
    """It prefers a rack to a block, and a block to several; whatever there is, it is placed."""
    result = plan_and_check(with_gangs(tree, ranked("g", 4, "g"), Gang("g", 4, preferred=LEVELS)))
    assert racks(result).keys() == expected
    assert len(result.placements) == 4


def test_a_preferred_level_that_no_node_has() -> None:
    """It keeps nobody waiting."""
    gang = Gang("g", 4, preferred=(("spine", ""),))
    assert len(plan_and_check(with_gangs({"a": {"a1": [2], "a2": [2]}}, ranked("g", 4, "g"), gang)).placements) == 4


def test_a_preferred_rack_within_a_required_block() -> None:
    """The block must be one; the rack should."""
    gang = Gang("g", 4, topology_key="block", preferred=(("block, rack", ""),))
    tree: Tree = {"a": {"a1": [2], "a2": [2]}, "b": {"b1": [3]}}
    assert racks(plan_and_check(with_gangs(tree, ranked("g", 4, "g"), gang))) == {"a1": 2, "a2": 2}
    tree["b"]["b2"] = [4]
    assert racks(plan_and_check(with_gangs(tree, ranked("g", 4, "g"), gang))) == {"b2": 4}
    result = plan_and_check(with_gangs(tree, ranked("g", 8, "g"), Gang("g", 8, topology_key="block", preferred=LEVELS)))
    assert not result.placements


def test_pods_that_come_back_go_where_the_others_run() -> None:
    """Though another rack would be filled up by them."""
    gang = Gang("g", 2, preferred=(("block", "a"), ("block, rack", "a, a1")), partially_placed=True)
    tree: Tree = {"a": {"a1": [8]}, "b": {"b1": [2]}}
    assert racks(plan_and_check(with_gangs(tree, ranked("g", 2, "g"), gang, used={"a1-0": 4}))) == {"a1": 2}


def test_a_preference_beside_a_gang_that_only_exact_solving_fits() -> None:
    """By price the gang fills the only nodes of the other one. It gives up the rack that it prefers, and both run."""
    tree: Tree = {"a": {"a1": [1, 1]}, "b": {"b1": [1], "b2": [1]}}
    bound = [
        msgspec.structs.replace(pod(f"h-{at}", 1000, node_selector=(("block", "a"),)), gangs=("h",)) for at in range(2)
    ]
    waiting = [*ranked("g", 2, "g"), *bound]
    result = plan_and_check(with_gangs(tree, waiting, Gang("g", 2, preferred=LEVELS), Gang("h", 2)))
    assert len(result.placements) == 4


@given(TREES, st.integers(1, 8))
@settings(max_examples=examples(100))
def test_a_preference_leaves_nobody_out(tree: Tree, count: int) -> None:
    """A gang that prefers levels is placed whenever there is room for it."""
    result = plan_and_check(with_gangs(tree, ranked("g", count, "g"), Gang("g", count, preferred=LEVELS)))
    room = sum(sum(sizes) for inside in tree.values() for sizes in inside.values())
    assert len(result.placements) == (count if count <= room else 0)
    assert result.lower_bound <= result.cost


@given(TREES, st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_a_preference_leaves_nobody_else_out(tree: Tree, count: int, others: int) -> None:
    """As many pods are placed beside a gang that prefers levels as beside one that does not."""
    bound = [
        msgspec.structs.replace(pod(f"h-{at}", 1000, node_selector=(("block", "b0"),)), gangs=("h",))
        for at in range(others)
    ]
    waiting = [*ranked("g", count, "g"), *bound]
    plans = [
        plan_and_check(with_gangs(tree, waiting, Gang("g", count, preferred=preferred), Gang("h", others)))
        for preferred in (LEVELS, ())
    ]
    assert len(plans[0].placements) == len(plans[1].placements)


# --- ranks ---


def test_neighbours_in_rank_are_near_each_other() -> None:
    """Each rack, and each node of it, has ranks that follow each other."""
    tree: Tree = {"a": {"a1": [2, 2], "a2": [2, 2]}}
    result = plan_and_check(with_gangs(tree, ranked("g", 8, "g"), Gang("g", 8, topology_key="block")))
    by_rank = [each.node for each in sorted(result.placements, key=lambda each: each.pod.key)]
    assert by_rank == sorted(by_rank)


@pytest.mark.parametrize("label", RANK_LABELS)
def test_ranks_from_labels_of_each_controller(label: str) -> None:
    """Pods are named against their ranks, so that names alone would give another order."""
    waiting = [
        msgspec.structs.replace(
            pod(f"g-{9 - rank}", 1000, kind=PodSignature("default", ((label, str(rank)),))), gangs=("g",)
        )
        for rank in range(1, 5)
    ]
    result = plan_and_check(with_gangs({"a": {"a1": [2], "a2": [2]}}, waiting, Gang("g", 4, topology_key="block")))
    where = {each.pod.uid: each.node for each in result.placements}
    assert where["g-8"] == where["g-7"] != where["g-6"] == where["g-5"]


# --- what those that wait hear ---


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": {"a1": [4], "a2": [4]}, "b": {"b1": [2]}}, "has room for 7 of 8"),
        ({"a": {"a1": [4], "a2": [5]}}, "has room for 3 of 4 slices"),
    ],
    ids=["too little room in any block", "too few racks"],
)
def test_which_level_has_no_room(tree: Tree, expected: str) -> None:
    """And what the freest domain of that level has."""
    waiting, gangs = sliced(8, 2)
    result = plan_and_check(with_gangs(tree, waiting, *gangs, used={"a1-0": 1}))
    asked = "g needs 8 pods at once in one domain of block, each of 4 slices in one domain of rack"
    told = f"{asked}, and none has room for them beside what is placed: the freest, a, {expected}."
    assert {each.reason for each in result.unplaced} == {told}


def test_a_slice_topology_that_no_node_has() -> None:
    """The reason names the slice and its label, though the gang has a block."""
    waiting, gangs = sliced(2, 2)
    gangs[1] = msgspec.structs.replace(gangs[1], topology_key="host")
    result = plan_and_check(with_gangs({"a": {"a1": [4]}}, waiting, *gangs))
    assert {each.reason for each in result.unplaced} == {
        "G slice 0 keeps to one domain of host, a label that no node has."
    }
