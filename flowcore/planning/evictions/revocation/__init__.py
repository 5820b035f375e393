"""Placements of the same round that give their room to pods of a higher priority, beside running pods that leave."""

from flowcore.planning.evictions.revocation.dependents import Dependents
from flowcore.planning.evictions.revocation.revocable import revocable

__all__ = ["Dependents", "revocable"]
