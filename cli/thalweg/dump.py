"""Reads cluster dumps: what ``kubectl get ... -o json`` or ``-o yaml`` prints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml
from thalweg_operator.cost_models import find_models
from thalweg_operator.errors import PolicyError
from thalweg_operator.names import GROUP
from thalweg_operator.policies import parse

from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.gang_book import GangBook
from flowcore.model.gang_terms import GangKey, PodGroup, Source
from flowcore.model.gangs import Gang
from flowcore.model.neighbours import Neighbours
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, governing, in_order
from flowcore.model.replacing import named_by, replaced_by
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import Replaced
from flowcore.model.volumes import StorageKey, StorageObject, key_of
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

#: Kinds that are read; all others are passed over.
_KINDS = ("Node", "Pod", "Namespace", "FlowSchedulingPolicy", "DeviceClass", "PodGroup", *STORAGE_KINDS)
_NAMESPACED = ("Pod", "PodGroup", "PersistentVolumeClaim", "CSIStorageCapacity")

#: API groups whose PodGroup is read.
_POD_GROUPS = [source.value for source in Source if source.has_objects]


class DumpError(Exception):
    """A file that cannot be read; the message names the file, the object and the field."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: what looks like a date stays a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class Dump:
    """The objects of all files; of an object that comes twice the last one counts."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    namespaces: dict[str, Labels] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    storage: dict[StorageKey, StorageObject] = field(default_factory=dict)
    device_classes: dict[str, DeviceClass] = field(default_factory=dict)
    pod_groups: dict[GangKey, PodGroup] = field(default_factory=dict)

    def running(self) -> list[Pod]:
        """Pods that hold room on a node, known or not."""
        return [pod for pod in self.pods.values() if pod.node_name and not pod.terminal]

    def waiting(self) -> list[Pod]:
        """Pods without a node, those too that may not be placed."""
        backed = device_resources(self.device_classes.values())
        return [with_devices(pod, backed) for pod in self.pods.values() if not pod.node_name and not pod.terminal]

    def replaced(self, pod: Pod) -> Replaced | None:
        """The running pod whose place a waiting one is to take."""
        if pod.replaces is None:
            return None
        old = self.pods.get(named_by(pod))
        there = [] if old is None else [each for each in self.running() if each.node_name == old.node_name]
        ports = Counter(port for each in there for port in each.pod_class.host_ports)
        return replaced_by(pod, self.pods, ports, Counter(each for pod in there for each in pod.pod_class.volumes))

    def gangs(self, policies: Mapping[str, Policy]) -> tuple[dict[str, tuple[str, ...]], list[Gang]]:
        """Gangs that waiting pods belong to: their names by the pods' keys, and what they need."""
        book = GangBook()
        for group in self.pod_groups.values():
            book.put_group(group)
        for pod in self.pods.values():
            book.put(pod)
        governed = ((pod, self.policy_of(pod, policies).delivery) for pod in self.waiting())
        asked = [(pod, delivery) for pod, delivery in governed if not pod.left_alone(delivery)]
        labels = {node.name: dict(node.labels) for node in self.nodes.values()}
        names, gangs = book.of_waiting(asked, {}, lambda node, key: labels.get(node, {}).get(key, ""))
        return {pod.key: of_it for (pod, _), of_it in zip(asked, names, strict=True)}, gangs

    def neighbours(self) -> Neighbours:
        """The running pods as rules between pods see them."""
        return Neighbours.of(((pod.node_name, pod.kind) for pod in self.running()), self.namespaces)

    def in_force(self) -> dict[str, Policy]:
        """Policies by name, the built-in default among them; the first that matches a pod governs it."""
        return {policy.name: policy for policy in in_order([BUILT_IN, *self.policies.values()])}

    def policy_of(self, pod: Pod, policies: Mapping[str, Policy]) -> Policy:
        """The policy that governs a pod, of those in force; the built-in default where there is none."""
        labels = self.namespaces.get(pod.namespace, ())
        found = governing(policies.values(), pod.scheduler_name, pod.labels, labels)
        return found[0] if found else BUILT_IN


