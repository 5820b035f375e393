"""Annotations of gangs as texts: numbers and labels in them, and what is wrong with them."""

from __future__ import annotations

import re

from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import MAX_GROUP_BYTES, MAX_TOPOLOGY_LABELS
from flowcore.model.selectors import is_label_key

MAX_INT32 = 2**31 - 1
#: Characters of an unreadable text that messages show.
_MAX_SHOWN = 100


def annotation(name: str) -> str:
    """The field of errors about an annotation."""
    return f"annotation {name}"


def shortened(text: str) -> str:
    """A text of users as messages show it."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def whole_number(name: str, text: str) -> int:
    """The number in an annotation.

    Raises:
        ModelError: it is none above zero.
    """
    if re.fullmatch(r"[0-9]{1,10}", text) is None or not 0 < int(text) <= MAX_INT32:
        raise ModelError(annotation(name), f'"{shortened(text)}" is no whole number above zero')
    return int(text)


def label_keys(name: str, text: str) -> tuple[str, ...]:
    """The labels in an annotation, with commas between them; each once.

    Raises:
        ModelError: some text is no key of a label, or they are too many.
    """
    keys = [key.strip() for key in text[: MAX_GROUP_BYTES + 1].split(",")]
    if len(text) > MAX_GROUP_BYTES or not all(is_label_key(key) for key in keys):
        raise ModelError(annotation(name), f'"{shortened(text)}" is no key of a label')
    labels = tuple(dict.fromkeys(keys))
    if len(labels) > MAX_TOPOLOGY_LABELS:
        problem = f"the topology has {len(labels)} labels, {MAX_TOPOLOGY_LABELS} are allowed"
        raise ModelError(annotation(name), problem)
    return labels
