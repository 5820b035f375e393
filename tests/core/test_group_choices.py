"""A CompositePodGroup runs with minGroupCount of its groups, each of them whole, or not at all; and in one domain.

Plans are compared with all choices of groups, tried one after the other on small clusters.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import node, pod
from support.model import GI, amounts, snapshot
from support.model import node as model_node
from support.model import pod as pending
from support.profiles import examples
from support.scenario_state import NOW, scenario_of

from flowcore.model.gangs import Gang, GangTree
from flowcore.planning.round import run_round
from flowcore.questions.scenario import plan_scenario
from flowcore.questions.scenario.plan import ScenarioPlan

API = "scheduling.k8s.io/v1alpha3"
RACK = "example.com/rack"


def composite(name: str, least: int | None, parent: str = "", topology: str = "", **spec: Any) -> dict[str, Any]:
    """A CompositePodGroup; least None: basic."""
    spec["schedulingPolicy"] = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "CompositePodGroup", "metadata": meta, "spec": spec}


def group(
    name: str, count: int | None, parent: str, cpu: str = "1", on: str = "", running: int = 0, **spec: Any
) -> list[dict[str, Any]]:
    """A PodGroup and its pods, as many as it needs, None: one of a basic group; the first of them run on a node."""
    spec["schedulingPolicy"] = {"basic": {}} if count is None else {"gang": {"minCount": count}}
    meta = {"name": name, "namespace": "default"}
    made = {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {**spec, "parentCompositePodGroupName": parent},
    }
    pods = [
        pod(
            f"{name}-{n}",
            cpu,
            schedulingGroup={"podGroupName": name},
            **({"nodeName": on} if n < running else {}),
        )
        for n in range(count or 1)
    ]
    return [made, *pods]


def racked(name: str, rack: str, cpu: int) -> dict[str, Any]:
    """A node of a rack."""
    made = node(name, str(cpu))
    made["metadata"].setdefault("labels", {})[RACK] = rack
    return made


def plan(*objects: dict[str, Any]) -> ScenarioPlan:
    """The plan of a round."""
    return plan_scenario(scenario_of(objects), NOW)


def placed(this: ScenarioPlan) -> dict[str, list[str]]:
    """PodGroup -> nodes of its pods that are placed."""
    nodes = defaultdict[str, list[str]](list)
    for each in this.result.placements:
        nodes[each.pod.key.partition("/")[2].rpartition("-")[0]].append(each.node)
    return dict(nodes)


def reasons(this: ScenarioPlan) -> str:
    """All reasons of the pods that wait."""
    return " ".join(each.reason for each in this.result.unplaced)


@pytest.mark.parametrize(
    ("cores", "groups"),
    [(6, {"a", "b", "c"}), (5, {"a", "b"}), (4, {"a", "b"}), (3, set[str]())],
)
def test_at_least_two_of_three(cores: int, groups: set[str]) -> None:
    """All where all have room, and two where two have; one alone is no use."""
    this = plan(node("n", str(cores)), composite("x", 2), *(each for name in "abc" for each in group(name, 2, "x")))
    assert set(placed(this)) == groups
    if len(groups) == 2:
        assert "PodGroup default/c: other groups of CompositePodGroup default/x go first" in reasons(this)


def test_with_enough_groups_each_other_one_is_by_itself() -> None:
    """Once two run, a third needs nobody."""
    of = [*group("a", 2, "x", on="n", running=2), *group("b", 2, "x", on="n", running=2)]
    this = plan(node("n", "7"), composite("x", 2), *of, *group("c", 2, "x"), *group("d", 2, "x"))
    assert len(placed(this)) == 1


def test_a_group_that_has_begun_goes_first() -> None:
    """Not the smallest one: the pods that run are of no use until then."""
    begun = group("b", 3, "x", on="n", running=1)
    this = plan(node("n", "4"), composite("x", 2), *group("a", 1, "x"), *begun, *group("c", 1, "x"))
    assert {"b"} < set(placed(this))


def test_slices_that_come_after_a_gang_do_not_rule_it_out() -> None:
    """One of two groups is enough, and the smaller one fits no node."""
    late = Gang("later slice", 1, slice_of="sliced", unschedulable_reason="it is placed after the gang")
    gangs = [Gang("sliced", 1, above=(GangTree("tree", 1),)), late, Gang("none", 1, above=(GangTree("tree", 1),))]
    asked = {"sliced": (1000, 0), "later slice": (1000, 0), "none": (10, GI)}
    pods = [msgspec.structs.replace(pending(name, *each), gangs=(name,)) for name, each in asked.items()]
    full = snapshot([model_node("n", 4000, 8 * GI)], pods, [("n", amounts(0, 8 * GI), ())])
    result = run_round(replace(full, gangs={gang.name: gang for gang in gangs}))
    assert [each.pod.gangs for each in result.placements] == [("sliced",)]


def test_the_smallest_groups_that_fit_are_chosen() -> None:
    """Where a smaller one fits no node, too."""
    large = group("a", 1, "x", cpu="3")
    this = plan(node("n", "2"), node("m", "2"), composite("x", 2), *large, *group("b", 2, "x"), *group("c", 2, "x"))
    assert set(placed(this)) == {"b", "c"}


def test_a_choice_that_has_no_room_is_not_the_last() -> None:
    """Groups of which no two of the first have room together; the one that has begun keeps no others waiting."""
    begun = group("a", 3, "x", cpu="2", on="z", running=1)
    nodes = [node("z", "2"), node("n", "3"), node("m", "3")]
    this = plan(*nodes, composite("x", 2), *begun, *group("b", 1, "x", cpu="3"), *group("c", 1, "x", cpu="3"))
    assert set(placed(this)) == {"b", "c"}


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 2)])
def test_the_limit_of_a_queue_is_kept_by_enough_groups(sizes: tuple[int, int, int]) -> None:
    """Where it leaves too little for all of them, and the nodes have room; the one that waits takes nothing of it."""
    limited = {
        "kind": "FlowQueue",
        "metadata": {"name": "q"},
        "spec": {"selects": {"namespaceSelector": {}}, "limit": {"cpu": "4"}},
    }
    groups = [each for name, count in zip("abc", sizes, strict=True) for each in group(name, count, "x")]
    for cores in (5, 20):
        assert len(placed(plan(node("n", str(cores)), limited, composite("x", 2), *groups))) == 2


def test_many_trees_of_another_namespace_take_no_choices_from_one() -> None:
    """A round tries so many sets of groups in all; trees of its own namespace share what one has."""
    crowd = [composite(f"c{tree}", 1, topology=RACK) for tree in range(40)]
    crowd += [each for tree in range(40) for name in "ab" for each in group(f"c{tree}{name}", 1, f"c{tree}", cpu="9")]
    for each in crowd:
        each["metadata"]["namespace"] = "another"
    racks = [racked(f"n{number}", f"r{number}", 3) for number in range(3)]
    large = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    of = [composite("x", 2), *group("a", 4, "x", **large), *group("b", 5, "x"), *group("c", 4, "x")]
    assert set(placed(plan(*racks, *of, *crowd))) == {"b", "c"}


def test_bounds_hold_for_every_choice() -> None:
    """A group that waits for its turn might be placed: no bound counts it as left."""
    of = [node("n", "3"), *(each for name in "abc" for each in group(name, 1, "x")), pod("large", "4")]
    this, other = plan(composite("x", 2), *of).result, plan(composite("x", 3), *of).result
    assert (len(this.unplaced), len(other.unplaced)) == (2, 1)
    assert this.left_at_least is not None
    assert this.left_at_least.pods == 1
    assert this.lower_bound <= other.cost < this.cost


def test_groups_without_pods_are_not_waited_for() -> None:
    """If the others are enough."""
    empty = group("c", 1, "x")[:1]
    this = plan(node("n", "9"), composite("x", 2), *group("a", 1, "x"), *group("b", 1, "x"), *empty)
    assert set(placed(this)) == {"a", "b"}


def test_groups_that_may_have_ended_keep_no_begun_one_waiting() -> None:
    """A group that has not begun waits for them: they may be still to come."""
    empty = group("b", 1, "x")[:1]
    begun = plan(node("n", "9"), composite("x", 2), *group("a", 2, "x", on="n", running=1), *empty)
    assert set(placed(begun)) == {"a"}
    this = plan(node("n", "9"), composite("x", 2), *group("a", 2, "x"), *empty)
    assert not placed(this)
    assert "PodGroup default/a: PodGroup default/b of its group has no pods" in reasons(this)


def ended(*objects: dict[str, Any], owner: str = "") -> list[dict[str, Any]]:
    """These objects; the pods have succeeded."""
    for each in objects:
        if each["kind"] == "Pod":
            each["spec"]["nodeName"] = "n"
            each["status"] = {"phase": "Succeeded"}
            made_by(owner, each)
    return [*objects]


def made_by(owner: str, *pods: dict[str, Any]) -> None:
    """The pods are a Job's."""
    for each in pods:
        if owner and each["kind"] == "Pod":
            job = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
            each["metadata"]["ownerReferences"] = [job]