def read(files: tuple[str, ...]) -> Dump:
    """All files together.

    Raises:
        DumpError: a file cannot be read, or an object in it has not the shape that Kubernetes gives it.
    """
    dump, intern = Dump(), Interner()
    for name in files:
        shown = "standard input" if name == "-" else name
        for item in _objects(name, shown):
            _take(dump, item, shown, intern)
    return dump


def _objects(name: str, shown: str) -> Iterator[dict[str, Any]]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DumpError(f"{shown}: cannot be read: {reason}") from error
    documents: list[Any]
    try:
        documents = [msgspec.json.decode(text)]
    except msgspec.DecodeError as not_json:
        if text.lstrip()[:1] in ("{", "["):
            raise DumpError(f"{shown}: not valid JSON: {not_json}") from not_json
        try:
            documents = list(yaml.load_all(text, Loader=_Loader))
        except yaml.YAMLError as error:
            raise DumpError(f"{shown}: not valid YAML: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise DumpError(f"{shown}: nested too deeply") from error
    except RecursionError as error:
        raise DumpError(f"{shown}: nested too deeply") from error
    found = 0
    for at, document in enumerate(documents):
        where = f"{shown}: document {at + 1}" if len(documents) > 1 else shown
        if document is None:
            continue
        found += 1
        yield from _flatten(document, where)
    if not found:
        raise DumpError(f"{shown}: holds no object")


def _flatten(document: Any, where: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise DumpError(f"{where}: expected a Kubernetes object, got {_kind_of(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise DumpError(f"{where}: kind: an object says which kind it is; is this what kubectl printed?")
    if not kind.endswith("List"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise DumpError(f"{where}: {kind}: items: expected a list, got {_kind_of(items)}")
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise DumpError(f"{where}: {kind}: items[{at}]: expected an object, got {_kind_of(item)}")
        if not isinstance(item.get("kind", ""), str):
            raise DumpError(f"{where}: {kind}: items[{at}].kind: expected a string, got {_kind_of(item['kind'])}")
        # Typed lists (PodList) leave the kind of their items out, and its version.
        said = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
        yield item if "kind" in item else said | item


def _take(dump: Dump, item: dict[str, Any], file: str, intern: Interner) -> None:
    kind = item["kind"]
    if kind not in _KINDS:
        return
    metadata = item.get("metadata")
    if not isinstance(metadata, dict):
        raise DumpError(f"{file}: {kind}: metadata: expected an object, got {_kind_of(metadata)}")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise DumpError(f"{file}: {kind}: metadata.name: every object has a name")
    namespace = metadata.get("namespace")
    namespaced = kind in _NAMESPACED
    shown = f"{file}: {kind} {namespace or 'default'}/{name}" if namespaced else f"{file}: {kind} {name}"
    try:
        if kind == "Node":
            dump.nodes[name] = to_node(msgspec.convert(item, WireNode), intern)
        elif kind == "Pod":
            pod = to_pod(msgspec.convert(item, WirePod), intern)
            dump.pods[pod.key] = pod
        elif kind == "Namespace":
            dump.namespaces[name] = to_labels(msgspec.convert(item, WireNamespace).metadata.labels)
        elif kind in STORAGE_KINDS:
            found = to_storage_object(kind, item)
            if found is not None:
                dump.storage[key_of(found)] = found
        elif kind == "PodGroup":
            source = str(item.get("apiVersion", "")).partition("/")[0]
            if source in _POD_GROUPS:
                group = to_pod_group(msgspec.convert(item, WirePodGroup), Source(source), intern)
                dump.pod_groups[group.key] = group
        elif kind == "DeviceClass":
            dump.device_classes[name] = to_device_class(msgspec.convert(item, WireDeviceClass))
        elif str(item.get("apiVersion", "")).startswith(f"{GROUP}/"):
            spec = item.get("spec")
            if not isinstance(spec, dict):
                raise DumpError(f"{shown}: spec: expected an object, got {_kind_of(spec)}")
            dump.policies[name] = parse(name, spec, find_models().known)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        where = path.removeprefix("key` in `").removeprefix("$").removeprefix(".").rstrip("`")
        raise DumpError(f"{shown}: {where}: {problem}" if where else f"{shown}: {problem}") from error
    except PolicyError as error:
        raise DumpError(f"{shown}: {error}") from error


def _kind_of(value: Any) -> str:
    names = {type(None): "nothing", dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
