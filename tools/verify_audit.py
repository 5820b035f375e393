"""Checks what `thalweg audit -o json` says against the dump that it is of, without any code of Thalweg.

    python tools/verify_audit.py audit.json now.json [more.json ...]

It carries out the steps of each plan in a copy of the dump: resources, labels, taints, ports, rules between pods,
PodDisruptionBudgets, each pod once. Then it counts what the plan has gained. From the prices of room it computes what
no plan exceeds, in whole numbers. Exit code 0: all that could be checked is true; what was not checked is named.
Exit code 1: something is not true. Exit code 2: a file cannot be read.

The bound. A plan is any choice of nodes for the pods that come, and for those that run and may be moved. With prices of
room, none negative, every pod pays for what it takes, where that is cheapest, and all room is given back at its price.
So what comes is worth at most what it is worth above what it pays, plus the price of all room, less what those pay that
run already.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from math import ceil, gcd
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|(n|u|m|k|[KMGTPE]i|[MGTPE])?)")
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SYSTEM_CRITICAL: Final = 2_000_000_000
_EVICTABLE: Final = "scheduling.thalweg/evictable"
_CHECKPOINT: Final = "scheduling.thalweg/checkpointed-at"
_MIRROR: Final = "kubernetes.io/config.mirror"
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Untrue(Exception):
    """The audit says something that does not hold."""


# --- the dump ---


def quantity(value: Any) -> Fraction:
    """A quantity of Kubernetes."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f'"{value}" is no quantity')
    number, exponent, suffix = match.groups()
    return Fraction(number.rstrip(".")) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def exact(amounts: Mapping[str, Any] | None) -> dict[str, Fraction]:
    """A list of resources."""
    return {name: quantity(value) for name, value in (amounts or {}).items()}


