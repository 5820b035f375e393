"""A snapshot with other running pods: what filters would say once some have left, or one has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod
from flowcore.model.volumes import Volumes


class Leaver(NamedTuple):
    """What a node no longer holds once a pod has left."""

    node: str
    usage: Amounts
    host_ports: tuple[HostPort, ...]
    volumes: Volumes
    signature: PodSignature

    @classmethod
    def of(cls, pod: RunningPod) -> Leaver:
        """Of a running pod as a round reads it."""
        return cls(pod.node, pod.usage, pod.pod_class.host_ports, pod.pod_class.volumes, pod.signature)

    @classmethod
    def of_bound(cls, pod: Pod, signature: PodSignature) -> Leaver:
        """Of a pod with a node.

        Args:
            signature: that it counts with.
        """
        return cls(pod.node_name, pod.usage, pod.pod_class.host_ports, pod.pod_class.volumes, signature)


def without_pods(snapshot: Snapshot, leavers: Iterable[Leaver]) -> Snapshot:
    """A snapshot without some running pods, as far as their room, ports, rules and volumes go."""
    used, ports = snapshot.used.copy(), dict(snapshot.ports)
    mounted: dict[str, Volumes] = {}
    gone = []
    for leaver in leavers:
        row = snapshot.table.index.get(leaver.node)
        if row is None:
            continue
        used[row] -= snapshot.vector(leaver.usage)
        ports[row] = ports.get(row, frozenset()) - set(leaver.host_ports)
        gone.append((leaver.node, leaver.signature))
        if leaver.volumes:
            left = list(mounted.get(leaver.node, snapshot.storage.mounted.get(leaver.node, ())))
            for volume in leaver.volumes:
                if volume in left:
                    left.remove(volume)
            mounted[leaver.node] = tuple(left)
    index = snapshot.pod_index.with_changes((), gone)
    storage = snapshot.storage.with_mounted(mounted)
    return replace(snapshot, used=used, ports=ports, pod_index=index, storage=storage)


def with_pod(snapshot: Snapshot, pod_class: PodClass, signature: PodSignature, row: int) -> Snapshot:
    """A snapshot with one more pod on the node of a row, as far as its room, ports, rules and volumes go."""
    used, ports, node = snapshot.used.copy(), dict(snapshot.ports), snapshot.table.nodes[row].name
    used[row] += snapshot.vector(pod_class.requests)
    if pod_class.host_ports:
        ports[row] = ports.get(row, frozenset()) | set(pod_class.host_ports)
    index = snapshot.pod_index.with_changes(((node, signature),))
    storage = snapshot.storage
    if pod_class.volumes:
        storage = storage.with_mounted({node: (*storage.mounted.get(node, ()), *pod_class.volumes)})
    return replace(snapshot, used=used, ports=ports, pod_index=index, storage=storage)
