"""Figure 1 of the seed firmament-poseidon-overview.md: five pods, four nodes, two racks.

P0 prefers N0, P1 prefers N2, P4 prefers rack R1, P2 and P3 go anywhere. Each pod may reach the sink through U, the
unscheduled aggregator, which leaves it pending, or preempts it if it runs. The figure's network is solved here by a
solver that knows nothing of Thalweg's; plans cost the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import running_pods
from flowcore.model.cost_policy import CostPolicy, CostWeights, DataLocality, UnscheduledPrice
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.reasons.codes import CHEAPER_TO_WAIT

#: A GiB costs this much for each border. A node costs 1000 for any pod: fullness has no weight here.
BASE, NODE, RACK = 1000, 10, 100
RACK_OF = {"N0": "R0", "N1": "R0", "N2": "R1", "N3": "R1"}
#: Where the GiB is that each pod reads.
DATA = {"P0": DataPlace(Level.NODE, "N0"), "P1": DataPlace(Level.NODE, "N2"), "P4": DataPlace(Level.RACK, "R1")}
NOW = 1000.0


def policy(base: int, *, wait: bool = True, per_second: int = 0) -> Policy:
    """A pod's price is the base and its priority."""
    locality = DataLocality(node=NODE, rack=RACK, zone=0, rack_label="rack")
    cost = CostPolicy(weights=CostWeights(*[0] * len(CostWeights.__struct_fields__)), data_locality=locality)
    price = UnscheduledPrice(base, per_priority=1, per_waiting_second=per_second, wait_for_cheaper_node=wait)
    return Policy("quincy", cost=cost, unscheduled=price)


def cluster(terms: Policy, priorities: Mapping[str, int], runs: Mapping[str, str], now: float = NOW) -> Snapshot:
    """Four nodes with room for one pod each, the five pods, and where some of them run."""
    found = Cluster()
    found.set_namespace("default", ())
    for name, rack in RACK_OF.items():
        found.put_node(Node(name, labels=(("rack", rack),), allocatable=(("cpu", 1), ("pods", 10))))
    pending = []
    for name, priority in priorities.items():
        data = (DataSource((DATA[name],), 2**30),) if name in DATA else ()
        pod_class = PodClass((("cpu", 1),), priority=priority, data=data)
        if name in runs:
            pod_class = PodClass((("cpu", 1),), priority=priority)
            found.put_pod(
                Pod("default", name, name, pod_class, usage=(("cpu", 1),), node_name=runs[name], started=1.0, owner="o")
            )
        else:
            pending.append(PendingPod(f"default/{name}", name, pod_class, terms.name, NOW))
    known = running_pods(found, lambda _: terms, now)
    return to_snapshot(found, now=now, pending=tuple(pending), gangs=[], running=known)


def figure(unscheduled: Mapping[str, int], nodes: Sequence[str] = tuple(RACK_OF)) -> int:
    """The least cost of a flow through the figure's network.

    Args:
        unscheduled: cost of each pod's arc to U.
        nodes: that have a free slot.
    """
    arcs = {
        ("P0", "N0"): BASE, ("P0", "C"): BASE + NODE + RACK,
        ("P1", "N2"): BASE, ("P1", "C"): BASE + NODE + RACK,
        ("P2", "C"): BASE, ("P3", "C"): BASE,
        ("P4", "R1"): BASE + NODE, ("P4", "C"): BASE + NODE + RACK,
        # A pod that misses its node and stays in the rack pays the node's border alone.
        ("P0", "R0"): BASE + NODE, ("P1", "R1"): BASE + NODE,
        ("C", "R0"): 0, ("C", "R1"): 0,
        **{(rack, name): 0 for name, rack in RACK_OF.items()},
        **{(name, "U"): cost for name, cost in unscheduled.items()},
        ("U", "S"): 0,
    }  # fmt: skip
    arcs = {arc: cost for arc, cost in arcs.items() if not arc[0].startswith("P") or arc[0] in unscheduled}
    arcs |= {(name, "S"): 0 for name in nodes}
    places = {name: at for at, name in enumerate(dict.fromkeys(end for arc in arcs for end in arc))}
    solver = SimpleMinCostFlow()
    for (tail, head), cost in arcs.items():
        capacity = 1 if tail in RACK_OF else len(unscheduled)
        solver.add_arc_with_capacity_and_unit_cost(places[tail], places[head], capacity, cost)
    for name, at in places.items():
        solver.set_node_supply(at, -len(unscheduled) if name == "S" else int(name in unscheduled))
    assert solver.solve() == solver.OPTIMAL
    return int(solver.optimal_cost())


