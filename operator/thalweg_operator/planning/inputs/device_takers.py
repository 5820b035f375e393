"""Tells the worker which pods are on their way and take devices: their claims may not say so yet.

Of pods that we bind it is decided which ones; what kube-scheduler will choose for others, the worker guesses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flowcore.cluster.cluster import Cluster
from flowcore.model.resource_claims import DeviceTaker
from flowcore.rules.devices.node_reach import device_taker
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.transitions import Phase


class DeviceTakers:
    """Pods with reservations that claim devices, as the worker knows them."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._ledger = cluster, ledger
        self._sent: list[DeviceTaker] = []

    def update(self, planned: Collection[str], *, fresh: bool) -> list[DeviceTaker] | None:
        """All of them, or None if they are the same as at the last call.

        Args:
            planned: keys of the pods that the round plans. If a place is held for another pod, nobody else gets the
                devices for which others left.
            fresh: whether the worker has no state.
        """
        takers = list(self._takers(planned))
        if takers == self._sent and not fresh:
            return None
        self._sent = takers
        return takers

    def _takers(self, planned: Collection[str]) -> Iterator[DeviceTaker]:
        for key, reservation in self._ledger.reservations.items():
            pod, node = reservation.pod.pod_class.devices, self._cluster.nodes.get(reservation.node)
            is_planned = reservation.phase is Phase.HELD and key in planned
            if pod is not None and node is not None and not is_planned:
                yield device_taker(pod, node, reservation.device_claims)
