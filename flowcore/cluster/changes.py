"""What changed in the cluster: by one event, and since the last request to a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from flowcore.model.devices import DeviceClass
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node, Report
from flowcore.model.numa import NumaClaims, NumaNode
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.resource_claims import DeviceTaker, ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.model.selectors import Labels
from flowcore.model.services import Service
from flowcore.model.usage import MeasuredLoad
from flowcore.model.volumes import StorageKey, StorageObject


class NodeReport(msgspec.Struct, array_like=True):
    """A node's report (model/nodes.py Report); images as positions in ``ClusterChanges.images``."""

    node: str
    images: tuple[int, ...]
    bandwidth: int | None
    keeps_pods: str = ""


class ClusterChanges(msgspec.Struct):
    """What changed since the last request: the cluster makes it, a request carries it, arrays take it over.

    Attributes:
        nodes: nodes that are new or changed, without their reports. ``removed_nodes``: names of nodes that are gone.
        usage: the whole usage of each node whose usage changed, and of each new node.
        namespaces: labels of changed namespaces; None: the namespace is gone.
        pod_deltas: a signature, and for each node how many more (or fewer) pods of it hold room there. Empty in a
            request, which has the differences beside (planning/worker/messages.py).
        images: names and bytes of the images in ``reports``; most nodes hold the same few.
        reports: of nodes whose report changed.
        storage, removed_storage: storage objects that are new or changed, and keys of storage objects that are gone.
        services, removed_services: Services that are new or select other pods, and keys of Services that are gone.
        measured: the measured use of each node where it has changed, and of each new node.
        slices, device_classes, claims: objects about devices that are new or changed. ``removed_...``: names of objects
            that are gone, and of claims namespaces and names.
        takers: pods that are to get devices and whose claims may not say so yet; None: the same pods as before.
        numa, removed_numa: reports on NUMA zones that are new or changed, with what pods take that they may not show;
            and the nodes whose reports are gone.
    """

    nodes: list[Node] = []
    removed_nodes: list[str] = []
    usage: list[NodeUsage] = []
    namespaces: dict[str, Labels | None] = {}
    pod_deltas: list[tuple[PodSignature, dict[str, int]]] = []
    images: list[tuple[str, int]] = []
    reports: list[NodeReport] = []
    storage: list[StorageObject] = []
    removed_storage: list[StorageKey] = []
    services: list[Service] = []
    removed_services: list[str] = []
    measured: list[MeasuredLoad] = []
    numa: list[tuple[NumaNode, NumaClaims]] = []
    removed_numa: list[str] = []
    slices: list[ResourceSlice] = []
    removed_slices: list[str] = []
    device_classes: list[DeviceClass] = []
    removed_device_classes: list[str] = []
    claims: list[ResourceClaim] = []
    removed_claims: list[tuple[str, str]] = []
    takers: list[DeviceTaker] | None = None

    def put_reports(self, reports: Iterable[tuple[str, Report]]) -> Iterator[None]:
        """Sets the reports of these nodes, one with each step."""
        positions: dict[tuple[str, int], int] = {}
        for node, report in reports:
            images = tuple(positions.setdefault(image, len(positions)) for image in report.images)
            self.reports.append(NodeReport(node, images, report.bandwidth, report.keeps_pods))
            yield
        self.images = list(positions)

    def node_reports(self) -> Iterator[tuple[str, Report]]:
        """Node name and report of each node whose report changed."""
        images = self.images
        for report in self.reports:
            yield (
                report.node,
                Report(tuple(images[place] for place in report.images), report.bandwidth, report.keeps_pods),
            )


@dataclass(frozen=True, slots=True)
class TakenChanges:
    """Changes that were taken from the cluster. The sums of nodes and their reports are added in steps.

    Attributes:
        changes: complete after the last step.
        usage, reports: one for each node, made when its step comes: then they are the newest.
    """

    changes: ClusterChanges
    usage: Iterator[NodeUsage]
    reports: Iterator[tuple[str, Report]]

    def steps(self) -> Iterator[None]:
        """Completes the changes, a node with each step, so that an event loop can turn between two of them."""
        for usage in self.usage:
            self.changes.usage.append(usage)
            yield
        yield from self.changes.put_reports(self.reports)

    def complete(self) -> ClusterChanges:
        """The changes, after all steps at once."""
        for _ in self.steps():
            pass
        return self.changes


class NodeChange(msgspec.Struct, frozen=True, gc=False):
    """A node came, changed or went in a way that scheduling can see.

    Attributes:
        before: the node until then; None: it is new.
    """

    name: str
    before: Node | None


class PodChange(msgspec.Struct, frozen=True, gc=False):
    """What one event changed about a pod.

    Attributes:
        old, new: the pod before and after; None: it was not there, or is gone.
        left, came: the signature and node with which the pod counted before, and those with which it counts now.
        room_freed: whether it gave up room on a node.
        gang_changed: whether others of its gang may be placed now that could not, or the other way.
        waiting_changed: whether it began to wait, or waits with other needs.
        gate_opened: whether its scheduling gate opened while it waits.
        victim_changed: whether waiting pods name it as the pod whose place they take, and what it holds changed.
        affects_waiting: whether it counts anew for the rules between pods, while governed pods with such rules wait.
        node_labels_matter: whether such a rule may be met by a label that a pod gets from its node.
    """

    old: Pod | None
    new: Pod | None
    left: tuple[PodSignature, str] | None = None
    came: tuple[PodSignature, str] | None = None
    room_freed: bool = False
    gang_changed: bool = False
    waiting_changed: bool = False
    gate_opened: bool = False
    victim_changed: bool = False
    affects_waiting: bool = False
    node_labels_matter: bool = False
