"""Who is planned in a round, where not all that waits is.

Pods that nothing helped rest. Of the others, namespaces take turns.
"""

from __future__ import annotations

from thalweg_operator.planning.turns.namespaces import BOUND, CALM_BOUND, NamespaceTurns, TurnSelection, waits_for_turn
from thalweg_operator.planning.turns.resting import UnhelpedPods

__all__ = [
    "BOUND",
    "CALM_BOUND",
    "NamespaceTurns",
    "TurnSelection",
    "UnhelpedPods",
    "waits_for_turn",
]
