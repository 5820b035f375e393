"""``spec.cost`` and ``spec.unscheduled`` of a FlowSchedulingPolicy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from flowcore.api.workload_kinds import (
    WireInterference,
    WireKind,
    WireMachines,
    parse_interference,
    parse_kinds,
    parse_machines,
)
from flowcore.model.cost_policy import (
    CostPolicy,
    CostWeights,
    DataLocality,
    KnownModels,
    Preferences,
    PricedBy,
    UnscheduledPrice,
    Utilisation,
)
from flowcore.model.default_spread import NO_SPREAD, SYSTEM_SPREAD, DefaultSpread
from flowcore.model.errors import PolicyError
from flowcore.model.inter_pod_constraints import SpreadConstraint
from flowcore.model.selectors import is_label_key

_Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]
#: As many constraints as a pod may have here (flowcore/api/pod_limits.py).
_MOST_DEFAULT_CONSTRAINTS = 16
_Factor = Annotated[int, msgspec.Meta(ge=0, le=10**6)]


class _Weights(msgspec.Struct, rename="camel"):
    least_requested: _Weight = CostWeights().least_requested
    balance: _Weight = CostWeights().balance
    node_preference: _Weight = CostWeights().node_preference
    taint_preference: _Weight = CostWeights().taint_preference
    pod_affinity: _Weight = CostWeights().pod_affinity
    spread: _Weight = CostWeights().spread
    image_locality: _Weight = CostWeights().image_locality
    device_alternatives: _Weight = CostWeights().device_alternatives
    free_storage: _Weight = CostWeights().free_storage
    idle_resources: _Weight = CostWeights().idle_resources


class _PricePerGib(msgspec.Struct):
    node: _Factor = DataLocality().node
    rack: _Factor = DataLocality().rack
    zone: _Factor = DataLocality().zone
    image: _Factor = DataLocality().image


class WireDataLocality(msgspec.Struct, rename="camel"):
    price_per_gib: _PricePerGib = msgspec.field(default_factory=_PricePerGib, name="pricePerGiB")
    rack_label: str = DataLocality().rack_label


class WireDefaultConstraint(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topology_key: str
    max_skew: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: Any = None
    min_domains: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"


class WireCost(msgspec.Struct, rename="camel"):
    model: str = "CPUMemory"
    weights: _Weights = msgspec.field(default_factory=_Weights)
    preferences: Preferences = Preferences.SCALED
    utilisation: Utilisation = Utilisation.REQUESTED
    data_locality: WireDataLocality | None = None
    kinds: list[WireKind] = msgspec.field(default_factory=list)
    interference: WireInterference | None = None
    machines: WireMachines | None = None
    default_spread: Literal["System", "None"] | list[WireDefaultConstraint] = "System"


class WireUnscheduled(msgspec.Struct, rename="camel"):
    base: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 100_000
    per_priority: _Factor = 10
    per_waiting_second: _Factor = 5
    aging_crosses_priorities: bool = False
    wait_for_cheaper_node: bool = False
    per: PricedBy | None = None


def parse_cost(wire: WireCost, models: KnownModels) -> CostPolicy:
    """``spec.cost``.

    Args:
        models: the cost models that it may name.

    Raises:
        PolicyError: the model cannot be used, or kinds of workload are not valid; the error names the field.
    """
    if wire.model not in models.names:
        known, why = ", ".join(models.names), models.problems.get(wire.model)
        raise PolicyError(
            "spec.cost.model",
            f'"{wire.model}" cannot be used ({why}); known are {known}'
            if why
            else f'"{wire.model}" is not one of {known}',
        )
    locality = None if wire.data_locality is None else _parse_data_locality(wire.data_locality)
    kinds = parse_kinds(wire.kinds)
    return CostPolicy(
        model=wire.model,
        weights=CostWeights(**msgspec.structs.asdict(wire.weights)),
        preferences=wire.preferences,
        utilisation=wire.utilisation,
        data_locality=locality,
        kinds=kinds,
        interference=parse_interference(wire.interference, kinds),
        machines=parse_machines(wire.machines, kinds),
        default_spread=parse_default_spread(wire.default_spread),
    )


def parse_default_spread(wire: str | list[WireDefaultConstraint]) -> DefaultSpread:
    """``spec.cost.defaultSpread``, checked as PodTopologySpreadArgs are.

    Source: kube-scheduler apis/config/validation/validation_pluginargs.go.

    Raises:
        PolicyError: a constraint is not valid; the error names the field.
    """
    if isinstance(wire, str):
        return SYSTEM_SPREAD if wire == "System" else NO_SPREAD
    if len(wire) > _MOST_DEFAULT_CONSTRAINTS:
        raise PolicyError("spec.cost.defaultSpread", f"has more than {_MOST_DEFAULT_CONSTRAINTS} constraints")
    known: dict[tuple[str, str], SpreadConstraint] = {}
    for place, constraint in enumerate(wire):
        field = f"spec.cost.defaultSpread[{place}]"
        if not is_label_key(constraint.topology_key):
            raise PolicyError(f"{field}.topologyKey", f'"{constraint.topology_key}" is no key of a label')
        if constraint.label_selector is not None:
            problem = "is not allowed: each pod has that of its controller or Services"
            raise PolicyError(f"{field}.labelSelector", problem)
        key = constraint.when_unsatisfiable, constraint.topology_key
        if key in known:
            raise PolicyError(field, f"another constraint has this topologyKey and {constraint.when_unsatisfiable}")
        known[key] = SpreadConstraint(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            selector=None,
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honors_affinity=constraint.node_affinity_policy == "Honor",
            honors_taints=constraint.node_taints_policy == "Honor",
            is_default=True,
        )
    return DefaultSpread(
        required=tuple(each for (action, _), each in known.items() if action == "DoNotSchedule"),
        preferred=tuple(each for (action, _), each in known.items() if action == "ScheduleAnyway"),
    )


def _parse_data_locality(wire: WireDataLocality) -> DataLocality:
    if not is_label_key(wire.rack_label):
        raise PolicyError("spec.cost.dataLocality.rackLabel", f'"{wire.rack_label}" is no key of a label')
    return DataLocality(**msgspec.structs.asdict(wire.price_per_gib), rack_label=wire.rack_label)


def parse_unscheduled(wire: WireUnscheduled) -> UnscheduledPrice:
    """``spec.unscheduled``."""
    return UnscheduledPrice(**msgspec.structs.asdict(wire))
