"""Who closed the room: in drawn clusters where that is known, and by arithmetic in those where it is not."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from support.audited_clusters import Drawn, drawn
from support.cli import Manifest, node, pod
from support.scenario_state import NOW, scenario_of

from flowcore.model.regret import ClosedRoom, ClosingReason
from flowcore.questions.audit.answer_audit import AuditAnswer, AuditQuery, answer_audit
from flowcore.questions.audit.finding import StepAction
from flowcore.questions.audit.regret_record import record_of
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import moment_text

_OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
_WHOLE = "4"
#: Clusters that are drawn of each kind, in the default tier and in both.
_QUICK, _ALL = 8, 60


def audit(objects: list[Manifest]) -> AuditAnswer:
    return answer_audit(scenario_of(objects), AuditQuery(), AnswerContext(NOW))


@dataclass
class Blocks:
    """A cluster of blocks: nodes that only pods of their block may use, each with pods whose room is closed or not.

    Attributes:
        expected: what is to be said of the pods of each block that wait, by its number.
    """

    random: Random
    objects: list[Manifest] = field(default_factory=list)
    expected: dict[int, dict[str, Any]] = field(default_factory=dict)
    block: int = 0

    def __post_init__(self) -> None:
        #: How long ago pods were placed, in seconds.
        self.times = self.random.sample(range(1, 10_000), k=100)

    def node(self, name: str) -> str:
        manifest = node(f"{name}{self.block}", _WHOLE)
        manifest["metadata"]["labels"]["block"] = str(self.block)
        self.objects.append(manifest)
        return manifest["metadata"]["name"]

    def runs(self, name: str, on: str, cpu: str, *, moves: bool = True) -> Manifest:
        """A running pod, placed at a time of its own; some are not known to have started."""
        placed = moment_text(NOW - self.times.pop())
        started = self.random.random() < 0.7
        metadata: Manifest = {
            "name": f"{name}{self.block}",
            "namespace": f"team-{self.random.choice('abc')}",
            "uid": f"uid-{name}{self.block}",
            "creationTimestamp": moment_text(NOW - 20_000) if started else placed,
        }
        if moves:
            metadata["ownerReferences"] = [_OWNER]
        status = {"phase": "Running", **({"startTime": placed} if started else {})}
        spec: Manifest = {"nodeName": on, "nodeSelector": {"block": str(self.block)}, "priority": 0}
        spec["schedulerName"] = self.random.choice(("default-scheduler", "volcano"))
        return pod(name, cpu, status=status, metadata=metadata, **spec)

    def run_all(self, pods: list[Manifest]) -> Manifest:
        """Puts pods in, in any order; the one that was placed first."""
        self.random.shuffle(pods)
        self.objects += pods
        return min(pods, key=_placed)

    def waits(self, pods: int = 1, priority: int = 0) -> None:
        for number in range(pods):
            metadata: Manifest = {"name": f"w{self.block}-{number}", "uid": f"uid-w{self.block}-{number}"}
            if pods > 1:
                metadata["annotations"] = {
                    "scheduling.thalweg/gang": f"g{self.block}",
                    "scheduling.thalweg/gang-min-member": str(pods),
                }
            selector = {"block": str(self.block)}
            self.objects.append(pod("w", _WHOLE, metadata=metadata, nodeSelector=selector, priority=priority))

    def expect(self, reason: ClosingReason, first: Manifest | None = None, to: str = "", pods: int = 1) -> None:
        told: dict[str, Any] = {"reason": reason, "pods": pods}
        if first is not None:
            told["pod"] = f"{first['metadata']['namespace']}/{first['metadata']['name']}"
            told |= {"scheduler": first["spec"]["schedulerName"], "node": first["spec"]["nodeName"]}
            told |= {"to": to, "placed": _placed(first)}
        self.expected[self.block] = told


def _placed(manifest: Manifest) -> str:
    return manifest["status"].get("startTime") or manifest["metadata"]["creationTimestamp"]


def moved(blocks: Blocks) -> None:
    """The one node that can be whole has pods that fit on the other one."""
    whole, half = blocks.node("a"), blocks.node("b")
    blocks.objects.append(blocks.runs("stays", half, "2", moves=False))
    sizes = blocks.random.choice((["2"], ["1"], ["1", "1"]))
    first = blocks.run_all([blocks.runs(f"m{number}-", whole, size) for number, size in enumerate(sizes)])
    blocks.waits()
    blocks.expect(ClosingReason.FRAGMENTATION, first, half)


def gang(blocks: Blocks) -> None:
    """Two nodes must be whole for a gang, and a pod is on each."""
    nodes, half = [blocks.node("a"), blocks.node("b")], blocks.node("c")
    blocks.objects.append(blocks.runs("stays", half, "2", moves=False))
    first = blocks.run_all([blocks.runs(f"m-{name}-", name, "1") for name in nodes])
    blocks.waits(pods=2)
    blocks.expect(ClosingReason.FRAGMENTATION, first, half, pods=2)


def inverted(blocks: Blocks) -> None:
    """The only node is full of pods of lower priority."""
    only = blocks.node("a")
    first = blocks.run_all([blocks.runs(f"low{number}-", only, "2") for number in range(2)])
    blocks.waits(priority=10)
    blocks.expect(ClosingReason.PRIORITY_INVERSION, first)


def free(blocks: Blocks) -> None:
    """There is room, and nobody used it."""
    blocks.node("a")
    blocks.waits()
    blocks.expect(ClosingReason.OPEN_ROOM)


def full(blocks: Blocks) -> None:
    """Nothing can leave: no plan runs the pod, and nobody is to blame."""
    blocks.objects.append(blocks.runs("stays", blocks.node("a"), "2", moves=False))
    blocks.waits()


def told_of(room: ClosedRoom) -> dict[str, Any]:
    told: dict[str, Any] = {"reason": room.reason, "pods": room.pods}
    if room.pod:
        told |= {"pod": room.pod, "scheduler": room.scheduler, "node": room.node, "to": room.to}
        told["placed"] = moment_text(room.placed)
    return told


def cluster_of_blocks(seed: int) -> Blocks:
    random = Random(seed)
    blocks = Blocks(random)
    for number, build in enumerate(random.choices((moved, gang, inverted, free, full), k=5)):
        blocks.block = number
        build(blocks)
    return blocks


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < _QUICK else pytest.mark.slow) for seed in range(_ALL)]
)
def test_who_closed_the_room_is_named(seed: int) -> None:
    """In each block the pod that was placed first of those that have to leave, with all that is known of it."""
    blocks = cluster_of_blocks(seed)
    rooms = audit(blocks.objects).closed
    assert {int(room.waiting.partition("/w")[2].partition("-")[0]): told_of(room) for room in rooms} == blocks.expected
    assert len(rooms) == len(blocks.expected)
    assert [room.placed for room in rooms] == sorted((room.placed for room in rooms), reverse=True)


def _is_short(cluster: Drawn, audit: AuditAnswer, plan: str, room: ClosedRoom) -> bool:
    """Whether what the plan has on the node is too much once the pod that closed the room stays there."""
    homes = dict(cluster.homes)
    for step in audit.plans[plan]:
        name = step.pod.partition("/")[2]
        if step.action is StepAction.EVICT:
            del homes[name]
        else:
            homes[name] = step.node
    homes[room.pod.partition("/")[2]] = room.node
    held = [cluster.asks[name] for name, where in homes.items() if where == room.node]
    offered = cluster.nodes[room.node]
    return any(sum(amounts) > offered[place] for place, amounts in enumerate(zip(*held, strict=True)))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < _QUICK else pytest.mark.slow) for seed in range(_ALL)]
)
def test_rooms_are_those_of_the_plans(seed: int) -> None:
    """Each pod that plans run has one room, and the plan does not go without the pod that closed it leaving."""
    cluster = drawn(seed)
    answer = audit(cluster.objects())
    at_least = {finding.kind: finding.at_least for finding in answer.findings}
    assert sum(room.pods for room in answer.closed) == at_least["WaitingPods"] + at_least["PriorityInversions"]
    for room in answer.closed:
        if room.pod:
            inverted = room.reason is ClosingReason.PRIORITY_INVERSION
            plans = [plan for plan in ("PriorityInversions", "WaitingPods") if plan in answer.plans]
            assert any(_is_short(cluster, answer, plan, room) for plan in plans), room
            assert inverted == (room.to == "")


def test_a_record_has_rooms_that_placements_closed() -> None:
    """Those that were closed last come first. Pods whose room is free are a number: nobody placed anything there."""
    blocks = Blocks(Random(1))
    for number, build in enumerate((moved, free, moved, free)):
        blocks.block = number
        build(blocks)
    record = record_of(audit(blocks.objects), NOW)
    assert (record.time, record.open_pods, len(record.closed)) == (NOW, 2, 2)
    assert all(room.pod for room in record.closed)
    assert record.closed[0].placed > record.closed[1].placed
    figures = {(each.finding, each.now, each.at_least, each.at_most) for each in record.figures}
    assert ("WaitingPods", 4, 4, 4) in figures
