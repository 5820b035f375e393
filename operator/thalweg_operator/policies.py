"""FlowSchedulingPolicy objects: from spec to Policy, and which version of each is in force.

The API server refuses most mistakes by schema and CEL; what those cannot say is checked here. A policy that cannot be
put in force keeps its last good version, and disturbs no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import structlog

from flowcore.model.guidance import Asked
from flowcore.model.pods import Pod
from flowcore.model.policies import (
    BUILT_IN,
    SCHEDULER_NAME,
    STEERED_NAME,
    CostWeights,
    Delivery,
    Policy,
    Selects,
    Steering,
    UnscheduledPrice,
    Victims,
    WaitingMode,
    governing,
    in_order,
)
from flowcore.model.recent import Recent
from flowcore.model.selectors import Labels, LabelSelector
from flowcore.model.wire import WireLabelSelector, to_labels
from thalweg_operator.constraints import WireConstraint, WireGangs, constraints, gang_terms
from thalweg_operator.cost_models import BUILT_IN_MODELS, KnownModels
from thalweg_operator.errors import PolicyError
from thalweg_operator.selectors import selector

_log = structlog.get_logger()
#: Bytes of what is remembered of kinds of pods, twice.
_GOVERNING_BYTES = 2**23
#: More labels take longer to look up than the policies take to match.
_MOST_REMEMBERED_LABELS = 256
# The schema's bounds once more: a cluster may still have the CRD of another release.
_Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Factor = Annotated[int, msgspec.Meta(ge=0, le=10**6)]


class _Weights(msgspec.Struct, rename="camel"):
    least_requested: _Weight = CostWeights().least_requested
    balance: _Weight = CostWeights().balance
    node_preference: _Weight = CostWeights().node_preference
    taint_preference: _Weight = CostWeights().taint_preference
    pod_affinity: _Weight = CostWeights().pod_affinity
    spread: _Weight = CostWeights().spread
    image_locality: _Weight = CostWeights().image_locality
    idle_resources: _Weight = CostWeights().idle_resources


class _Cost(msgspec.Struct):
    model: str = "CPUMemory"
    weights: _Weights = msgspec.field(default_factory=_Weights)


class _Unscheduled(msgspec.Struct, rename="camel"):
    base: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 100_000
    per_priority: _Factor = 10
    per_waiting_second: _Factor = 5
    aging_crosses_priorities: bool = False


class _Selects(msgspec.Struct, rename="camel"):
    scheduler_names: list[str] | None = None
    pod_selector: WireLabelSelector | None = None
    namespace_selector: WireLabelSelector | None = None


class _Replaces(msgspec.Struct):
    victims: Victims = Victims.SAME_CONTROLLER


class _Spec(msgspec.Struct):
    precedence: Annotated[int, msgspec.Meta(ge=-(10**9), le=10**9)] = 0
    selects: _Selects = msgspec.field(default_factory=_Selects)
    delivery: Delivery = Delivery.BINDER
    steering: Steering = Steering.REQUIRE
    waiting: WaitingMode = WaitingMode.HOLD
    cost: _Cost = msgspec.field(default_factory=_Cost)
    unscheduled: _Unscheduled = msgspec.field(default_factory=_Unscheduled)
    gangs: WireGangs = msgspec.field(default_factory=WireGangs)
    constraints: list[WireConstraint] = msgspec.field(default_factory=list)
    replaces: _Replaces = msgspec.field(default_factory=_Replaces)


def parse(name: str, spec: Mapping[str, Any], models: KnownModels = BUILT_IN_MODELS) -> Policy:
    """The policy that a spec describes.

    Args:
        models: the cost models that it may name.

    Raises:
        PolicyError: it cannot be put in force; the message names the field.
    """
    try:
        wire = msgspec.convert(dict(spec), _Spec)
    except msgspec.ValidationError as error:
        text = str(error)
        problem, _, path = text.partition(" - at `$")
        raise PolicyError(f"spec{path.rstrip('`')}: {problem}") from error
    if wire.cost.model not in models.names:
        known, why = ", ".join(models.names), models.problems.get(wire.cost.model)
        raise PolicyError(
            f'spec.cost.model: "{wire.cost.model}" cannot be used ({why}); known are {known}'
            if why
            else f'spec.cost.model: "{wire.cost.model}" is not one of {known}'
        )
    names = tuple(wire.selects.scheduler_names or _default_names(wire.delivery))
    _check_delivery(wire, names)
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
        cost_model=wire.cost.model,
        weights=CostWeights(**msgspec.structs.asdict(wire.cost.weights)),
        unscheduled=UnscheduledPrice(**msgspec.structs.asdict(wire.unscheduled)),
        gangs=gang_terms(wire.gangs),
        constraints=constraints(wire.constraints),
        victims=wire.replaces.victims,
    )


def _default_names(delivery: Delivery) -> tuple[str, ...]:
    return (STEERED_NAME,) if delivery is Delivery.EXTENDER else (SCHEDULER_NAME,)


def _check_delivery(wire: _Spec, names: tuple[str, ...]) -> None:
    """The CRD's CEL rules once more, in the same words."""
    if wire.constraints and wire.steering is Steering.PREFER:
        raise PolicyError(
            "spec.steering: constraints need Require; with Prefer kube-scheduler may choose a node, and it does not "
            "know them"
        )
    if wire.delivery is Delivery.BINDER and not {"default-scheduler", STEERED_NAME}.isdisjoint(names):
        raise PolicyError(
            "spec.selects.schedulerNames: default-scheduler and thalweg-steered are served by kube-scheduler, and "
            "two schedulers binding the same pods overcommit nodes; let the pods name the scheduler thalweg, or use "
            "delivery Extender or Observe"
        )
    if wire.delivery is Delivery.EXTENDER:
        if SCHEDULER_NAME in names:
            raise PolicyError(
                "spec.selects.schedulerNames: pods that name the scheduler thalweg are bound by Thalweg itself; let "
                "the pods name thalweg-steered, or use delivery Binder"
            )
        return
    if wire.steering is not Steering.REQUIRE:
        raise PolicyError("spec.steering: Prefer needs delivery Extender; with any other there is nobody to steer")
    if wire.waiting is not WaitingMode.HOLD:
        raise PolicyError(
            "spec.waiting: Gate needs delivery Extender; with any other kube-scheduler does not look at the pods"
        )


