"""What changed in the cluster: by one event, and since the last request to a worker."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.model.nodes import Node, Report
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels
from flowcore.model.volumes import StorageKey, StorageObject


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """Changes that the worker does not know yet.

    Attributes:
        usage: for nodes that are known.
        namespaces: their labels, None for those that are gone.
        pod_deltas: by how many pods of each signature on each node there are more, or fewer.
        reports: of nodes whose report changed; the nodes themselves come without.
        storage, removed_storage: storage objects that came or changed, and those that went.
    """

    nodes: list[Node]
    removed_nodes: list[str]
    usage: dict[str, NodeUsageSums]
    namespaces: dict[str, Labels | None]
    pod_deltas: dict[PodSignature, dict[str, int]]
    reports: dict[str, Report]
    storage: list[StorageObject]
    removed_storage: list[StorageKey]


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
        left, came: signature and node that it no longer counts with, and those that it counts with now.
        room_freed: whether it gave up room on a node.
        gang_changed: whether others of its gang may be placed now that could not, or the other way.
        waiting_changed: whether it began to wait, or waits with other needs.
        gate_opened: whether its scheduling gate opened while it waits.
        victim_changed: whether waiting pods name it as the pod whose place they take, and what it holds changed.
        affects_waiting: whether it counts anew for the rules between pods, while pods with such rules wait.
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
