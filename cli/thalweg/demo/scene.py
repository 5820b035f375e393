"""What a scene is, and the words to write one in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.model.amount_text import counted
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod, PodClass, PreferredTerm
from flowcore.model.policies import BUILT_IN, SCHEDULER_NAME, Policy
from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels, NodeSelectorTerm, Requirement
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.alternatives.comparison import scored_as_kube_scheduler
from thalweg.demo.scene_result import SceneResult

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
        pods = [
            demo_pod(
                key.removeprefix("demo/"),
                pod_set.pod_class,
                labels=pod_set.labels,
                created=float(created),
                gang=_gang(pod_set) if pod_set.gang else None,
            )
            for created, (pod_set, key) in enumerate(arrivals)
        ]
        return demo_snapshot(self.nodes, pods, self.policy)


def demo_pod(name: str, pod_class: PodClass, **fields: Any) -> Pod:
    """A pod of the demo's namespace."""
    return Pod("demo", name, name, pod_class, scheduler_name=SCHEDULER_NAME, usage=pod_class.requests, **fields)


def demo_snapshot(
    nodes: Iterable[Node], pods: Iterable[Pod], policy: Policy = BUILT_IN, now: float = 0.0, *, evicts: bool = False
) -> Snapshot:
    """A cluster as a round sees it: pods with a node run, the others wait.

    Args:
        policy: governs all pods.
        now: seconds.
        evicts: whether running pods may leave.
    """
    scenario = Scenario(policies={} if policy is BUILT_IN else {policy.name: policy})
    for node in nodes:
        scenario.cluster.put_node(node)
    for pod in pods:
        scenario.cluster.put_pod(pod)
    governed = GovernedScenario(scenario)
    round_input = governed.round_input(scenario.waiting())
    return to_snapshot(
        scenario.cluster,
        now=now,
        pending=tuple(round_input.pending),
        generation=1,
        gangs=round_input.gangs,
        persistent_usage=round_input.persistent_usage,
        running=governed.running_pods(now, ()) if evicts else None,
    )


def _gang(pod_set: PodSet) -> GangRef:
    return GangRef(GangKey(GangSource.THALWEG, "demo", pod_set.gang), GangSpec(min_member=pod_set.count))


def node(name: str, cores: int, memory_gi: int, labels: Mapping[str, str] | None = None,
         taints: tuple[Taint, ...] = (), gpus: int = 0) -> Node:  # fmt: skip
    """A node with these cores, GiB and GPUs."""
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
