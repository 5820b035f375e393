"""Lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.questions.scenario.context import AnswerContext

_MOST = 3


def listed(names: Sequence[str]) -> str:
    """The first of these, and how many more."""
    shown = list(names[:_MOST])
    more = len(names) - len(shown)
    if more:
        shown.append("1 other" if more == 1 else f"{more} others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def listed_pods(keys: Sequence[str], context: AnswerContext) -> str:
    """The same for pods; those that the asker may not see are counted."""
    seen = context.visible(keys)
    hidden = len(keys) - len(seen)
    if not hidden:
        return listed(seen)
    others = context.name(next(key for key in keys if not context.may_name(key)))
    if hidden > 1:
        others = f"{hidden} pods of other namespaces"
    return f"{listed(seen)} and {others}" if seen else others
