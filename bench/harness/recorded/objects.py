"""A cluster as the judges read it: of objects, by Kubernetes' own rules, with no code of a planner.

What a judge does not know it refuses, so that no rule goes unjudged: such an object must not be in a recorded round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any

from harness.recorded.rounds import Object, RecordedRound

#: Thousandths of a unit: of cores, bytes, pods, GPUs.
Amounts = Mapping[str, int]
Labels = Mapping[str, str]

_SUFFIXES = {
    "": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip
_GANG, _MIN_MEMBER, _TOPOLOGY = (
    "scheduling.thalweg/gang",
    "scheduling.thalweg/gang-min-member",
    "scheduling.thalweg/gang-topology",
)
_POD_FIELDS = {
    "containers", "schedulerName", "priority", "preemptionPolicy", "nodeName", "nodeSelector", "tolerations",
    "affinity", "topologySpreadConstraints",
}  # fmt: skip
_POLICY_FIELDS = {"selects", "cost", "preemption", "rescheduling", "unscheduled"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: What kube-scheduler takes pods for that request nothing (schedutil.DefaultMilliCPURequest, DefaultMemoryRequest).
_NON_ZERO = {"cpu": 100, "memory": 200 * 2**20 * 1000}


class NotJudged(Exception):
    """A round has something that no judge knows."""


@dataclass(frozen=True, slots=True)
class Term:
    """Required affinity or anti-affinity to the pods of a namespace that a selector selects."""

    namespace: str
    selector: str
    topology_key: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with DoNotSchedule."""

    namespace: str
    selector: str
    topology_key: str
    max_skew: int


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod.

    Attributes:
        requests: one of `pods` among them.
        started: seconds since the epoch.
        owner: uid of its controller; "": none.
        deleting: whether it terminates.
        nominated: the node of its nomination; "": none.
    """

    key: str
    namespace: str
    labels: Labels
    requests: Amounts
    priority: int
    scheduler: str
    node: str
    nominated: str
    created: float
    started: float
    deleting: bool
    owner: str
    preempts: bool
    gang: str
    min_member: int
    gang_topology: str
    ports: frozenset[tuple[str, int]]
    node_selector: Labels
    node_terms: Sequence[Mapping[str, Any]] | None
    tolerations: Sequence[Mapping[str, str]]
    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    spread: tuple[Spread, ...]

    @cached_property
    def counted(self) -> tuple[int, int]:
        """Milli-cores and thousandths of bytes that it counts for where costs are made."""
        return tuple(self.requests.get(name) or least for name, least in _NON_ZERO.items())  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node."""

    name: str
    labels: Labels
    allocatable: Amounts
    taints: Sequence[Mapping[str, str]]
    unschedulable: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    name: str
    namespace: str
    selector: str
    allowed: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A FlowQueue at the top of the tree: the namespaces with these labels, and what their pods use at most."""

    name: str
    selector: str
    limit: Amounts


@dataclass(slots=True)
class Cluster:
    """What a round begins with.

    Attributes:
        policy: spec of the only policy; it governs the pods that name the scheduler thalweg.
        moment: seconds since the epoch.
    """

    moment: float
    policy: Mapping[str, Any] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    budgets: list[Budget] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    namespaces: dict[str, Labels] = field(default_factory=dict)

    @classmethod
    def of(cls, this: RecordedRound) -> Cluster:
        """The cluster of a round.

        Raises:
            NotJudged: it has a field or a kind that no judge knows.
        """
        cluster = cls(_seconds(this.moment))
        for item in this.objects:
            cluster._add(item)
        return cluster

    @property
    def waiting(self) -> list[Pod]:
        """Pods without a node, those with a nomination left out: others have decided about them."""
        return [pod for pod in self.pods.values() if not pod.node and not pod.nominated]

    @property
    def nominated(self) -> list[Pod]:
        """Pods that wait for the room of pods that terminate."""
        return [pod for pod in self.pods.values() if pod.nominated]

    @property
    def running(self) -> list[Pod]:
        """Pods with a node, those that terminate among them."""
        return [pod for pod in self.pods.values() if pod.node]

    def queue_of(self, pod: Pod) -> str:
        """The queue that a pod counts for; "": none."""
        labels = self.namespaces.get(pod.namespace, {})
        return next((queue.name for queue in self.queues if selects(queue.selector, labels)), "")

    def _add(self, item: Object) -> None:
        kind, name = item["kind"], item["metadata"]["name"]
        namespace, spec = item["metadata"].get("namespace", ""), item.get("spec", {})
        match kind:
            case "Node":
                allocatable = _amounts(item["status"]["allocatable"])
                labels = item["metadata"].get("labels", {})
                self.nodes[name] = Node(
                    name, labels, allocatable, spec.get("taints", ()), bool(spec.get("unschedulable"))
                )
            case "Pod":
                pod = _pod(item)
                self.pods[pod.key] = pod
            case "PodDisruptionBudget":
                allowed = item["status"]["disruptionsAllowed"]
                self.budgets.append(Budget(name, namespace, kept(spec["selector"]), allowed))
            case "FlowQueue":
                _check(spec, {"weight", "guarantee", "limit", "selects"}, kind)
                selector = kept(spec["selects"]["namespaceSelector"])
                self.queues.append(Queue(name, selector, _amounts(spec.get("limit", {}))))
            case "Namespace":
                self.namespaces[name] = item["metadata"].get("labels", {})
            case "FlowSchedulingPolicy":
                _check(spec, _POLICY_FIELDS, kind)
                if self.policy or spec["selects"] != {"schedulerNames": ["thalweg"]}:
                    raise NotJudged("more than one policy, or one that selects other pods")
                self.policy = spec
            case _:
                raise NotJudged(f"an object of kind {kind}")


def _pod(item: Object) -> Pod:
    metadata, spec, status = item["metadata"], item["spec"], item["status"]
    _check(spec, _POD_FIELDS, "Pod")
    namespace, notes = metadata["namespace"], metadata.get("annotations", {})
    _check(notes, {_GANG, _MIN_MEMBER, _TOPOLOGY}, "annotations of Pod")
    requests = {"pods": 1000}
    ports = set[tuple[str, int]]()
    for container in spec["containers"]:
        for name, amount in _amounts(container.get("resources", {}).get("requests", {})).items():
            requests[name] = requests.get(name, 0) + amount
        ports |= {
            (each.get("protocol", "TCP"), each["hostPort"])
            for each in container.get("ports", ())
            if each.get("hostPort")
        }
    affinity = spec.get("affinity", {})
    node_terms = affinity.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms")
    owners = [each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller")]
    created = _seconds(metadata["creationTimestamp"])
    return Pod(
        key=f"{namespace}/{metadata['name']}",
        namespace=namespace,
        labels=metadata.get("labels", {}),
        requests=requests,
        priority=spec.get("priority", 0),
        scheduler=spec["schedulerName"],
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        created=created,
        started=_seconds(status["startTime"]) if "startTime" in status else created,
        deleting="deletionTimestamp" in metadata,
        owner=owners[0] if owners else "",
        preempts=spec.get("preemptionPolicy") != "Never",
        gang=f"{namespace}/{notes[_GANG]}" if _GANG in notes else "",
        min_member=int(notes.get(_MIN_MEMBER, 0)),
        gang_topology=notes.get(_TOPOLOGY, ""),
        ports=frozenset(ports),
        node_selector=spec.get("nodeSelector", {}),
        node_terms=node_terms,
        tolerations=spec.get("tolerations", ()),
        affinity=_terms(affinity.get("podAffinity", {}), namespace),
        anti_affinity=_terms(affinity.get("podAntiAffinity", {}), namespace),
        spread=tuple(_spread(each, namespace) for each in spec.get("topologySpreadConstraints", ())),
    )


def _terms(given: Mapping[str, Any], namespace: str) -> tuple[Term, ...]:
    _check(given, {_REQUIRED}, "affinity")
    terms = []
    for each in given.get(_REQUIRED, ()):
        _check(each, {"labelSelector", "topologyKey"}, "affinity")
        terms.append(Term(namespace, kept(each["labelSelector"]), each["topologyKey"]))
    return tuple(terms)


def _spread(given: Mapping[str, Any], namespace: str) -> Spread:
    _check(given, {"labelSelector", "topologyKey", "maxSkew", "whenUnsatisfiable"}, "topologySpreadConstraints")
    if given["whenUnsatisfiable"] != "DoNotSchedule":
        raise NotJudged("topologySpreadConstraints with ScheduleAnyway")
    return Spread(namespace, kept(given["labelSelector"]), given["topologyKey"], given["maxSkew"])


def _check(given: Iterable[str], known: set[str], what: str) -> None:
    if unknown := sorted(set(given) - known):
        raise NotJudged(f"{what}: {', '.join(unknown)}")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _amounts(given: Mapping[str, Any]) -> dict[str, int]:
    return {name: _thousandths(str(text)) for name, text in given.items()}


def _thousandths(text: str) -> int:
    number = text.rstrip("mkMGTi")
    return int(Fraction(number) * _SUFFIXES[text[len(number) :]] * 1000)


# -- selectors ---------------------------------------------------------------------------------------------------------

_KEPT: dict[str, Mapping[str, Any]] = {}
_SELECTED: dict[tuple[str, tuple[tuple[str, str], ...]], bool] = {}


def kept(selector: Mapping[str, Any]) -> str:
    """A label selector as text, so that equal ones are asked about a set of labels once."""
    text = repr(selector)
    _KEPT[text] = selector
    return text


def selects(selector: str, labels: Labels) -> bool:
    """Whether a label selector selects such labels."""
    key = selector, tuple(sorted(labels.items()))
    if key not in _SELECTED:
        given = _KEPT[selector]
        _SELECTED[key] = all(labels.get(name) == value for name, value in given.get("matchLabels", {}).items()) and all(
            holds(each, labels) for each in given.get("matchExpressions", ())
        )
    return _SELECTED[key]


def holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    """Whether a requirement on labels holds."""
    value, values = labels.get(expression["key"]), expression.get("values", ())
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise NotJudged(f"the operator {expression['operator']}")
