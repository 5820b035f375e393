"""Snapshots from a cluster as it stands, and from plain values; the arrays are those of ``ClusterTables``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.arrays.tables import ClusterTables
from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.model.gangs import Gang
from flowcore.model.persistent_usage import PersistentUsage
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.queues import QueueState
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPods
from flowcore.model.usage import MeasuredLoad


def to_snapshot(
    cluster: Cluster,
    *,
    now: float,
    pending: tuple[PendingPod, ...],
    generation: int = 0,
    gangs: Iterable[Gang] = (),
    persistent_usage: tuple[PersistentUsage, ...] | None = (),
    running: RunningPods | None = None,
    queues: QueueState | None = None,
    measured: Sequence[MeasuredLoad] = (),
) -> Snapshot:
    """A cluster as it stands, with these pods waiting; see Snapshot and ClusterChanges for the arguments.

    Costs as much as the cluster is large. Nodes are in the order in which they came. The snapshot shares the cluster's
    ``pod_index``, so it holds until the cluster changes.
    """
    tables = ClusterTables(NodeTable.of(cluster.nodes.values()), pod_index=cluster.occupancy.pod_index)
    usage = [sums.to_usage(node) for node, sums in cluster.occupancy.usage.items()]
    numa = [(report, cluster.numa.claims(name, now=now)) for name, report in cluster.numa.reports.items()]
    storage = cluster.storage.as_promised()
    changes = ClusterChanges(usage=usage, storage=storage, measured=list(measured), numa=numa)
    cluster.devices.add_all(changes)
    tables.apply(changes)
    return tables.to_snapshot(
        generation=generation,
        now=now,
        pending=pending,
        gangs=gangs,
        persistent_usage=persistent_usage,
        running=running,
        queues=queues,
    )


def build_snapshot(
    *,
    generation: int,
    now: float,
    table: NodeTable,
    running: Iterable[tuple[str, Amounts, tuple[HostPort, ...]]],
    pending: tuple[PendingPod, ...],
    storage: Storage | None = None,
    pod_index: PodIndex | None = None,
) -> Snapshot:
    """A snapshot from plain values.

    Args:
        running: node name, amounts and host ports of each pod that holds room; other nodes than those of ``table`` are
            passed over.
        pod_index: the same pods as rules between pods see them; None where no rule is asked.
    """
    sums: dict[str, NodeUsageSums] = {}
    for node, amounts, host_ports in running:
        if node in table.index:
            sums.setdefault(node, NodeUsageSums()).change(amounts, PodClass(host_ports=host_ports), 1)
    tables = ClusterTables(table, storage, pod_index)
    tables.apply(ClusterChanges(usage=[each.to_usage(node) for node, each in sums.items()]))
    return tables.to_snapshot(generation=generation, now=now, pending=pending)
