"""The cheapest changes that would place a waiting pod, each of them planned before it is offered."""

from flowcore.questions.diagnosis.fixes.search import DEFAULT_LIMIT, find_fixes

__all__ = ["DEFAULT_LIMIT", "find_fixes"]
