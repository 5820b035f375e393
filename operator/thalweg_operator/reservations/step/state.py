"""Everything that a step reads and changes."""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from thalweg_operator.reservations.ledger.reservation import NEVER
from thalweg_operator.reservations.steering.state import SteeringState
from thalweg_operator.reservations.step.plan_in_hand import PlanInHand
from thalweg_operator.reservations.victims.state import VictimsState


class State(VictimsState, SteeringState):
    """The state of all parts. Each part sees its own records and those of the ledger.

    Attributes:
        plan: that is being carried out.
        claims_seen: when claims were last looked at.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.plan: PlanInHand | None = None
        self.claims_seen = NEVER
