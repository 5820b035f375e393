"""Sinks and decoders of the watched kinds: a sink passes each object to ``Shell.apply`` as an event."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from flowcore.api import (
    Interner,
    NodeReader,
    PodReader,
    WireDeviceClass,
    WireDisruptionBudget,
    WireNamespace,
    WireNodeTopology,
    WirePodGroup,
    WireQueue,
    storage_decoder,
    to_device_class,
    to_disruption_budget,
    to_labels,
    to_numa_node,
    to_pod_group,
    to_queue,
    to_unreadable_pod,
    to_unreadable_pod_group,
)
from flowcore.model.data import DATA
from flowcore.model.devices import DeviceClass
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangSource, PodGroup
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaNode
from flowcore.model.pods import Pod
from flowcore.model.queues import Queue
from flowcore.model.selectors import LabelSelector
from flowcore.model.volumes import StorageObject, data_problem, key_of
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.reservations.events import (
    DeviceClassSet,
    DisruptionBudgetSet,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    NumaNodeSet,
    PodGroupPut,
    PodGroupRemoved,
    PodPut,
    PodRemoved,
    QueueSet,
    StoragePut,
    StorageRemoved,
)
from thalweg_operator.shell import Shell

_log = structlog.get_logger()


class _NameKeyed:
    """Objects whose key is their name. An unreadable version leaves the previous one in place."""

    def key_of(self, _namespace: str, name: str) -> str:
        """See Sink."""
        return name

    def unreadable(self, key: str) -> None:
        """See Sink."""


class _NamespaceKeyed(_NameKeyed):
    """Objects whose key is namespace/name, or /name."""

    def key_of(self, namespace: str, name: str) -> str:
        """See Sink."""
        return f"{namespace}/{name}"


class NodeSink(_NameKeyed):
    """Nodes into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: Node) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: Node) -> None:
        """See Sink."""
        self._shell.apply(NodePut(value))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(NodeRemoved(key))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.nodes)

    def unreadable(self, key: str) -> None:
        """See Sink: the node's capacity is unknown, so nothing is planned there."""
        node = self._shell.cluster.nodes.get(key, Node(key))
        self._shell.apply(NodePut(msgspec.structs.replace(node, problem="the node object cannot be read")))


class PodSink(_NamespaceKeyed):
    """Pods into the cluster."""

    def __init__(self, shell: Shell, bad_input: BadInput) -> None:
        self._shell, self._bad_input = shell, bad_input

    def key(self, value: Pod) -> str:
        """See Sink."""
        return value.key

    def upsert(self, value: Pod) -> None:
        """See Sink."""
        self._shell.apply(PodPut(value))
        index = self._shell.cluster.occupancy.pod_index
        if value.node_name and (problem := index.terms_problem(value.signature)):
            self._bad_input.refuse("pod", "spec.affinity", value.key, problem)

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(PodRemoved(key))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.pods)


class NamespaceSink(_NameKeyed):
    """Namespaces' labels into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: WireNamespace) -> str:
        """See Sink."""
        return value.metadata.name

    def upsert(self, value: WireNamespace) -> None:
        """See Sink."""
        self._shell.apply(NamespaceSet(value.metadata.name, to_labels(value.metadata.labels)))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(NamespaceSet(key, None))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.namespaces)

    def unreadable(self, key: str) -> None:
        """See Sink: its labels are not known, so no policy governs its pods."""
        self._shell.apply(NamespaceSet(key, None))


class StorageSink(_NamespaceKeyed):
    """Storage objects of one kind into the cluster."""

    def __init__(self, shell: Shell, kind: str) -> None:
        self._shell, self._kind = shell, kind

    def key(self, value: StorageObject) -> str:
        """See Sink: namespace/name, or /name."""
        return "/".join(key_of(value)[1:])

    def upsert(self, value: StorageObject) -> None:
        """See Sink."""
        self._shell.apply(StoragePut(value))

    def delete(self, key: str) -> None:
        """See Sink."""
        namespace, _, name = key.partition("/")
        self._shell.apply(StorageRemoved((self._kind, namespace, name)))

    def keys(self) -> list[str]:
        """See Sink."""
        return [
            f"{namespace}/{name}" for kind, namespace, name in self._shell.cluster.storage.objects if kind == self._kind
        ]


class DeviceClassSink(_NameKeyed):
    """DeviceClasses into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: DeviceClass) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: DeviceClass) -> None:
        """See Sink."""
        self._shell.apply(DeviceClassSet(value.name, value))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(DeviceClassSet(key, None))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.device_classes)