def whole(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Milli-cores of cpu, else whole units, rounded up as kube-scheduler does."""
    return {name: ceil(value * 1000 if name == "cpu" else value) for name, value in amounts.items()}


def add(*lists: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The sum of lists of resources."""
    return {
        name: sum((each.get(name, Fraction(0)) for each in lists), Fraction(0)) for name in set[str]().union(*lists)
    }


def largest(*lists: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The largest of each resource."""
    return {name: max(each.get(name, Fraction(0)) for each in lists) for name in set[str]().union(*lists)}


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects labels; None selects nothing, one without requirements everything."""
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(holds(each, labels) for each in selector.get("matchExpressions") or ())


def holds(rule: Object, labels: Mapping[str, str]) -> bool:
    """Whether one requirement holds: In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    value, values = labels.get(rule["key"]), rule.get("values") or []
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as which:
            if value is None or not re.fullmatch(r"[+-]?\d+", value):
                return False
            return int(value) > int(values[0]) if which == "Gt" else int(value) < int(values[0])
    return False


@dataclass(eq=False)
class Pod:
    """A pod of the dump."""

    manifest: Object
    classes: Mapping[str, int]

    @cached_property
    def meta(self) -> Object:
        return self.manifest["metadata"]  # type: ignore[no-any-return]

    @cached_property
    def spec(self) -> Object:
        return self.manifest.get("spec") or {}

    @cached_property
    def status(self) -> Object:
        return self.manifest.get("status") or {}

    @cached_property
    def namespace(self) -> str:
        return self.meta.get("namespace") or "default"

    @cached_property
    def key(self) -> str:
        return f"{self.namespace}/{self.meta['name']}"

    @cached_property
    def labels(self) -> dict[str, str]:
        return self.meta.get("labels") or {}

    @property
    def node(self) -> str:
        return self.spec.get("nodeName") or ""

    @property
    def ended(self) -> bool:
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def deleting(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))

    @cached_property
    def priority(self) -> int:
        if self.spec.get("priority") is not None:
            return int(self.spec["priority"])
        name = self.spec.get("priorityClassName") or ""
        return self.classes.get(name, _SYSTEM_CLASSES.get(name, self.classes.get("", 0)))

    @cached_property
    def controller(self) -> Object:
        return next((owner for owner in self.meta.get("ownerReferences") or () if owner.get("controller")), {})

    @cached_property
    def static(self) -> bool:
        return _MIRROR in (self.meta.get("annotations") or {})

    @cached_property
    def permanent(self) -> bool:
        """It belongs to its node."""
        return self.static or self.controller.get("kind") in ("DaemonSet", "Node")

    @cached_property
    def stays(self) -> str:
        """Why no plan moves it; "": plans may."""
        evictable = (self.meta.get("annotations") or {}).get(_EVICTABLE, "true")
        volumes = {kind for volume in self.spec.get("volumes") or () for kind in volume}
        reasons = {
            "it has not started": self.status.get("phase") == "Pending"
            and not self.status.get("startTime")
            and bool(self.meta.get("creationTimestamp")),
            "it is a static pod": self.static,
            "no controller would replace it": not self.controller.get("uid"),
            "it belongs to its node": self.permanent,
            "it is system-critical": self.priority >= _SYSTEM_CRITICAL,
            "its annotation says so": evictable != "true",
            "its volumes keep it": bool(volumes & {"emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral"}),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    @cached_property
    def requests(self) -> dict[str, int]:
        """What it asks for, one of ``pods`` among it."""
        return self._total(lambda container: exact((container.get("resources") or {}).get("requests")))

    @cached_property
    def holds(self) -> dict[str, int]:
        """What it takes on its node: while it is resized, the largest of what it asks for and has."""
        seen = {each["name"]: each for kind in ("containerStatuses", "initContainerStatuses")
                for each in self.status.get(kind) or ()}  # fmt: skip

        def held(container: Object) -> dict[str, Fraction]:
            status = seen.get(container["name"], {})
            has = (status.get("resources") or {}).get("requests")
            asked = exact((container.get("resources") or {}).get("requests"))
            return largest(asked, exact(has), exact(status.get("allocatedResources")))

        return self._total(held)

    def _total(self, of: Any) -> dict[str, int]:
        """Source: component-helpers resource/helpers.go (PodRequests)."""
        total = add(*map(of, self.spec.get("containers") or ()), {})
        beside: dict[str, Fraction] = {}
        starting: dict[str, Fraction] = {}
        for container in self.spec.get("initContainers") or ():
            if container.get("restartPolicy") == "Always":
                beside = add(beside, of(container))
                starting = largest(starting, beside)
            else:
                starting = largest(starting, add(beside, of(container)))
        total = largest(add(total, beside), starting) | exact((self.spec.get("resources") or {}).get("requests"))
        return whole(add(total, exact(self.spec.get("overhead")))) | {"pods": 1}

    @cached_property
    def ports(self) -> set[tuple[str, str, int]]:
        """Host ports: address, protocol, number."""
        stay = [each for each in self.spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
        return {
            (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])  # noqa: S104 - a value
            for container in [*(self.spec.get("containers") or ()), *stay]
            for port in container.get("ports") or ()
            if port.get("hostPort")
        }

    def terms(self, kind: str) -> list[Object]:
        """Required terms of podAffinity or podAntiAffinity."""
        rules = (self.spec.get("affinity") or {}).get(kind) or {}
        return rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []

    def unchecked(self) -> Iterator[str]:
        """What of it is not checked here."""
        if any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in self.spec.get("volumes") or ()):
            yield "volume claims"
        if self.spec.get("resourceClaims"):
            yield "resource claims"


def tolerates(pod: Pod, taint: Object) -> bool:
    """Whether a pod tolerates a taint."""
    for each in pod.spec.get("tolerations") or ():
        if each.get("effect") and each["effect"] != taint.get("effect"):
            continue
        if each.get("key") and each["key"] != taint["key"]:
            continue
        if each.get("operator") == "Exists" or (
            each.get("operator") in (None, "", "Equal")
            and each.get("key")
            and (each.get("value") or "") == (taint.get("value") or "")
        ):
            return True
    return False


def conflict(port: tuple[str, str, int], another: tuple[str, str, int]) -> bool:
    """Whether two host ports exclude each other."""
    everywhere = "0.0.0.0"  # noqa: S104 - a value
    return port[1:] == another[1:] and (port[0] == another[0] or everywhere in (port[0], another[0]))


@dataclass
class Dump:
    """The objects of a dump, and where its pods are; steps change that."""

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    budgets: list[Object] = field(default_factory=list)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    by_devices: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, files: Iterable[Path]) -> Dump:
        """The dump of some files; of an object that is in several the last counts."""
        objects = [each for path in files for each in flattened(json.loads(path.read_text()))]
        classes = {each["metadata"]["name"]: int(each["value"]) for each in objects if each["kind"] == "PriorityClass"}
        for each in objects:
            if each["kind"] == "PriorityClass" and each.get("globalDefault"):
                classes[""] = int(each["value"])
        dump, budgets = cls(), dict[tuple[str, str], Object]()
        for each in objects:
            kind, meta = each["kind"], each["metadata"]
            dump.kinds[kind] += 1
            if kind == "Node":
                dump.nodes[meta["name"]] = each
            elif kind == "Pod":
                pod = Pod(each, classes)
                dump.pods[pod.key] = pod
            elif kind == "PodDisruptionBudget":
                budgets[meta.get("namespace") or "default", meta["name"]] = each
            elif kind == "Namespace":
                dump.namespaces[meta["name"]] = meta.get("labels") or {}
            elif kind == "DeviceClass" and (each.get("spec") or {}).get("extendedResourceName"):
                dump.by_devices.add(each["spec"]["extendedResourceName"])
        dump.budgets = [*budgets.values()]
        return dump

    @cached_property
    def waiting(self) -> dict[str, Pod]:
        """Pods without a node."""
        return {key: pod for key, pod in self.pods.items() if not (pod.node or pod.ended)}

    @cached_property
    def running(self) -> dict[str, Pod]:
        """Pods that hold room on a known node and do not leave already."""
        on_nodes = ((key, pod) for key, pod in self.pods.items() if pod.node in self.nodes)
        return {key: pod for key, pod in on_nodes if not (pod.ended or pod.deleting)}

    def protecting(self, pod: Pod) -> list[Object]:
        """The PodDisruptionBudgets of a pod."""
        return [
            each
            for each in self.budgets
            if (each["metadata"].get("namespace") or "default") == pod.namespace
            and matches((each.get("spec") or {}).get("selector"), pod.labels)
        ]

    def may_use(self, pod: Pod, name: str) -> str:
        """Why labels, taints or names keep a pod from a node; "": they do not."""
        node = self.nodes[name]
        spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
        if spec.get("unschedulable") and not tolerates(pod, _CORDONED):
            return "it is cordoned"
        for taint in spec.get("taints") or ():
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(pod, taint):
                return f"it has the taint {taint['key']}"
        return "" if self.selects(pod, name, labels) else "its labels do not match"

    @staticmethod
    def selects(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node selector and the required node affinity of a pod select a node."""
        if any(labels.get(key) != value for key, value in (pod.spec.get("nodeSelector") or {}).items()):
            return False
        affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None:
            return True
        return any(
            (term.get("matchExpressions") or term.get("matchFields"))
            and all(holds(rule, labels) for rule in term.get("matchExpressions") or ())
            and all(holds(rule, {"metadata.name": name}) for rule in term.get("matchFields") or ())
            for term in required.get("nodeSelectorTerms") or ()
        )

    def allocatable(self, name: str) -> dict[str, int]:
        """What a node offers."""
        return whole(exact((self.nodes[name].get("status") or {}).get("allocatable")))


def flattened(document: Object) -> Iterator[Object]:
    """The objects of a file."""
    kind = document.get("kind", "")
    if not kind.endswith("List"):
        yield document
        return
    for item in document.get("items") or ():
        yield from flattened({"kind": kind.removesuffix("List")} | item)


# --- the replay ---


class Replay:
    """A copy of the cluster in which steps are carried out."""

    def __init__(self, dump: Dump) -> None:
        self.dump, self.unchecked = dump, set[str]()
        self.on: dict[str, dict[str, Pod]] = {name: {} for name in dump.nodes}
        for key, pod in dump.pods.items():
            if pod.node in self.on and not pod.ended:
                self.on[pod.node][key] = pod
        self.offered = {name: dump.allocatable(name) for name in dump.nodes}
        self.used: dict[str, Counter[str]] = {name: Counter() for name in dump.nodes}
        for name, pods in self.on.items():
            for pod in pods.values():
                self.used[name].update(pod.holds)
        self.left_of = {
            id(each): int((each.get("status") or {}).get("disruptionsAllowed") or 0) for each in dump.budgets
        }
        #: Pods that exclude others, and where they are.
        self.averse = {
            key: pod.node for key, pod in dump.pods.items() if pod.node in self.on and key in self.on[pod.node]
            and pod.terms("podAntiAffinity")
        }  # fmt: skip
        self.touched = set[str]()

    def carry_out(self, step: Object, *, may_evict: bool) -> None:
        """One step.

        Raises:
            Untrue: it is not legal.
        """
        key, action = step["pod"], step["action"]
        if key in self.touched:
            raise Untrue(f"{key} is in two steps")
        self.touched.add(key)
        if action == "Place":
            pod = self.dump.waiting.get(key)
            if pod is None or pod.deleting or pod.spec.get("schedulingGates"):
                raise Untrue(f"{key} does not wait for a node")
            self._check_room(pod, step["node"])
            self._come(pod, step["node"])
            return
        pod = self.dump.running.get(key)
        if pod is None or pod.node != step["from"]:
            raise Untrue(f"{key} does not run on {step['from']}")
        self._check_leaving(pod, step, may_evict=may_evict)
        if action == "Move":
            if step["node"] == pod.node:
                raise Untrue(f"{key} moves to the node where it is")
            self._check_room(pod, step["node"])  # while it still holds its room
        del self.on[pod.node][key]
        self.averse.pop(key, None)
        self.used[pod.node].subtract(pod.holds)
        if action == "Move":
            self._come(pod, step["node"])

    def _check_leaving(self, pod: Pod, step: Object, *, may_evict: bool) -> None:
        if step["action"] not in ("Move", "Evict"):
            raise Untrue(f'"{step["action"]}" is no step')
        if step["action"] == "Evict" and not may_evict:
            raise Untrue(f"{pod.key} is evicted, and no pod may lose its place here")
        if reason := pod.stays if step["action"] == "Move" else "it is a static pod" if pod.static else "":
            raise Untrue(f"{pod.key} leaves {pod.node}, and may not: {reason}")
        budgets = self.dump.protecting(pod)
        if len(budgets) > 1:
            raise Untrue(f"{pod.key} leaves {pod.node}, and several PodDisruptionBudgets protect it")
        for budget in budgets:
            self.left_of[id(budget)] -= 1
            if self.left_of[id(budget)] < 0:
                name = budget["metadata"]["name"]
                raise Untrue(f"{pod.key} leaves {pod.node} against the PodDisruptionBudget {name}")

    def fits(self, pod: Pod, name: str) -> str:
        """What a node lacks for a pod; "": nothing."""
        for resource, amount in pod.requests.items():
            if resource in self.dump.by_devices and not self.offered[name].get(resource):
                self.unchecked.add(f"{resource} by devices")
            elif amount and self.used[name][resource] + amount > self.offered[name].get(resource, 0):
                return resource
        return ""

    def _check_room(self, pod: Pod, name: str) -> None:
        if name not in self.dump.nodes:
            raise Untrue(f"{pod.key} goes to {name}, which is no node")
        if reason := self.dump.may_use(pod, name):
            raise Untrue(f"{pod.key} may not use {name}: {reason}")
        if lacking := self.fits(pod, name):
            raise Untrue(f"{pod.key} goes to {name}, which has too little {lacking}")
        for other in self.on[name].values() if pod.ports else ():
            if any(conflict(port, another) for port in pod.ports for another in other.ports):
                raise Untrue(f"{pod.key} goes to {name}, where {other.key} has its host port")

    def _come(self, pod: Pod, name: str) -> None:
        self._check_affinity(pod, name)
        self._check_spread(pod, name)
        self.unchecked.update(pod.unchecked())
        self.on[name][pod.key] = pod
        if pod.terms("podAntiAffinity"):
            self.averse[pod.key] = name
        self.used[name].update(pod.requests)

    # --- rules between pods ---

    def _labels(self, name: str) -> Mapping[str, str]:
        return self.dump.nodes[name]["metadata"].get("labels") or {}

    def _in_domain(self, key: str, value: str) -> Iterator[Pod]:
        for name, pods in self.on.items():
            if self._labels(name).get(key) == value:
                yield from pods.values()

    def _selected(self, term: Object, owner: Pod, other: Pod) -> bool:
        """Whether an affinity term of a pod selects another pod."""
        namespaces = term.get("namespaces") or []
        by_label = term.get("namespaceSelector")
        if not namespaces and by_label is None:
            namespaces = [owner.namespace]
        in_namespace = other.namespace in namespaces or matches(by_label, self.dump.namespaces.get(other.namespace, {}))
        own = [(key, owner.labels[key]) for key in term.get("matchLabelKeys") or () if key in owner.labels]
        differ = [(key, owner.labels[key]) for key in term.get("mismatchLabelKeys") or () if key in owner.labels]
        return (
            in_namespace
            and matches(term.get("labelSelector"), other.labels)
            and all(other.labels.get(key) == value for key, value in own)
            and not any(other.labels.get(key) == value for key, value in differ)
        )

    def _check_affinity(self, pod: Pod, name: str) -> None:
        labels = self._labels(name)
        for term in pod.terms("podAntiAffinity"):
            value = labels.get(term["topologyKey"])
            if value is not None:
                for other in self._in_domain(term["topologyKey"], value):
                    if self._selected(term, pod, other):
                        raise Untrue(f"{pod.key} goes to {name}, and its anti-affinity excludes {other.key}")
        for key, where in self.averse.items():
            other = self.dump.pods[key]
            for term in other.terms("podAntiAffinity"):
                value = labels.get(term["topologyKey"])
                is_near = value is not None and value == self._labels(where).get(term["topologyKey"])
                if is_near and self._selected(term, other, pod):
                    raise Untrue(f"{pod.key} goes to {name}, and the anti-affinity of {key} excludes it")
        terms = pod.terms("podAffinity")
        if not terms:
            return

        def wanted(other: Pod) -> bool:
            return all(self._selected(term, pod, other) for term in terms)

        if any(term["topologyKey"] not in labels for term in terms):
            raise Untrue(f"{pod.key} goes to {name}, which lacks a label of its affinity")
        anywhere = any(wanted(other) for pods in self.on.values() for other in pods.values())
        if not anywhere and wanted(pod):
            return  # the first pod of its group
        for term in terms:
            if not any(wanted(other) for other in self._in_domain(term["topologyKey"], labels[term["topologyKey"]])):
                raise Untrue(f"{pod.key} goes to {name}, and its affinity is not met there")

    def _check_spread(self, pod: Pod, name: str) -> None:
        hard = [
            each
            for each in pod.spec.get("topologySpreadConstraints") or ()
            if each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = {each["topologyKey"] for each in hard}
        for rule in hard:
            key, own = rule["topologyKey"], self._labels(name)
            if not keys <= own.keys():
                raise Untrue(f"{pod.key} goes to {name}, which lacks a label of its spread constraints")
            counts = Counter[str]()
            for where, pods in self.on.items():
                labels = self._labels(where)
                honoured = rule.get("nodeAffinityPolicy", "Honor") != "Honor" or self.dump.selects(pod, where, labels)
                taints = rule.get("nodeTaintsPolicy", "Ignore") != "Honor" or not self._tainted(pod, where)
                if keys <= labels.keys() and honoured and taints:
                    counts[labels[key]] += sum(self._counts(rule, pod, other) for other in pods.values())
            least = min(counts.values(), default=0) if len(counts) >= (rule.get("minDomains") or 1) else 0
            here = counts[own[key]] + self._counts(rule, pod, pod)
            if here - least > rule["maxSkew"]:
                raise Untrue(f"{pod.key} goes to {name}, and its spread over {key} is broken")

    def _tainted(self, pod: Pod, name: str) -> bool:
        taints = (self.dump.nodes[name].get("spec") or {}).get("taints") or ()
        return any(each.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(pod, each) for each in taints)

    @staticmethod
    def _counts(rule: Object, pod: Pod, other: Pod) -> bool:
        own = [key for key in rule.get("matchLabelKeys") or () if key in pod.labels]
        return (
            other.namespace == pod.namespace
            and not other.deleting
            and matches(rule.get("labelSelector"), other.labels)
            and all(other.labels.get(key) == pod.labels[key] for key in own)
        )


# --- the bound ---


@dataclass(eq=False)
class Kind:
    """Pods that ask for the same and may use the same nodes; ``most`` of them fit on each node if no others come."""

    requests: tuple[int, ...]
    nodes: frozenset[str]
    pods: int = 0
    homes: Counter[str] = field(default_factory=Counter)
    most: dict[str, int] = field(default_factory=dict)


class Bound:
    """The room that pods compete for, and its prices."""

    def __init__(self, dump: Dump, stated: Object, coming: Sequence[tuple[Pod, int]], gone: Iterable[str] = ()) -> None:
        self._dump, self._may_use = dump, dict[str, frozenset[str]]()
        self.parts = stated["parts"]
        if type(self.parts) is not int or self.parts < 1:
            raise Untrue("its prices count parts of nothing")
        # What devices may stand for is no room of nodes.
        self.resources = [name for name in stated["resources"] if name not in dump.by_devices]
        self.prices = {name: [0] * len(self.resources) for name in dump.nodes}
        self._pool_of = dict.fromkeys(dump.nodes, -1)
        for number, pool in enumerate(stated["pools"]):
            row = [pool["prices"].get(resource, 0) for resource in self.resources]
            if any(type(price) is not int or price < 0 for price in row):
                raise Untrue("a price is no whole number, or is negative")
            for name in pool["nodes"]:
                if self._pool_of.get(name) != -1:
                    raise Untrue(f"{name} is no node, or is in two pools")
                self._pool_of[name], self.prices[name] = number, row
        away, homes = set(gone), dict[tuple[tuple[int, ...], frozenset[str]], Kind]()
        held = {name: [0] * len(self.resources) for name in dump.nodes}
        stays = {name: [0] * len(self.resources) for name in dump.nodes}
        for key, pod in dump.pods.items():
            if pod.node not in dump.nodes or pod.ended or key in away:
                continue
            holds = self._vector(pod.holds)
            if key not in dump.running or pod.stays:
                stays[pod.node] = sums(stays[pod.node], holds)
                continue
            least = tuple(map(min, self._vector(pod.requests), holds))
            held[pod.node] = sums(held[pod.node], least)
            nodes = self._nodes(pod)
            homes.setdefault((least, nodes), Kind(least, nodes)).homes[pod.node] += 1
        kinds = dict[tuple[tuple[int, ...], frozenset[str]], Kind]()
        self.kind_of = dict[str, Kind]()
        for pod, count in coming:
            asked, nodes = tuple(self._vector(pod.requests)), self._nodes(pod)
            kind = kinds.setdefault((asked, nodes), Kind(asked, nodes))
            kind.pods += count
            self.kind_of[pod.key] = kind
        self.coming, self.staying = [*kinds.values()], [*homes.values()]
        asked = [kind.requests for kind in (*self.coming, *self.staying)]
        units = [gcd(*column) or 1 for column in zip(*asked, strict=True)] or [1] * len(self.resources)
        self.room: dict[str, list[int]] = {}
        for name in dump.nodes:
            offered = self._vector(dump.allocatable(name))
            # Where a node holds more than it offers, its pods may stay all the same.
            free = [
                max(most - taken, own, 0) for most, taken, own in zip(offered, stays[name], held[name], strict=True)
            ]
            self.room[name] = [amount // unit * unit for amount, unit in zip(free, units, strict=True)]
        for kind in (*self.coming, *self.staying):
            kind.pods = kind.pods or kind.homes.total()
            for name in kind.nodes | kind.homes.keys():
                asks = zip(self.room[name], kind.requests, strict=True)
                kind.most[name] = min([kind.pods, *(room // asked for room, asked in asks if asked)])

    def _vector(self, amounts: Mapping[str, int]) -> list[int]:
        return [amounts.get(name, 0) for name in self.resources]

    def _nodes(self, pod: Pod) -> frozenset[str]:
        spec = pod.spec
        read = [spec.get("nodeSelector"), (spec.get("affinity") or {}).get("nodeAffinity"), spec.get("tolerations")]
        text = json.dumps(read, sort_keys=True)
        if text not in self._may_use:
            self._may_use[text] = frozenset(name for name in self._dump.nodes if not self._dump.may_use(pod, name))
        return self._may_use[text]

    def paid(self, kind: Kind) -> list[tuple[int, int]]:
        """What pods of a kind pay at least, the cheapest first, and how many pay so much."""
        in_pool = Counter[int]()
        cost: dict[int, int] = {}
        for name, most in kind.most.items():
            pool = self._pool_of[name]
            in_pool[pool] += most
            cost[pool] = times(self.prices[name], kind.requests)
        paid, left = [], kind.pods
        for price, count in sorted((cost[pool], count) for pool, count in in_pool.items() if count):
            taken = min(left, count)
            paid += [(price, taken)] if taken else []
            left -= taken
        return paid

    def worth(self, name: str) -> int:
        """The price of all room of a node."""
        return times(self.prices[name], self.room[name])

    def net_price(self) -> int:
        """The price of all room, less what those pay that run already."""
        paid = sum(price * pods for kind in self.staying for price, pods in self.paid(kind))
        return sum(map(self.worth, self.room)) - paid

    def most_that_come(self) -> int:
        """No plan lets more pods come."""
        gained = sum(max(0, self.parts - price) * pods for kind in self.coming for price, pods in self.paid(kind))
        return (gained + self.net_price()) // self.parts

    def most_gangs(self, gangs: Sequence[Object]) -> int:
        """No plan runs more gangs whole. A pod that several gangs count pays an equal part for each."""
        shared, gained = Counter(key for gang in gangs for key in gang["pods"]), 0
        for gang in gangs:
            cheapest = [(key, self.paid(self.kind_of[key])) for key in gang["pods"]]
            costs = sorted(paid[0][0] // shared[key] for key, paid in cheapest if paid)
            if len(costs) >= gang["needs"]:
                gained += max(0, self.parts - sum(costs[: gang["needs"]]))
        return (gained + self.net_price()) // self.parts

    def most_empty(self, may_be_empty: Iterable[str]) -> int:
        """No plan has more empty nodes."""
        gained = sum(max(0, self.parts - self.worth(name)) for name in may_be_empty)
        return (gained + self.net_price()) // self.parts


def sums(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Two vectors together."""
    return [left + right for left, right in zip(first, second, strict=True)]


def times(prices: Sequence[int], amounts: Sequence[int]) -> int:
    """What amounts cost."""
    return sum(price * amount for price, amount in zip(prices, amounts, strict=True))


# --- findings ---


class Audit:
    """An audit beside its dump."""

    def __init__(self, audit: Object, dump: Dump) -> None:
        self.audit, self.dump, self.unchecked = audit, dump, set[str]()

    def check(self) -> Iterator[str]:
        """Checks all findings; a sentence for each.

        Raises:
            Untrue: one of them does not hold.
        """
        for finding in self.audit["findings"]:
            name = finding["kind"] + (f" {finding['resource']}" if finding.get("resource") else "")
            try:
                yield f"{name}: {self._check(finding)}"
            except Untrue as error:
                raise Untrue(f"{name}: {error}") from None

    def _check(self, finding: Object) -> str:
        steps = self.audit["plans"].get(finding["plan"], []) if finding["plan"] else []
        moves = sum(step["action"] == "Move" for step in steps)
        if moves > self.audit["mostMoves"]:
            raise Untrue(f"its plan has {moves} moves, more than {self.audit['mostMoves']}")
        replay = Replay(self.dump)
        before = self._usable(finding, replay)
        for step in steps:
            replay.carry_out(step, may_evict=finding["kind"] == "PriorityInversions")
            self._check_lost(step)
        self.unchecked |= replay.unchecked
        now, gained, most = self._figures(finding, steps, replay, before)
        for which, said, is_so in (("now", finding["now"], now), ("atLeast", finding["atLeast"], gained)):
            if said != is_so:
                raise Untrue(f"{which} is {said}, and counted again it is {is_so}")
        if finding["atMost"] < most:
            raise Untrue(f"no plan does better than {finding['atMost']}, it says; its prices show {most} only")
        return f"{len(steps)} steps, {gained} at least, {most} at most"

    def _figures(self, finding: Object, steps: Sequence[Object], replay: Replay, before: int) -> tuple[int, int, int]:
        """What there is now, what the plan gains, and what no plan exceeds by the prices."""
        kind, stated, dump = finding["kind"], finding["bound"], self.dump
        placed = {step["pod"]: step["node"] for step in steps if step["action"] == "Place"}
        if kind == "WaitingPods":
            counted = self._waiting(finding["counted"])
            named = {pod.key for pod in counted} | {each["pod"] for each in self.audit["notJudged"]}
            unknown = dump.waiting.keys() - named
            if unknown:
                raise Untrue(f"{min(unknown)} waits, and is neither counted nor named as not judged")
            return len(counted), len(placed), Bound(dump, stated, [(pod, 1) for pod in counted]).most_that_come()
        if kind == "WaitingGangs":
            gangs = finding["gangs"]
            if any(gang["needs"] < 1 or len(set(gang["pods"])) < len(gang["pods"]) for gang in gangs):
                raise Untrue("a gang needs no pods, or has one twice")
            if gangs:
                self.unchecked.add("which pods are a gang, and how many of them it needs")
            runs = sum(len(placed.keys() & set(gang["pods"])) >= gang["needs"] for gang in gangs)
            pods = self._waiting(dict.fromkeys(key for gang in gangs for key in gang["pods"]))
            return len(gangs), runs, Bound(dump, stated, [(pod, 1) for pod in pods]).most_gangs(gangs)
        if kind == "PriorityInversions":
            return self._inversions(finding, steps, placed)
        if kind == "StrandedRoom":
            return self._stranded(finding, replay, before)
        if kind == "EmptyNodes":
            return self._empty(finding, replay)
        raise Untrue("this finding is not known")

    def _waiting(self, keys: Iterable[str]) -> list[Pod]:
        keys = [*keys]
        if len(set(keys)) < len(keys) or not self.dump.waiting.keys() >= set(keys):
            raise Untrue("a pod is counted that does not wait, or twice")
        return [self.dump.waiting[key] for key in keys]

    def _inversions(self, finding: Object, steps: Sequence[Object], placed: Mapping[str, str]) -> tuple[int, int, int]:
        dump = self.dump
        leaving = {key: pod for key, pod in dump.running.items() if not pod.static}
        lowest = min((pod.priority for pod in leaving.values()), default=0)
        counted = self._waiting(finding["counted"])
        if any(pod.priority <= lowest or pod.spec.get("preemptionPolicy") == "Never" for pod in counted):
            raise Untrue("a pod is counted that evicts nobody")
        kept = {step["pod"] for step in self.audit["plans"].get("WaitingPods", []) if step["action"] == "Place"}
        if any(pod.key in kept for pod in counted):
            raise Untrue("a pod is counted that a plan runs without anybody leaving")
        for step in steps:
            if step["action"] == "Evict":
                priority = dump.running[step["pod"]].priority
                after = [dump.waiting[key].priority for key, node in placed.items() if node == step["from"]]
                if priority >= max(after, default=priority):
                    raise Untrue(f"{step['pod']} is evicted, and no pod of a higher priority comes to {step['from']}")
        come = sum(pod.key in placed for pod in counted)
        if not counted:
            return 0, come, 0
        highest = max(pod.priority for pod in counted)
        away = [key for key, pod in leaving.items() if pod.priority < highest]
        bound = Bound(dump, finding["bound"], [(pod, 1) for pod in counted], away)
        return len(counted), come, bound.most_that_come()

    def _like(self, finding: Object) -> tuple[Pod, int]:
        pod = self.dump.pods.get(finding["like"])
        amount = 0 if pod is None else pod.requests.get(finding["resource"], 0)
        if pod is None or amount < 1:
            raise Untrue(f"{finding['like']} is no pod that asks for {finding['resource']}")
        return pod, amount

    def _usable(self, finding: Object, replay: Replay) -> int:
        """How many more pods fit that stranded room is measured by, each node by itself."""
        if finding["kind"] != "StrandedRoom":
            return 0
        pod, _ = self._like(finding)
        fit = 0
        for name in self.dump.nodes:
            if not self.dump.may_use(pod, name):
                free = [
                    (replay.offered[name].get(resource, 0) - replay.used[name][resource]) // amount
                    for resource, amount in pod.requests.items()
                    if amount
                ]
                fit += max(0, min(free))
        return fit

    def _stranded(self, finding: Object, replay: Replay, before: int) -> tuple[int, int, int]:
        pod, amount = self._like(finding)
        resource, untouched = finding["resource"], Replay(self.dump)
        usable = [name for name in self.dump.nodes if not self.dump.may_use(pod, name)]
        free = sum(max(0, untouched.offered[name].get(resource, 0) - untouched.used[name][resource]) for name in usable)
        ever = sum(max(0, untouched.offered[name].get(resource, 0)) // amount for name in self.dump.nodes)
        most = Bound(self.dump, finding["bound"], [(pod, ever)]).most_that_come()
        gained = max(0, self._usable(finding, replay) - before)
        return free - before * amount, gained * amount, (most - before) * amount

    def _empty(self, finding: Object, replay: Replay) -> tuple[int, int, int]:
        dump = self.dump
        keeps: dict[str, list[Pod]] = {name: [] for name in dump.nodes}
        for pod in dump.running.values():
            if not pod.permanent:
                keeps[pod.node].append(pod)
        full = {name for name, pods in keeps.items() if pods}
        if full != set(finding["counted"]):
            raise Untrue("the nodes that are counted are not those that hold pods")
        after = {
            name
            for name, pods in replay.on.items()
            if any(not (pod.permanent or pod.deleting) for pod in pods.values())
        }
        may = [name for name, pods in keeps.items() if all(not pod.stays for pod in pods)]
        most = Bound(dump, finding["bound"], []).most_empty(may)
        return len(full), len(full) - len(after), most - (len(dump.nodes) - len(full))

    def _check_lost(self, step: Object) -> None:
        """What the step says of lost work."""
        if step["action"] == "Place":
            return
        pod = self.dump.running[step["pod"]]
        times_known = [pod.status.get("startTime"), (pod.meta.get("annotations") or {}).get(_CHECKPOINT)]
        if not times_known[0] or not self.audit.get("now"):
            return
        now = datetime.fromisoformat(self.audit["now"])
        since = [when for each in times_known if each and (when := datetime.fromisoformat(each)) <= now]
        lost = (now - max(since)).total_seconds() if since else 0.0
        if abs(step.get("lostSeconds", 0) - lost) > 60:
            raise Untrue(f"{step['pod']} loses {lost:.0f} seconds of work, it says {step.get('lostSeconds', 0)}")


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(f"{line}\n")


def main(arguments: Sequence[str]) -> int:
    """Checks an audit; returns the exit code."""
    if len(arguments) < 2:
        sys.stderr.write("usage: verify_audit.py audit.json dump.json [dump.json ...]\n")
        return 2
    try:
        audit = json.loads(Path(arguments[0]).read_text())
        dump = Dump.read(map(Path, arguments[1:]))
        checked = Audit(audit, dump)
        for sentence in checked.check():
            say(sentence)
    except Untrue as error:
        say(f"NOT TRUE: {error}")
        return 1
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write(f"cannot read: {type(error).__name__}: {error}\n")
        return 2
    unchecked = {*checked.unchecked, *(each for each in ("FlowSchedulingPolicy", "FlowQueue") if dump.kinds[each])}
    if unchecked:
        say(f"not checked: {', '.join(sorted(unchecked))}")
    say("true, as far as the dump shows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
