"""Sinks and decoders of the watched kinds: a sink passes each object to ``Shell.apply`` as an event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from flowcore.api import (
    Interner,
    NodeReader,
    PodReader,
    WireNamespace,
    WirePodGroup,
    storage_decoder,
    to_labels,
    to_pod_group,
    to_unreadable_pod,
    to_unreadable_pod_group,
)
from flowcore.api.hyper_nodes import WireHyperNode, to_hyper_node
from flowcore.api.kinds import HYPER_NODE, POD_GROUPS, STORAGE, ObjectKind
from flowcore.api.reading import READ_BY
from flowcore.cluster.kinds import Store
from flowcore.cluster.running import FUTURE_CHECKPOINT, is_future_checkpoint
from flowcore.model.data import DATA
from flowcore.model.gang_spec import GangSource, PodGroup
from flowcore.model.hyper_nodes import HyperNode
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import CHECKPOINTED_AT
from flowcore.model.volumes import StorageObject, data_problem, key_of
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.reservations.events import (
    NamespaceSet,
    NodePut,
    NodeRemoved,
    ObjectSet,
    PodPut,
    PodRemoved,
)
from thalweg_operator.shell import Shell

K = TypeVar("K")
V = TypeVar("V")

_log = structlog.get_logger()


class _NameKeyed:
    """Objects whose key is their name. An unreadable version leaves the previous one in place."""

    def key_of(self, _namespace: str, name: str) -> str:
        """Key of the object with this name."""
        return name

    def unreadable(self, key: str) -> None:
        """Marks an object that could not be decoded."""


class _NamespaceKeyed(_NameKeyed):
    """Objects whose key is namespace/name, or /name."""

    def key_of(self, namespace: str, name: str) -> str:
        """Key of the object with this name."""
        return f"{namespace}/{name}"


class NodeSink(_NameKeyed):
    """Nodes into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: Node) -> str:
        """Key of an object."""
        return value.name

    def upsert(self, value: Node) -> None:
        """Adds or replaces an object."""
        self._shell.apply(NodePut(value))

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._shell.apply(NodeRemoved(key))

    def keys(self) -> list[str]:
        """Keys of all objects."""
        return list(self._shell.cluster.nodes)

    def unreadable(self, key: str) -> None:
        """Marks a node that could not be decoded: its capacity is unknown, so nothing is planned there."""
        node = self._shell.cluster.nodes.get(key, Node(key))
        self._shell.apply(NodePut(msgspec.structs.replace(node, problem="the node object cannot be read")))


class PodSink(_NamespaceKeyed):
    """Pods into the cluster."""

    def __init__(self, shell: Shell, bad_input: BadInput) -> None:
        self._shell, self._bad_input = shell, bad_input

    def key(self, value: Pod) -> str:
        """Key of an object."""
        return value.key

    def upsert(self, value: Pod) -> None:
        """Adds or replaces an object."""
        self._shell.apply(PodPut(value))
        index = self._shell.cluster.occupancy.pod_index
        if value.node_name and (problem := index.terms_problem(value.signature)):
            self._bad_input.refuse("pod", "spec.affinity", value.key, problem)

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._shell.apply(PodRemoved(key))

    def keys(self) -> list[str]:
        """Keys of all objects."""
        return list(self._shell.cluster.pods)