@pytest.mark.parametrize("later", [group("c", 2, "x"), [*group("c", 2, "x"), *group("d", 2, "x")]])
def test_a_group_that_comes_after_the_others_have_ended(later: list[dict[str, Any]]) -> None:
    """As many as are needed have run and are done: it waits for nobody. One that ended in part counts as none."""
    of = [*ended(*group("a", 2, "x")), *ended(*group("b", 2, "x"))]
    assert set(placed(plan(node("n", "9"), composite("x", 2), *of, *later))) >= {"c"}
    part = [each for each in of if each["metadata"]["name"] != "b-1"]
    alone = plan(node("n", "9"), composite("x", 3), *part, *group("c", 2, "x"))
    assert not placed(alone)
    assert "PodGroup default/b: 0 of 2 pods exist" in reasons(alone)


def test_a_group_of_a_tree_whose_others_have_ended() -> None:
    """A CompositePodGroup within another one is there too once enough of its groups have ended."""
    tree = [composite("root", 2), composite("left", 2, "root")]
    of = [*ended(*group("a", 1, "left")), *ended(*group("b", 1, "left")), *group("c", 1, "root")]
    assert set(placed(plan(node("n", "9"), *tree, *of))) == {"c"}


def test_a_group_that_cannot_be_read_has_not_ended() -> None:
    """It is not known what it needs, since somebody edited its PodGroup."""
    of = [*ended(*group("a", 1, "x")), *group("c", 1, "x")]
    of[0]["metadata"]["annotations"] = {"scheduling.thalweg/gang-topology": "rack,"}
    this = plan(node("n", "9"), composite("x", 2), *of)
    assert not placed(this)
    assert "PodGroup default/c waits for its group: PodGroup default/a: annotation" in reasons(this)


