"""FlowSchedulingPolicy: from the spec of an object to a Policy.

The API server refuses most mistakes by schema and CEL. This module checks what those cannot say, and the rest once
more: a cluster may have the CRD of another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from flowcore.api.constraints import WireConstraint, WireGangs, parse_constraints, parse_gangs
from flowcore.api.costs import WireCost, WireUnscheduled, parse_cost, parse_default_spread, parse_unscheduled
from flowcore.api.networks import WireNetwork, parse_network
from flowcore.api.preemption_rescheduling import WirePreemption, WireRescheduling, parse_preemption, parse_rescheduling
from flowcore.api.selectors import WireLabelSelector, parse_selector
from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import PolicyError
from flowcore.model.policies import (
    SCHEDULER_NAME,
    STEERED_NAME,
    AllowedVictims,
    Delivery,
    DuringExecution,
    LastingRule,
    Policy,
    Selects,
    Steering,
    WaitingMode,
)
from flowcore.model.selectors import LabelSelector

#: The API of policies.
GROUP: Final = "scheduling.thalweg"
VERSION: Final = "v1alpha1"
KIND: Final = "FlowSchedulingPolicy"
PLURAL: Final = "flowschedulingpolicies"


class _Selects(msgspec.Struct, rename="camel"):
    scheduler_names: list[str] | None = None
    pod_selector: WireLabelSelector | None = None
    namespace_selector: WireLabelSelector | None = None


class _Replaces(msgspec.Struct):
    victims: AllowedVictims = AllowedVictims.SAME_CONTROLLER


class _DuringExecution(msgspec.Struct):
    rules: DuringExecution = DuringExecution.IGNORE
    also: list[LastingRule] = msgspec.field(default_factory=list)


class _Spec(msgspec.Struct, rename="camel"):
    precedence: Annotated[int, msgspec.Meta(ge=-(10**9), le=10**9)] = 0
    selects: _Selects = msgspec.field(default_factory=_Selects)
    delivery: Delivery = Delivery.BINDER
    steering: Steering = Steering.REQUIRE
    waiting: WaitingMode = WaitingMode.AUTO
    cost: WireCost = msgspec.field(default_factory=WireCost)
    unscheduled: WireUnscheduled = msgspec.field(default_factory=WireUnscheduled)
    gangs: WireGangs = msgspec.field(default_factory=WireGangs)
    constraints: list[WireConstraint] = msgspec.field(default_factory=list)
    replaces: _Replaces = msgspec.field(default_factory=_Replaces)
    preemption: WirePreemption = msgspec.field(default_factory=WirePreemption)
    rescheduling: WireRescheduling = msgspec.field(default_factory=WireRescheduling)
    during_execution: _DuringExecution = msgspec.field(default_factory=_DuringExecution)
    network: WireNetwork | None = None


def parse_policy(name: str, spec: Mapping[str, Any], models: KnownModels) -> Policy:
    """The policy that a spec describes.

    Args:
        models: the cost models that the policy may name.

    Raises:
        PolicyError: the policy cannot be put in force; the error names the field.
    """
    try:
        wire = msgspec.convert(dict(spec), _Spec)
    except msgspec.ValidationError as error:
        text = str(error)
        problem, _, path = text.partition(" - at `$")
        raise PolicyError(f"spec{path.rstrip('`')}", problem) from error
    names = tuple(wire.selects.scheduler_names or _default_names(wire.delivery))
    _check_delivery(wire, names)
    cost = parse_cost(wire.cost, models)
    return Policy(
        name=name,
        precedence=wire.precedence,
        selects=Selects(
            scheduler_names=names,
            pods=_selector(wire.selects.pod_selector, "spec.selects.podSelector"),
            namespaces=_selector(wire.selects.namespace_selector, "spec.selects.namespaceSelector"),
            nothing=not spec.get("selects"),
        ),
        delivery=wire.delivery,
        steering=wire.steering,
        waiting=wire.waiting,
        cost=cost,
        unscheduled=parse_unscheduled(wire.unscheduled),
        gangs=parse_gangs(wire.gangs),
        constraints=parse_constraints(wire.constraints),
        victims=wire.replaces.victims,
        preemption=parse_preemption(wire.preemption),
        rescheduling=parse_rescheduling(wire.rescheduling, cost.utilisation),
        during_execution=wire.during_execution.rules,
        lasting_rules=_lasting_rules(wire.during_execution.also),
        network=None if wire.network is None else parse_network(wire.network),
    )


def _lasting_rules(also: list[LastingRule]) -> tuple[LastingRule, ...]:
    if len(set(also)) < len(also):
        raise PolicyError("spec.duringExecution.also", "a rule is given twice; give each once")
    return tuple(rule for rule in LastingRule if rule in also)


def _default_names(delivery: Delivery) -> tuple[str, ...]:
    return (STEERED_NAME,) if delivery is Delivery.EXTENDER else (SCHEDULER_NAME,)


def _check_delivery(wire: _Spec, names: tuple[str, ...]) -> None:
    """The CRD's CEL rules once more, in the same words."""
    rules = wire.constraints or parse_default_spread(wire.cost.default_spread).required
    if wire.network is not None and wire.steering is Steering.PREFER:
        raise PolicyError(
            "spec.steering", "a network needs Require; with Prefer kube-scheduler may choose a node beside it"
        )
    if rules and wire.steering is Steering.PREFER:
        raise PolicyError(
            "spec.steering",
            "constraints need Require; with Prefer kube-scheduler may choose a node, and it does not know them",
        )
    if wire.delivery is Delivery.BINDER and not {"default-scheduler", STEERED_NAME}.isdisjoint(names):
        raise PolicyError(
            "spec.selects.schedulerNames",
            "default-scheduler and thalweg-steered are served by kube-scheduler, and "
            "two schedulers binding the same pods overcommit nodes; let the pods name the scheduler thalweg, or use "
            "delivery Extender or Observe",
        )
    if wire.delivery is Delivery.EXTENDER:
        if SCHEDULER_NAME in names:
            raise PolicyError(
                "spec.selects.schedulerNames",
                "pods that name the scheduler thalweg are bound by Thalweg itself; let "
                "the pods name thalweg-steered, or use delivery Binder",
            )
        return
    if wire.steering is not Steering.REQUIRE:
        raise PolicyError("spec.steering", "Prefer needs delivery Extender; with any other there is nobody to steer")
    if wire.waiting is WaitingMode.GATE:
        raise PolicyError(
            "spec.waiting", "Gate needs delivery Extender; with any other kube-scheduler does not look at the pods"
        )


def _selector(wire: WireLabelSelector | None, field: str) -> LabelSelector | None:
    return None if wire is None else parse_selector(wire, field)
