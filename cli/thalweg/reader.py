"""Reads cluster dumps: what ``kubectl get ... -o json`` or ``-o yaml`` prints, from one file or several."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from thalweg_operator.cost_models import find_models
from thalweg_operator.errors import PolicyError
from thalweg_operator.names import GROUP, KIND
from thalweg_operator.policies import parse

from flowcore.model.gang_terms import Source
from flowcore.model.volumes import key_of
from flowcore.model.wire import (
    STORAGE_KINDS,
    Interner,
    WireDeviceClass,
    WireNamespace,
    WireNode,
    WirePod,
    WirePodGroup,
    to_device_class,
    to_labels,
    to_node,
    to_pod,
    to_pod_group,
    to_storage_object,
)
from thalweg.dump import COMMAND, Dump
from thalweg.files import DumpError, json_type, objects_of, shown_as
from thalweg.policy_schema import checked_spec

#: Kinds that are read, with their API groups. Other projects have kinds of the same names, such as Node.longhorn.io.
_GROUPS = {
    **dict.fromkeys(STORAGE_KINDS, ("storage.k8s.io",)),
    **dict.fromkeys(("Node", "Pod", "Namespace", "PersistentVolume", "PersistentVolumeClaim"), ("",)),
    "DeviceClass": ("resource.k8s.io",),
    "PodGroup": tuple(source.value for source in Source if source.has_objects),
    KIND: (GROUP,),
}
_NAMESPACED = ("Pod", "PodGroup", "PersistentVolumeClaim", "CSIStorageCapacity")
#: Kinds whose controllers create pods.
_WORKLOADS = frozenset(
    ("CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
)

#: API group, kind, namespace and name.
_Key = tuple[str, str, str, str]


def read(files: tuple[str, ...]) -> Dump:
    """All files together.

    Raises:
        DumpError: a file cannot be read, an object in it has not the shape that Kubernetes gives it, or the files are
            not a dump of a cluster.
    """
    reader = _Reader()
    for name in files:
        reader.take_file(name)
    return reader.finished()


class _Reader:
    """Puts a dump together, file by file."""

    def __init__(self) -> None:
        self._dump, self._intern = Dump(), Interner()
        self._known: set[_Key] = set()
        self._files: list[str] = []
        #: Objects of each kind that is not read, and the first of them.
        self._unread: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def take_file(self, name: str) -> None:
        """Takes all objects of a file."""
        file = shown_as(name)
        here: dict[_Key, dict[str, Any]] = {}
        replaced: dict[str, list[str]] = {}
        for item in objects_of(name):
            kind, version = item["kind"], item.get("apiVersion") or ""
            _refuse_answer(item, file)
            group = str(version).rpartition("/")[0]
            # An object without apiVersion is taken for Kubernetes' own; PodGroup is a kind of several projects.
            if kind not in _GROUPS or (group not in _GROUPS[kind] and (version or kind == "PodGroup")):
                self._pass_over(item, f"{kind}.{group}" if kind in _GROUPS else kind)
                continue
            namespace, own = _name(item, file)
            key = (group, kind, namespace, own)
            shown = f"{namespace}/{own}" if namespace else own
            if key not in here:
                here[key] = item
                _take(self._dump, item, f"{file}: {kind} {shown}", self._intern)
                if key in self._known:
                    replaced.setdefault(kind, []).append(shown)
            elif not _equal(here[key], item):
                raise DumpError(f"{file}: {kind} {shown}: it is in the file twice, with different content")
        self._known.update(here)
        self._files.append(file)
        for kind, names in replaced.items():
            which = f"{kind} {names[0]} replaces" if len(names) == 1 else f"{len(names)} {kind} objects replace"
            self._dump.warnings.append(f"{file}: {which} what an earlier file has")

    def finished(self) -> Dump:
        """The dump, once all files are taken."""
        dump = self._dump
        workload = min(_WORKLOADS & self._unread.keys(), default="")
        if workload and not dump.pods:
            raise DumpError(
                f"{self._first[workload]}: only pods are planned, and no Pod is in the files. Create the {workload} in "
                f"a cluster and dump that: {COMMAND}"
            )
        if not dump.nodes:
            raise DumpError(f"{', '.join(self._files)}: no Node is in there. Dump the cluster with: {COMMAND}")
        for kind, count in sorted(self._unread.items()):
            which = f"{count} {kind} {'object' if count == 1 else 'objects'}"
            what = "only pods that exist are planned" if kind in _WORKLOADS else "no plan depends on this kind"
            dump.warnings.append(f"{which} not read, such as {self._first[kind]}: {what}")
        return dump

    def _pass_over(self, item: dict[str, Any], kind: str) -> None:
        self._unread[kind] += 1
        if kind not in self._first:
            metadata = item.get("metadata")
            found = metadata if isinstance(metadata, dict) else {}
            names = [str(found[key]) for key in ("namespace", "name") if found.get(key)]
            self._first[kind] = f"{kind} {'/'.join(names)}".rstrip()


def _refuse_answer(item: dict[str, Any], file: str) -> None:
    """What an API server answers in place of objects, or for people."""
    if item["kind"] == "Status":
        message = " ".join(str(item.get("message") or item.get("reason") or "no message").split())
        raise DumpError(f"{file}: Status: the API server answered with an error, not with objects: {message}")
    if item["kind"] == "Table":
        raise DumpError(f"{file}: Table: this lists columns for people; dump whole objects: {COMMAND}")


def _name(item: dict[str, Any], file: str) -> tuple[str, str]:
    """Namespace, "" for kinds without one, and name."""
    kind, metadata = item["kind"], item.get("metadata")
    if not isinstance(metadata, dict):
        raise DumpError(f"{file}: {kind}: metadata: expected an object, got {json_type(metadata)}")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise DumpError(f"{file}: {kind}: metadata.name: every object has a name")
    namespace = metadata.get("namespace") or "default"
    return str(namespace) if kind in _NAMESPACED else "", name


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        return one == other
    except RecursionError:  # YAML that contains itself
        return False


def _take(dump: Dump, item: dict[str, Any], shown: str, intern: Interner) -> None:
    kind = item["kind"]
    try:
        if kind == "Node":
            node = to_node(msgspec.convert(item, WireNode), intern)
            dump.nodes[node.name] = node
        elif kind == "Pod":
            pod = to_pod(msgspec.convert(item, WirePod), intern)
            dump.pods[pod.key] = pod
        elif kind == "Namespace":
            namespace = msgspec.convert(item, WireNamespace).metadata
            dump.namespaces[namespace.name] = to_labels(namespace.labels)
        elif kind in STORAGE_KINDS:
            found = to_storage_object(kind, item)
            if found is not None:
                dump.storage[key_of(found)] = found
        elif kind == "PodGroup":
            source = Source(str(item.get("apiVersion")).partition("/")[0])
            group = to_pod_group(msgspec.convert(item, WirePodGroup), source, intern)
            dump.pod_groups[group.key] = group
        elif kind == "DeviceClass":
            name = item["metadata"]["name"]
            dump.device_classes[name] = to_device_class(msgspec.convert(item, WireDeviceClass))
        else:
            spec = item.get("spec")
            if not isinstance(spec, dict):
                raise DumpError(f"{shown}: spec: expected an object, got {json_type(spec)}")
            name = item["metadata"]["name"]
            dump.policies[name] = parse(name, checked_spec(item), find_models().known)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        where = path.removeprefix("key` in `").removeprefix("$").removeprefix(".").rstrip("`")
        raise DumpError(f"{shown}: {where}: {problem}" if where else f"{shown}: {problem}") from error
    except PolicyError as error:
        raise DumpError(f"{shown}: {error}") from error
