"""Finds pods that make rounds fail, and keeps them out of the rounds of other pods.

- ``Quarantine`` selects the pods of each round.
- ``FaultSearch`` bisects the suspects of a namespace.
- ``Backoffs`` has what is at fault, ``NamespaceDebts`` what failed rounds cost.
- ``SmallRounds`` limits rounds after one that was too large.
"""

from thalweg_operator.planning.quarantine.quarantine import Quarantine, RoundSelection

__all__ = ["Quarantine", "RoundSelection"]
