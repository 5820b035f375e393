"""Five fields of the events of a watch of pods in protobuf, as kube-scheduler and controllers ask for it.

The API server encodes each event once for all who ask for protobuf. A watch in JSON would have it encode all of them
once more, and kube-scheduler alone would be measured with a reader of JSON beside it.

Numbers of fields: apimachinery's `meta/v1` and `runtime` and `core/v1`, `generated.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import BenchError

ACCEPT = "application/vnd.kubernetes.protobuf;stream=watch"
_MAGIC = b"k8s\x00"
#: Bytes of a frame's length, big-endian, before the frame.
_LENGTH = 4
_VARINT, _BYTES = 0, 2
#: WatchEvent, RawExtension and Unknown.
_TYPE, _OBJECT, _EXTENSION_RAW, _RAW = 1, 2, 1, 2
#: Pod, ObjectMeta, PodSpec and PodStatus.
_METADATA, _SPEC, _STATUS, _NAME, _RESOURCE_VERSION, _NODE_NAME, _NOMINATED_NODE = 1, 2, 3, 1, 6, 10, 11


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What is read of an event; of an ERROR, whose object is a Status, the type alone."""

    type: str
    name: str = ""
    resource_version: str = ""
    node_name: str = ""
    nominated_node: str = ""


def frames(received: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames, and the bytes after them."""
    whole, at = [], 0
    while (begin := at + _LENGTH) <= len(received):
        end = begin + int.from_bytes(received[at:begin])
        if end > len(received):
            break
        whole.append(received[begin:end])
        at = end
    return whole, received[at:]


def read_pod_event(frame: bytes) -> PodEvent:
    """The event of a frame."""
    event = _fields(frame, _OBJECT)
    kind = event.get(_TYPE, b"").decode()
    if kind == "ERROR":
        return PodEvent(kind)
    wrapped = _fields(event[_OBJECT], _EXTENSION_RAW)[_EXTENSION_RAW]
    if not wrapped.startswith(_MAGIC):
        raise BenchError(f"a watch in protobuf sent {wrapped[:40]!r}")
    pod = _fields(_fields(wrapped[len(_MAGIC) :], _RAW)[_RAW], _STATUS)
    meta, spec = _fields(pod[_METADATA], _RESOURCE_VERSION), _fields(pod.get(_SPEC, b""), _NODE_NAME)
    status = _fields(pod.get(_STATUS, b""), _NOMINATED_NODE)
    read = (meta[_NAME], meta[_RESOURCE_VERSION], spec.get(_NODE_NAME, b""), status.get(_NOMINATED_NODE, b""))
    return PodEvent(kind, *(value.decode() for value in read))


def _fields(message: bytes, last: int) -> dict[int, bytes]:
    """The fields up to a number that are bytes, by number: the API server writes them in this order."""
    return {number: value for number, value in _until(message, last) if value is not None}


def _until(message: bytes, last: int) -> Iterator[tuple[int, bytes | None]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if number > last:
            return
        value, at = _varint(message, at)
        if wire_type == _BYTES:
            yield number, message[at : at + value]
            at += value
        elif wire_type != _VARINT:
            raise BenchError(f"a field of the unknown wire type {wire_type}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
