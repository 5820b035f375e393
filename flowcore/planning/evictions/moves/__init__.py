"""Moves for waiting pods: others leave a node for places that are free."""

from flowcore.planning.evictions.moves.move_search import MoveSearch

__all__ = ["MoveSearch"]
