"""Moves for waiting pods: others leave a node for places that are free, or that are left for them."""

from flowcore.planning.evictions.moves.move_search import ANY_PLACES, CHAINS, FREE_PLACES, MoveSearch

__all__ = ["ANY_PLACES", "CHAINS", "FREE_PLACES", "MoveSearch"]
