"""Pods of gangs that wait are told what is so: no reason speaks of room that was given away where none was."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from support.model import node, pod, snapshot
from support.safety import check_plan

from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.planning.round import RoundResult, run_round


def plan(nodes: list[Node], gang: Gang, count: int, *others: str) -> RoundResult:
    """A round with pods of a gang, a core each, and pods by themselves."""
    pending = [msgspec.structs.replace(pod(f"g{at}", 1000), gangs=(gang.name,)) for at in range(count)]
    crowd = replace(snapshot(nodes, [*pending, *(pod(name, 1000) for name in others)]), gangs={gang.name: gang})
    result = run_round(crowd)
    check_plan(crowd, result)
    return result


def racks(*cores: int) -> list[Node]:
    """A node of so many cores in each rack."""
    return [node(f"n{at}", 1000 * each, labels=(("rack", f"r{at}"),)) for at, each in enumerate(cores)]


def reasons(result: RoundResult) -> set[str]:
    """Of all pods of the gang that are left."""
    return {each.reason for each in result.unplaced if each.pod.gangs}


def test_a_topology_label_that_no_node_has() -> None:
    """Nodes with room do not help: the label is what is missing."""
    gang = Gang("gang ml/train", 2, topology_key="zone")
    result = plan(racks(4, 4), gang, 2)
    assert reasons(result) == {"Gang ml/train keeps to one domain of zone, a label that no node has."}


def test_a_label_that_only_full_nodes_have() -> None:
    """The node without the label has room, which is none for this gang."""
    nodes = [*racks(0), node("free", 8000)]
    result = plan(nodes, Gang("gang ml/train", 2, topology_key="rack"), 2)
    assert reasons(result) == {"gang ml/train keeps to one domain of rack, and no node of any domain has room for it."}


def test_a_gang_that_no_domain_can_hold() -> None:
    """There is room for all of it, but not in one rack."""
    result = plan(racks(2, 2), Gang("gang ml/train", 3, topology_key="rack"), 3, "other")
    assert reasons(result) == {
        "gang ml/train needs 3 pods at once in one domain of rack, and none can hold them even when empty."
    }


def test_a_gang_that_is_larger_than_the_cluster() -> None:
    """It is told how many have room; nobody took any from it."""
    result = plan(racks(2, 2), Gang("gang ml/train", 9), 9)
    assert reasons(result) == {"gang ml/train needs 9 pods at once, and there is room for 4 beside what is placed."}


def test_more_pods_than_the_domain_of_the_gang_has_room_for() -> None:
    """The gang is placed; those beyond what it needs keep to its rack, though another one has room."""
    result = plan(racks(3, 2), Gang("gang ml/train", 3, topology_key="rack"), 4)
    assert len(result.placements) == 3
    assert reasons(result) == {"gang ml/train is planned for rack r0, where no further node has room for it."}