class NamespaceSink(_NameKeyed):
    """Namespaces' labels into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: WireNamespace) -> str:
        """Key of an object."""
        return value.metadata.name

    def upsert(self, value: WireNamespace) -> None:
        """Adds or replaces an object."""
        self._shell.apply(NamespaceSet(value.metadata.name, to_labels(value.metadata.labels)))

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._shell.apply(NamespaceSet(key, None))

    def keys(self) -> list[str]:
        """Keys of all objects."""
        return list(self._shell.cluster.namespaces)

    def unreadable(self, key: str) -> None:
        """Marks a namespace that could not be decoded: its labels are unknown, so no policy governs its pods."""
        self._shell.apply(NamespaceSet(key, None))


class ObjectSink(Generic[K, V]):
    """Objects of one kind into the cluster, as the row of the kind says."""

    def __init__(self, shell: Shell, kind: ObjectKind, store: Store[K, V]) -> None:
        self._shell, self._kind, self._store = shell, kind, store

    def key(self, value: V) -> str:
        """Key of an object."""
        return self._store.text(self._store.key_of(value))

    def key_of(self, namespace: str, name: str) -> str:
        """Key of the object with this name."""
        return f"{namespace}/{name}" if self._kind.namespaced else name

    def upsert(self, value: V) -> None:
        """Adds or replaces an object."""
        self._shell.apply(ObjectSet(self._store, self._store.key_of(value), value))

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._shell.apply(ObjectSet(self._store, self._key(key), None))

    def keys(self) -> list[str]:
        """Keys of all objects."""
        texts = ((key, self._store.text(key)) for key in self._store.objects(self._shell.cluster))
        return [text for key, text in texts if self._key(text) == key]

    def unreadable(self, key: str) -> None:
        """Marks an object that could not be decoded."""
        known = self._key(key)
        before = self._store.objects(self._shell.cluster).get(known)
        if self._store.unreadable is not None:
            self._shell.apply(ObjectSet(self._store, known, self._store.unreadable(known, before)))

    def _key(self, text: str) -> K:
        namespace, _, name = text.rpartition("/")
        return self._store.key_by_name(self._kind, namespace, name)


def node_decoder(intern: Interner) -> Callable[[bytes | msgspec.Raw], Node]:
    """Bytes of a node to a Node."""
    return NodeReader(intern)


def pod_decoder(
    intern: Interner, bad_input: BadInput, wall_clock: Callable[[], float] = time.time
) -> Callable[[bytes | msgspec.Raw], Pod]:
    """Bytes of a pod to a Pod.

    Args:
        bad_input: receives refused fields.
        wall_clock: seconds since the epoch.
    """
    read_pod = PodReader(intern)

    def decode(raw: bytes | msgspec.Raw) -> Pod:
        try:
            pod = read_pod(raw)
        except RecursionError:
            raise  # the reflector removes deeply nested values and decodes again
        except Exception as error:  # noqa: BLE001 - an unreadable bound pod must still count on its node
            pod = to_unreadable_pod(raw, str(error))
            _log.error("pod cannot be read", pod=pod.key, node=pod.node_name, problem=str(error))
            return pod
        if pod.bad_annotation:
            ignored = f"{pod.annotation_problem or 'it has no known value'}; it is ignored"
            bad_input.refuse("pod", pod.bad_annotation, pod.key, pod.blocked_reason or ignored)
        topology = pod.gang_topology
        if topology is not None and topology.bad_annotation:  # one of ours, or one of Kueue or Volcano
            bad_input.refuse("pod", topology.bad_annotation, pod.key, topology.problem)
        if pod.checkpointed and is_future_checkpoint(pod.checkpointed, wall_clock()):
            bad_input.refuse("pod", f"annotation {CHECKPOINTED_AT}", pod.key, FUTURE_CHECKPOINT)
        if pod.over_limit:
            bad_input.refuse("pod", pod.over_limit, pod.key, pod.unsupported_reason)
        return pod

    return decode


def storage_object_decoder(
    kind: str, intern: Interner, bad_input: BadInput
) -> Callable[[bytes | msgspec.Raw], StorageObject | None]:
    """Bytes of a storage object to the object; ``bad_input`` receives refused annotations."""
    to_object = storage_decoder(kind, intern)

    def decode(raw: bytes | msgspec.Raw) -> StorageObject | None:
        stored = to_object(raw)
        if stored is not None and (problem := data_problem(stored)):
            bad_input.refuse(kind, f"annotation {DATA}", "/".join(key_of(stored)[1:]), f"{problem}; it is ignored")
        return stored

    return decode


def namespace_decoder() -> Callable[[bytes | msgspec.Raw], WireNamespace]:
    """Bytes of a namespace to its wire struct."""
    return msgspec.json.Decoder(WireNamespace).decode


def pod_group_decoder(source: GangSource, intern: Interner) -> Callable[[bytes | msgspec.Raw], PodGroup]:
    """Bytes of a PodGroup to a PodGroup."""
    wire = msgspec.json.Decoder(WirePodGroup)

    def decode(raw: bytes | msgspec.Raw) -> PodGroup:
        try:
            return to_pod_group(wire.decode(raw), source, intern)
        except RecursionError:
            raise  # the reflector removes deeply nested values and decodes again
        except Exception as error:  # noqa: BLE001 - its pods must not be planned without their gang
            group = to_unreadable_pod_group(raw, source, f"it cannot be read: {error}")
            _log.error("PodGroup cannot be read", group=group.key.display_name, problem=str(error))
            return group

    return decode


def hyper_node_decoder(bad_input: BadInput) -> Callable[[bytes | msgspec.Raw], HyperNode]:
    """Bytes of a HyperNode to a HyperNode; ``bad_input`` receives members that do not count."""
    decode_wire = msgspec.json.Decoder(WireHyperNode).decode

    def decode(raw: bytes | msgspec.Raw) -> HyperNode:
        hyper_node = to_hyper_node(decode_wire(raw))
        if hyper_node.problem:
            problem = f"{hyper_node.problem}: it does not count"
            bad_input.refuse(HYPER_NODE.kind, "spec.members", hyper_node.name, problem)
        return hyper_node

    return decode


def decoder(kind: ObjectKind, intern: Interner, bad_input: BadInput) -> Callable[[bytes | msgspec.Raw], Any]:
    """Bytes of an object of a kind that has a row (``flowcore.cluster.kinds``) to the object."""
    if kind in STORAGE:
        return storage_object_decoder(kind.kind, intern, bad_input)
    if kind in POD_GROUPS.values():
        return pod_group_decoder(GangSource(kind.group), intern)
    if kind is HYPER_NODE:
        return hyper_node_decoder(bad_input)
    wire, to_value = READ_BY[kind]
    decode = msgspec.json.Decoder(wire).decode
    return lambda raw: to_value(decode(raw), intern)
