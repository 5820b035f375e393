"""Reads cluster dumps: the output of ``kubectl get ... -o json`` or ``-o yaml``, from one or more files."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

from flowcore.api import (
    STORAGE_KINDS,
    Interner,
    WireDeviceClass,
    WireDisruptionBudget,
    WireNamespace,
    WireNode,
    WireNodeTopology,
    WirePod,
    WirePodGroup,
    WireQueue,
    to_device_class,
    to_disruption_budget,
    to_labels,
    to_node,
    to_numa_node,
    to_pod,
    to_pod_group,
    to_queue,
    to_storage_object,
)
from flowcore.api.kinds import (
    DISRUPTION_BUDGET,
    KINDS,
    NODE_METRICS,
    NODE_TOPOLOGY,
    POD_METRICS,
    PRIORITY_CLASS,
    QUEUE,
    ObjectKind,
)
from flowcore.api.metrics import to_node_sample, to_pod_sample
from flowcore.api.policies import parse_policy
from flowcore.cluster.saved_state import UnreadableState, is_saved_state
from flowcore.model.data import DATA
from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import GangSource
from flowcore.model.volumes import data_problem
from flowcore.scenario import Scenario
from flowcore.scenario.dump_commands import ADD_PRIORITIES, DUMP_COMMAND
from flowcore.scenario.missing_objects import unknown_namespace
from flowcore.scenario.saved import read_state
from thalweg.files import DumpError, display_name, json_type, parse_objects, read_text
from thalweg.policy_schema import checked_spec
from thalweg.priority_classes import PriorityClass, PriorityClasses, check_priority_class
from thalweg_cost_models import find_models

_READ: frozenset[ObjectKind] = frozenset((*KINDS, DISRUPTION_BUDGET, PRIORITY_CLASS, NODE_METRICS, POD_METRICS))
#: API groups of each kind that is read.
_GROUPS = {kind.kind: {other.group for other in _READ if other.kind == kind.kind} for kind in _READ}
_NAMESPACED = frozenset(kind.kind for kind in _READ if kind.namespaced)
#: Kinds whose controllers create pods.
_WORKLOADS = frozenset(
    ("CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
)

#: API group, kind, namespace and name.
_Key = tuple[str, str, str, str]


def read_dump(files: tuple[str, ...]) -> Scenario:
    """Reads all files into one dump.

    Raises:
        DumpError: a file cannot be read, an object does not match its kind, or the files are no dump of a cluster.
    """
    reader = _Reader()
    for name in files:
        reader.read_file(name)
    scenario = reader.dump()
    if problem := unknown_namespace(scenario):
        raise DumpError(problem)
    return scenario


class _Reader:
    """Collects the objects of a dump, file by file."""

    def __init__(self) -> None:
        self._dump, self._intern, self._now = Scenario(), Interner(), time.time()
        self._known: set[_Key] = set()
        self._files: list[str] = []
        #: Number of skipped objects of each kind, and the first object of each.
        self._skipped: Counter[str] = Counter()
        self._first_seen_in: dict[str, str] = {}
        self._priority_classes: dict[str, PriorityClass] = {}
        #: Pods whose priority the API server has not written into the spec.
        self._without_priority: dict[str, WirePod] = {}

    def read_file(self, name: str) -> None:
        """Reads all objects of a file."""
        file, text = display_name(name), read_text(name)
        if is_saved_state(text):
            self._read_state(file, text)
            return
        here: dict[_Key, dict[str, Any]] = {}
        replaced: dict[str, list[str]] = {}
        for item in parse_objects(text, file):
            kind, version = item["kind"], item.get("apiVersion") or ""
            _check_is_object(item, file)
            group = str(version).rpartition("/")[0]
            # Without apiVersion the kind is taken for Kubernetes' own, except PodGroup, a kind of several projects.
            if kind not in _GROUPS or (group not in _GROUPS[kind] and (version or kind == "PodGroup")):
                self._skip(item, f"{kind}.{group}" if kind in _GROUPS else kind)
                continue
            namespace, own = _name(item, file)
            key = (group, kind, namespace, own)
            shown = f"{namespace}/{own}" if namespace else own
            if key not in here:
                here[key] = item
                self._add(item, f"{file}: {kind} {shown}")
                if key in self._known:
                    replaced.setdefault(kind, []).append(shown)
            elif not _equal(here[key], item):
                raise DumpError(f"{file}: {kind} {shown}: the file contains it twice, with different content")
        self._known.update(here)
        self._files.append(file)
        for kind, names in replaced.items():
            which = f"{kind} {names[0]} replaces" if len(names) == 1 else f"{len(names)} {kind} objects replace"
            self._dump.warnings.append(f"{file}: {which} the version of an earlier file")

    def _read_state(self, file: str, text: str) -> None:
        """Reads what ``thalweg run --dump-directory`` wrote."""
        try:
            read_state(text.rstrip("\n").split("\n"), self._dump)
        except UnreadableState as error:
            raise DumpError(f"{file}: {error}") from error
        self._files.append(file)

    def dump(self) -> Scenario:
        """The dump, once all files are read."""
        dump = self._dump
        workload = min(_WORKLOADS & self._skipped.keys(), default="")
        if workload and not dump.cluster.pods:
            raise DumpError(
                f"{self._first_seen_in[workload]}: only pods are planned, and the files contain no Pod. Create the "
                f"{workload} in a cluster and dump the cluster: {DUMP_COMMAND}"
            )
        if not dump.cluster.nodes:
            raise DumpError(f"{', '.join(self._files)}: no Node found. Dump the cluster with: {DUMP_COMMAND}")
        self._resolve_priorities()
        for kind, count in sorted(self._skipped.items()):
            which = f"{count} {kind} {'object' if count == 1 else 'objects'}"
            what = "only existing pods are planned" if kind in _WORKLOADS else "plans do not depend on this kind"
            dump.warnings.append(f"{which} ignored, such as {self._first_seen_in[kind]}: {what}")
        return dump

    def _resolve_priorities(self) -> None:
        """Gives pods the priority of their PriorityClass, which may be in a later file than the pod."""
        cluster, classes = self._dump.cluster, PriorityClasses(self._priority_classes.values())
        for key, wire in self._without_priority.items():
            spec = classes.resolve(wire.spec)
            if spec is not None:
                cluster.put_pod(to_pod(msgspec.structs.replace(wire, spec=spec), self._intern))
                continue
            self._dump.gaps.append(
                f"Pod {key}: spec.priorityClassName: the files do not contain PriorityClass "
                f"{wire.spec.priority_class_name}, so its priority counts as 0. Add "
                f"the classes: {ADD_PRIORITIES}"
            )

    def _add(self, item: dict[str, Any], shown: str) -> None:
        """Takes an object over.

        Raises:
            DumpError: it does not match its kind.
        """
        try:
            self._convert(item, shown)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `")
            where = path.removeprefix("key` in `").removeprefix("$").removeprefix(".").rstrip("`")
            raise DumpError(f"{shown}: {where}: {problem}" if where else f"{shown}: {problem}") from error
        except ModelError as error:
            raise DumpError(f"{shown}: {error}") from error

    def _convert(self, item: dict[str, Any], shown: str) -> None:
        kind, cluster, intern = item["kind"], self._dump.cluster, self._intern
        if kind == "Node":
            cluster.put_node(to_node(msgspec.convert(item, WireNode), intern))
        elif kind == "Pod":
            self._add_pod(msgspec.convert(item, WirePod), shown)
        elif kind == "Namespace":
            namespace = msgspec.convert(item, WireNamespace).metadata
            cluster.set_namespace(namespace.name, to_labels(namespace.labels))
        elif kind in STORAGE_KINDS:
            storage_object = to_storage_object(kind, item)
            if storage_object is not None:
                cluster.put_storage(storage_object)
                if problem := data_problem(storage_object):
                    self._dump.warnings.append(f"{shown}: annotation {DATA}: {problem}; it is ignored")
        elif kind == "PodGroup":
            source = GangSource(str(item.get("apiVersion")).partition("/")[0])
            cluster.put_pod_group(to_pod_group(msgspec.convert(item, WirePodGroup), source, intern))
        elif kind == NODE_TOPOLOGY.kind:
            report = to_numa_node(msgspec.convert(item, WireNodeTopology), intern)
            cluster.numa.set_report(report.name, report)
        elif kind == DISRUPTION_BUDGET.kind:
            self._add_budget(msgspec.convert(item, WireDisruptionBudget), shown)
        elif kind == PRIORITY_CLASS.kind:
            priority_class = msgspec.convert(item, PriorityClass)
            check_priority_class(priority_class)
            self._priority_classes[priority_class.metadata.name] = priority_class
        elif kind in (NODE_METRICS.kind, POD_METRICS.kind):
            self._add_sample(item)
        elif kind == "DeviceClass":
            device_class = to_device_class(msgspec.convert(item, WireDeviceClass))
            cluster.set_device_class(device_class.name, device_class)
        else:
            spec = item.get("spec")
            if not isinstance(spec, dict):
                raise DumpError(f"{shown}: spec: expected an object, got {json_type(spec)}")
            if kind == QUEUE.kind:
                self._add_queue(msgspec.convert(item | {"spec": checked_spec(item)}, WireQueue), shown)
                return
            name = item["metadata"]["name"]
            self._dump.policies[name] = parse_policy(name, checked_spec(item), find_models().known)

    def _add_pod(self, wire: WirePod, shown: str) -> None:
        pod = to_pod(wire, self._intern)
        if pod.bad_annotation and not pod.blocked_reason:
            problem = pod.annotation_problem or "it has no known value"
            self._dump.warnings.append(f"{shown}: {pod.bad_annotation}: {problem}; it is ignored")
        self._dump.cluster.put_pod(pod)
        self._without_priority.pop(pod.key, None)
        if wire.spec.priority is None or wire.spec.preemption_policy is None:
            self._without_priority[pod.key] = wire

    def _add_budget(self, wire: WireDisruptionBudget, shown: str) -> None:
        budget = to_disruption_budget(wire)
        self._dump.cluster.set_disruption_budget(budget.key, budget)
        if wire.status is None:
            self._dump.warnings.append(f"{shown}: it has no status, so none of its pods is evicted or moved")

    def _add_sample(self, item: dict[str, Any]) -> None:
        """A bad sample is left out, and the others count."""
        dump = self._dump
        try:
            if item["kind"] == NODE_METRICS.kind:
                name, sample = to_node_sample(item, self._now)
                dump.node_samples[name] = sample
            else:
                key, sample = to_pod_sample(item, self._now)
                dump.pod_samples[key] = sample
        except ModelError as error:
            dump.warnings.append(f"{error}. This sample does not count")

    def _add_queue(self, wire: WireQueue, shown: str) -> None:
        queue = to_queue(wire)
        if queue.problem:
            raise DumpError(f"{shown}: {queue.problem}")
        self._dump.cluster.queues.put(queue.name, queue)

    def _skip(self, item: dict[str, Any], kind: str) -> None:
        self._skipped[kind] += 1
        if kind not in self._first_seen_in:
            metadata = item.get("metadata")
            fields = metadata if isinstance(metadata, dict) else {}
            names = [str(fields[key]) for key in ("namespace", "name") if fields.get(key)]
            self._first_seen_in[kind] = f"{kind} {'/'.join(names)}".rstrip()


def _check_is_object(item: dict[str, Any], file: str) -> None:
    """Checks that an answer of an API server is an object.

    Raises:
        DumpError: the item is a Status or a Table.
    """
    if item["kind"] == "Status":
        message = " ".join(str(item.get("message") or item.get("reason") or "no message").split())
        raise DumpError(f"{file}: Status: this is an error of the API server, not an object: {message}")
    if item["kind"] == "Table":
        raise DumpError(f"{file}: Table: this is a table of columns; dump whole objects: {DUMP_COMMAND}")


def _name(item: dict[str, Any], file: str) -> tuple[str, str]:
    """Namespace ("" for kinds without namespaces) and name."""
    kind, metadata = item["kind"], item.get("metadata")
    if not isinstance(metadata, dict):
        raise DumpError(f"{file}: {kind}: metadata: expected an object, got {json_type(metadata)}")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise DumpError(f"{file}: {kind}: metadata.name: required value")
    namespace = metadata.get("namespace") or "default"
    return str(namespace) if kind in _NAMESPACED else "", name


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        return one == other
    except RecursionError:  # YAML that contains itself
        return False
