"""The state of a cluster as text: one JSON value a line, the first of which says what the text is.

It has what scheduling reads of each object, as the operator keeps it: no environment of containers, no Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.model.devices import DeviceClass
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import PodGroup
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaNode
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.queues import Queue
from flowcore.model.selectors import Labels
from flowcore.model.volumes import StorageObject

VERSION = 1


class UnreadableState(ModelError):
    """The text is not a saved state of this version; ``field`` is the number of the line."""


class _Line(msgspec.Struct, frozen=True, tag_field="saved"):
    """One line."""


class Header(_Line, frozen=True, tag="ClusterState"):
    """The first line.

    Attributes:
        written: seconds since the epoch.
    """

    version: int
    written: float


class _SavedNode(_Line, frozen=True, tag="Node"):
    node: Node


class _SavedPod(_Line, frozen=True, tag="Pod"):
    """A pod; ``planned_node``: where it is expected and not yet seen bound, "" for most."""

    pod: Pod
    planned_node: str = ""


class _SavedNamespace(_Line, frozen=True, tag="Namespace"):
    name: str
    labels: Labels


class _SavedStorage(_Line, frozen=True, tag="Storage"):
    storage: StorageObject


class _SavedDeviceClass(_Line, frozen=True, tag="DeviceClass"):
    device_class: DeviceClass


class _SavedPodGroup(_Line, frozen=True, tag="PodGroup"):
    pod_group: PodGroup


class _SavedDisruptionBudget(_Line, frozen=True, tag="PodDisruptionBudget"):
    disruption_budget: DisruptionBudget


class _SavedNumaNode(_Line, frozen=True, tag="NodeResourceTopology"):
    numa_node: NumaNode


class _SavedPolicy(_Line, frozen=True, tag="Policy"):
    policy: Policy


class _SavedQueue(_Line, frozen=True, tag="Queue"):
    queue: Queue


_Object = (
    _SavedNode
    | _SavedPod
    | _SavedNamespace
    | _SavedStorage
    | _SavedDeviceClass
    | _SavedDisruptionBudget
    | _SavedPodGroup
    | _SavedNumaNode
    | _SavedPolicy
    | _SavedQueue
)
_encoder = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)
_object = msgspec.json.Decoder(_Object)


def to_lines(cluster: Cluster, planned: Mapping[str, str], now: float) -> Iterator[bytes]:
    """The lines of a cluster's state, each with its line break.

    The objects are taken with the first line: the cluster may change while the others are asked for.

    Args:
        planned: node of each pod that is expected there and not yet seen bound, by key.
        now: seconds since the epoch.
    """
    objects: list[_Object] = [
        *(_SavedNode(each) for each in cluster.nodes.values()),
        *(_SavedNamespace(name, labels) for name, labels in cluster.namespaces.items()),
        *(_SavedStorage(each) for each in cluster.storage.objects.values()),
        *(_SavedDeviceClass(each) for each in cluster.device_classes.values()),
        *(_SavedDisruptionBudget(each) for each in cluster.disruption_budgets.values()),
        *(_SavedPodGroup(each) for each in cluster.gangs.groups.values()),
        *(_SavedNumaNode(each) for each in cluster.numa.reports.values()),
        *(_SavedPolicy(each) for each in cluster.policies.ordered if each != BUILT_IN),
        *(_SavedQueue(each) for each in cluster.queues.objects.values()),
        *(_SavedPod(each, planned.get(each.key, "")) for each in cluster.pods.values()),
    ]
    yield _encoder.encode(Header(VERSION, now)) + b"\n"
    for each in objects:
        yield _encoder.encode(each) + b"\n"


def is_saved_state(text: str) -> bool:
    """Whether a text begins as a saved state does."""
    return text.startswith('{"saved":"ClusterState"')


def put_lines(lines: Iterable[str], cluster: Cluster) -> list[Policy]:
    """Puts a saved state into a cluster; a pod that was expected on a node counts as running there.

    Returns:
        the policies in force.

    Raises:
        UnreadableState: a line cannot be read, or another version wrote it.
    """
    policies: list[Policy] = []
    for number, line in enumerate(lines, start=1):
        try:
            if number == 1:
                version = _header.decode(line).version
                if version != VERSION:
                    raise UnreadableState(
                        "line 1", f"version {version} of the format; this Thalweg reads version {VERSION}"
                    )
                continue
            _put(_object.decode(line), cluster, policies)
        except msgspec.DecodeError as error:
            raise UnreadableState(f"line {number}", str(error)) from error
    return policies


def _put(line: _Object, cluster: Cluster, policies: list[Policy]) -> None:
    match line:
        case _SavedNode():
            cluster.put_node(line.node)
        case _SavedPod(pod, planned_node):
            cluster.put_pod(msgspec.structs.replace(pod, node_name=planned_node) if planned_node else pod)
        case _SavedNamespace():
            cluster.set_namespace(line.name, line.labels)
        case _SavedStorage():
            cluster.put_storage(line.storage)
        case _SavedDeviceClass(device_class):
            cluster.set_device_class(device_class.name, device_class)
        case _SavedDisruptionBudget(budget):
            cluster.set_disruption_budget(budget.key, budget)
        case _SavedPodGroup():
            cluster.put_pod_group(line.pod_group)
        case _SavedNumaNode(report):
            cluster.numa.set_report(report.name, report)
        case _SavedQueue(queue):
            cluster.queues.put(queue.name, queue)
        case _SavedPolicy():
            policies.append(line.policy)
