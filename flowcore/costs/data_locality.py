"""What it costs to move a pod's data to its node (Quincy, SOSP 2009, section 4.2).

::

    cost = sum over its data of GiB * (node, if the data is on another node
                                       + rack, if it is in another rack
                                       + zone, if it is in another zone)
         + image * GiB of its images that the node does not hold

Of data with several replicas each node reads the one that is cheapest for it. Whoever is in another zone is in another
rack too. Nodes without the label of racks (zones) count as one rack (zone) more. Data in a rack or a zone is on some
node of that which nobody knows: whoever reads it crosses the borders below. A place that does not exist any more is
behind all borders.

All follows from the nodes as they are: where Quincy keeps the price of a rack's worst machine, and leaves it as it is
when that machine goes, here each node has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from flowcore.cluster.node_reports import Reports
from flowcore.cluster.snapshot import Bools, Int64s, LabelColumn, NodeTable, PendingPod, Snapshot
from flowcore.costs.model import Float64s
from flowcore.costs.preferences import without_idle_images
from flowcore.model.cost_policy import DataLocality
from flowcore.model.data import DataSource, Level, Place
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.volumes import ClaimVolume

_GIB = 2.0**30
#: No data costs more to move: costs stay far from overflow whatever somebody writes.
_MOST = 10**9


def data_costs(pod_class: PodClass, snapshot: Snapshot, terms: DataLocality) -> Int64s:
    """int64[N], 0..10**9: what moving the data of a pod to each node costs."""
    table = snapshot.table
    total = np.zeros(len(table.nodes))
    for source in data_of(pod_class, snapshot):
        total += source.size / _GIB * _price_per_gib(source, table, terms)
    if terms.image:
        total += terms.image * bytes_of_images_to_pull(pod_class, snapshot.reports, table) / _GIB
    return np.rint(np.minimum(total, _MOST)).astype(np.int64)


def data_of(pod_class: PodClass, snapshot: Snapshot) -> tuple[DataSource, ...]:
    """What a pod reads: what it says itself, and what its claims say, or the volumes that those are bound to."""
    found = [*pod_class.data]
    for each in pod_class.volumes:
        claim = snapshot.storage.claims.get(each.key) if isinstance(each, ClaimVolume) else None
        if claim is not None:
            volume = snapshot.storage.volumes.get(claim.volume_name)
            found += claim.data or (() if volume is None else volume.data)
    return tuple(found)


def priced_classes(
    pending: Sequence[PendingPod], policies: Mapping[str, Policy], snapshot: Snapshot
) -> Mapping[PodClass, PodClass]:
    """Classes with parts that no cost reads -> the same without: such pods are alike, whatever these parts are."""
    with_data: set[PodClass] = set()
    with_images: set[PodClass] = set()
    for pod_class, policy in {(pod.pod_class, pod.policy) for pod in pending}:
        terms = policies[policy].cost.data_locality
        if terms is not None:
            with_data.add(pod_class)
            with_images |= {pod_class} if terms.image else set()
    read = {
        pod.pod_class: msgspec.structs.replace(pod.pod_class, data=())
        if pod.pod_class.data and pod.pod_class not in with_data
        else pod.pod_class
        for pod in pending
    }
    idle = without_idle_images(set(read.values()) - with_images, snapshot)
    return {pod_class: found for pod_class, each in read.items() if (found := idle.get(each, each)) is not pod_class}


def bytes_of_images_to_pull(pod_class: PodClass, reports: Reports, table: NodeTable) -> Float64s:
    """float64[N]: bytes of its images that each node does not hold; images that no node holds have no known size."""
    total = np.zeros(len(table.nodes))
    for name in dict.fromkeys(pod_class.images):
        nodes, sizes = reports.holders(name, table.index)
        if len(nodes):
            missing = np.full(len(total), float(sizes.max()))
            missing[nodes] = 0.0
            total += missing
    return total


def _price_per_gib(source: DataSource, table: NodeTable, terms: DataLocality) -> Float64s:
    """float64[N]: for the replica that is cheapest to reach from each node."""
    racks, zones = table.column(terms.rack_label), table.column(terms.zone_label)
    prices = np.full(len(table.nodes), float(terms.node + terms.rack + terms.zone))
    for place in source.places:
        np.minimum(prices, _price_from(place, table, racks, zones, terms), out=prices)
    return prices


def _price_from(
    place: Place, table: NodeTable, racks: LabelColumn, zones: LabelColumn, terms: DataLocality
) -> Float64s:
    """float64[N]: from one place."""
    nowhere: Bools = np.zeros(len(table.nodes), dtype=np.bool_)
    same_node = same_rack = same_zone = nowhere
    match place.level:
        case Level.NODE:
            at = table.index.get(place.name)
            if at is None:
                return np.full(len(nowhere), float(terms.node + terms.rack + terms.zone))
            same_node = np.arange(len(nowhere)) == at
            same_zone = zones.codes == zones.codes[at]
            same_rack = same_zone & (racks.codes == racks.codes[at])
        case Level.RACK:
            same_rack = _labelled(racks, place.name)
            same_zone = np.isin(zones.codes, zones.codes[same_rack])
        case Level.ZONE:
            same_zone = _labelled(zones, place.name)
    found: Float64s = terms.node * (1.0 - same_node) + terms.rack * (1.0 - same_rack) + terms.zone * (1.0 - same_zone)
    return found


def _labelled(column: LabelColumn, value: str) -> Bools:
    if value not in column.values:
        return np.zeros(len(column.codes), dtype=np.bool_)
    found: Bools = column.codes == column.values.index(value)
    return found
