"""Cached verdicts of the filters, for each class of pods: pods that scheduling cannot tell apart.

A round reasons about classes and counts, not about single pods.
"""

from flowcore.rules.verdicts.groups import Group, group
from flowcore.rules.verdicts.verdict_cache import VerdictCache

__all__ = ["Group", "VerdictCache", "group"]
