"""What it costs to move a pod's data to its node (Quincy, SOSP 2009, section 4.2).

::

    cost = sum over its data of GiB * (node, if the data is on another node
                                       + rack, if it is in another rack
                                       + zone, if it is in another zone)
         + image * GiB of its images that the node does not hold

Of data with several replicas each node reads the one that is cheapest for it. A node in another zone is in another
rack too. Nodes without the label of racks (zones) count as one rack (zone) more. Data in a rack or a zone is on some
unknown node of that: every reader crosses the borders below. A place that does not exist any more is
behind all borders.

All follows from the nodes as they are: where Quincy keeps the price of a rack's worst machine, and leaves it as it is
when that machine goes, here each node has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from flowcore.cluster.arrays.node_reports import Reports
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, PendingPod, Snapshot
from flowcore.costs.model import Float64s
from flowcore.costs.preferences import without_idle_images
from flowcore.model.cost_policy import DataLocality
from flowcore.model.data import DataSource, Level
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.volumes import ZONE, ClaimVolume

_GIB = 2.0**30
#: No data costs more to move: costs stay far from overflow whatever a pod says.
_MOST = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class _Borders:
    """Where nodes are.

    Attributes:
        zones: int64[N], the zone of each node, 0 for those without; ``zone_of_value``: by the label's value.
        racks: int64[N], the rack in its zone; ``racks_of_value``: all racks with a value of the label.
        zone_of_rack: int64[racks].
    """

    zones: Int64s
    racks: Int64s
    zone_of_value: Mapping[str, int]
    racks_of_value: Mapping[str, Sequence[int]]
    zone_of_rack: Int64s

    @classmethod
    def of(cls, table: NodeTable, terms: DataLocality) -> _Borders:
        """The borders that the labels of a policy say."""
        rack_labels, zone_labels = table.column(terms.rack_label), table.column(ZONE)
        zones, racks = zone_labels.codes.astype(np.int64) + 1, rack_labels.codes.astype(np.int64) + 1
        pairs, rack_of_node = np.unique(np.stack([zones, racks]), axis=1, return_inverse=True)
        racks_of_value: dict[str, list[int]] = {}
        for rack, code in enumerate(pairs[1].tolist()):
            if code:
                racks_of_value.setdefault(rack_labels.values[code - 1], []).append(rack)
        present = set(zones.tolist())
        zone_of_value = {value: code + 1 for code, value in enumerate(zone_labels.values) if code + 1 in present}
        return cls(zones, rack_of_node.reshape(-1), zone_of_value, racks_of_value, pairs[0])


class DataPrices:
    """What moving data costs in one snapshot.

    A border that a source is inside of is not paid. So the sources are added up by node, rack and zone, and all nodes
    are priced at once: the work grows with the places that a pod names and with the nodes, not with their product.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """``snapshot``: nodes, claims and images."""
        self.snapshot = snapshot
        #: By the label of racks.
        self._borders: dict[str, _Borders] = {}

    def costs(self, pod_class: PodClass, terms: DataLocality) -> Int64s:
        """int64[N], 0..10**9: what moving the data of a pod to each node costs."""
        table, total = self.snapshot.table, np.zeros(len(self.snapshot.table.nodes))
        sources = data_of(pod_class, self.snapshot)
        if sources:
            total += self._of_sources(sources, terms)
        if terms.image:
            total += terms.image * bytes_of_images_to_pull(pod_class, self.snapshot.reports, table) / _GIB
        return np.rint(np.minimum(total, _MOST)).astype(np.int64)

    def _of_sources(self, sources: Sequence[DataSource], terms: DataLocality) -> Float64s:
        index, borders = self.snapshot.table.index, self._borders_of(terms)
        in_node, in_rack = np.zeros(len(index)), np.zeros(len(borders.zone_of_rack))
        in_zone, whole = np.zeros(int(borders.zones.max(initial=0)) + 1), 0.0
        for source in sources:
            nodes = {index[place.name] for place in source.places if place.level is Level.NODE and place.name in index}
            racks = {int(borders.racks[node]) for node in nodes}
            zones = set[int]()
            for place in source.places:
                if place.level is Level.RACK:
                    racks.update(borders.racks_of_value.get(place.name, ()))
                elif place.level is Level.ZONE and place.name in borders.zone_of_value:
                    zones.add(borders.zone_of_value[place.name])
            zones.update(int(borders.zone_of_rack[rack]) for rack in racks)
            gib = source.size / _GIB
            whole += gib
            in_node[list(nodes)] += gib
            in_rack[list(racks)] += gib
            in_zone[list(zones)] += gib
        costs: Float64s = terms.node * (whole - in_node)
        costs += terms.rack * (whole - in_rack[borders.racks]) + terms.zone * (whole - in_zone[borders.zones])
        return np.maximum(costs, 0.0)

    def _borders_of(self, terms: DataLocality) -> _Borders:
        if terms.rack_label not in self._borders:
            self._borders[terms.rack_label] = _Borders.of(self.snapshot.table, terms)
        return self._borders[terms.rack_label]


def data_of(pod_class: PodClass, snapshot: Snapshot) -> tuple[DataSource, ...]:
    """What a pod reads: what it says itself, and what its claims say, or the volumes that those are bound to."""
    sources = [*pod_class.data]
    for volume_source in pod_class.volumes:
        claim = snapshot.storage.claims.get(volume_source.key) if isinstance(volume_source, ClaimVolume) else None
        if claim is not None:
            volume = snapshot.storage.volumes.get(claim.volume_name)
            sources += claim.data or (() if volume is None else volume.data)
    return tuple(sources)


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
    return {pod_class: same for pod_class, kept in read.items() if (same := idle.get(kept, kept)) is not pod_class}


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
