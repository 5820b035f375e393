"""Pod classes: sets of pods that scheduling cannot tell apart, and the memory of what filters said of them.

A round reasons about classes and counts, not about single pods.
"""

from flowcore.rules.verdicts.groups import Group, group
from flowcore.rules.verdicts.verdict_cache import VerdictCache

__all__ = ["Group", "VerdictCache", "group"]
