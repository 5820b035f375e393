"""Kinds of pods in a declared network: by what its model reads, and no more than a round has time for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import msgspec
import pytest
from support.declared_networks import DeclaredNetwork, pods
from support.model import node, pod, snapshot
from support.safety import check_capacity, check_complete, check_costs, check_gangs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import Arc, Network, NetworkCostModel, NetworkView
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.declared_networks import NetworkRefused, graph, network_pass, solve_network
from flowcore.planning.declared_networks.programs import program, ways
from flowcore.planning.declared_networks.programs.lns import lack_price
from flowcore.planning.declared_networks.programs.work import Work
from flowcore.planning.round import RoundResult, run_round


class Everywhere(NetworkCostModel):
    """Any node that has room; it notes how many kinds it was asked about each time, and their labels."""

    name = "Everywhere"

    def __init__(self, labels: Sequence[str] | None = None) -> None:
        self.pod_labels = labels  # type: ignore[misc]
        self.asked: list[int] = []
        self.seen: set[tuple[str, ...]] = set()

    def network(self, view: NetworkView) -> Network:
        self.asked.append(len(view.pods))
        self.seen |= {tuple(sorted(waiting.labels)) for waiting in view.pods}
        return Network.of(Arc(waiting, machine, 1) for waiting in view.pods for machine in view.nodes)


def waiting(count: int, namespace: str = "default", *, gang: str = "", priority: int = 0) -> list[PendingPod]:
    """Pods of one app, each with the label of a job of its own."""
    made = []
    for number in range(count):
        labels = (("app", "web"), ("job-name", f"{gang}{number}"))
        of_app = pod(f"p{number}", 100, policy="net", kind=PodSignature(namespace, labels), priority=priority)
        key = f"{namespace}/{gang}{number}"
        made.append(msgspec.structs.replace(of_app, key=key, uid=key, gangs=(gang,) if gang else ()))
    return made


def planned(state: Snapshot, model: Everywhere) -> RoundResult:
    result = run_round(state, {"net": Policy("net", cost=CostPolicy("Everywhere"))}, {**MODELS, "Everywhere": model})
    for check in (check_complete, check_capacity, check_gangs):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    return result


def test_labels_that_the_model_does_not_read_make_no_kinds() -> None:
    """A thousand jobs of one app are one start of arcs, and the model does not see what it does not read."""
    model = Everywhere(("app", "tier"))
    result = planned(snapshot([node("n", 200_000, pods=2000)], waiting(1000)), model)
    assert len(result.placements) == 1000
    assert model.asked == [1]
    assert model.seen == {("app",)}


def test_a_model_that_does_not_say_reads_all_labels() -> None:
    """Each job is a kind."""
    model = Everywhere()
    assert len(planned(snapshot([node("n")], waiting(7)), model).placements) == 7
    assert model.asked == [7]
    assert model.seen == {("app", "job-name")}


def test_kinds_beyond_what_a_round_has_time_for_wait() -> None:
    """The others are planned, those beyond are told why, and the bound says nothing of what they would have done."""
    model = Everywhere()
    with patch.object(network_pass, "MAX_KINDS", 5):
        result = planned(snapshot([node("n")], waiting(8)), model)
    assert len(result.placements) == 5
    told = (
        "Its kind of pods is one of 8, and the network of cost model Everywhere has time for 5 in a round: a model that"
        " names the labels which it reads has fewer."
    )
    assert {(left.reason, left.code) for left in result.unplaced} == {(told, "NetworkRefused")}
    assert result.lower_bound == 0
    assert not result.contradictions


def test_no_namespace_takes_all_kinds() -> None:
    """One tenant brings many, another one few: these are planned, whatever priority the first gives its own."""
    crowd = [*waiting(20, "mallory", priority=50), *waiting(3, "quiet")]
    with patch.object(network_pass, "MAX_KINDS", 8):
        result = planned(snapshot([node("n")], crowd), Everywhere())
    counts = Counter(placement.pod.key.partition("/")[0] for placement in result.placements)
    assert counts == {"mallory": 5, "quiet": 3}


def test_the_kinds_of_a_gang_stay_together() -> None:
    """A gang of four kinds has no place among the last three, and those by themselves have."""
    crowd = [*waiting(4, "a", gang="g"), *waiting(4, "b", priority=9)]
    state = replace(snapshot([node("n")], crowd), gangs={"g": Gang("g", 4)})
    with patch.object(network_pass, "MAX_KINDS", 8):
        assert len(planned(state, Everywhere()).placements) == 8
    with patch.object(network_pass, "MAX_KINDS", 4):
        keys = {placement.pod.key.partition("/")[0] for placement in planned(state, Everywhere()).placements}
    assert keys == {"b"}


@pytest.mark.parametrize(("module", "limit", "size"), [(graph, "MAX_ARCS", 30), (ways, "MOST_WAYS", 50)])
def test_a_network_that_is_too_large_is_asked_for_with_fewer_kinds(module: object, limit: str, size: int) -> None:
    """Until it is small enough, in few turns; a network of one kind that is too large is refused."""
    classes = [pod("", 100 + number).pod_class for number in range(20)]
    sizes = [
        msgspec.structs.replace(alone, pod_class=of_size) for alone, of_size in zip(waiting(20), classes, strict=True)
    ]
    cluster = snapshot([node("n0", 1500), node("n1", 1500)], sizes)
    model = Everywhere()
    with patch.object(module, limit, size):
        result = planned(cluster, model)
    assert model.asked[0] == 20
    assert len(model.asked) <= 4
    assert 5 <= len(result.placements) == model.asked[-1] < 20
    assert {left.code for left in result.unplaced} == {"NetworkRefused"}
    with patch.object(graph, "MAX_ARCS", 1):
        result = planned(snapshot([node("n0"), node("n1")], waiting(1)), Everywhere())
    assert result.unplaced[0].reason.endswith("it has 2 arcs, and a round has time for 1.")


# -- what networks may take --------------------------------------------------------------------------------------------


def test_networks_of_a_round_share_its_work() -> None:
    """Each has an equal part of what is left, and what one does not take is for the next."""
    work = Work(900)
    first = work.part(3)
    assert first.left == 300
    first.flow(100)
    work.took(first)
    assert work.part(2).left == 400
    work.flow(2000)
    assert work.part(1).left == 0


def test_each_network_has_its_part_of_the_work() -> None:
    """The one whose turn comes first has half of it, the other one what is left."""
    asked: list[int] = []

    class Noted(Work):
        def part(self, of: int) -> Work:
            asked.append(of)
            return super().part(of)

    policies = {name: Policy(name, cost=CostPolicy("Everywhere")) for name in ("first", "net")}
    first = [msgspec.structs.replace(alone, policy="first", key=f"{alone.key}f") for alone in waiting(3, priority=9)]
    with patch.object(network_pass, "Work", Noted):
        state = snapshot([node("n")], [*first, *waiting(3)])
        result = run_round(state, policies, {**MODELS, "Everywhere": Everywhere()})
    assert asked == [2, 1]
    assert len(result.placements) == 6


def test_a_network_of_many_ways_without_work_has_a_plan_or_a_sentence() -> None:
    """Where minimums must be met first, nothing is found; without any the first flow is the plan."""
    web = pods("web", [100, 90, 80], nodes=3)
    nodes = tuple(Node(f"n{number}") for number in range(3))
    free, sizes = ((2, 4),) * 3, ((1, 1), (2, 1))
    db = pods("db", [100, 90], nodes=3)
    arcs = [Arc(kind, machine, 1 + place) for kind in (web, db) for place, machine in enumerate(nodes)]
    case = DeclaredNetwork((web, db), nodes, sizes, free, tuple(arcs))
    needing = replace(case, arcs=(*arcs[1:], replace(arcs[0], minimum=1)))
    with patch.object(program, "MOST_COLUMNS", 0):
        assert sum(solve_network(case.graph(), case.capacity(), work=Work(0)).placed_counts) >= 3
        with pytest.raises(NetworkRefused, match="no flow that meets its minimums and maximums was found in the time"):
            solve_network(needing.graph(), needing.capacity(), work=Work(0))


def test_nothing_is_lacking_because_arcs_are_dear() -> None:
    """A minimum is met by an arc that costs far more than its pod is worth: what is lacking costs more than both."""
    web = pods("web", [10], nodes=1)
    case = DeclaredNetwork(
        (web,),
        (Node("n"),),
        ((1,),),
        ((4,),),
        (Arc(web, "a", 10**6, minimum=1), Arc("a", "b", 5, gain=2), Arc("b", Node("n"), 10**6)),
    )
    assert lack_price(ways.ways_of(case.graph())) > 10 + 10**6 + 5 + 2 * 10**6
