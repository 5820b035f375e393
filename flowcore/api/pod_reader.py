"""Pods from their JSON. Most pods are like one before but for names: what was read of that spec is read once.

The pods of a ReplicaSet have one spec, with another node and another name of the volume that the API server adds. Those
of a DaemonSet name their node in an affinity too, and those of a StatefulSet have a host name each. So texts of specs
are compared, without these names. A pod that is the first of its kind, or whose reading depends on more than its spec,
costs about four times as much.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from flowcore.api.base import Interner, Wire
from flowcore.api.pod_objects import WireCondition, WirePod, WirePodMeta, WirePodStatus
from flowcore.api.pod_specs import DAEMON_SET, SpecReading, controller_of, read_spec
from flowcore.api.pods import is_as_asked, to_pod, to_read_pod
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.pods import Pod

#: Bytes of the readings that are kept, twice; and of one reading beside the text of its spec.
_CACHE_BYTES: Final = 2**23
_READING_BYTES: Final = 1_500
#: Specs with more text are read anew each time: a few large ones would push out those of all other pods.
_MAX_TEXT: Final = 2**16
#: Specs with these words are read anew each time: claims are the pod's own, and rules are named after its labels.
_OWN_WORDS: Final = (b'"ephemeral"', b'"matchLabelKeys"', b'"resourceClaims"')
#: The volume that the API server adds to each pod (ServiceAccount admission), with five random characters.
_TOKEN_VOLUME: Final = re.compile(rb'"name":"kube-api-access-[a-z0-9]{5}"')
#: The affinity that the DaemonSet controller writes: all of it, so that a reading never holds a name that was cut out.
_PINNED: Final = (
    b'"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":'
    b'[{"key":"metadata.name","operator":"In","values":[%b]}]}]}'
)
#: What takes the place of a name that was cut out: JSON never holds it.
_CUT: Final = b"\0"
#: Without one of these, conditions say nothing that is read: the status of one that counts, a word of its type, and
#: the character by which JSON can write both in another way.
_CONDITION_WORDS: Final = (b'"False"', b"PodResize", b"\\")
#: Labels within this limit need no look (pod_limits.py counts their bytes).
_FEW_LABEL_BYTES: Final = 1_024

#: Text of the spec, namespace, whether a DaemonSet made it, quality of service.
_Key = tuple[bytes, str | None, bool, str | None]


class _Place(Wire):
    node_name: str | None = None
    hostname: str | None = None


class _OutlineStatus(WirePodStatus):
    """Conditions stay text: to decode the five of a running pod takes as long as to decode the rest of the pod."""

    conditions: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class _Outline(Wire):
    """A pod whose spec stays text."""

    metadata: WirePodMeta
    spec: msgspec.Raw
    status: _OutlineStatus | None = None


class PodReader:
    """Reads pods, and keeps what it read of the latest specs.

    Args:
        intern: shares equal values with other readers.
    """

    def __init__(self, intern: Interner) -> None:
        self._intern = intern
        self._outlines = msgspec.json.Decoder(_Outline)
        self._places = msgspec.json.Decoder(_Place)
        self._conditions = msgspec.json.Decoder(list[WireCondition] | None)
        self._pods = msgspec.json.Decoder(WirePod)
        self._readings: GenerationalCache[_Key, SpecReading] = GenerationalCache(_CACHE_BYTES)

    def __call__(self, raw: bytes | msgspec.Raw) -> Pod:
        """The pod of these bytes.

        Raises:
            msgspec.DecodeError: they are no pod.
        """
        outline = self._outlines.decode(raw)
        meta, status = outline.metadata, outline.status
        if _depends_on_more(meta):
            return to_pod(self._pods.decode(raw), self._intern)
        spec = bytes(outline.spec)
        if len(spec) > _MAX_TEXT:
            return to_pod(self._pods.decode(raw), self._intern)
        try:
            place = self._places.decode(spec)
        except msgspec.ValidationError:
            return to_pod(self._pods.decode(raw), self._intern)  # this error has the whole path
        if status is not None:
            text = bytes(status.conditions)
            read = any(word in text for word in _CONDITION_WORDS)
            status.conditions = self._conditions.decode(text) if read else None  # type: ignore[assignment]
        of_daemon_set = controller_of(meta).kind == DAEMON_SET
        text = _without_names(spec, place, of_daemon_set=of_daemon_set)
        key = (text, meta.namespace, of_daemon_set, None if status is None else status.qos_class)
        reading, node_name = self._readings.get(key), place.node_name or ""
        if reading is None or not is_as_asked(status, reading):
            wire = self._pods.decode(raw)
            reading = read_spec(wire, self._intern)
            if not any(word in text for word in _OWN_WORDS):
                self._readings.put(key, reading, len(text) + _READING_BYTES)
            return to_read_pod(meta, node_name, status, reading, self._intern, wire.spec)
        return to_read_pod(meta, node_name, status, reading, self._intern)


def _depends_on_more(meta: WirePodMeta) -> bool:
    """Whether what is read of the spec depends on annotations, or on how much the labels are."""
    annotations, labels = meta.annotations, meta.labels
    if annotations is not None and (annotations.data is not None or annotations.numa is not None):
        return True
    return labels is not None and sum(map(len, labels)) + sum(map(len, labels.values())) > _FEW_LABEL_BYTES


def _without_names(spec: bytes, place: _Place, *, of_daemon_set: bool) -> bytes:
    """The text of a spec, without the names that tell its pod from others.

    A field is cut out once. So if a selector of labels has the same text, one of the two stays.
    """
    if place.hostname:  # of a StatefulSet's pod; it is not read
        spec = spec.replace(b'"hostname":' + msgspec.json.encode(place.hostname), _CUT * 4, 1)
    if place.node_name:
        node = msgspec.json.encode(place.node_name)
        spec = spec.replace(b'"nodeName":' + node, _CUT, 1)
        if of_daemon_set:
            spec = spec.replace(_PINNED % node, _CUT * 2)
    match = _TOKEN_VOLUME.search(spec)
    return spec if match is None else spec.replace(match[0], _CUT * 3)
