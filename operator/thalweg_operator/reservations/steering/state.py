"""What is remembered of pods that kube-scheduler binds."""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from thalweg_operator.reservations.ledger.state import LedgerState
from thalweg_operator.reservations.steering.records.nomination_records import NominationRecords


class SteeringState(LedgerState):
    """The ledger with the records of nominations.

    Attributes:
        nominations: what is remembered of nominations beside their reservations.
        keeps_others_off: whether kube-scheduler asks about all pods, so that our answers keep others off promised room.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.nominations = NominationRecords(self.ledger.arrivals)
        self.keeps_others_off = True

    def forget_waiting(self, key: str) -> None:
        """The pod of this name waits no more, or another one has its name: what was remembered of it goes."""
        self.ledger.forget_waiting(key)
        self.nominations.unseen_wakes.pop(key, None)
        self.nominations.unasked.pop(key, None)
        self.nominations.under_way.drop(key)
