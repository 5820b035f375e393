"""Who leaves for many urgent pods: patterns of nodes, chosen together by a linear program."""

from flowcore.planning.evictions.patterns.pattern_search import PatternSearch

__all__ = ["PatternSearch"]
