"""Whether pods find a NUMA zone, beside all pods that are on their way to the same node.

A place that is held (for a replacement, or for a group that waits) is not counted: the pod that it is held for is
planned again, and asked about when it takes the place.
"""

from __future__ import annotations

from collections.abc import Iterator

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.numa_index import has_zone
from flowcore.model.numa import NumaNeeds
from flowcore.model.pods import Pod
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.reservations.transitions import Phase

_HELD = frozenset({Phase.HELD, Phase.AWAITING_REPLACEMENT})


def planned_needs(ledger: Ledger, node: str, besides: str = "") -> Iterator[NumaNeeds]:
    """What pods need that are on their way to a node, all but one."""
    for key in ledger.by_node.get(node, ()):
        reservation = ledger.reservations[key]
        needs = reservation.pod.pod_class.numa
        if needs is not None and key != besides and reservation.phase not in _HELD:
            yield needs


def finds_zone(cluster: Cluster, ledger: Ledger, pod: Pod, node: str) -> bool:
    """Whether a pod finds a zone on a node, as far as its zones are known."""
    needs, report = pod.pod_class.numa, cluster.numa.reports.get(node)
    if needs is None:
        return True
    if report is None:
        return not needs.everywhere
    return has_zone(report, cluster.numa.claims(node, planned_needs(ledger, node, pod.key)), needs)
