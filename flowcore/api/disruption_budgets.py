"""PodDisruptionBudgets (policy/v1)."""

from __future__ import annotations

from flowcore.api.base import Int32, Wire, WireMeta
from flowcore.api.selectors import WireLabelSelector, to_label_selector
from flowcore.model.disruption_budgets import DisruptionBudget


class WireBudgetMeta(WireMeta):
    generation: int = 0


class WireBudgetSpec(Wire):
    selector: WireLabelSelector | None = None


class WireBudgetStatus(Wire):
    observed_generation: int = 0
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, object] | None = None


class WireDisruptionBudget(Wire):
    metadata: WireBudgetMeta
    spec: WireBudgetSpec | None = None
    status: WireBudgetStatus | None = None


def to_disruption_budget(wire: WireDisruptionBudget) -> DisruptionBudget:
    """A PodDisruptionBudget. A status that is older than the spec allows nothing, as in the Eviction API."""
    meta, status = wire.metadata, wire.status or WireBudgetStatus()
    selector = wire.spec.selector if wire.spec is not None else None
    current = status.observed_generation >= meta.generation
    return DisruptionBudget(
        namespace=meta.namespace or "default",
        name=meta.name,
        selector=None if selector is None else to_label_selector(selector),
        allowed=max(0, status.disruptions_allowed) if current else 0,
        disrupted=tuple(sorted(status.disrupted_pods or ())),
    )
