"""Services (core/v1): what they select by, and nothing else."""

from __future__ import annotations

from flowcore.api.base import Interner, Wire, WireMeta
from flowcore.model.services import Service


class WireServiceSpec(Wire):
    selector: dict[str, str] | None = None


class WireService(Wire):
    metadata: WireMeta
    spec: WireServiceSpec | None = None


def to_service(wire: WireService, intern: Interner) -> Service:
    """A Service. Without a selector it selects no pod."""
    meta, selector = wire.metadata, (wire.spec.selector if wire.spec is not None else None) or {}
    pairs = tuple(sorted((intern(key), intern(value)) for key, value in selector.items()))
    return Service(meta.namespace or "default", meta.name, intern(pairs))