def test_groups_that_begin_anew_wait_for_each_other() -> None:
    """Pods of the next Job come for one group: what ended before was of another run."""
    again, first = group("a", 1, "x"), group("a", 1, "x")[1:]
    first[0]["metadata"] |= {"name": "a-before", "uid": "a-before"}
    made_by("later", *again)
    of = [*ended(*first, owner="before"), *ended(*group("b", 1, "x"), owner="before"), *again]
    waits = plan(node("n", "9"), composite("x", 2), *of)
    assert not placed(waits)
    anew = group("b", 1, "x")[1:]
    anew[0]["metadata"] |= {"name": "b-again", "uid": "b-again"}
    made_by("later", *anew)
    assert set(placed(plan(node("n", "9"), composite("x", 2), *of, *anew))) == {"a", "b"}


def test_a_basic_one_within_a_gang_is_one_group() -> None:
    """It is there with one of its own."""
    tree = [composite("root", 2), composite("left", None, "root"), composite("right", 2, "root")]
    of = [*group("a", 2, "left"), *group("b", 2, "left"), *group("c", 1, "right"), *group("d", 1, "right")]
    assert set(placed(plan(node("n", "6"), *tree, *of))) == {"a", "b", "c", "d"}
    chosen = set(placed(plan(node("n", "5"), *tree, *of)))
    assert chosen in ({"a", "c", "d"}, {"b", "c", "d"})
    assert not placed(plan(node("n", "3"), *tree, *of))


