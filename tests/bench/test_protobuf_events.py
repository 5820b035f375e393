"""The benchmarks' watch reads what the API server writes in protobuf; upb writes the same here."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from harness.errors import BenchError
from harness.protobuf_events import PodEvent, frames, read_pod_event

_FIELD = descriptor_pb2.FieldDescriptorProto
#: Message -> field -> number and type, "bytes", "int64" or another message: as in Kubernetes' generated.proto.
_SHAPES: dict[str, dict[str, tuple[int, str]]] = {
    "WatchEvent": {"type": (1, "bytes"), "object": (2, "RawExtension")},
    "RawExtension": {"raw": (1, "bytes")},
    "TypeMeta": {"apiVersion": (1, "bytes"), "kind": (2, "bytes")},
    "Unknown": {"typeMeta": (1, "TypeMeta"), "raw": (2, "bytes"), "contentType": (4, "bytes")},
    "ObjectMeta": {
        "name": (1, "bytes"),
        "uid": (5, "bytes"),
        "resourceVersion": (6, "bytes"),
        "generation": (7, "int64"),
    },
    "PodSpec": {"grace": (4, "int64"), "nodeName": (10, "bytes"), "priority": (25, "int64")},
    "PodStatus": {"phase": (1, "bytes"), "nominatedNodeName": (11, "bytes"), "observedGeneration": (17, "int64")},
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="t", syntax="proto2")
    for name, fields in _SHAPES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            if kind in _SHAPES:
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".t.{kind}"
            else:
                added.type = _FIELD.TYPE_INT64 if kind == "int64" else _FIELD.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in _SHAPES}


_CLASSES = _classes()


def _frame(kind: bytes, wrapped: bytes) -> bytes:
    event = _CLASSES["WatchEvent"](type=kind, object={"raw": wrapped}).SerializeToString()
    return len(event).to_bytes(4) + event


def _wrapped(message: Any) -> bytes:
    unknown = {"typeMeta": {"apiVersion": b"v1", "kind": b"Pod"}, "raw": message.SerializeToString()}
    return b"k8s\x00" + _CLASSES["Unknown"](**unknown).SerializeToString()


def _pod(node: bytes, nominated: bytes = b"") -> Any:
    meta = {"name": b"web-1", "uid": b"u" * 300, "resourceVersion": b"70001", "generation": 3}
    status = {"phase": b"Pending", "nominatedNodeName": nominated, "observedGeneration": 3}
    return _CLASSES["Pod"](metadata=meta, spec={"grace": 30, "nodeName": node, "priority": -1}, status=status)


@pytest.mark.parametrize(("node", "nominated"), [("", ""), ("node-00017", ""), ("", "node-00018")])
def test_pod_event(node: str, nominated: str) -> None:
    """A pod with a node, one without, and one that is nominated for a node."""
    whole, rest = frames(_frame(b"MODIFIED", _wrapped(_pod(node.encode(), nominated.encode()))))
    assert [read_pod_event(each) for each in whole] == [PodEvent("MODIFIED", "web-1", "70001", node, nominated)]
    assert rest == b""


def test_bookmark_has_no_name() -> None:
    """Its object is a pod with a version and nothing else."""
    bookmark = _CLASSES["Pod"](metadata={"name": b"", "resourceVersion": b"9"})
    (frame,), _ = frames(_frame(b"BOOKMARK", _wrapped(bookmark)))
    assert read_pod_event(frame) == PodEvent("BOOKMARK", "", "9", "")


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 200])
def test_frames_come_in_any_pieces(cut: int) -> None:
    """What has come of a frame waits for its rest."""
    first, second = (_frame(b"ADDED", _wrapped(_pod(node))) for node in (b"", b"n"))
    received = first + second[:cut]
    whole, rest = frames(received)
    assert len(whole) == 1
    assert rest == second[:cut]
    more, nothing = frames(rest + second[cut:])
    assert read_pod_event(more[0]).node_name == "n"
    assert nothing == b""


def test_error_and_json_are_told() -> None:
    """An ERROR holds a Status; JSON in the frame is not protobuf."""
    (frame,), _ = frames(_frame(b"ERROR", b"k8s\x00"))
    assert read_pod_event(frame).type == "ERROR"
    (frame,), _ = frames(_frame(b"ADDED", b'{"kind":"Pod"}'))
    with pytest.raises(BenchError, match="protobuf"):
        read_pod_event(frame)
