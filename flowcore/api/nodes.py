"""Nodes and namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flowcore.api.base import Interner, Quantities, Wire, WireMeta, to_labels
from flowcore.api.node_features import declared_features
from flowcore.model.errors import ModelError
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.nodes import MEASURED_BANDWIDTH, Node, Report, Taint
from flowcore.model.policies import DO_NOT_DISRUPT, SCALE_DOWN_DISABLED
from flowcore.model.quantities import MAX_AMOUNT, nanos, whole_from_nanos
from flowcore.model.resources import Amounts, read_list, to_amounts
from flowcore.model.shared_gpus import HAMI_GPUS, without_hami_gpus

#: Each name costs a column over all nodes. A node that offers more resources gets no pods.
MAX_NODE_RESOURCES: Final = 256
#: Bytes of the lists of images that are kept, twice, and of an image in one.
_CACHE_BYTES, _IMAGE_BYTES = 2**20, 300

#: Names of images, each with its size.
_Images = tuple[tuple[str, int], ...]


class WireTaint(Wire):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class WireNodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireImage(Wire):
    names: list[str] | None = None
    size_bytes: int = 0


class WireNodeStatus(Wire):
    allocatable: Quantities | None = None
    images: list[WireImage] | None = None
    declared_features: list[str] | None = None


class WireNodeMeta(WireMeta):
    annotations: dict[str, Any] | None = None


class WireNode(Wire):
    metadata: WireNodeMeta
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class _OutlineStatus(WireNodeStatus):
    images: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class _Outline(WireNode):
    """A node whose list of images stays text."""

    status: _OutlineStatus | None = None


class WireNamespace(Wire):
    metadata: WireMeta


class NodeReader:
    """Nodes from their JSON. Nodes of a pool often hold the same images: a list like one before is not read again.

    Args:
        intern: shares equal values with other readers.
    """

    def __init__(self, intern: Interner) -> None:
        self._intern = intern
        self._outlines = msgspec.json.Decoder(_Outline)
        self._lists = msgspec.json.Decoder(list[WireImage] | None)
        self._images: GenerationalCache[bytes, _Images] = GenerationalCache(_CACHE_BYTES)

    def __call__(self, raw: bytes | msgspec.Raw) -> Node:
        """The node of these bytes.

        Raises:
            msgspec.DecodeError: they are no node.
        """
        wire = self._outlines.decode(raw)
        text = b"" if wire.status is None else bytes(wire.status.images)
        if not text:
            return to_node(wire, self._intern, ())
        images = self._images.get(text)
        if images is None:
            images = _to_images(self._lists.decode(text), self._intern)
            self._images.put(text, images, _IMAGE_BYTES * len(images))
        return to_node(wire, self._intern, images)


def to_node(wire: WireNode, intern: Interner, images: _Images | None = None) -> Node:
    """A node. Where its allocatable does not parse or is too long, ``problem`` says so.

    Args:
        images: on the node; None: those that ``wire`` says.
    """
    spec, status, problem = wire.spec or WireNodeSpec(), wire.status or WireNodeStatus(), ""
    allocatable: Amounts = ()
    try:
        allocatable = _allocatable(status.allocatable)
    except ModelError as error:
        problem = f"node's {error}"
    annotations = wire.metadata.annotations or {}
    if annotations.get(HAMI_GPUS):
        allocatable = without_hami_gpus(allocatable)
    return Node(
        name=wire.metadata.name,
        uid=wire.metadata.uid or "",
        # Nodes share labels and images: each pair is held once.
        labels=tuple(intern(pair) for pair in to_labels(wire.metadata.labels)),
        taints=intern(tuple(Taint(t.key, t.value or "", t.effect or "") for t in spec.taints or ())),
        unschedulable=bool(spec.unschedulable),
        allocatable=intern(allocatable),
        features=intern(declared_features(status.declared_features)),
        problem=problem,
        report=Report(
            images=_to_images(status.images, intern) if images is None else images,
            bandwidth=_measured_bandwidth(annotations.get(MEASURED_BANDWIDTH)),
            keeps_pods=next(
                (name for name in (DO_NOT_DISRUPT, SCALE_DOWN_DISABLED) if annotations.get(name) == "true"), ""
            ),
        ),
    )


def _to_images(images: Sequence[WireImage] | None, intern: Interner) -> _Images:
    return tuple(
        intern((intern(name), max(0, min(image.size_bytes, MAX_AMOUNT))))
        for image in images or ()
        for name in image.names or ()
    )


def _allocatable(allocatable: Quantities | None) -> Amounts:
    if len(allocatable or ()) > MAX_NODE_RESOURCES:
        raise ModelError("status.allocatable", f"it names more than {MAX_NODE_RESOURCES} resources")
    return to_amounts(read_list(allocatable, "status.allocatable"))


def _measured_bandwidth(text: object) -> int | None:
    """The annotation's value. None where it is no amount: a cost alone must not exclude a node."""
    try:
        amount = whole_from_nanos(nanos(text)) if isinstance(text, str) else -1
    except ModelError:
        return None
    return amount if amount >= 0 else None
