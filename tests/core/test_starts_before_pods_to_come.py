"""With ``podsToCome: MustFit`` only gangs that may start themselves go before others of their namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.model import amounts, node, pod, snapshot
from support.safety import check_capacity, check_complete, check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang, PodsToCome
from flowcore.model.queues import Queue, QueueState
from flowcore.planning.round import run_round

RACKS = {"r0": 1, "r1": 1, "": 4}


def members(gang: str, count: int = 2, *also: str, **fields: Any) -> list[PendingPod]:
    """Pods of a core each."""
    alone = [pod(f"{gang}-{at}", 1000, **fields) for at in range(count)]
    return [msgspec.structs.replace(each, gangs=(gang, *also)) for each in alone]


def gang(name: str, **fields: Any) -> Gang:
    """Of two pods, with two more to come."""
    return Gang(name, 2, to_come=(PodsToCome(pod("later", 1000).pod_class, 2),), **fields)


def cluster(cores: Mapping[str, int], waiting: list[PendingPod], *gangs: Gang) -> Snapshot:
    """A node for each rack."""
    nodes = [node(f"n{rack}", 1000 * free, labels=(("rack", rack),) if rack else ()) for rack, free in cores.items()]
    return replace(snapshot(nodes, waiting), gangs={each.name: each for each in gangs})


def placed(state: Snapshot) -> set[str]:
    """Gangs whose pods a round places."""
    result = run_round(state)
    for check in (check_complete, check_capacity, check_gangs):
        check(state, result)
    return {each.pod.gangs[0] for each in result.placements}


@pytest.mark.parametrize("domain", ["", "r0", "r9"])
def test_a_gang_that_no_domain_holds_keeps_no_other_waiting(domain: str) -> None:
    """It is dearer, and no rack has room for both of its pods, whether it is in one already or not."""
    dear = members("dear", priority=9)
    state = cluster(RACKS, [*dear, *members("b")], gang("dear", topology_key="rack", domain=domain), gang("b"))
    assert placed(state) == {"b"}


def test_a_gang_that_a_domain_holds_goes_first() -> None:
    """With the room of its pods to come nothing is left for the others."""
    state = cluster(
        {"r0": 2, "": 4}, [*members("dear", priority=9), *members("b")], gang("dear", topology_key="rack"), gang("b")
    )
    assert placed(state) == {"dear"}


def test_a_gang_whose_slices_no_domain_holds_keeps_no_other_waiting() -> None:
    """The gang itself may be anywhere, and its slice needs a rack."""
    dear = members("dear", 2, "dear slice 0", priority=9)
    slice_of = Gang("dear slice 0", 2, slice_of="dear", topology_key="rack")
    assert placed(cluster(RACKS, [*dear, *members("b")], gang("dear"), slice_of, gang("b"))) == {"b"}


def test_a_slice_that_comes_after_its_gang_does_not_matter() -> None:
    """The gang starts without it, so its pods to come are counted."""
    late = members("dear slice 1", 2, priority=9, node_selector=(("rack", "r9"),))
    after = Gang("dear slice 1", 2, slice_of="dear", topology_key="rack", unschedulable_reason="it comes later")
    state = cluster(
        {"r0": 2, "": 4}, [*members("dear", priority=9), *late, *members("b")], gang("dear"), after, gang("b")
    )
    assert placed(state) == {"dear"}


@pytest.mark.parametrize(("limit", "expected"), [(1000, {"other"}), (3000, {"one", "other"}), (8000, {"one", "two"})])
def test_a_gang_that_its_queue_does_not_let_in_keeps_no_other_waiting(limit: int, expected: set[str]) -> None:
    """What the limit leaves to two gangs of it is counted once: with room for one the second goes before nobody."""
    waiting = [
        *(msgspec.structs.replace(each, queue="q") for name in ("one", "two") for each in members(name, priority=9)),
        *members("other"),
    ]
    state = cluster({"": 9}, waiting, gang("one"), gang("two"), gang("other"))
    state = replace(state, queues=QueueState((Queue("q", limit=amounts(limit)),), {}))
    assert placed(state) == expected
