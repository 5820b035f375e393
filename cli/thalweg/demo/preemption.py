"""The scene in which urgent pods meet full nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from flowcore.model.amount_text import counted
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.planning.round import Eviction, RoundResult, run_round
from thalweg.demo.page import ScenePage
from thalweg.demo.scene import demo_pod, demo_snapshot
from thalweg.demo.scene_result import checked

_CORES = 1000
_SSD = (("disk", "ssd"),)
_NODES = tuple(
    Node(name, labels=labels, allocatable=(("cpu", 8 * _CORES), ("pods", 110)))
    for name, labels in (("node-1", _SSD), ("node-2", _SSD), ("node-3", _SSD), ("node-4", ()))
)


def _runs(name: str, node: str, cores: int, priority: int, started: float) -> Pod:
    pod_class = PodClass(requests=(("cpu", cores * _CORES),), priority=priority)
    return demo_pod(name, pod_class, node_name=node, started=started, owner=name)


#: What runs; among equal victims kube-scheduler prefers the latest to start.
_RUNNING = (
    _runs("batch-1", "node-1", 8, 0, 1.0),
    _runs("batch-2", "node-2", 4, 0, 3.0),
    _runs("web-2", "node-2", 4, 100, 1.0),
    _runs("batch-3", "node-3", 4, 0, 2.0),
    _runs("web-3", "node-3", 4, 100, 1.0),
)
_URGENT = tuple(
    demo_pod(
        f"urgent-{number}",
        PodClass(requests=(("cpu", 4 * _CORES),), node_selector=_SSD, priority=1000),
        created=float(number),
    )
    for number in (1, 2)
)


@dataclass(frozen=True, slots=True)
class Preemptions:
    """What became of the urgent pods.

    Attributes:
        nodes: node of each urgent pod, by key.
        evictions: in their order.
    """

    nodes: dict[str, str]
    evictions: tuple[Eviction, ...]


def _planned(running: Iterable[Pod], waiting: Iterable[Pod]) -> RoundResult:
    return run_round(demo_snapshot(_NODES, [*running, *waiting], now=10.0, evicts=True))


def at_once() -> Preemptions:
    """All urgent pods in one plan."""
    plan = _planned(_RUNNING, _URGENT)
    return Preemptions({each.pod.key: each.node for each in plan.placements}, plan.evictions)


def one_by_one() -> Preemptions:
    """Each urgent pod by itself, by kube-scheduler's own order of victims, in its turn."""
    running = {pod.key: pod for pod in _RUNNING}
    nodes, evictions = dict[str, str](), list[Eviction]()
    for pod in _URGENT:
        plan = _planned(running.values(), [pod])
        for eviction in plan.evictions:
            gone = running.pop(eviction.pod.key)
            if eviction.to:
                running[gone.key] = msgspec.structs.replace(gone, node_name=eviction.to)
        for placement in plan.placements:
            running[pod.key] = msgspec.structs.replace(pod, node_name=placement.node)
            nodes[pod.key] = placement.node
        evictions += plan.evictions
    return Preemptions(nodes, tuple(evictions))


def claim(together: Preemptions, alone: Preemptions) -> str:
    """How many pods leave, and where their replacements go.

    Raises:
        ClaimError: not all urgent pods run, or planning them together evicts no fewer pods.
    """
    again = " and ".join(f"{_short(each.pod.key)} goes to {each.to}" for each in together.evictions)
    fewer, more = len(together.evictions), len(alone.evictions)
    return checked(
        f"{len(together.nodes)} urgent pods run after {counted(fewer, 'eviction')}, not {more}; {again}.",
        len(together.nodes) == len(alone.nodes) == len(_URGENT),
        fewer < more,
        all(each.to for each in together.evictions),
    )


def preemption_page() -> ScenePage:
    """The scene, planned in both ways."""
    together, alone = at_once(), one_by_one()
    rows = [
        (_short(key), counted(4, "core"), together.nodes.get(key, "waits"), alone.nodes.get(key, "waits"))
        for key in (pod.key for pod in _URGENT)
    ]
    rows += [(_short(pod.key), _cores(pod), _fate(pod, together), _fate(pod, alone)) for pod in _RUNNING]
    return ScenePage(
        "An urgent pod on a full cluster",
        (
            "Two urgent pods need nodes with an SSD, and these are full. Pods of lower priority leave for them.",
            "One by one, each pod chooses its victims by itself, by kube-scheduler's order.",
            "Nodes: node-1, node-2, node-3 (8 cores, SSD), node-4 (8 cores, empty, no SSD).",
        ),
        (("POD", "ASKS FOR", "THALWEG", "ONE BY ONE"), *rows),
        (),
        claim(together, alone),
    )


def _fate(pod: Pod, preemptions: Preemptions) -> str:
    eviction = next((each for each in preemptions.evictions if each.pod.key == pod.key), None)
    if eviction is None:
        return f"stays on {pod.node_name}"
    return f"leaves {pod.node_name} for {eviction.to}" if eviction.to else f"leaves {pod.node_name}"


def _short(key: str) -> str:
    return key.removeprefix("demo/")


def _cores(pod: Pod) -> str:
    return counted(dict(pod.usage)["cpu"] // _CORES, "core")
