"""Corners of gangs in a round: domains that rules close, tables that lived long, room that was kept, spare pods."""

from dataclasses import replace

import msgspec
import pytest
from support.model import node, pod, snapshot
from support.safety import check_plan, plan_and_check

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot, Victim
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.constraints import Conflict, OneDomain
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import HostPort
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import RoundResult, run_round


def members(gang: str, count: int, cpu: int = 1000, **fields: object) -> list[PendingPod]:
    return [msgspec.structs.replace(pod(f"{gang}-{i}", cpu, **fields), gangs=(gang,)) for i in range(count)]  # type: ignore[arg-type]


def with_gangs(made: Snapshot, *gangs: Gang) -> Snapshot:
    return replace(made, gangs={gang.name: gang for gang in gangs})


def placed(result: RoundResult) -> dict[str, str]:
    return {each.pod.uid: each.node for each in result.placements}


def labelled(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


@pytest.mark.parametrize("steps", [1, 8, 40])
def test_a_spare_pod_that_is_decided_by_other_means(steps: int) -> None:
    """One with a host port stays where it is while its gang is decided exactly, and goes if its gang goes."""
    spare = [msgspec.structs.replace(pod("G-spare", 0, host_ports=(HostPort("0.0.0.0", "TCP", 8080),)), gangs=("G",))]  # noqa: S104
    pending = [*members("G", 2, priority=1000), *spare, *members("H", 3)]
    made = snapshot([node(f"n{i}", 1000) for i in range(3)], pending, now=100.0)
    made = with_gangs(made, Gang("G", 2), Gang("H", 3))
    check_plan(made, run_round(made, steps=steps))


def test_a_gang_that_made_room_looks_for_another_domain() -> None:
    """It was in the cheaper rack, the only one for another gang: it goes to the dearer one, and both run."""
    first = [node(f"a{i}", 1000, labels=(("only", "a"), ("rack", "a"))) for i in range(3)]
    second = [node(f"b{i}", 2000, labels=(("rack", "b"),)) for i in range(3)]
    pending = [*members("G", 2, priority=1000), *members("H", 3, node_selector=(("only", "a"),))]
    running = [(f"b{i}", (("cpu", 1000),), ()) for i in range(3)]
    made = snapshot(first + second, pending, running=running, now=100.0)
    result = plan_and_check(with_gangs(made, Gang("G", 2, topology_key="rack"), Gang("H", 3)))
    assert len(result.placements) == 5


@pytest.mark.parametrize("racks", [8, 9, 12])
def test_a_domain_is_open_beyond_many_that_rules_close(racks: int) -> None:
    """All racks but the busiest run what the gang's anti-affinity shuns: that one is found, however many there are."""
    shuns = InterPodConstraints(anti_affinity=(AffinityTerm("rack", labelled("x"), ("default",)),))
    names = [f"n{i:02}" for i in range(racks)]
    nodes = [node(name, 4000, labels=(("rack", name),)) for name in names]
    shunned = [(name, PodSignature("default", (("app", "x"),))) for name in names[:-1]]
    running = [(name, (("cpu", 100),), ()) for name in names[:-1]] + [(names[-1], (("cpu", 1000),), ())]
    pending = members("G", 2, kind=PodSignature("default", (("app", "w"),), constraints=shuns))
    made = snapshot(nodes, pending, running=running, now=100.0, pod_index=PodIndex.of(shunned))
    assert set(placed(plan_and_check(with_gangs(made, Gang("G", 2, topology_key="rack")))).values()) == {names[-1]}


def test_a_table_that_lived_long_gives_the_same_plan() -> None:
    """Labels that changed leave other numbers behind, and values that no node has: neither decides anything."""

    def racked(*racks: str) -> list[object]:
        return [node(f"n{i}", 2000, labels=(("rack", rack),) if rack else ()) for i, rack in enumerate(racks)]

    def lived(*racks: str) -> NodeTable:
        before = NodeTable.of(racked("b", "b"))  # type: ignore[arg-type]
        before.column("rack")
        return before.updated(racked(*racks))  # type: ignore[arg-type]

    plans, contradictions = [], []
    for table in (NodeTable.of(racked("a", "b")), lived("a", "b")):  # type: ignore[arg-type]
        made = build_snapshot(generation=1, now=100.0, table=table, running=(), pending=tuple(members("G", 2)))
        plans.append(placed(run_round(with_gangs(made, Gang("G", 2, topology_key="rack")))))
    policy = Policy("p", constraints=(Conflict("c", LabelSelector(()), "rack", 1),))
    for table in (NodeTable.of(racked("", "")), lived("", "")):  # type: ignore[arg-type]
        waiting = (pod("x", 1000, policy="p"),)
        made = build_snapshot(generation=1, now=100.0, table=table, running=(), pending=waiting)
        contradictions.append([each.sentence for each in run_round(made, {"p": policy}).contradictions])
    assert plans[0] == plans[1]
    assert contradictions[0] == contradictions[1] != []


def test_room_that_was_kept_for_a_gang_that_is_placed() -> None:
    """Another order finds room for all of it: nothing is kept for it then."""
    overdue = members("U", 2, created=1.0)
    others = [pod(f"s{i}", 1000, created=999.0) for i in range(2)]
    pending = [*overdue, pod("big", 3000, created=900.0), *others]
    result = plan_and_check(with_gangs(snapshot([node("a", 4000)], pending, now=1000.0), Gang("U", 2)))
    assert set(placed(result)) == {"U-0", "U-1", "s0", "s1"}
    assert "kept" not in result.unplaced[0].reason


def test_together_with_a_pod_that_takes_anothers_place() -> None:
    """What cannot be is said of all that it concerns, and names the pod."""
    kind = PodSignature("default", (("app", "w"),))
    policy = Policy("p", constraints=(OneDomain("t", labelled("w"), "rack"),))
    nodes = [node(f"n{i}", 4000, labels=(("rack", "a"),)) for i in range(2)]
    pending = [pod(f"w{i}", cpu, policy="p", kind=kind) for i, cpu in enumerate((5000, 1000))]
    pending[0] = msgspec.structs.replace(
        pending[0], victim=Victim("default/old", "n0", (("cpu", 1000),), signature=kind)
    )
    running = [("n0", (("cpu", 1000),), ())]
    made = snapshot(nodes, pending, running=running, now=100.0, pod_index=PodIndex.of([("n0", kind)]))
    result = run_round(made, {"p": policy})
    assert not result.placements
    why = "Constraint t of policy p waits as a whole: default/w0: cannot replace default/old on node n0"
    assert all(left.reason.startswith(why) for left in result.unplaced)


@pytest.mark.parametrize("order", [("db", "cache"), ("cache", "db")])
def test_what_a_preference_tells_apart(order: tuple[str, str]) -> None:
    """Two pods differ by a label that only a waiting pod's preference reads: it goes to the one that it means."""
    near = InterPodConstraints(preferred=(WeightedTerm(100, AffinityTerm("host", labelled("cache"), ("default",))),))
    nodes = [node(f"n{i}", 4000, labels=(("host", f"n{i}"),)) for i in range(3)]
    pending = [pod(app, 1000, kind=PodSignature("default", (("app", app),)), priority=10) for app in order]
    pending.append(pod("web", 1000, kind=PodSignature("default", (("app", "web"),), constraints=near)))
    where = placed(run_round(snapshot(nodes, pending, pod_index=PodIndex())))
    assert where["web"] == where["cache"] != where["db"]