def test_a_gang_within_a_tree_counts_once_it_is_whole() -> None:
    """A part of it is no group of what is above."""
    tree = [composite("root", 2), composite("left", 2, "root")]
    of = [*group("a", 1, "left"), *group("b", 4, "left"), *group("c", 1, "root"), *group("d", 1, "root")]
    assert set(placed(plan(node("n", "3"), *tree, *of))) == {"c", "d"}


RACKS = [racked("n1", "r1", 2), racked("n2", "r2", 2), racked("n3", "r2", 2), racked("n4", "r3", 3)]


def test_a_topology_keeps_all_groups_in_one_domain() -> None:
    """Where one rack has room for both, and not where only two racks together have."""
    of = [composite("x", 2, topology=RACK), *group("a", 2, "x"), *group("b", 2, "x")]
    nodes = [each for nodes in placed(plan(*RACKS, *of)).values() for each in nodes]
    assert sorted(nodes) == ["n2", "n2", "n3", "n3"]
    without = [each for each in RACKS if each["metadata"]["name"] != "n3"]
    this = plan(*without, *of)
    assert not placed(this)
    assert f"one domain of {RACK}" in reasons(this)


def test_running_pods_fix_the_domain() -> None:
    """A group that comes later goes there, or waits."""
    begun = group("a", 1, "x", on="n1", running=1)
    of = [composite("x", 2, topology=RACK), *begun]
    assert placed(plan(*RACKS, *of, *group("b", 1, "x"))) == {"b": ["n1"]}
    assert not placed(plan(*RACKS, *of, *group("b", 2, "x")))


def test_a_basic_one_with_a_topology_keeps_to_one_domain() -> None:
    """As far as there is room in it; nothing else is kept together."""
    of = [composite("x", None, topology=RACK), *group("a", 3, "x"), *group("b", 3, "x")]
    (nodes,) = placed(plan(*RACKS, *of)).values()
    assert set(nodes) in ({"n2", "n3"}, {"n4"})


def test_a_rack_for_each_within_one_zone() -> None:
    """The topology of a group is within that of what is above it."""
    zone = "topology.kubernetes.io/zone"
    nodes = [racked(f"{zone_of}{n}", f"{zone_of}-{n}", 2) for zone_of in "pq" for n in range(2)]
    for each in nodes:
        each["metadata"]["labels"][zone] = each["metadata"]["name"][0]
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    of = [composite("x", 2, topology=zone), *group("a", 2, "x", **rack), *group("b", 2, "x", **rack)]
    found = placed(plan(*nodes, *of))
    assert {len(set(each)) for each in found.values()} == {1}
    assert len({each[0] for nodes in found.values() for each in nodes}) == 1


def test_a_group_whose_slice_has_no_room_keeps_no_others_waiting() -> None:
    """A rack is too small for its slice, and two larger groups have room."""
    sliced = group("a", 4, "x")
    prefix = "scheduling.thalweg/gang-"
    for rank, each in enumerate(sliced[1:]):
        each["metadata"]["annotations"] = {f"{prefix}slice-topology": RACK, f"{prefix}slice-size": "4"}
        each["metadata"]["labels"] = {f"{prefix}rank": str(rank)}
    racks = [racked(f"n{number}", f"r{number}", 3) for number in range(3)]
    this = plan(*racks, composite("x", 2), *sliced, *group("b", 5, "x"), *group("c", 4, "x"))
    assert set(placed(this)) == {"b", "c"}


def test_all_groups_of_one_composite_leave_together() -> None:
    """With the disruption mode All a pod of a higher priority evicts all groups, or none of them."""
    of = [composite("x", 1, disruptionMode={"all": {}}, priority=1)]
    of += [*group("a", 1, "x", on="n", running=1), *group("b", 1, "x", on="n", running=1)]
    urgent = pod("urgent", "1", priority=10)
    this = plan(node("n", "2"), *of, urgent)
    assert {each.pod.key for each in this.result.evictions} == {"default/a-0", "default/b-0"}
    of[0] = composite("x", 1, disruptionMode={"single": {}}, priority=1)
    assert len(plan(node("n", "2"), *of, urgent).result.evictions) == 1