def placed(result: RoundResult) -> dict[str, tuple[str, int]]:
    return {each.pod.key.removeprefix("default/"): (each.node, each.price) for each in result.placements}


def left(result: RoundResult) -> dict[str, int]:
    return {each.pod.key.removeprefix("default/"): each.price for each in result.unplaced}


@pytest.mark.parametrize("wait", [False, True])
def test_the_figures_flow(wait: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Each goes where it prefers, and of the two that do not care the cheaper one takes the way through U."""
    terms, priorities = policy(60_000, wait=wait), {"P0": 50, "P1": 50, "P2": 20, "P3": 10, "P4": 50}
    result = run_round(cluster(terms, priorities, {}), {terms.name: terms})
    assert placed(result) == {"P0": ("N0", BASE), "P1": ("N2", BASE), "P4": ("N3", BASE + NODE), "P2": ("N1", BASE)}
    assert left(result) == {"P3": 60_010}
    assert (
        result.cost
        == figure({name: 60_000 + priority for name, priority in priorities.items()})
        == 4 * BASE + NODE + 60_010
    )


def test_the_unscheduled_aggregator_preempts_who_runs() -> None:
    """P3 runs in R1 and P2 in R0: the flow of P4 pushes the flow of P3 into U, and P4 has its rack."""
    terms, priorities = policy(1050), {"P0": 50, "P1": 50, "P2": 0, "P3": 0, "P4": 50}
    result = run_round(cluster(terms, priorities, {"P2": "N1", "P3": "N3"}), {terms.name: terms})
    assert placed(result) == {"P0": ("N0", BASE), "P1": ("N2", BASE), "P4": ("N3", BASE + NODE)}
    assert [each.pod.key for each in result.evictions] == ["default/P3"]
    # Who runs has paid for its node; the figure's flow pays for P2 again, and for P3 what preempting it costs.
    assert result.cost + BASE + 1050 == figure({name: 1050 + priority for name, priority in priorities.items()})


def test_nobody_is_preempted_for_a_pod_that_would_rather_wait() -> None:
    """P4 at a price below any node of R1: its flow goes through U, and all that runs stays."""
    terms, priorities = policy(1000), {"P0": 50, "P1": 50, "P2": 0, "P3": 0, "P4": 5}
    result = run_round(cluster(terms, priorities, {"P2": "N1", "P3": "N3"}), {terms.name: terms})
    assert placed(result) == {"P0": ("N0", BASE), "P1": ("N2", BASE)}
    assert not result.evictions
    assert left(result) == {"P4": 1005}


def test_a_pod_waits_for_its_node_and_goes_elsewhere_when_that_is_cheaper() -> None:
    """P1's node and rack are taken by others. It waits until U costs more than crossing the racks."""
    size = 10  # tenths of a mean node, which each of these pods fills
    terms, runs = policy(1050, per_second=2), {"P3": "N3", "P2": "N2"}
    priorities = {"P1": 0, "P2": 0, "P3": 0}
    needed = BASE + NODE + RACK
    early = run_round(cluster(terms, priorities, runs, NOW), {terms.name: terms})
    (out,) = early.unplaced
    assert (out.code, out.price) == (CHEAPER_TO_WAIT, 1050)
    assert out.reason.startswith("Waiting costs 1000, and N0, the cheapest node with room for it, 1200.")
    assert early.cost == figure({"P1": 1050}, ["N0", "N1"])
    as_dear = (needed - 1050) / (2 * size)
    assert as_dear < out.settles_in < as_dear + 1
    still = run_round(cluster(terms, priorities, runs, NOW + as_dear), {terms.name: terms})
    assert left(still) == {"P1": needed}
    then = run_round(cluster(terms, priorities, runs, NOW + out.settles_in), {terms.name: terms})
    assert placed(then) == {"P1": ("N0", needed)}
    assert then.cost == figure({"P1": needed + 1}, ["N0", "N1"])
