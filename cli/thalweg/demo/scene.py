"""What a scene is, and the words to write one in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass, PreferredTerm
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels, NodeSelectorTerm, Requirement
from flowcore.questions.scenario.comparison import scored_as_kube_scheduler
from thalweg.demo.scene_result import SceneResult
from thalweg.tables import counted

GI = 1024**3
_GPU = "nvidia.com/gpu"

#: The two outcomes of a scene, Thalweg's first -> one sentence with their figures. Raises ClaimError if it is not true.
Claim = Callable[[SceneResult, SceneResult], str]


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of a scene that are alike: a row of its table.

    Attributes:
        asks: what each of them asks for, in a few words.
        gang: the gang of which all of them are members; it needs all of them.
        one_domain: all of them are placed in one domain, or none is.
    """

    name: str
    count: int
    asks: str
    pod_class: PodClass
    labels: Labels = ()
    gang: str = ""
    one_domain: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the pods."""
        names = [f"{self.name}-{number}" for number in range(self.count)] if self.count > 1 else [self.name]
        return tuple(f"demo/{name}" for name in names)

    def satisfied(self, outcome: SceneResult) -> int:
        """How many of the pods have what they ask for; of a gang or a set in one domain all or none."""
        if self.one_domain and len(outcome.domains(self.name)) > 1:
            return 0
        if (self.gang or self.one_domain) and outcome.waiting(self.name):
            return 0
        return outcome.placed(self.name)


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster, pods that wait, and what is gained by planning them at once.

    Attributes:
        story: the cluster and the pods in words; what becomes of them is said by the claim alone.
        sets: in order of arrival.
        in_turns: one pod of each set arrives, then the next of each.
        policy: governs all of them.
        counted: the table counts pods, and does not name their nodes.
    """

    title: str
    story: str
    nodes: tuple[Node, ...]
    sets: tuple[PodSet, ...]
    claim: Claim
    policy: Policy = BUILT_IN
    in_turns: bool = False
    counted: bool = False
    _rows: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {key: pod_set.name for pod_set in self.sets for key in pod_set.keys})

    @property
    def policies(self) -> Mapping[str, Policy]:
        """By name, as a round takes them."""
        return {self.policy.name: self.policy}

    @property
    def policies_one_by_one(self) -> Mapping[str, Policy]:
        """The same with the scores that kube-scheduler has: it does not keep pods off idle GPUs."""
        return {self.policy.name: scored_as_kube_scheduler(self.policy)}

    def row(self, key: str) -> str:
        """Name of the set that a pod belongs to."""
        return self._rows[key]

    def snapshot(self) -> Snapshot:
        """The scene as a round sees it."""
        members = [[(pod_set, key) for key in pod_set.keys] for pod_set in self.sets]
        turns = zip_longest(*members) if self.in_turns else members
        arrivals = [arrival for arrival in chain.from_iterable(turns) if arrival is not None]
        pending = tuple(
            PendingPod(
                key=key,
                uid="",
                pod_class=pod_set.pod_class,
                policy=self.policy.name,
                created=float(created),
                signature=PodSignature("demo", pod_set.labels),
                gangs=(pod_set.gang,) if pod_set.gang else (),
            )
            for created, (pod_set, key) in enumerate(arrivals)
        )
        table = NodeTable.of(self.nodes)
        made = build_snapshot(generation=1, now=0.0, table=table, running=(), pending=pending, pod_index=PodIndex())
        gangs = {each.gang: Gang(each.gang, each.count) for each in self.sets if each.gang}
        return replace(made, gangs=gangs)


def node(name: str, cores: int, memory_gi: int, labels: Mapping[str, str] | None = None,
         taints: tuple[Taint, ...] = (), gpus: int = 0) -> Node:  # fmt: skip
    """A node with so many cores, GiB and GPUs."""
    amounts: Amounts = (("cpu", cores * 1000), ("memory", memory_gi * GI), ("pods", 110))
    if gpus:
        amounts += ((_GPU, gpus),)
    return Node(name, labels=tuple(sorted((labels or {}).items())), taints=taints, allocatable=tuple(sorted(amounts)))


def size(node: Node) -> str:
    """A node's name and size: "gpu-1 (16 cores, 4 GPUs)"."""
    amounts = dict(node.allocatable)
    cores, gpus = amounts["cpu"] // 1000, amounts.get(_GPU, 0)
    parts = [counted(cores, "core"), *([counted(gpus, "GPU")] if gpus else [])]
    return f"{node.name} ({', '.join(parts)})"


def asks(cores: float, memory_gi: float, gpus: int = 0) -> Amounts:
    """What a pod asks for, in cores, GiB and GPUs."""
    amounts: Amounts = (("cpu", round(cores * 1000)), ("memory", round(memory_gi * GI)))
    return amounts + (((_GPU, gpus),) if gpus else ())


def prefers(weight: int, key: str, value: str) -> tuple[PreferredTerm, ...]:
    """A preferred node affinity for one label."""
    return (PreferredTerm(weight, NodeSelectorTerm((Requirement(key, "In", (value,)),))),)
