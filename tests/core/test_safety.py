"""The checks that all plans go through find what they are for: plans doctored in one way each."""

from dataclasses import replace

import pytest
from support.model import amounts, node, pod, snapshot
from support.safety import check_plan

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.nodes import Taint
from flowcore.model.pods import HostPort
from flowcore.planning.round import Placement, RoundResult, Unplaced, run_round

PORT = (HostPort("0.0.0.0", "TCP", 80),)  # noqa: S104


def cluster() -> Snapshot:
    """One pod on each of two nodes, one that fits nowhere, and a node that none tolerates."""
    nodes = [
        node("a", 1000),
        node("b", 1000, labels=(("zone", "b"),)),
        node("c", taints=(Taint("x", "", "NoSchedule"),)),
    ]
    pending = [pod("one", 600, host_ports=PORT), pod("two", 600, host_ports=PORT), pod("big", 5000)]
    return snapshot(nodes, pending)


def moved(result: RoundResult, node: str) -> RoundResult:
    """The first pod goes there instead, and the account of the nodes says so."""
    first, *others = result.placements
    placements = (replace(first, node=node), *others)
    used = result.after.used.copy()
    for each, sign in ((first.node, -1), (node, 1)):
        used[result.after.table.index[each]] += sign * result.after.vector(first.pod.pod_class.requests)
    after = result.after.with_usage(used, result.after.non_zero_requested, result.after.ports, result.after.pod_index)
    return replace(result, placements=placements, after=after)


def without(result: RoundResult, name: str) -> RoundResult:
    """That pod stays pending instead of going where there is room."""
    gone = next(p for p in result.placements if p.pod.key == f"default/{name}")
    used = result.after.used.copy()
    used[result.after.table.index[gone.node]] -= result.after.vector(gone.pod.pod_class.requests)
    kept = tuple(p for p in result.placements if p is not gone)
    left = (
        *result.unplaced,
        Unplaced(gone.pod, "0/3 nodes are available: 1 whim.", gone.price, "Whim", more_nodes_help=False),
    )
    after = result.after.with_usage(used, result.after.non_zero_requested, {}, result.after.pod_index)
    return replace(result, placements=kept, unplaced=left, after=after)


def test_the_plan_itself_is_sound() -> None:
    """What is doctored below passes as it is."""
    result = run_round(cluster())
    assert len(result.placements) == 2
    check_plan(cluster(), result)


def other(result: RoundResult) -> str:
    return result.placements[1].node


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        (lambda r: moved(r, other(r)), "gives 1200 of cpu"),
        (lambda r: moved(r, "c"), "TaintToleration"),
        (lambda r: without(r, "one"), "still fits"),
        (lambda r: replace(r, placements=r.placements[1:]), "each pending pod once"),
        (lambda r: replace(r, placements=(*r.placements, r.placements[0])), "each pending pod once"),
        (lambda r: replace(r, unplaced=()), "each pending pod once"),
        (
            lambda r: replace(
                r, unplaced=(*r.unplaced, Unplaced(r.placements[0].pod, "x", 0, "x", more_nodes_help=False))
            ),
            "each pending pod once",
        ),
        (lambda r: replace(r, cost=r.cost + 1), "add up"),
        (lambda r: replace(r, unplaced=tuple(replace(each, reason="") for each in r.unplaced)), "without a reason"),
        (lambda r: replace(r, generation=7), "another generation"),
        (lambda r: replace(r, after=cluster()), "miscounted"),
    ],
)
def test_a_doctored_plan_is_found_out(doctor: object, found: str) -> None:
    """By the check that is for it."""
    with pytest.raises(AssertionError, match=found):
        check_plan(cluster(), doctor(run_round(cluster())))  # type: ignore[operator]


def test_a_host_port_given_twice_is_found_out() -> None:
    """Where there is room for both pods."""
    crowded = snapshot([node("a")], [pod("one", 1, host_ports=PORT), pod("two", 1, host_ports=PORT)])
    result = run_round(crowded)
    placed, left = result.placements[0], result.unplaced[0]
    used = result.after.used + result.after.vector(amounts(1))
    both = replace(
        result,
        placements=(placed, Placement(left.pod, "a", 1)),
        unplaced=(),
        after=result.after.with_usage(
            used, result.after.non_zero_requested, result.after.ports, result.after.pod_index
        ),
    )
    with pytest.raises(AssertionError, match="given twice"):
        check_plan(crowded, both)
