"""The scenes: small clusters in which committing one pod at a time goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import PodClass, PreferredTerm, Toleration
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import Amounts
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.snapshot import NodeTable, PendingPod, Snapshot, build_snapshot

_GI = 1024**3


@dataclass(frozen=True, slots=True)
class Wish:
    """Pods of a scene that are alike: their name, how many, what they ask for in a few words, their class."""

    name: str
    count: int
    asks: str
    pod_class: PodClass


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster, pods that wait in order of arrival, and what to look for."""

    title: str
    story: str
    nodes: tuple[Node, ...]
    wishes: tuple[Wish, ...]

    def snapshot(self) -> Snapshot:
        """The scene as a round sees it."""
        pending = tuple(
            PendingPod(
                f"demo/{wish.name}-{i}" if wish.count > 1 else f"demo/{wish.name}", "", wish.pod_class, BUILT_IN.name
            )
            for wish in self.wishes
            for i in range(wish.count)
        )
        return build_snapshot(generation=1, now=0.0, table=NodeTable.of(self.nodes), running=(), pending=pending)


def _node(name: str, cores: int, memory_gi: int, labels: Mapping[str, str] | None = None,
          taints: tuple[Taint, ...] = (), gpus: int = 0) -> Node:  # fmt: skip
    amounts: Amounts = (("cpu", cores * 1000), ("memory", memory_gi * _GI), ("pods", 110))
    if gpus:
        amounts += (("nvidia.com/gpu", gpus),)
    return Node(name, labels=tuple(sorted((labels or {}).items())), taints=taints, allocatable=tuple(sorted(amounts)))


def _asks(cores: float, memory_gi: float, gpus: int = 0) -> Amounts:
    amounts: Amounts = (("cpu", round(cores * 1000)), ("memory", round(memory_gi * _GI)))
    return amounts + ((("nvidia.com/gpu", gpus),) if gpus else ())


def _prefers(weight: int, key: str, value: str) -> tuple[PreferredTerm, ...]:
    return (PreferredTerm(weight, NodeSelectorTerm((Requirement(key, "In", (value,)),))),)


def scenes() -> tuple[Scene, ...]:
    """All scenes, in the order they are shown."""
    gpu = {"hardware": "gpu"}
    dedicated = (Taint("dedicated", "batch", "NoSchedule"),)
    return (
        Scene(
            "The only node that will do",
            "Web pods can run anywhere and came first; the training pods can only run on the GPU node, which is "
            "also the emptiest. Placed one by one, the web pods take it.",
            (_node("plain-1", 4, 16), _node("plain-2", 4, 16), _node("gpu-1", 8, 32, gpu, gpus=2)),
            (
                Wish("web", 4, "2 cores, anywhere", PodClass(_asks(2, 4))),
                Wish("train", 2, "4 cores, 1 GPU", PodClass(_asks(4, 16, 1), node_selector=(("hardware", "gpu"),))),
            ),
        ),
        Scene(
            "Who wants it more",
            "Both pods would like the one fast node, which has room for one. The second in line wants it "
            "four times as much.",
            (_node("fast", 2, 8, {"disk": "nvme"}), _node("slow", 2, 8)),
            (
                Wish(
                    "cache",
                    1,
                    "likes nvme, weight 20",
                    PodClass(_asks(2, 4), preferred_affinity=_prefers(20, "disk", "nvme")),
                ),
                Wish(
                    "db",
                    1,
                    "likes nvme, weight 80",
                    PodClass(_asks(2, 4), preferred_affinity=_prefers(80, "disk", "nvme")),
                ),
            ),
        ),
        Scene(
            "Mixed sizes, to the last core",
            "Eight cores wanted, eight cores there. Spread one by one, the small pods leave no room for the big one; "
            "counting pods instead of cores, as older flow schedulers did, overcommits.",
            (_node("node-1", 4, 16), _node("node-2", 4, 16)),
            (
                Wish("small", 2, "1 core", PodClass(_asks(1, 1))),
                Wish("medium", 1, "2 cores", PodClass(_asks(2, 2))),
                Wish("big", 1, "4 cores", PodClass(_asks(4, 4))),
            ),
        ),
        Scene(
            "More pods than room",
            "What stays pending is what costs least to leave, and each pod has a reason.",
            (
                _node("node-1", 4, 16),
                _node("batch-1", 4, 16, taints=dedicated),
                Node("cordoned", unschedulable=True, allocatable=(("cpu", 8000), ("memory", 32 * _GI), ("pods", 110))),
            ),
            (
                Wish("report", 3, "2 cores, priority 0", PodClass(_asks(2, 2))),
                Wish("checkout", 1, "2 cores, priority 1000", PodClass(_asks(2, 2), priority=1000)),
                Wish(
                    "batch",
                    2,
                    "2 cores, tolerates batch",
                    PodClass(_asks(2, 2), tolerations=(Toleration("dedicated", "Equal", "batch", "NoSchedule"),)),
                ),
                Wish("lost", 1, "node label zone=mars", PodClass(_asks(1, 1), node_selector=(("zone", "mars"),))),
            ),
        ),
    )


def crowd() -> Scene:
    """A larger scene, shown as counts: 300 nodes, 3,000 pods of eleven classes."""
    zones = ("a", "b", "c")
    nodes = tuple(
        _node(
            f"node-{i:03}",
            16 if i % 3 else 32,
            64,
            {"zone": zones[i % 3], "hardware": "gpu" if i % 10 == 0 else "cpu"},
            gpus=8 if i % 10 == 0 else 0,
        )
        for i in range(300)
    )
    plain = tuple(
        Wish(f"app{i}", 250, f"{0.5 * (i + 1):g} cores", PodClass(_asks(0.5 * (i + 1), 1 + i))) for i in range(6)
    )
    pinned = tuple(
        Wish(f"zone-{zone}", 400, f"1.5 cores, zone {zone}", PodClass(_asks(1.5, 4), node_selector=(("zone", zone),)))
        for zone in zones
    )
    training = (Wish("train", 240, "2 cores, 1 GPU", PodClass(_asks(2, 6, 1))),)
    huge = (Wish("solver", 60, "14 cores", PodClass(_asks(14, 32))),)
    return Scene("A crowd", "3,000 pods at once on 300 nodes.", nodes, plain + pinned + training + huge)
