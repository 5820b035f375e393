"""The figures of the seed pod-affinity-and-gangs.md that say where single pods may go: 1 to 3, 5 to 8 and 11.

Figures 9 and 10 are gangs; the first figure 5 and figure 4 are of a pod that takes another one's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from support.model import GI, amounts, node, pod, snapshot
from support.safety import plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global
from flowcore.model.cost_policy import CostPolicy, Preferences
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PreferredTerm
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.planning.round import RoundResult, run_one_by_one

ZONE = "topology.kubernetes.io/zone"
EVERY = LabelSelector()


def machine(name: str, cpu: int = 4000, **labels: str) -> Node:
    return node(name, cpu, 32 * GI, labels=tuple(sorted({HOSTNAME: name, **labels}.items())))


def machines(count: int) -> list[Node]:
    return [machine(f"M{at}") for at in range(count)]


def task(name: str, cpu: int = 1000, app: str = "app", **fields: object) -> PendingPod:
    return pod(name, cpu, GI, policy="p", kind=PodSignature("default", (("app", app),)), **fields)


def tasks(count: int, cpu: int = 1000, app: str = "app") -> list[PendingPod]:
    return [task(f"{app}-T{at}", cpu, app) for at in range(count)]


def of(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def plan(nodes: Sequence[Node], pending: Sequence[PendingPod], *constraints: Constraint, **taken: int) -> RoundResult:
    """The plan under one policy; words after it are the cpu that is taken on nodes."""
    running = [(name, amounts(cpu), ()) for name, cpu in taken.items()]
    return plan_and_check(snapshot(nodes, pending, running), {"p": Policy("p", constraints=constraints)})


def placed(result: RoundResult) -> dict[str, str]:
    return {placement.pod.key.removeprefix("default/"): placement.node for placement in result.placements}


def test_figure_1_machine_id() -> None:
    """A pod for one host goes there though another is emptier, and waits where that one is full."""
    wanted = task("T0", node_selector=((HOSTNAME, "M0"),))
    assert placed(plan(machines(2), [wanted], M0=3000)) == {"T0": "M0"}
    result = plan(machines(2), [wanted], M0=4000)
    assert result.unplaced[0].reason == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    )


def test_machine_metadata() -> None:
    """All hosts with the metadata will do, and no others."""
    nodes = [machine("M0", disk="ssd"), machine("M1", disk="ssd"), machine("M2", disk="hdd"), machine("M3")]
    pending = [task(f"T{at}", 2000, node_selector=(("disk", "ssd"),)) for at in range(5)]
    assert Counter(placed(plan(nodes, pending)).values()) == {"M0": 2, "M1": 2}


def test_figure_2_conflicts() -> None:
    """Two tasks that must not share a machine: one each, whatever their Deployments; the third waits."""
    both = Conflict("c", LabelSelector((Requirement("app", "In", ("web", "api")),)), HOSTNAME)
    found = placed(plan(machines(2), [*tasks(1, app="web"), *tasks(1, app="api")], both))
    assert sorted(found.values()) == ["M0", "M1"]
    assert len(placed(plan(machines(2), [*tasks(2, app="web"), *tasks(1, app="api")], both))) == 2


def test_figure_3_global() -> None:
    """One on every machine; those that have no room have none, the surplus waits."""
    everywhere = Global("g", EVERY, EVERY)
    assert Counter(placed(plan(machines(5), tasks(5), everywhere)).values()) == dict.fromkeys(
        ["M0", "M1", "M2", "M3", "M4"], 1
    )
    short = plan(machines(5), tasks(7), everywhere, M2=4000)
    assert sorted(placed(short).values()) == ["M0", "M1", "M3", "M4"]
    assert len(short.unplaced) == 3


def prefers(name: str, weight: int) -> PendingPod:
    term = NodeSelectorTerm((Requirement("hardware", "In", ("gpu",)),))
    return task(name, preferred_affinity=(PreferredTerm(weight, term),))


def test_figure_5_soft_constraints() -> None:
    """A task goes where it would rather be, and elsewhere where that is full."""
    nodes = [machine("M0", 4000, hardware="gpu"), machine("M1", 4000)]
    assert placed(plan(nodes, [prefers("T0", 50)], M0=1000)) == {"T0": "M0"}
    assert placed(plan(nodes, [prefers("T0", 50)], M0=4000)) == {"T0": "M1"}


def test_the_gpu_goes_to_the_one_that_wants_it_more() -> None:
    """The seed's contention case: the task that is first in the queue prefers the one GPU machine, a later one more."""
    nodes = [machine("gpu", 1000, hardware="gpu"), machine("M1", 1000)]
    cluster = snapshot(nodes, [prefers("first", 20), prefers("second", 80)])
    policies = {"p": Policy("p", cost=CostPolicy(preferences=Preferences.POINTS))}
    assert placed(plan_and_check(cluster, policies)) == {"second": "gpu", "first": "M1"}
    assert placed(run_one_by_one(cluster, policies)) == {"first": "gpu", "second": "M1"}


