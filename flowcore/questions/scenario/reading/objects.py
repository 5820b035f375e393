"""Objects of the API, as they are put into a scenario: from the files of a dump, or as a hypothetical change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from flowcore.api import (
    STORAGE_KINDS,
    Interner,
    WireDisruptionBudget,
    WireNamespace,
    WireNode,
    WirePod,
    WirePodGroup,
    WireQueue,
    to_disruption_budget,
    to_labels,
    to_node,
    to_pod,
    to_pod_group,
    to_queue,
    to_storage_object,
)
from flowcore.api.gang_parents import to_gang_parent
from flowcore.api.kinds import (
    DISRUPTION_BUDGET,
    IN_DUMPS,
    KINDS,
    NODE_METRICS,
    PARENTS,
    POD_METRICS,
    PRIORITY_CLASS,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    ObjectKind,
)
from flowcore.api.metrics import to_node_sample, to_pod_sample
from flowcore.api.policies import parse_policy
from flowcore.api.priority_classes import PriorityClass, PriorityClasses, check_priority_class
from flowcore.api.reading import READ_BY
from flowcore.api.resource_claims import WireDeviceClaimTemplate, to_claim_of_template
from flowcore.cluster.kinds import DISRUPTION_BUDGETS, GANG_PARENTS, GROUPS_OF_PODS, QUEUES, STORAGE_OBJECTS, STORES
from flowcore.model.cost_policy import KnownModels
from flowcore.model.data import DATA
from flowcore.model.errors import ModelError
from flowcore.model.gang_parents import ParentRule
from flowcore.model.gang_spec import GangKey, GangSource
from flowcore.model.volumes import data_problem
from flowcore.questions.scenario.reading.dump_commands import ADD_PRIORITIES
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.templates import make_claims

_READ: frozenset[ObjectKind] = frozenset((*KINDS, *IN_DUMPS))
#: API groups of each kind that is read.
_GROUPS = {kind.kind: {same.group for same in _READ if same.kind == kind.kind} for kind in _READ}
_NAMESPACED = frozenset(kind.kind for kind in _READ if kind.namespaced)
#: Kinds that a pod names in its resource claims; a dump without any of a kind does not tell whether they exist.
_RESOURCE_CLAIMS = (RESOURCE_CLAIM.kind, RESOURCE_CLAIM_TEMPLATE.kind)
#: Kinds of which nothing is checked and told beside their shape: where the cluster has them, and how they are read.
_PLAIN = {
    kind.kind: (store, *READ_BY[kind])
    for store in STORES
    for kind in store.kinds
    if kind in READ_BY and kind not in (QUEUE, DISRUPTION_BUDGET)
}
_PARENTS = {kind.kind: kind for kind in PARENTS}
#: Kinds whose controllers create pods, and that plans do not read.
WORKLOADS = frozenset(("CronJob", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"))

#: The alpha kind that PodGroups may belong to: model/gang_spec.py has what their pods are told.
COMPOSITE = "CompositePodGroup"


def json_type(value: Any) -> str:
    """The JSON type of a value, for messages."""
    names = {type(None): "nothing", dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def unread_kind(item: dict[str, Any]) -> str:
    """The kind of an object that plans do not depend on, with its API group where another has such a kind; "": read."""
    kind, version = item["kind"], item.get("apiVersion") or ""
    group = api_group(item)
    # Without apiVersion the kind is taken for Kubernetes' own, except PodGroup, a kind of several projects.
    if kind not in _GROUPS or (group not in _GROUPS[kind] and (version or kind == "PodGroup")):
        return f"{kind}.{group}" if kind in _GROUPS else str(kind)
    return ""


def why_ignored(kind: str) -> str:
    """Why objects of a kind are ignored."""
    if kind == COMPOSITE:
        return "Thalweg does not plan this kind yet, and pods below one wait"
    return "only existing pods are planned" if kind in WORKLOADS else "plans do not depend on this kind"


def api_group(item: dict[str, Any]) -> str:
    """The API group of an object; "" for the core group."""
    return str(item.get("apiVersion") or "").rpartition("/")[0]


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    """Namespace ("" for kinds without namespaces) and name of an object of a kind that is read.

    Raises:
        ModelError: it has no name.
    """
    metadata = item.get("metadata")
    if not isinstance(metadata, dict):
        raise ModelError("metadata", f"expected an object, got {json_type(metadata)}")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ModelError("metadata.name", "required value")
    namespace = metadata.get("namespace") or "default"
    return str(namespace) if item["kind"] in _NAMESPACED else "", name


def _spec_of(item: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = item["spec"]
    return spec


def _with_field(error: msgspec.ValidationError) -> ModelError:
    problem, _, path = str(error).partition(" - at `")
    return ModelError(path.removeprefix("key` in `").removeprefix("$").removeprefix(".").rstrip("`"), problem)


class ObjectReader:
    """Puts objects of the API into a scenario, one by one.

    Args:
        now: seconds since the epoch: samples of the future do not count.
        models: the cost models that policies may name.
        checked_spec: the spec of a policy or queue once it is validated, with defaults; raises ModelError. Default: it
            was validated before.

    Attributes:
        warnings: sentences about annotations and samples that do not count.
    """

    def __init__(
        self,
        edits: Edits,
        now: float,
        models: KnownModels,
        checked_spec: Callable[[dict[str, Any]], dict[str, Any]] = _spec_of,
    ) -> None:
        self._edits, self._now, self._models, self._checked_spec = edits, now, models, checked_spec
        self._intern = Interner()
        #: Pods whose priority the API server has not written into the spec.
        self._without_priority: dict[str, WirePod] = {}
        #: Kubernetes' own PodGroups of which that is true, and that name a class.
        self._groups_without_priority: dict[GangKey, WirePodGroup] = {}
        #: Keys of pods with claims to devices, in their order.
        self._claiming: dict[str, None] = {}
        self.warnings: list[str] = []

    def put(self, item: dict[str, Any], shown: str) -> None:
        """Puts an object of a kind that is read.

        Args:
            shown: the object for warnings.

        Raises:
            ModelError: it does not match its kind.
        """
        try:
            self._put(item, shown)
        except msgspec.ValidationError as error:
            raise _with_field(error) from error

    def put_own_parent(self, item: dict[str, Any], kind: ObjectKind, rule: ParentRule) -> None:
        """Puts an object of a kind that a policy names (``spec.gangs.parents``).

        Raises:
            ModelError: it has no name, or its metadata cannot be read.
        """
        name_of(item)
        try:
            self._edits.put_object(GANG_PARENTS, to_gang_parent(item, kind, rule))
        except msgspec.ValidationError as error:
            raise _with_field(error) from error

    def _put(self, item: dict[str, Any], shown: str) -> None:
        kind, edits, intern = item["kind"], self._edits, self._intern
        if kind == "Node":
            edits.put_node(to_node(msgspec.convert(item, WireNode), intern))
        elif kind == "Pod":
            self._put_pod(msgspec.convert(item, WirePod), shown)
        elif kind == "Namespace":
            namespace = msgspec.convert(item, WireNamespace).metadata
            edits.put_namespace(namespace.name, to_labels(namespace.labels))
        elif kind in STORAGE_KINDS:
            storage_object = to_storage_object(kind, item)
            if storage_object is not None:
                edits.put_object(STORAGE_OBJECTS, storage_object)
                if problem := data_problem(storage_object):
                    self.warnings.append(f"{shown}: annotation {DATA}: {problem}; it is ignored")
        elif kind == "PodGroup":
            source = GangSource(str(item.get("apiVersion")).partition("/")[0])
            self._put_group(msgspec.convert(item, WirePodGroup), source)
        elif kind in _PARENTS:
            edits.put_object(GANG_PARENTS, to_gang_parent(item, _PARENTS[kind]))
        elif kind == DISRUPTION_BUDGET.kind:
            self._put_budget(msgspec.convert(item, WireDisruptionBudget), shown)
        elif kind == PRIORITY_CLASS.kind:
            priority_class = msgspec.convert(item, PriorityClass)
            check_priority_class(priority_class)
            edits.put_priority_class(priority_class)
        elif kind == RESOURCE_CLAIM_TEMPLATE.kind:
            edits.put_named(kind, *name_of(item))
            edits.put_claim_template(to_claim_of_template(msgspec.convert(item, WireDeviceClaimTemplate)))
        elif kind in (NODE_METRICS.kind, POD_METRICS.kind):
            self._put_sample(item)
        elif kind in _PLAIN:
            if kind == RESOURCE_CLAIM.kind:
                edits.put_named(kind, *name_of(item))
            store, wire, to_value = _PLAIN[kind]
            edits.put_object(store, to_value(msgspec.convert(item, wire), intern))
        else:
            self._put_rules(item)

    def _put_rules(self, item: dict[str, Any]) -> None:
        spec = item.get("spec")
        if not isinstance(spec, dict):
            raise ModelError("spec", f"expected an object, got {json_type(spec)}")
        if item["kind"] == QUEUE.kind:
            queue = to_queue(msgspec.convert(item | {"spec": self._checked_spec(item)}, WireQueue))
            if queue.problem:
                raise ModelError("", queue.problem)
            self._edits.put_object(QUEUES, queue)
            return
        self._edits.put_policy(parse_policy(item["metadata"]["name"], self._checked_spec(item), self._models))

    def _put_pod(self, wire: WirePod, shown: str) -> None:
        pod = to_pod(wire, self._intern)
        if pod.bad_annotation and not pod.blocked_reason:
            problem = pod.annotation_problem or "it has no known value"
            self.warnings.append(f"{shown}: {pod.bad_annotation}: {problem}; it is ignored")
        self._edits.put_pod(pod)
        if pod.pod_class.devices is not None:
            self._claiming[pod.key] = None
        self._edits.set_names(pod.key, _claims_of(wire))
        self._without_priority.pop(pod.key, None)
        if wire.spec.priority is None or wire.spec.preemption_policy is None:
            self._without_priority[pod.key] = wire

    def _put_group(self, wire: WirePodGroup, source: GangSource) -> None:
        group = to_pod_group(wire, source, self._intern)
        self._edits.put_object(GROUPS_OF_PODS, group)
        self._groups_without_priority.pop(group.key, None)
        spec = wire.spec
        if source is GangSource.NATIVE and spec is not None and spec.priority is None and spec.priority_class_name:
            self._groups_without_priority[group.key] = wire

    def _put_budget(self, wire: WireDisruptionBudget, shown: str) -> None:
        self._edits.put_object(DISRUPTION_BUDGETS, to_disruption_budget(wire))
        if wire.status is None:
            self.warnings.append(f"{shown}: it has no status, so none of its pods is evicted or moved")

    def _put_sample(self, item: dict[str, Any]) -> None:
        """A bad sample is left out, and the others count."""
        try:
            if item["kind"] == NODE_METRICS.kind:
                self._edits.put_node_sample(*to_node_sample(item, self._now))
            else:
                self._edits.put_pod_sample(*to_pod_sample(item, self._now))
        except ModelError as error:
            self.warnings.append(f"{error}. This sample does not count")

    def resolve(self) -> Iterator[str]:
        """Gives pods and PodGroups what may have come later: the priority of their class, claims of their templates.

        Yields:
            sentences about classes that are not there.
        """
        classes = PriorityClasses(self._edits.scenario.priority_classes.values())
        without_class = dict[str, list[str]]()
        for key, wire in self._without_priority.items():
            spec = classes.resolve(wire.spec)
            if spec is not None:
                self._edits.put_pod(to_pod(msgspec.structs.replace(wire, spec=spec), self._intern))
                continue
            class_name = wire.spec.priority_class_name or ""
            self._edits.set_names(key, (*_claims_of(wire), (PRIORITY_CLASS.kind, "", class_name)))
            without_class.setdefault(class_name, []).append(key)
        for class_name, keys in without_class.items():
            more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
            counts = "their priorities count" if more else "its priority counts"
            yield (
                f"Pod {keys[0]}{more}: spec.priorityClassName: the files do not contain PriorityClass {class_name}, "
                f"so {counts} as 0. Add the classes: {ADD_PRIORITIES}"
            )
        for group, wire_group in self._groups_without_priority.items():
            resolved = classes.resolve_group(wire_group)
            if resolved is not None:
                self._edits.put_object(GROUPS_OF_PODS, to_pod_group(resolved, GangSource.NATIVE, self._intern))
                continue
            named_class = wire_group.spec.priority_class_name if wire_group.spec is not None else ""
            yield (
                f"{group.display_name}: spec.priorityClassName: the files do not contain PriorityClass {named_class}, "
                f"so the priorities of its pods count. Add the classes: {ADD_PRIORITIES}"
            )
        make_claims(self._edits, self._claiming)


def _claims_of(wire: WirePod) -> tuple[tuple[str, str, str], ...]:
    """The resource claims and templates that a pod names, by kind, namespace and name."""
    namespace, claims = wire.metadata.namespace or "default", list[tuple[str, str, str]]()
    for claim in wire.spec.resource_claims or ():
        for kind, name in zip(
            _RESOURCE_CLAIMS, (claim.resource_claim_name, claim.resource_claim_template_name), strict=True
        ):
            if name:
                claims.append((kind, namespace, name))
    return tuple(claims)
