"""Where each reflector's objects go. A new kind joins with a class of a few lines here."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.wire import (
    Interner,
    WireNamespace,
    WireNode,
    WirePod,
    to_labels,
    to_node,
    to_pod,
    to_unreadable_pod,
)
from thalweg_operator.state import ClusterState

_log = structlog.get_logger()


class Nodes:
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


class Pods:
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


class Namespaces:
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


def node_decoder(intern: Interner) -> Callable[[bytes], Node]:
    """Bytes of a node to a Node."""
    wire = msgspec.json.Decoder(WireNode)
    return lambda raw: to_node(wire.decode(raw), intern)


def pod_decoder(intern: Interner) -> Callable[[bytes], Pod]:
    """Bytes of a pod to a Pod."""
    wire = msgspec.json.Decoder(WirePod)

    def decode(raw: bytes) -> Pod:
        try:
            return to_pod(wire.decode(raw), intern)
        except msgspec.ValidationError as error:
            pod = to_unreadable_pod(raw, str(error))
            _log.error("pod cannot be read", pod=pod.key, node=pod.node_name, problem=str(error))
            return pod

    return decode


def namespace_decoder() -> Callable[[bytes], WireNamespace]:
    """Bytes of a namespace to its wire struct."""
    return msgspec.json.Decoder(WireNamespace).decode
