"""Nodes whose list of images was read before."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.api import Interner, NodeReader, WireNode, to_node

_LISTS: list[Any] = [
    None,
    [],
    [{"names": ["a:1", "a@sha256:0"], "sizeBytes": 5}],
    [{"names": ["a:1"], "sizeBytes": 5}, {"names": None, "sizeBytes": 7}, {"sizeBytes": 7}],
    [{"names": ["b:1"], "sizeBytes": -3}],
    [{"names": ["b:1"], "sizeBytes": 2**62}],
]


def _raw(place: int, images: Any) -> bytes:
    status = {"allocatable": {"cpu": "4"}, "images": images}
    return json.dumps({"metadata": {"name": f"n{place}"}, "status": status}).encode()


@given(st.lists(st.sampled_from(_LISTS), max_size=8))
def test_what_was_read_before_changes_no_node(lists: list[Any]) -> None:
    """Each node is read as it is read alone."""
    reader = NodeReader(Interner())
    for raw in [_raw(place, images) for place, images in enumerate(lists)] * 2:
        assert reader(raw) == to_node(msgspec.json.decode(raw, type=WireNode), Interner())


def test_nodes_of_a_pool_share_their_images() -> None:
    """One list is read once and held once."""
    reader = NodeReader(Interner())
    first, second = (reader(_raw(place, _LISTS[2])) for place in range(2))
    assert first.report.images is second.report.images
    assert len(reader._images) == 1


def test_images_of_the_wrong_shape_are_refused() -> None:
    """As if the whole node were read at once."""
    with pytest.raises(msgspec.ValidationError):
        NodeReader(Interner())(_raw(0, [{"names": 3}]))


def test_nodes_without_a_status_have_no_images() -> None:
    """Neither has one whose status says nothing of images."""
    for status in (b"", b',"status":null', b',"status":{}'):
        node = NodeReader(Interner())(b'{"metadata":{"name":"n"}%b}' % status)
        assert node.report.images == ()
