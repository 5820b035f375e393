"""Hypothetical objects: those of the API that a change adds or replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import ModelError
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader, json_type, name_of, unread_kind, why_ignored


def put(edits: Edits, objects: Iterable[dict[str, Any]], context: AnswerContext) -> list[str]:
    """Puts objects; returns sentences about what of them does not count.

    Raises:
        ModelError: an object does not match its kind, or is of a namespace that the asker may not see; the message
            names the object.
    """
    reader, notes = ObjectReader(edits, context.now, KnownModels(tuple(context.models))), []
    for item in objects:
        kind = item.get("kind")
        if not isinstance(kind, str) or not kind:
            raise ModelError("kind", f"expected a kind of the API, got {json_type(kind)}")
        if unread := unread_kind(item):
            notes.append(f"a {unread} object is ignored: {why_ignored(kind)}")
            continue
        shown = kind
        try:
            namespace, name = name_of(item)
            shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
            _check_seen(name if kind == "Namespace" else namespace, context)
            reader.put(item, shown)
        except ModelError as error:
            raise ModelError("", f"{shown}: {error}") from error
    return [*notes, *reader.resolve(), *reader.warnings]


def _check_seen(namespace: str, context: AnswerContext) -> None:
    """Whether objects may be put into a namespace: what changes then tells which of them are there.

    Args:
        namespace: "": of an object without one.

    Raises:
        ModelError: the asker may not see it, or it is not there for an asker who may not see all.
    """
    if namespace and not context.sees(namespace):
        raise ModelError("", f'there is no namespace "{namespace}", or none whose pods you may see')