def test_figure_6_hard_constraints() -> None:
    """M0 and M1 satisfy T0, M2 satisfies T1: T1 waits where M2 is full, though the others are free."""
    nodes = [machine("M0", kind="a"), machine("M1", kind="a"), machine("M2", kind="b")]
    pending = [task("T0", node_selector=(("kind", "a"),)), task("T1", node_selector=(("kind", "b"),))]
    found = placed(plan(nodes, pending, M1=3000))
    assert found == {"T0": "M0", "T1": "M2"}
    assert placed(plan(nodes, pending, M2=4000)).keys() == {"T0"}


@pytest.mark.parametrize(("p", "r"), [(1, 1), (1, 5), (3, 1), (4, 2), (9, 2)])
def test_figure_7_at_most_p_in_all_and_r_on_a_machine(p: int, r: int) -> None:
    """With p = 1 and any r it is xor: one of them, or none."""
    xor = Exclusive("x", (of("a"), of("b")), HOSTNAME, r, p)
    result = plan(machines(3), [*tasks(4, app="a"), *tasks(4, app="b")], xor)
    on = Counter(placed(result).values())
    assert len(result.placements) == min(p, 3 * r)
    assert max(on.values()) <= r
    groups = {(machine, task.partition("-")[0]) for task, machine in placed(result).items()}
    assert len(groups) == len(on)


def test_figure_8_three_tasks_on_three_machines() -> None:
    """Capacity one on each arc from the group to a machine."""
    alone = Conflict("c", EVERY, HOSTNAME)
    assert sorted(placed(plan(machines(3), tasks(3), alone)).values()) == ["M0", "M1", "M2"]
    assert len(placed(plan(machines(2), tasks(3), alone))) == 2


# -- figure 11: availability zones -------------------------------------------------------------------------------------


def zones(**sizes: int) -> list[Node]:
    """So many machines in each zone, named after it."""
    return [machine(f"{zone}{at}", **{ZONE: zone}) for zone, size in sizes.items() for at in range(size)]


def per_zone(result: RoundResult) -> Counter[str]:
    return Counter(placement.node[0] for placement in result.placements)


def test_figure_11_one_a_zone_on_its_freest_node() -> None:
    """Three tasks, three zones, r = 1: in each zone the machine with the least in use."""
    result = plan(zones(a=2, b=2, c=2), tasks(3), Conflict("az", EVERY, ZONE), a0=2000, b1=2000, c0=1000)
    assert sorted(placed(result).values()) == ["a1", "b0", "c1"]


@pytest.mark.parametrize(("r", "expected"), [(1, {"a": 1, "b": 1, "c": 1}), (3, {"a": 3, "b": 3, "c": 3})])
def test_figure_11_uneven_zones(r: int, expected: dict[str, int]) -> None:
    """Zones of one, two and six machines take as many each, though the largest has room for all."""
    assert per_zone(plan(zones(a=1, b=2, c=6), tasks(9, 500), Conflict("az", EVERY, ZONE, r))) == expected


def test_figure_11_a_full_zone() -> None:
    """It takes what it has room for, and holds nobody back: unlike with a spread, the others take their r."""
    result = plan(zones(a=1, b=1, c=1), tasks(9, 500), Conflict("az", EVERY, ZONE, 3), c0=3500)
    assert per_zone(result) == {"a": 3, "b": 3, "c": 1}


def test_figure_11_r_too_small() -> None:
    """What is beyond r in every zone waits, with the constraint as its reason, and r too large binds nobody."""
    result = plan(zones(a=2, b=2), tasks(6, 500), Conflict("az", EVERY, ZONE, 2))
    assert len(result.placements) == 4
    full = f"4 node(s) are full by constraint az of policy p (at most 2 per {ZONE})"
    assert {left.reason.partition(". ")[0] for left in result.unplaced} == {f"0/4 nodes are available: {full}"}
    assert len(plan(zones(a=2, b=2), tasks(6, 500), Conflict("az", EVERY, ZONE, 6)).placements) == 6