class QueueSink(_NameKeyed):
    """FlowQueues into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: Queue) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: Queue) -> None:
        """See Sink."""
        self._shell.apply(QueueSet(value.name, value))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(QueueSet(key, None))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.queues.objects)

    def unreadable(self, key: str) -> None:
        """See Sink: a version that cannot be read selects no pods."""
        before = self._shell.cluster.queues.objects.get(key, Queue(key))
        self._shell.apply(QueueSet(key, Queue(key, before.uid, problem="the object cannot be read")))


class DisruptionBudgetSink(_NamespaceKeyed):
    """PodDisruptionBudgets into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: DisruptionBudget) -> str:
        """See Sink."""
        return value.key

    def upsert(self, value: DisruptionBudget) -> None:
        """See Sink."""
        self._shell.apply(DisruptionBudgetSet(value.key, value))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(DisruptionBudgetSet(key, None))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.budgets.objects)

    def unreadable(self, key: str) -> None:
        """See Sink: which pods it protects is unknown, so nobody of its namespace is evicted."""
        namespace, _, name = key.partition("/")
        self._shell.apply(DisruptionBudgetSet(key, DisruptionBudget(namespace, name, LabelSelector())))


class NumaNodeSink(_NameKeyed):
    """Reports on NUMA zones into the cluster."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def key(self, value: NumaNode) -> str:
        """See Sink."""
        return value.name

    def upsert(self, value: NumaNode) -> None:
        """See Sink."""
        self._shell.apply(NumaNodeSet(value.name, value))

    def delete(self, key: str) -> None:
        """See Sink."""
        self._shell.apply(NumaNodeSet(key, None))

    def keys(self) -> list[str]:
        """See Sink."""
        return list(self._shell.cluster.numa.reports)


class PodGroupSink(_NamespaceKeyed):
    """PodGroups of one source into the cluster."""

    def __init__(self, shell: Shell, source: GangSource) -> None:
        self._shell, self._source = shell, source

    def key(self, value: PodGroup) -> str:
        """See Sink: namespace/name."""
        return f"{value.key.namespace}/{value.key.name}"

    def upsert(self, value: PodGroup) -> None:
        """See Sink."""
        self._shell.apply(PodGroupPut(value))

    def delete(self, key: str) -> None:
        """See Sink."""
        namespace, _, name = key.partition("/")
        self._shell.apply(PodGroupRemoved(GangKey(self._source, namespace, name)))

    def keys(self) -> list[str]:
        """See Sink."""
        return [f"{key.namespace}/{key.name}" for key in self._shell.cluster.gangs.groups if key.source is self._source]


def node_decoder(intern: Interner) -> Callable[[bytes | msgspec.Raw], Node]:
    """Bytes of a node to a Node."""
    return NodeReader(intern)


def pod_decoder(intern: Interner, bad_input: BadInput) -> Callable[[bytes | msgspec.Raw], Pod]:
    """Bytes of a pod to a Pod; ``bad_input`` receives refused fields."""
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
        found = to_object(raw)
        if found is not None and (problem := data_problem(found)):
            bad_input.refuse(kind, f"annotation {DATA}", "/".join(key_of(found)[1:]), f"{problem}; it is ignored")
        return found

    return decode


def namespace_decoder() -> Callable[[bytes | msgspec.Raw], WireNamespace]:
    """Bytes of a namespace to its wire struct."""
    return msgspec.json.Decoder(WireNamespace).decode


def device_class_decoder() -> Callable[[bytes | msgspec.Raw], DeviceClass]:
    """Bytes of a DeviceClass to a DeviceClass."""
    wire = msgspec.json.Decoder(WireDeviceClass)
    return lambda raw: to_device_class(wire.decode(raw))


def numa_node_decoder(intern: Interner) -> Callable[[bytes | msgspec.Raw], NumaNode]:
    """Bytes of a NodeResourceTopology to a NumaNode."""
    wire = msgspec.json.Decoder(WireNodeTopology)
    return lambda raw: to_numa_node(wire.decode(raw), intern)


def queue_decoder() -> Callable[[bytes | msgspec.Raw], Queue]:
    """Bytes of a FlowQueue to a Queue."""
    wire = msgspec.json.Decoder(WireQueue)
    return lambda raw: to_queue(wire.decode(raw))


def disruption_budget_decoder() -> Callable[[bytes | msgspec.Raw], DisruptionBudget]:
    """Bytes of a PodDisruptionBudget to a DisruptionBudget."""
    wire = msgspec.json.Decoder(WireDisruptionBudget)
    return lambda raw: to_disruption_budget(wire.decode(raw))


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