def test_pods_are_evicted_for_groups_that_some_nodes_could_hold() -> None:
    """Not for the smallest groups, if one of these has room on no node even when all pods have left."""
    running = [pod(f"r-{number}", "1", priority=-5, nodeName="n") for number in range(4)]
    nowhere = group("a", 1, "x")
    nowhere[1]["spec"]["nodeSelector"] = {"zone": "gone"}
    of = [composite("x", 2, priority=10), *nowhere, *group("b", 2, "x"), *group("c", 2, "x")]
    this = plan(node("n", "4"), *running, *of)
    assert set(placed(this)) == {"b", "c"}
    assert len(this.result.evictions) == 4


GROUPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["1", "2"]), st.sampled_from(["x", "x", "y"])), min_size=1, max_size=4
)


def fit(sizes: list[int], nodes: list[int]) -> bool:
    """Whether pods of these cores fit nodes of these cores, by trying all ways."""
    if not sizes:
        return True
    first, *rest = sizes
    for index in {room: index for index, room in enumerate(nodes) if room >= first}.values():
        if fit(rest, [room - first * (index == at) for at, room in enumerate(nodes)]):
            return True
    return False


def is_met(chosen: set[int], groups: list[tuple[int, str, str]], least: dict[str, int], *, nested: bool) -> bool:
    """Whether each CompositePodGroup with a chosen group has as many of them as it needs."""
    of = {name: sum(groups[index][2] == name for index in chosen) for name in "xy"}
    if nested:
        return not chosen or ((not of["y"] or of["y"] >= least["y"]) and of["x"] + bool(of["y"]) >= least["x"])
    return all(not of[name] or of[name] >= least[name] for name in "xy")


def case(
    groups: list[tuple[int, str, str]],
    nodes: list[int],
    least: dict[str, int],
    within: str,
    only: set[int] | None = None,
) -> ScenarioPlan:
    """The plan for these groups.

    Args:
        within: the CompositePodGroup above y; "": none is.
        only: the groups that may run, and all of them at once; None: whatever their CompositePodGroups say.
    """
    objects: list[dict[str, Any]] = [node(f"n{index}", str(cores)) for index, cores in enumerate(nodes)]
    objects += [composite("x", least["x"]), composite("y", least["y"], within), composite("z", len(only or ()))]
    for index, (count, cpu, parent) in enumerate(groups):
        above = parent if only is None else "z" if index in only else "gone"
        objects += group(f"g{index}", count, above, cpu)
    return plan(*objects)


@settings(max_examples=examples(60), deadline=None)
@given(
    GROUPS,
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.fixed_dictionaries({"x": st.integers(1, 3), "y": st.integers(1, 2)}),
    st.sampled_from(["", "x"]),
)
def test_no_plan_has_fewer_groups_than_needed_or_a_group_in_part(
    groups: list[tuple[int, str, str]], nodes: list[int], least: dict[str, int], within: str
) -> None:
    """And if any set of groups fits, one is placed; no plan with such a set is better than the bounds."""
    this = case(groups, nodes, least, within)
    found = {int(name[1:]): len(homes) for name, homes in placed(this).items()}
    assert all(count == groups[index][0] for index, count in found.items())
    assert is_met(set(found), groups, least, nested=bool(within))
    possible = [
        set(chosen)
        for size in range(1, len(groups) + 1)
        for chosen in combinations(range(len(groups)), size)
        if is_met(set(chosen), groups, least, nested=bool(within))
        and fit(
            sorted((int(groups[index][1]) for index in chosen for _ in range(groups[index][0])), reverse=True), nodes
        )
    ]
    assert bool(found) == bool(possible)
    pods = sum(count for count, *_ in groups)
    most = max((sum(groups[index][0] for index in chosen) for chosen in possible), default=0)
    if this.result.left_at_least is not None:
        assert this.result.left_at_least.pods <= pods - most
    for chosen in possible[-2:]:
        other = case(groups, nodes, least, within, chosen).result
        assert this.result.lower_bound <= other.cost
