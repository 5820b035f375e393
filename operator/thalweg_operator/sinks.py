"""Where each reflector's objects go. A new kind joins with a class of a few lines here."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from flowcore.model.devices import DeviceClass
from flowcore.model.gang_terms import GangKey, PodGroup, Source
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.volumes import StorageObject, key_of
from flowcore.model.wire import (
    Interner,
    WireDeviceClass,
    WireNamespace,
    WireNode,
    WirePod,
    WirePodGroup,
    to_device_class,
    to_labels,
    to_node,
    to_pod,
    to_pod_group,
    to_unreadable_pod,
    to_unreadable_pod_group,
)
from thalweg_operator.bad_input import BadInput
from thalweg_operator.state import ClusterState

_log = structlog.get_logger()


class _ByName:
    """Objects whose key is their name. Where a version cannot be read, the one before it stays."""

    def named(self, _namespace: str, name: str) -> str:
        """See Sink."""
        return name

    def unreadable(self, key: str) -> None:
        """See Sink."""


class _ByNamespace(_ByName):
    """Objects whose key is namespace/name, or /name."""

    def named(self, namespace: str, name: str) -> str:
        """See Sink."""
        return f"{namespace}/{name}"


class Nodes(_ByName):
    """Nodes into the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def key(self, value: Node) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: Node) -> None:
        """See Sink."""
        self._state.upsert_node(value)

    def delete(self, key: str) -> None:
        """See Sink."""
        self._state.delete_node(key)

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._state.nodes)

    def unreadable(self, key: str) -> None:
        """See Sink: what it offers is not known, so nothing is planned there."""
        node = self._state.nodes.get(key, Node(key))
        self._state.upsert_node(msgspec.structs.replace(node, problem="the node object cannot be read"))


class Pods(_ByNamespace):
    """Pods into the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def key(self, value: Pod) -> str:
        """See Sink."""
        return value.key

    def upsert(self, value: Pod) -> None:
        """See Sink."""
        self._state.upsert_pod(value)

    def delete(self, key: str) -> None:
        """See Sink."""
        self._state.delete_pod(key)

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._state.pods)


class Namespaces(_ByName):
    """Namespaces' labels into the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def key(self, value: WireNamespace) -> str:
        """See Sink."""
        return value.metadata.name

    def upsert(self, value: WireNamespace) -> None:
        """See Sink."""
        self._state.set_namespace(value.metadata.name, to_labels(value.metadata.labels))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._state.set_namespace(key, None)

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._state.namespaces)

    def unreadable(self, key: str) -> None:
        """See Sink: its labels are not known, so no policy governs its pods."""
        self._state.set_namespace(key, None)


class StorageObjects(_ByNamespace):
    """Storage objects of one kind into the state."""

    def __init__(self, state: ClusterState, kind: str) -> None:
        self._state, self._kind = state, kind

    def key(self, value: StorageObject) -> str:
        """See Sink: namespace/name, or /name."""
        return "/".join(key_of(value)[1:])

    def upsert(self, value: StorageObject) -> None:
        """See Sink."""
        self._state.upsert_storage(value)

    def delete(self, key: str) -> None:
        """See Sink."""
        namespace, _, name = key.partition("/")
        self._state.delete_storage((self._kind, namespace, name))

    def keys(self) -> list[str]:
        """See Sink."""
        return [f"{namespace}/{name}" for kind, namespace, name in self._state.storage.objects if kind == self._kind]


class DeviceClasses(_ByName):
    """DeviceClasses into the state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def key(self, value: DeviceClass) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: DeviceClass) -> None:
        """See Sink."""
        self._state.set_device_class(value.name, value)

    def delete(self, key: str) -> None:
        """See Sink."""
        self._state.set_device_class(key, None)

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._state.device_classes)


class PodGroups(_ByNamespace):
    """PodGroups of one source into the state."""

    def __init__(self, state: ClusterState, source: Source) -> None:
        self._state, self._source = state, source

    def key(self, value: PodGroup) -> str:
        """See Sink: namespace/name."""
        return f"{value.key.namespace}/{value.key.name}"

    def upsert(self, value: PodGroup) -> None:
        """See Sink."""
        self._state.upsert_pod_group(value)

    def delete(self, key: str) -> None:
        """See Sink."""
        namespace, _, name = key.partition("/")
        self._state.delete_pod_group(GangKey(self._source, namespace, name))

    def keys(self) -> list[str]:
        """See Sink."""
        return [f"{key.namespace}/{key.name}" for key in self._state.gangs.groups if key.source is self._source]


def node_decoder(intern: Interner) -> Callable[[bytes], Node]:
    """Bytes of a node to a Node."""
    wire = msgspec.json.Decoder(WireNode)
    return lambda raw: to_node(wire.decode(raw), intern)


def pod_decoder(intern: Interner, bad_input: BadInput) -> Callable[[bytes], Pod]:
    """Bytes of a pod to a Pod; ``bad_input`` is told what is refused."""
    wire = msgspec.json.Decoder(WirePod)

    def decode(raw: bytes) -> Pod:
        try:
            pod = to_pod(wire.decode(raw), intern)
        except RecursionError:
            raise  # the reflector leaves out what is nested too deeply
        except Exception as error:  # noqa: BLE001 - a bound pod must count on its node, whatever is wrong with it
            pod = to_unreadable_pod(raw, str(error))
            _log.error("pod cannot be read", pod=pod.key, node=pod.node_name, problem=str(error))
            return pod
        if pod.bad_annotation:
            bad_input.refuse("pod", pod.bad_annotation, pod.key, pod.blocked)
        if pod.over_limit:
            bad_input.refuse("pod", pod.over_limit, pod.key, pod.unjudged)
        return pod

    return decode


def namespace_decoder() -> Callable[[bytes], WireNamespace]:
    """Bytes of a namespace to its wire struct."""
    return msgspec.json.Decoder(WireNamespace).decode


def device_class_decoder() -> Callable[[bytes], DeviceClass]:
    """Bytes of a DeviceClass to a DeviceClass."""
    wire = msgspec.json.Decoder(WireDeviceClass)
    return lambda raw: to_device_class(wire.decode(raw))


def pod_group_decoder(source: Source, intern: Interner) -> Callable[[bytes], PodGroup]:
    """Bytes of a PodGroup to a PodGroup."""
    wire = msgspec.json.Decoder(WirePodGroup)

    def decode(raw: bytes) -> PodGroup:
        try:
            return to_pod_group(wire.decode(raw), source, intern)
        except RecursionError:
            raise  # the reflector leaves out what is nested too deeply
        except Exception as error:  # noqa: BLE001 - its pods must not be placed as if they had no gang
            group = to_unreadable_pod_group(raw, source, f"it cannot be read: {error}")
            _log.error("PodGroup cannot be read", group=group.key.shown, problem=str(error))
            return group

    return decode
