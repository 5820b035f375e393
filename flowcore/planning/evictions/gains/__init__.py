"""Moves for gain: running pods leave for nodes that cost less, by more than the price of the move.

A pod's gain is what its node costs now less what the other node costs then: the costs are those of a waiting pod of its
policy, in the cluster without it. So the way back would gain as much less than nothing.
"""

from flowcore.planning.evictions.gains.gain_moves import GainMoves
from flowcore.planning.evictions.gains.move_prices import prices_of_leaving
from flowcore.planning.evictions.gains.replacement_costs import ReplacementCosts

__all__ = ["GainMoves", "ReplacementCosts", "prices_of_leaving"]
