"""The state of a cluster as text: one JSON value a line, the first of which says what the text is.

It has what scheduling reads of each object, as the operator keeps it: no environment of containers, no Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.kinds import STORES, Store
from flowcore.model.device_gates import DeviceGates
from flowcore.model.errors import ModelError
from flowcore.model.gang_parents import ParentKey
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.regret import RegretRecord
from flowcore.model.selectors import Labels
from flowcore.model.usage import MeasuredLoad, UsageSample

VERSION = 3


class AwaitedRoom(msgspec.Struct, frozen=True):
    """Where a pod is to go once others have left.

    Attributes:
        victims: keys of the pods that have not left yet.
    """

    node: str
    victims: tuple[str, ...] = ()


@dataclass(slots=True)
class BesideCluster:
    """What a plan reads beside the objects of a cluster.

    Attributes:
        complete: whether an operator knew the cluster: no object is missing.
        planned: node of each pod that is expected there and not yet seen bound, by key.
        awaiting: of pods that have a plan and wait for others to leave, by key.
        loads: measured loads that the operator plans with, by node.
        foreseen: cpu (milli-cores) and memory (bytes) that waiting pods are foreseen to use, by key.
        node_samples, pod_samples: measured usage of a dump, by name and by ``namespace/name``.
        held: what an operator decided for policies with ``waiting: Auto``, and why, by name.
        regret: of the operator's last audits, the oldest first.
    """

    complete: bool = True
    planned: Mapping[str, str] = field(default_factory=dict)
    awaiting: Mapping[str, AwaitedRoom] = field(default_factory=dict)
    loads: Mapping[str, MeasuredLoad] = field(default_factory=dict)
    foreseen: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    node_samples: Mapping[str, UsageSample] = field(default_factory=dict)
    pod_samples: Mapping[str, UsageSample] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    regret: Sequence[RegretRecord] = ()


@dataclass(slots=True)
class ReadState:
    """What a saved state has beside the objects of a cluster; see ``BesideCluster``.

    Attributes:
        written: seconds since the epoch.
    """

    complete: bool = True
    written: float = 0.0
    policies: list[Policy] = field(default_factory=list)
    awaiting: dict[str, AwaitedRoom] = field(default_factory=dict)
    loads: dict[str, MeasuredLoad] = field(default_factory=dict)
    foreseen: dict[str, tuple[int, int]] = field(default_factory=dict)
    node_samples: dict[str, UsageSample] = field(default_factory=dict)
    pod_samples: dict[str, UsageSample] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    regret: list[RegretRecord] = field(default_factory=list)


class UnreadableState(ModelError):
    """The text is not a saved state of this version; ``field`` is the number of the line."""


class _Line(msgspec.Struct, frozen=True, tag_field="saved"):
    """One line."""


class Header(_Line, frozen=True, tag="ClusterState"):
    """The first line.

    Attributes:
        written: seconds since the epoch.
        complete: see ``BesideCluster``.
        gates_off: feature gates of devices that are off (``flowcore.model.device_gates``).
        followed: kinds of parents of gangs that are known; None: of a dump (``flowcore.cluster.indexes.parent_gangs``).
        gone: parents of these kinds that do not exist.
        server: the API server's version (``flowcore.model.kubernetes_version``).
    """

    version: int
    written: float
    complete: bool = True
    gates_off: tuple[str, ...] = ()
    followed: tuple[str, ...] | None = None
    gone: tuple[ParentKey, ...] = ()
    server: str = ""


class _SavedNode(_Line, frozen=True, tag="Node"):
    node: Node


class _SavedPod(_Line, frozen=True, tag="Pod"):
    """A pod.

    Attributes:
        planned_node: where it is expected and not yet seen bound, "" for most.
        awaited, foreseen: see ``BesideCluster``.
    """

    pod: Pod
    planned_node: str = ""
    awaited: AwaitedRoom | None = None
    foreseen: tuple[int, int] | None = None


class _SavedLoad(_Line, frozen=True, tag="MeasuredLoad"):
    load: MeasuredLoad


class _SavedNodeSample(_Line, frozen=True, tag="NodeSample"):
    name: str
    sample: UsageSample


class _SavedPodSample(_Line, frozen=True, tag="PodSample"):
    key: str
    sample: UsageSample


class _SavedNamespace(_Line, frozen=True, tag="Namespace"):
    name: str
    labels: Labels


class _SavedRegret(_Line, frozen=True, tag="Regret"):
    record: RegretRecord


class _SavedPolicy(_Line, frozen=True, tag="Policy"):
    policy: Policy
    held: str = ""


#: The line of an object that has a row.
_LINES: dict[Store[Any, Any], Any] = {
    store: msgspec.defstruct(
        f"_Saved{store.saved[0]}",
        [(store.saved[1], store.type)],
        bases=(_Line,),
        frozen=True,
        tag_field="saved",
        tag=store.saved[0],
    )
    for store in STORES
}
_STORE_OF = {line: store for store, line in _LINES.items()}
_OTHERS = (
    _SavedNode
    | _SavedPod
    | _SavedNamespace
    | _SavedPolicy
    | _SavedLoad
    | _SavedNodeSample
    | _SavedPodSample
    | _SavedRegret
)
_encoder = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)
_object: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(reduce(or_, _LINES.values(), _OTHERS))


def to_lines(
    cluster: Cluster, beside: BesideCluster, now: float, policies: Iterable[Policy] | None = None
) -> Iterator[bytes]:
    """The lines of a cluster's state, each with its line break.

    The objects are taken with the first line: the cluster may change while the others are asked for.

    Args:
        now: seconds since the epoch.
        policies: in force; None: those of the cluster.
    """
    pods = [pod for key in cluster.pods if (pod := cluster.as_written(key)) is not None]
    objects: list[_Line] = [
        *(_SavedNode(each) for each in cluster.nodes.values()),
        *(_SavedNamespace(name, labels) for name, labels in cluster.namespaces.items()),
        *(line(value) for store, line in _LINES.items() for value in store.objects(cluster).values()),
        *(_SavedPolicy(policy, beside.held.get(policy.name, ""))
          for policy in (cluster.policies.ordered if policies is None else policies) if policy != BUILT_IN),
        *(_SavedLoad(each) for each in beside.loads.values()),
        *(_SavedNodeSample(*each) for each in beside.node_samples.items()),
        *(_SavedPodSample(*each) for each in beside.pod_samples.items()),
        *(_SavedRegret(each) for each in beside.regret),
    ]  # fmt: skip
    kinds = cluster.parent_gangs.followed
    header = Header(
        VERSION,
        now,
        beside.complete,
        gates_off=tuple(sorted(cluster.device_gates.off)),
        followed=None if kinds is None else tuple(sorted(kinds)),
        gone=tuple(sorted(cluster.parent_gangs.gone)),
        server=cluster.version.text,
    )
    yield _encoder.encode(header) + b"\n"
    for record in objects:
        yield _encoder.encode(record) + b"\n"
    for pod in pods:
        key = pod.key
        saved = _SavedPod(pod, beside.planned.get(key, ""), beside.awaiting.get(key), beside.foreseen.get(key))
        yield _encoder.encode(saved) + b"\n"


def is_saved_state(text: str) -> bool:
    """Whether a text begins as a saved state does."""
    return text.startswith('{"saved":"ClusterState"')


def put_lines(lines: Iterable[str], cluster: Cluster) -> ReadState:
    """Puts a saved state into a cluster; a pod that was expected on a node counts as running there.

    Returns:
        what is no object of the cluster.

    Raises:
        UnreadableState: a line cannot be read, or another version wrote it.
    """
    state = ReadState()
    for number, line in enumerate(lines, start=1):
        try:
            if number == 1:
                header = _header.decode(line)
                if header.version != VERSION:
                    raise UnreadableState(
                        "line 1", f"version {header.version} of the format; this Thalweg reads version {VERSION}"
                    )
                state.complete, state.written = header.complete, header.written
                cluster.version = KubernetesVersion(header.server)
                cluster.device_gates = DeviceGates(frozenset(header.gates_off), cluster.version)
                cluster.parent_gangs.followed = None if header.followed is None else frozenset(header.followed)
                cluster.parent_gangs.gone = frozenset(header.gone)
                continue
            _put(_object.decode(line), cluster, state)
        except msgspec.DecodeError as error:
            raise UnreadableState(f"line {number}", str(error)) from error
    return state


def _put(line: _Line, cluster: Cluster, state: ReadState) -> None:
    match line:
        case _SavedNode():
            cluster.put_node(line.node)
        case _SavedPod():
            _put_pod(line, cluster, state)
        case _SavedNamespace():
            cluster.set_namespace(line.name, line.labels)
        case _SavedPolicy():
            state.policies.append(line.policy)
            if line.held:
                state.held[line.policy.name] = line.held
        case _SavedLoad(load):
            state.loads[load.node] = load
        case _SavedNodeSample():
            state.node_samples[line.name] = line.sample
        case _SavedPodSample():
            state.pod_samples[line.key] = line.sample
        case _SavedRegret(record):
            state.regret.append(record)
        case _:
            store = _STORE_OF[type(line)]
            value = getattr(line, store.saved[1])
            store.put(cluster, store.key_of(value), value)


def _put_pod(line: _SavedPod, cluster: Cluster, state: ReadState) -> None:
    pod = line.pod
    if line.planned_node:
        pod = msgspec.structs.replace(pod, node_name=line.planned_node)
    cluster.put_pod(pod)
    if line.awaited is not None:
        state.awaiting[pod.key] = line.awaited
    if line.foreseen is not None:
        state.foreseen[pod.key] = line.foreseen
