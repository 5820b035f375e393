"""What a scene is, and the words to write one in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowcore.model.gangs import Gang
from flowcore.model.neighbours import Kind, Neighbours
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import PodClass, PreferredTerm
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels, NodeSelectorTerm, Requirement
from flowcore.model.snapshot import NodeTable, PendingPod, Snapshot, build_snapshot

GI = 1024**3


@dataclass(frozen=True, slots=True)
class Wish:
    """Pods of a scene that are alike: name, how many, what they ask for in a few words, class, labels and gang."""

    name: str
    count: int
    asks: str
    pod_class: PodClass
    labels: Labels = ()
    gang: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster, pods that wait in order of arrival, and what to look for.

    Attributes:
        policy: governs all of them.
        gangs: how many pods each of them needs.
    """

    title: str
    story: str
    nodes: tuple[Node, ...]
    wishes: tuple[Wish, ...]
    policy: Policy = BUILT_IN
    gangs: Mapping[str, int] = field(default_factory=dict)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """By name, as a round takes them."""
        return {self.policy.name: self.policy}

    def snapshot(self) -> Snapshot:
        """The scene as a round sees it."""
        arrivals = [(wish, i) for wish in self.wishes for i in range(wish.count)]
        pending = tuple(
            PendingPod(
                key=f"demo/{wish.name}-{i}" if wish.count > 1 else f"demo/{wish.name}",
                uid="",
                pod_class=wish.pod_class,
                policy=self.policy.name,
                created=float(at),
                kind=Kind("demo", wish.labels),
                gangs=(wish.gang,) if wish.gang else (),
            )
            for at, (wish, i) in enumerate(arrivals)
        )
        table = NodeTable.of(self.nodes)
        made = build_snapshot(generation=1, now=0.0, table=table, running=(), pending=pending, neighbours=Neighbours())
        return replace(made, gangs={name: Gang(name, least) for name, least in self.gangs.items()})


def node(name: str, cores: int, memory_gi: int, labels: Mapping[str, str] | None = None,
         taints: tuple[Taint, ...] = (), gpus: int = 0) -> Node:  # fmt: skip
    """A node with so many cores, GiB and GPUs."""
    amounts: Amounts = (("cpu", cores * 1000), ("memory", memory_gi * GI), ("pods", 110))
    if gpus:
        amounts += (("nvidia.com/gpu", gpus),)
    return Node(name, labels=tuple(sorted((labels or {}).items())), taints=taints, allocatable=tuple(sorted(amounts)))


def asks(cores: float, memory_gi: float, gpus: int = 0) -> Amounts:
    """What a pod asks for, in cores, GiB and GPUs."""
    amounts: Amounts = (("cpu", round(cores * 1000)), ("memory", round(memory_gi * GI)))
    return amounts + ((("nvidia.com/gpu", gpus),) if gpus else ())


def prefers(weight: int, key: str, value: str) -> tuple[PreferredTerm, ...]:
    """A preferred node affinity for one label."""
    return (PreferredTerm(weight, NodeSelectorTerm((Requirement(key, "In", (value,)),))),)
