"""Long lists in chunks."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from thalweg_operator.api.watches import list_items
from thalweg_operator.api.watches.list_items import list_chunks
from thalweg_operator.api.watches.watch_messages import Garbled

#: Texts that look like the ends of objects and lists.
_TEXTS = st.text(alphabet='{}[],:"\\ a', max_size=8)
_VALUES = st.recursive(
    _TEXTS | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_ITEMS = st.lists(st.dictionaries(_TEXTS, _VALUES, max_size=3), max_size=12)


def objects(answer: bytes) -> tuple[list[Any], str]:
    """All objects of a list, and the token of its last chunk."""
    chunks = list(list_chunks(answer))
    return [json.loads(bytes(each)) for chunk, _ in chunks for each in chunk], chunks[-1][1]


@settings(max_examples=examples(200))
@given(_ITEMS, st.sampled_from(["", "next"]), st.integers(1, 40), st.sampled_from([None, 1]), st.permutations([0, 1]))
def test_the_objects_are_those_of_the_list(
    items: list[Any], token: str, chunk: int, indent: int | None, order: list[int]
) -> None:
    """Whatever is in them, however long a chunk is, and however the list is laid out."""
    fields: list[tuple[str, Any]] = [("metadata", {"continue": token}), ("items", items)]
    answer = json.dumps(dict(fields[at] for at in order), indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_items, "_CHUNK", chunk)
        assert objects(answer) == (items, token)


def test_a_long_list_comes_in_chunks() -> None:
    """No chunk of 20,000 objects is much longer than it is to be."""
    containers = [{"name": "a"}, {"name": "b"}]
    items = [{"metadata": {"name": f"pod-{number}"}, "containers": containers} for number in range(20_000)]
    answer = json.dumps({"metadata": {}, "items": items}).encode()
    sizes = [sum(len(bytes(each)) for each in chunk) for chunk, _ in list_chunks(answer)]
    assert len(sizes) >= len(answer) / list_items._CHUNK
    assert max(sizes) < 2 * list_items._CHUNK


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"items": null, "metadata": {}}',
        b'{"metadata": {}, "items": [{]}',
        b'{"metadata": {}, "items": [{}',
    ],
)
def test_what_is_no_list(answer: bytes) -> None:
    """One kind of error, whatever came."""
    with pytest.raises(Garbled):
        objects(answer)


def test_an_object_without_an_end() -> None:
    """A list that is cut off, however long it is."""
    answer = b'{"metadata": {}, "items": [' + b'{"a": {"b": 1}, "c": [{"d": 2},{"e": ' * 20_000
    with pytest.raises(Garbled):
        objects(answer)