def _selector(wire: WireLabelSelector | None, field: str) -> LabelSelector | None:
    return None if wire is None else selector(wire, field)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one policy object stands.

    Attributes:
        generation: of the object that was last looked at.
        in_force: the version that rounds use; None when none was ever good.
        in_force_generation: of that version.
        problem: why the last one was not accepted, "" when it was.
    """

    name: str
    uid: str
    generation: int
    in_force: Policy | None
    in_force_generation: int
    problem: str


class PolicyStore:
    """All policy objects and the versions in force; the built-in default stands behind them.

    Attributes:
        models: the cost models that policies may name; to be set before the first policy is offered.
    """

    def __init__(self, models: KnownModels = BUILT_IN_MODELS) -> None:
        self.models = models
        self._standings: dict[str, Standing] = {}
        self._ordered: tuple[Policy, ...] = (BUILT_IN,)
        self._governing: Recent[tuple[str, Labels, Labels], list[Policy]] = Recent(_GOVERNING_BYTES)
        self.on_change: Callable[[], None] = lambda: None

    def offer(self, name: str, uid: str, generation: int, spec: Mapping[str, Any]) -> Standing:
        """Looks at a version of a policy object and puts it in force if it is good; if not, that is logged once."""
        before = self._standings.get(name)
        if before is not None and before.uid == uid and before.generation >= generation:
            return before  # known, or older: the watch and the lists that check on it do not come in order
        if before is not None and before.uid != uid:
            before = None  # another object of the same name: what the old one said is gone
        try:
            standing = Standing(name, uid, generation, parse(name, spec, self.models), generation, "")
        except PolicyError as error:
            kept = (before.in_force, before.in_force_generation) if before is not None else (None, 0)
            standing = Standing(name, uid, generation, kept[0], kept[1], str(error))
            _log.warning("policy not accepted", policy=name, generation=generation, problem=standing.problem)
        self._standings[name] = standing
        self._reorder()
        return standing

    def forget(self, name: str, uid: str) -> None:
        """A policy object is gone; another one of the same name stays."""
        standing = self._standings.get(name)
        if standing is not None and standing.uid == uid:
            del self._standings[name]
            self._reorder()

    def _reorder(self) -> None:
        ordered = in_order([BUILT_IN, *(s.in_force for s in self._standings.values() if s.in_force is not None)])
        if ordered != self._ordered:
            self._ordered = ordered
            self._governing.clear()
            self.on_change()

    @property
    def standings(self) -> list[Standing]:
        """All policy objects, by name."""
        return [self._standings[name] for name in sorted(self._standings)]

    @property
    def uids(self) -> dict[str, str]:
        """Uids of the policy objects, by name."""
        return {name: standing.uid for name, standing in self._standings.items()}

    @property
    def ordered(self) -> tuple[Policy, ...]:
        """Policies in force, the first match governs; the built-in default is the last."""
        return self._ordered

    def of(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Policy | None:
        """The policy that governs a pod.

        None where there is none, and where the pod's namespace is not known yet: without its labels a policy that
        selects by them would be missed.
        """
        namespace = namespaces.get(pod.namespace)
        if namespace is None:
            return None
        found = self.governing(pod.scheduler_name, pod.labels, namespace)
        return found[0] if found else None

    def of_unknown(self, asked: Asked, namespace_labels: Labels) -> Policy | None:
        """The policy that would govern a pod as a request describes it. Nothing is remembered of the request."""
        found = governing(self._ordered, asked.scheduler_name, to_labels(dict(asked.labels)), namespace_labels)
        return found[0] if found else None

    def governing(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        """Policies that match a pod, the one that governs it first. Remembered per kind of pod, for a while."""
        if len(labels) + len(namespace_labels) > _MOST_REMEMBERED_LABELS:
            return governing(self._ordered, scheduler_name, labels, namespace_labels)
        key = (scheduler_name, labels, namespace_labels)
        found = self._governing.get(key)
        if found is None:
            found = governing(self._ordered, scheduler_name, labels, namespace_labels)
            self._governing.put(key, found, 56 + 8 * len(found))
        return found

    def age(self) -> None:
        """To be called now and then: forgets kinds of pods that nobody asked about since the last call but one."""
        self._governing.age()
