"""Services (core/v1): what they select by, and nothing else."""

from __future__ import annotations

from typing import Any

from flowcore.api.base import Interner, Wire, WireMeta
from flowcore.model.services import Service


class WireServiceSpec(Wire):
    selector: Any = None


class WireService(Wire):
    metadata: WireMeta
    spec: WireServiceSpec | None = None


def to_service(wire: WireService, intern: Interner) -> Service:
    """A Service. Without a selector, or with one that is no map of texts, it selects no pod."""
    meta, selector = wire.metadata, wire.spec.selector if wire.spec is not None else None
    pairs = selector.items() if isinstance(selector, dict) else ()
    if not all(isinstance(value, str) for _, value in pairs):
        pairs = ()
    labels = tuple(sorted((intern(key), intern(value)) for key, value in pairs))
    return Service(meta.namespace or "default", meta.name, intern(labels))
