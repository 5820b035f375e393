"""Checks what `thalweg audit -o json` says against the dump that it is of, without any code of Thalweg.

    python tools/verify_audit.py audit.json now.json [more.json ...]

It carries out the steps of each plan in a copy of the dump: resources, labels, taints, ports, volumes, rules between
pods, PodDisruptionBudgets, each pod once. Then it counts what the plan has gained. From the prices of room it computes
what no plan exceeds, in whole numbers. Exit code 0: all that could be checked is true; what was not checked is named.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from functools import cache
from math import ceil, gcd
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]
Exact = Mapping[str, Fraction]
Vector = tuple[int, ...]
#: Pods that ask for the same and may use the same nodes.
Kind = tuple[Vector, frozenset[str]]
#: What there is now, what the plan gains, and what no plan exceeds by the prices.
Figures = tuple[int, int, int]

_POWERS: Final = {letter: power for power, letter in enumerate("kMGTPE", start=1)}
_SUFFIXES: Final = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)} | {
    letter: Fraction(1000**power) for letter, power in _POWERS.items()
} | {f"{letter.upper()}i": Fraction(1024**power) for letter, power in _POWERS.items()}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|(n|u|m|k|[KMGTPE]i|[MGTPE])?)")
_SYSTEM_CRITICAL: Final = 2_000_000_000
_SYSTEM_CLASSES: Final = {"system-cluster-critical": _SYSTEM_CRITICAL, "system-node-critical": 2_000_001_000}
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of a host port that names none
#: Pods behind no other gate are planned.
_GATE: Final = "scheduling.thalweg/plan"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_BUDGET: Final = "PodDisruptionBudget"
#: Findings that each audit has; StrandedRoom is for memory and GPUs that pods ask for.
_KINDS: Final = {"WaitingPods", "WaitingGangs", "PriorityInversions", "EmptyNodes"}
#: Annotations and labels by which a pod says that it is of a gang. Other pods are gangs of their controllers.
_GANG_MARKS: Final = {
    "scheduling.thalweg/gang", "scheduling.thalweg/gang-of-controller", "scheduling.volcano.sh/group-name",
    "scheduling.k8s.io/group-name", "gang.scheduling.koordinator.sh/name", "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io", "kueue.x-k8s.io/pod-group-name",
}  # fmt: skip
#: Ends the sentence of a plan where the dump may lack objects.
_AS_SHOWN: Final = ", as far as the dump shows"
_BINARY: Final = {f"{letter}i": 1024**power for letter, power in reversed(_POWERS.items())}
#: Seconds by which clocks may differ.
_SKEW: Final = 60


class Untrue(Exception):
    """The audit says something that does not hold."""


def insist(so: object, otherwise: str) -> None:
    """Refuses the audit unless something is so."""
    if not so:
        raise Untrue(otherwise)


# --- amounts and selectors ---


@cache
def quantity(text: str) -> Fraction:
    """A quantity of Kubernetes."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no quantity')
    number, exponent, suffix = match.groups()
    return Fraction(number.rstrip(".")) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def exact(amounts: Mapping[str, Any] | None) -> Exact:
    """A list of resources."""
    return {name: quantity(str(value)) for name, value in (amounts or {}).items()}


def each_of(how: Callable[[Iterable[Fraction]], Any], *lists: Exact) -> Exact:
    """The sum, or the largest, of each resource of some lists."""
    return {name: how([each.get(name, Fraction(0)) for each in lists]) for name in set[str]().union(*lists)}


def whole(amounts: Exact) -> dict[str, int]:
    """Milli-cores of cpu, else whole units, rounded up as kube-scheduler does."""
    return {name: ceil(value * 1000 if name == "cpu" else value) for name, value in amounts.items()}


def times(prices: Vector, amounts: Vector) -> int:
    """What amounts cost."""
    return sum(price * amount for price, amount in zip(prices, amounts, strict=True))


def holds(rule: Object, labels: Mapping[str, str]) -> bool:
    """Whether one requirement holds: In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    value, values, operator = labels.get(rule["key"]), rule.get("values") or [], str(rule["operator"])
    if operator in ("In", "NotIn"):
        return (value in values) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    if operator not in ("Gt", "Lt") or value is None or not re.fullmatch(r"[+-]?\d+", value):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def moment(text: str | None) -> float:
    """Seconds since the epoch; 0: that is none."""
    try:
        read = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return read.timestamp() if read.tzinfo else 0.0


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects labels; None selects nothing, one without requirements everything."""
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(holds(rule, labels) for rule in selector.get("matchExpressions") or ())


# --- the dump ---


class Pod:
    """A pod: what it ``requests``, what it ``holds`` on its node, and whether it ``stays`` there in every plan."""

    def __init__(self, manifest: Object, classes: Mapping[str, int]) -> None:
        self.meta, self.spec, self.status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
        self.namespace: str = self.meta.get("namespace") or "default"
        self.name: str = self.meta["name"]
        self.key = f"{self.namespace}/{self.name}"
        self.labels: dict[str, str] = self.meta.get("labels") or {}
        self.node: str = self.spec.get("nodeName") or ""
        self.ended = self.status.get("phase") in ("Succeeded", "Failed")
        self.deleting = bool(self.meta.get("deletionTimestamp"))
        name, stated = self.spec.get("priorityClassName") or "", self.spec.get("priority")
        by_class = classes.get(name, _SYSTEM_CLASSES.get(name, classes[""]))
        self.priority = by_class if stated is None else int(stated)
        annotations = self.meta.get("annotations") or {}
        self.evicts = self.spec.get("preemptionPolicy") != "Never"
        group = (self.spec.get("schedulingGroup") or {}).get("podGroupName")
        self.names_gang = bool(group or _GANG_MARKS & {*self.labels, *annotations})
        self.is_gated = any(each["name"] != _GATE for each in self.spec.get("schedulingGates") or ())
        self.started = moment(self.status.get("startTime"))
        self.saved = moment(annotations.get("scheduling.thalweg/checkpointed-at"))
        self.static = "kubernetes.io/config.mirror" in annotations
        owners: list[Object] = [each for each in self.meta.get("ownerReferences") or () if each.get("controller")]
        owner = owners[0] if owners else {}
        self.permanent = self.static or owner.get("kind") in ("DaemonSet", "Node")
        self.volumes: list[Object] = self.spec.get("volumes") or []
        sources = set[str]().union(*self.volumes)
        is_new = self.status.get("phase") == "Pending" and not self.status.get("startTime")
        self.stays = bool(
            (is_new and self.meta.get("creationTimestamp"))
            or not owner.get("uid")
            or self.permanent
            or self.priority >= _SYSTEM_CRITICAL
            or annotations.get("scheduling.thalweg/evictable", "true") != "true"
            or sources & {"emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral"}
        )
        seen: list[Object] = [
            each for kind in ("containerStatuses", "initContainerStatuses") for each in self.status.get(kind) or ()
        ]
        self.averse: Sequence[Object] = self.required("podAntiAffinity")
        self.requests = self._total(())
        self.holds = self._total(seen) if self.node else self.requests

    def _total(self, seen: Sequence[Object]) -> dict[str, int]:
        """What it asks for. While it is resized it holds the largest of what it asks for and has.

        Source: component-helpers resource/helpers.go (PodRequests).
        """

        def of(container: Object) -> Exact:
            lists = [(container.get("resources") or {}).get("requests")]
            for status in (each for each in seen if each["name"] == container.get("name")):
                lists += [(status.get("resources") or {}).get("requests"), status.get("allocatedResources")]
            return each_of(max, *map(exact, lists))

        beside: Exact = {}
        starting: Exact = {}
        for container in self.spec.get("initContainers") or ():
            needs = each_of(sum, beside, of(container))
            starting = each_of(max, starting, needs)
            beside = needs if container.get("restartPolicy") == "Always" else beside
        running = each_of(sum, beside, *map(of, self.spec.get("containers") or ()))
        total = {**each_of(max, running, starting), **exact((self.spec.get("resources") or {}).get("requests"))}
        return whole(each_of(sum, total, exact(self.spec.get("overhead")))) | {"pods": 1}

    def ports(self) -> Iterator[tuple[str, str, int]]:
        """Host ports: address, protocol, number."""
        stay = [each for each in self.spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
        for port in (port for each in (*self.spec["containers"], *stay) for port in each.get("ports") or ()):
            if port.get("hostPort"):
                yield port.get("hostIP") or _EVERY_ADDRESS, port.get("protocol") or "TCP", port["hostPort"]

    def required(self, kind: str) -> Any:
        """What it requires by nodeAffinity, podAffinity or podAntiAffinity."""
        return ((self.spec.get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or ()

    def claims(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of its volume claims."""
        for volume in self.volumes:
            if "persistentVolumeClaim" in volume:
                yield self.namespace, volume["persistentVolumeClaim"]["claimName"]
            elif "ephemeral" in volume:
                yield self.namespace, f"{self.name}-{volume['name']}"

    def tolerates(self, taint: Object) -> bool:
        """Whether it tolerates a taint."""
        for each in self.spec.get("tolerations") or ():
            key, operator = each.get("key") or "", each.get("operator") or "Equal"
            is_equal = operator == "Equal" and (each.get("value") or "") == (taint.get("value") or "")
            is_meant = key in ("", taint["key"]) and (each.get("effect") or taint.get("effect")) == taint.get("effect")
            if is_meant and (is_equal or operator == "Exists"):
                return True
        return False


class Node:
    """A node of the dump."""

    def __init__(self, manifest: Object) -> None:
        spec = manifest.get("spec") or {}
        self.name: str = manifest["metadata"]["name"]
        self.labels: dict[str, str] = manifest["metadata"].get("labels") or {}
        self.cordon = [_CORDONED] if spec.get("unschedulable") else []
        effects = ("NoSchedule", "NoExecute")
        self.taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in effects]
        self.offers = whole(exact((manifest.get("status") or {}).get("allocatable")))

    def is_selected(self, selector: Object | None) -> bool:
        """Whether a node selector selects it; none selects every node."""
        return not selector or any(
            (term.get("matchExpressions") or term.get("matchFields"))
            and all(holds(rule, self.labels) for rule in term.get("matchExpressions") or ())
            and all(holds(rule, {"metadata.name": self.name}) for rule in term.get("matchFields") or ())
            for term in selector.get("nodeSelectorTerms") or ()
        )

    def is_wanted(self, pod: Pod) -> bool:
        """Whether the node selector and the required node affinity of a pod select it."""
        equal = all(self.labels.get(key) == value for key, value in (pod.spec.get("nodeSelector") or {}).items())
        return equal and self.is_selected(pod.required("nodeAffinity"))

    def refuses(self, pod: Pod) -> str:
        """Why its labels, taints or name keep a pod away; "": they do not."""
        for taint in (*self.cordon, *self.taints):
            if not pod.tolerates(taint):
                return f"it has the taint {taint['key']}"
        return "" if self.is_wanted(pod) else "its labels do not match"


class Dump:
    """The objects of a dump: pods that wait, and those that hold room on a known node and do not leave already."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Of an object that is in several files the last counts."""
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        for item in (item for path in files for item in flattened(json.loads(path.read_text()))):
            key = item["metadata"].get("namespace") or "", item["metadata"]["name"]
            self._objects.setdefault(item["kind"], {})[key] = item
        classes = {name: int(each["value"]) for (_, name), each in self.of("PriorityClass").items()}
        defaults = [int(each["value"]) for each in self.of("PriorityClass").values() if each.get("globalDefault")]
        classes[""] = min(defaults, default=0)
        self.nodes = {name: Node(each) for (_, name), each in self.of("Node").items()}
        self.pods = {pod.key: pod for pod in (Pod(each, classes) for each in self.of("Pod").values())}
        self.waiting = {key: pod for key, pod in self.pods.items() if not (pod.node or pod.ended)}
        on_nodes = {key: pod for key, pod in self.pods.items() if pod.node in self.nodes and not pod.ended}
        self.on_nodes, self.running = on_nodes, {key: pod for key, pod in on_nodes.items() if not pod.deleting}
        self.ending = [pod for pod in on_nodes.values() if pod.deleting]
        self.by_devices = {f"deviceclass.resource.kubernetes.io/{name}" for _, name in self.of("DeviceClass")}
        backing = [each.get("spec") or {} for each in self.of("DeviceClass").values()]
        self.by_devices |= {each["extendedResourceName"] for each in backing if each.get("extendedResourceName")}

    def may_evict(self, pod: Pod) -> bool:
        """Whether pods may leave for it: not while some of lower priority end on the node that it is nominated for."""
        place = pod.status.get("nominatedNodeName")
        return pod.evicts and not any(each.node == place and each.priority < pod.priority for each in self.ending)

    def of(self, kind: str) -> dict[tuple[str, str], Object]:
        """The objects of a kind by namespace and name."""
        return self._objects.get(kind, {})


def flattened(document: Object) -> Iterator[Object]:
    """The objects of a file."""
    kind = document.get("kind", "")
    items = document.get("items") or () if kind.endswith("List") else ()
    yield from (each for item in items for each in flattened({"kind": kind.removesuffix("List")} | item))
    if not kind.endswith("List"):
        yield document


# --- the replay ---


class Replay:
    """A copy of the cluster in which steps are carried out."""

    def __init__(self, dump: Dump) -> None:
        self.dump, self.unchecked, self.touched = dump, set[str](), set[str]()
        self.on: dict[str, dict[str, Pod]] = {name: {} for name in dump.nodes}
        self.used: dict[str, Counter[str]] = {name: Counter() for name in dump.nodes}
        #: The nodes of pods that exclude others.
        self.averse: dict[str, str] = {}
        for pod in dump.on_nodes.values():
            self._put(pod, pod.node, pod.holds)
        self.allowed = {key: disruptions_allowed(each) for key, each in dump.of(_BUDGET).items()}

    def _put(self, pod: Pod, name: str, amounts: Mapping[str, int]) -> None:
        self.on[name][pod.key] = pod
        self.used[name].update(amounts)
        if pod.averse:
            self.averse[pod.key] = name

    def carry_out(self, step: Object, *, may_evict: bool) -> None:
        """One step, if it is legal."""
        key, action, to = step["pod"], step["action"], step.get("node", "")
        insist(key not in self.touched, f"{key} is in two steps")
        self.touched.add(key)
        if action == "Place":
            pod = self.dump.waiting.get(key)
            if pod is None or pod.deleting or pod.is_gated:
                raise Untrue(f"{key} does not wait for a node")
            self._check_node(pod, to)
        else:
            insist(action == "Move" or (action == "Evict" and may_evict), f"{action} of {key} is no step of this plan")
            pod = self.dump.running.get(key)
            if pod is None or pod.node != step["from"] or pod.node == to:
                raise Untrue(f"{key} does not run on {step['from']}, or goes to where it is")
            self._check_leaving(pod, is_moved=action == "Move")
            if action == "Move":
                self._check_node(pod, to)  # while it still holds its room
            del self.on[pod.node][key]
            self.averse.pop(key, None)
            self.used[pod.node].subtract(pod.holds)
        if action != "Evict":
            problem = self._excluded(pod, self.dump.nodes[to])
            insist(not problem, f"{key} goes to {to}, {problem}")
            self._put(pod, to, pod.requests)

    def _check_leaving(self, pod: Pod, *, is_moved: bool) -> None:
        leaves = f"{pod.key} leaves {pod.node}"
        insist(not (pod.stays if is_moved else pod.static), f"{leaves}, and no plan may take it away")
        budgets = [
            key
            for key, each in self.dump.of(_BUDGET).items()
            if (key[0] or "default") == pod.namespace and matches((each.get("spec") or {}).get("selector"), pod.labels)
        ]
        insist(len(budgets) < 2, f"{leaves}, and several PodDisruptionBudgets protect it")
        for key in budgets:
            self.allowed[key] -= 1
            insist(self.allowed[key] >= 0, f"{leaves} against the PodDisruptionBudget {key[1]}")

    def fitting(self, pod: Pod, name: str) -> tuple[int, str]:
        """How many such pods the room of a node takes, and the resource that it has least of."""
        offers, most = self.dump.nodes[name].offers, (sys.maxsize, "")
        for resource, amount in pod.requests.items():
            if resource in self.dump.by_devices and not offers.get(resource):
                self.unchecked.add(f"{resource} by devices")
            elif amount:
                most = min(most, (max(0, offers.get(resource, 0) - self.used[name][resource]) // amount, resource))
        return most

    def _check_node(self, pod: Pod, name: str) -> None:
        """Whether the node and those that are on it take a pod."""
        insist(name in self.dump.nodes, f"{pod.key} goes to {name}, which is no node")
        node = self.dump.nodes[name]
        reason = node.refuses(pod) or self._unreachable(pod, node)
        insist(not reason, f"{pod.key} may not use {name}: {reason}")
        fit, lacking = self.fitting(pod, name)
        insist(fit, f"{pod.key} goes to {name}, which has too little {lacking}")
        taken = {port for beside in self.on[name].values() for port in beside.ports()} if [*pod.ports()] else ()
        for address, *rest in pod.ports():
            same = {each[0] for each in taken if [*each[1:]] == rest}
            free = not same if address == _EVERY_ADDRESS else same.isdisjoint({address, _EVERY_ADDRESS})
            insist(free, f"{pod.key} goes to {name}, where a pod has its host port")
        if pod.spec.get("resourceClaims"):
            self.unchecked.add("resource claims")

    def _unreachable(self, pod: Pod, node: Node) -> str:
        """Why a volume keeps a pod from a node, as far as the dump shows volumes; "": none does."""
        for key in pod.claims():
            self.unchecked.add("room and zones of storage, and how many volumes a node takes")
            if key not in self.dump.of("PersistentVolumeClaim"):
                return f"the dump has no volume claim {key[1]}"
            claim = self.dump.of("PersistentVolumeClaim")[key].get("spec") or {}
            alone = claim.get("accessModes") == ["ReadWriteOncePod"]
            if alone and any(key in beside.claims() for pods in self.on.values() for beside in pods.values()):
                return f"another pod uses the volume claim {key[1]}"
            volume = self.dump.of("PersistentVolume").get(("", claim.get("volumeName") or ""), {}).get("spec") or {}
            store = self.dump.of("StorageClass").get(("", claim.get("storageClassName") or ""), {})
            terms = [] if claim.get("volumeName") else [*(store.get("allowedTopologies") or ())]
            rules = [term.get("matchLabelExpressions") or () for term in terms]
            allowed = any(all(node.labels.get(rule["key"]) in rule["values"] for rule in each) for each in rules)
            if not node.is_selected((volume.get("nodeAffinity") or {}).get("required")) or (terms and not allowed):
                return f"the volume of the claim {key[1]} is not reached from there"
        return ""

    # --- rules between pods ---

    def _selected(self, term: Object, owner: Pod, subject: Pod) -> bool:
        """Whether an affinity term of a pod selects another pod."""
        namespaces, by_label = term.get("namespaces") or [], term.get("namespaceSelector")
        if not namespaces and by_label is None:
            namespaces = [owner.namespace]
        space = self.dump.of("Namespace").get(("", subject.namespace), {"metadata": {}})["metadata"]
        is_meant = subject.namespace in namespaces or matches(by_label, space.get("labels") or {})
        # The API server has merged matchLabelKeys and mismatchLabelKeys into the selector.
        return is_meant and matches(term.get("labelSelector"), subject.labels)

    def _excluded(self, pod: Pod, node: Node) -> str:
        """Which rule between pods keeps a pod from a node; "": none does."""
        terms = pod.required("podAffinity")
        near: dict[str, list[Pod]] = {term["topologyKey"]: [] for term in terms}
        others = [(where, self.dump.pods[key]) for key, where in self.averse.items()]
        if terms or pod.averse:
            others = [(where, beside) for where, pods in self.on.items() for beside in pods.values()]
        for where, beside in others:
            place = self.dump.nodes[where]
            for owner, subject in ((pod, beside), (beside, pod)):
                for term in owner.averse:
                    if is_one_domain(term["topologyKey"], node, place) and self._selected(term, owner, subject):
                        return f"and anti-affinity keeps it and {beside.key} apart"
            for key, pods in near.items():
                if is_one_domain(key, node, place):
                    pods.append(beside)

        def is_wanted(subject: Pod) -> bool:
            return all(self._selected(term, pod, subject) for term in terms)

        if not near.keys() <= node.labels.keys():
            return "which lacks a label of its affinity"
        reached = (beside for where, beside in others if near.keys() & self.dump.nodes[where].labels.keys())
        is_first = bool(terms) and is_wanted(pod) and not any(map(is_wanted, reached))
        if not is_first and not all(any(map(is_wanted, pods)) for pods in near.values()):
            return "and its affinity is not met there"
        return self._unequal(pod, node)

    def _unequal(self, pod: Pod, node: Node) -> str:
        """Which spread constraint a pod breaks on a node; "": none."""
        stated = pod.spec.get("topologySpreadConstraints") or ()
        rules = [rule for rule in stated if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]
        keys = {rule["topologyKey"] for rule in rules}
        if not keys <= node.labels.keys():
            return "which lacks a label of its spread constraints"

        def counts(rule: Object, subject: Pod) -> bool:
            selected = subject.namespace == pod.namespace and matches(rule.get("labelSelector"), subject.labels)
            same = {key: pod.labels[key] for key in rule.get("matchLabelKeys") or () if key in pod.labels}
            return selected and not subject.deleting and same.items() <= subject.labels.items()

        for rule in rules:
            key, domains = rule["topologyKey"], Counter[str]()
            for name, pods in self.on.items():
                place = self.dump.nodes[name]
                is_wanted = rule.get("nodeAffinityPolicy", "Honor") != "Honor" or place.is_wanted(pod)
                is_open = rule.get("nodeTaintsPolicy", "Ignore") != "Honor" or all(map(pod.tolerates, place.taints))
                if keys <= place.labels.keys() and is_wanted and is_open:
                    domains[place.labels[key]] += sum(counts(rule, subject) for subject in pods.values())
            least = min(domains.values(), default=0) if len(domains) >= (rule.get("minDomains") or 1) else 0
            if domains[node.labels[key]] + counts(rule, pod) - least > rule["maxSkew"]:
                return f"and its spread over {key} is broken"
        return ""


def disruptions_allowed(budget: Object) -> int:
    """How many pods a PodDisruptionBudget lets go; none while its status is older than its spec."""
    status = budget.get("status") or {}
    is_current = (status.get("observedGeneration") or 0) >= (budget["metadata"].get("generation") or 0)
    return int(status.get("disruptionsAllowed") or 0) if is_current else 0


def is_one_domain(key: str, node: Node, place: Node) -> bool:
    """Whether two nodes have the same value of a label."""
    return key in node.labels and node.labels[key] == place.labels.get(key)


# --- the bound ---


class Bound:
    """The room that pods compete for, and its prices."""

    def __init__(self, dump: Dump, stated: Object, coming: Mapping[str, int], gone: Iterable[str] = ()) -> None:
        self._dump, self._may_use, self.parts = dump, dict[str, frozenset[str]](), stated["parts"]
        # What devices may stand for is no room of nodes.
        self._resources = [name for name in stated["resources"] if name not in dump.by_devices]
        nothing: Vector = (0,) * len(self._resources)
        self._prices = dict.fromkeys(dump.nodes, nothing)
        priced = [(name, pool["prices"]) for pool in stated["pools"] for name in pool["nodes"]]
        insist(len({name for name, _ in priced} & dump.nodes.keys()) == len(priced), "a node is priced twice, or none")
        for name, prices in priced:
            self._prices[name] = tuple(prices.get(resource, 0) for resource in self._resources)
        every = [price for prices in (*self._prices.values(), (self.parts - 1,)) for price in prices]
        insist(all(type(price) is int and price >= 0 for price in every), "a price or its parts are no whole number")
        away, staying = set(gone), dict[Kind, Counter[str]]()
        taken, held = dict.fromkeys(dump.nodes, nothing), dict.fromkeys(dump.nodes, nothing)
        for key, pod in dump.on_nodes.items():
            holds = self._vector(pod.holds)
            if key in away:
                continue
            if pod.deleting or pod.stays:
                taken[pod.node] = tuple(map(sum, zip(taken[pod.node], holds, strict=True)))
                continue
            least = tuple(map(min, self._vector(pod.requests), holds))
            held[pod.node] = tuple(map(sum, zip(held[pod.node], least, strict=True)))
            staying.setdefault((least, self._nodes(pod)), Counter())[pod.node] += 1
        self._kind_of = {key: (self._vector(dump.pods[key].requests), self._nodes(dump.pods[key])) for key in coming}
        self._coming, self._staying = Counter[Kind](), Counter[Kind]()
        for key, pods in coming.items():
            self._coming[self._kind_of[key]] += pods
        for (requests, nodes), homes in staying.items():
            self._staying[requests, nodes.union(homes)] += homes.total()
        columns = zip(*(requests for requests, _ in (*self._coming, *self._staying)), strict=True)
        units = [gcd(*column) or 1 for column in columns] or [1] * len(nothing)
        self._room: dict[str, Vector] = {}
        for name, node in dump.nodes.items():
            rows = zip(self._vector(node.offers), taken[name], held[name], units, strict=True)
            # Where a node holds more than it offers, its pods may stay all the same.
            self._room[name] = tuple(max(most - gone, own, 0) // unit * unit for most, gone, own, unit in rows)

    def _vector(self, amounts: Mapping[str, int]) -> Vector:
        return tuple(amounts.get(name, 0) for name in self._resources)

    def _nodes(self, pod: Pod) -> frozenset[str]:
        """The nodes that labels, taints and names let a pod use."""
        read = [pod.spec.get("nodeSelector"), pod.required("nodeAffinity"), pod.spec.get("tolerations")]
        text = json.dumps(read, sort_keys=True)
        if text not in self._may_use:
            self._may_use[text] = frozenset(name for name, node in self._dump.nodes.items() if not node.refuses(pod))
        return self._may_use[text]

    def _paid(self, kind: Kind, pods: int) -> Iterator[tuple[int, int]]:
        """What pods of a kind pay at least, the cheapest first, and how many pay so much."""
        (requests, nodes), fit = kind, Counter[int]()
        for name in nodes:
            asks = zip(self._room[name], requests, strict=True)
            most = min([pods, *(room // amount for room, amount in asks if amount)])
            fit[times(self._prices[name], requests)] += most
        for price, count in sorted(fit.items()):
            if taken := min(pods, count):
                yield price, taken
            pods -= taken

    def _worth(self, name: str) -> int:
        return times(self._prices[name], self._room[name])

    def _exceeded_by_none(self, gained: int) -> int:
        """What no plan exceeds, where what comes is worth so much above what it pays."""
        paid = sum(price * count for kind, pods in self._staying.items() for price, count in self._paid(kind, pods))
        return (gained + sum(map(self._worth, self._room)) - paid) // int(self.parts)

    def most_that_come(self) -> int:
        """No plan lets more pods come."""
        paid = [each for kind, pods in self._coming.items() for each in self._paid(kind, pods)]
        return self._exceeded_by_none(sum(max(0, self.parts - price) * count for price, count in paid))

    def most_gangs(self, gangs: Sequence[Object]) -> int:
        """No plan runs more gangs whole. A pod that several gangs count pays an equal part for each."""
        shared, gained = Counter(key for gang in gangs for key in gang["pods"]), 0
        cheapest = {kind: next(self._paid(kind, pods), None) for kind, pods in self._coming.items()}
        for gang in gangs:
            paid = [(key, cheapest[self._kind_of[key]]) for key in gang["pods"]]
            costs = sorted(first[0] // shared[key] for key, first in paid if first is not None)
            if len(costs) >= gang["needs"]:
                gained += max(0, self.parts - sum(costs[: gang["needs"]]))
        return self._exceeded_by_none(gained)

    def most_empty(self, may_be_empty: Iterable[str]) -> int:
        """No plan has more empty nodes."""
        return self._exceeded_by_none(sum(max(0, self.parts - self._worth(name)) for name in may_be_empty))


# --- sentences ---


def so_many(number: int, noun: str) -> str:
    """The number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount_text(resource: str, amount: int) -> str:
    """An amount of stranded room: bytes with at most two digits after the point."""
    is_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    for suffix, unit in _BINARY.items() if is_bytes else ():
        if amount >= unit:
            return f"{(200 * amount + unit) // (2 * unit) / 100:.2f}".rstrip("0").rstrip(".") + suffix
    return str(amount)


def by_moves(steps: Sequence[Object]) -> str:
    """Who leaves a node in a plan."""
    counts = Counter(step["action"] for step in steps)
    parts = [so_many(counts[action], noun) for action, noun in (("Move", "move"), ("Evict", "eviction"))]
    told = [part for part in parts if not part.startswith("0 ")]
    return f", with {' and '.join(told)}" if told else ""


def outcome(finding: Object, steps: Sequence[Object], does: str) -> str:
    """What the plan does to some of what is counted, and what no plan does."""
    gained, most, now = finding["atLeast"], finding["atMost"], finding["now"]
    if now == 1:
        unsure = f"no plan was found that {does} it; whether one does is not known" if most else f"no plan {does} it"
        return f"a plan {does} it{by_moves(steps)}" if gained else unsure
    if not most:
        return f"no plan {does} any of them"
    plan = (
        f"a plan {does} {gained:,} of them{by_moves(steps)}" if gained else f"no plan was found that {does} any of them"
    )
    if gained < now <= most:
        return f"{plan}; whether one {does} all is not known"
    return f"{plan}; no plan {does} more" + ("" if gained == most else f" than {most:,}")


def sentence_of(finding: Object, steps: Sequence[Object], not_judged: int, filled: int) -> str:
    """What a finding says to people.

    Args:
        not_judged: pods that wait and are not judged.
        filled: nodes that were empty, and that the plan fills.
    """
    kind, now, resource = finding["kind"], finding["now"], finding["resource"]
    if kind == "StrandedRoom":
        gained, most = (finding[which] for which in ("atLeast", "atMost"))
        free = f"free once no more pods like {finding['like']} fit on any node"
        here = f"{free}: {amount_text(resource, now)} {resource}"
        if not most:
            return f"{here}; no plan makes any of it usable"
        plan = "no plan was found that makes some of it usable"
        if gained:
            plan = f"a plan makes {amount_text(resource, gained)} of it usable{by_moves(steps)}"
        more = "" if gained == most else f" than {amount_text(resource, most)}"
        return f"{here}; {plan}; no plan makes more usable{more}"
    if kind == "PriorityInversions":
        if not now:
            return "no pod is left that has a higher priority than pods that run"
        who = "that has" if now == 1 else "that have"
        wait = "waits" if now == 1 else "wait"
        return (
            f"{so_many(now, 'pod')} {who} a higher priority than pods that run {wait} if everybody stays; "
            f"if lower ones leave {outcome(finding, steps, 'runs')}"
        )
    noun, verb = ("node", "hold") if kind == "EmptyNodes" else ("gang" if kind == "WaitingGangs" else "pod", "wait")
    who = f"{so_many(now, noun)} {verb}{'s' if now == 1 else ''}{' pods' if noun == 'node' else ''}"
    if kind == "WaitingPods" and not_judged:
        who = f"{now:,} of {now + not_judged:,} pods that wait can be judged"
    told = f"{who}; {outcome(finding, steps, 'empties' if noun == 'node' else 'runs')}"
    if not now:
        told = who if not_judged and kind == "WaitingPods" else f"no {noun} {verb}s{' pods' if noun == 'node' else ''}"
    if filled:
        told += f"; the plan empties {finding['atLeast'] + filled:,} and fills {so_many(filled, 'empty node')}"
    return told


# --- findings ---


class Audit:
    """An audit beside its dump."""

    def __init__(self, audit: Object, dump: Dump) -> None:
        self.audit, self.dump, self.kept = audit, dump, set[str]()
        self.unchecked = {
            "prices of moves, and who closed rooms",
            "which pods are a gang, and how many of them it needs",
            "what is unknown, counts beside the findings, and warnings",
        }
        #: Nodes that were empty, and that the plan of the finding fills.
        self.filled = 0
        not_judged = {each["pod"] for each in audit["notJudged"]}
        self.judged = {key: pod for key, pod in dump.waiting.items() if key not in not_judged}
        insist(not_judged <= dump.waiting.keys(), "a pod is not judged that does not wait")
        unused = audit["plans"].keys() - {each["plan"] for each in audit["findings"]}
        insist(not unused, f"the plan {min(unused, default='')} is of no finding")
        if not_judged:
            self.unchecked.add(f"why pods are not judged ({len(not_judged)}, such as {min(not_judged)})")
        for what, is_so in (("nodes", len(dump.nodes)), ("running", len(dump.running))):
            insist(audit[what] == is_so, f"{what} is {audit[what]}, and the dump has {is_so}")
        names = Counter((each["kind"], each.get("resource", "")) for each in audit["findings"])
        insist(max(names.values(), default=0) < 2, "a finding is told twice")
        insist({kind for kind, _ in names} >= _KINDS, "a finding is missing")
        stranded = {resource for kind, resource in names if kind == "StrandedRoom"}
        missing = self._asked(alone=True) - stranded
        insist(not missing, f"the finding StrandedRoom of {min(missing, default='')} is missing")
        if untold := self._asked(alone=False) - stranded:
            self.unchecked.add(f"how much of {', '.join(sorted(untold))} is free and of no use: no finding says it")

    def _asked(self, *, alone: bool) -> set[str]:
        """Resources of nodes that pods ask for.

        Args:
            alone: only those of which there is a finding: memory and GPUs, of pods that ask for no devices.
        """
        offered = {name for node in self.dump.nodes.values() for name, amount in node.offers.items() if amount}
        asked = set[str]()
        for pod in (*self.dump.running.values(), *self.judged.values()):
            names = {name for name, amount in pod.requests.items() if amount}
            if not alone:
                asked |= names - {"pods"}
            elif not (pod.permanent or pod.spec.get("resourceClaims") or names & self.dump.by_devices):
                asked |= {name for name in names if name == "memory" or name.endswith("/gpu")}
        return asked & offered

    def check(self, finding: Object) -> str:
        """Checks a finding; a sentence about it."""
        steps: list[Object] = self.audit["plans"][finding["plan"]] if finding["plan"] else []
        moves = sum(step["action"] == "Move" for step in steps)
        insist(moves <= self.audit["mostMoves"], f"its plan has {moves} moves, more than {self.audit['mostMoves']}")
        replay = Replay(self.dump)
        for step in steps:
            replay.carry_out(step, may_evict=finding["kind"] == "PriorityInversions")
            self._check_lost(step)
        kinds = {"WaitingPods": self._pods, "WaitingGangs": self._gangs, "PriorityInversions": self._inversions,
                 "StrandedRoom": self._stranded, "EmptyNodes": self._empty}  # fmt: skip
        insist(finding["kind"] in kinds, "this finding is not known")
        now, gained, most = kinds[finding["kind"]](finding, steps, replay)
        self.unchecked |= replay.unchecked
        for which, said, is_so in (("now", finding["now"], now), ("atLeast", finding["atLeast"], gained)):
            insist(said == is_so, f"{which} is {said}, and counted again it is {is_so}")
        insist(finding["atMost"] >= most, f"its prices show no bound below {most}, it says {finding['atMost']}")
        insist(gained <= most, f"its plan gains {gained}, more than any plan by its prices")
        self._check_sentence(finding, steps)
        return f"{len(steps)} steps, {gained} at least, {most} at most"

    def _check_sentence(self, finding: Object, steps: Sequence[Object]) -> None:
        """Whether the sentence says what the figures do."""
        filled = self.filled if finding["kind"] == "EmptyNodes" else 0
        told = sentence_of(finding, steps, len(self.dump.waiting) - len(self.judged), filled)
        end = _AS_SHOWN if finding["plan"] and self.audit["unknown"] else ""
        insist(finding["sentence"] == told + end, f'its sentence is not "{told}{end}"')

    def _pods(self, finding: Object, steps: Sequence[Object], _: Replay) -> Figures:
        counted = self._that_wait(finding["counted"])
        wrong = self.judged.keys() ^ counted
        insist(not wrong, f"{min(wrong, default='')} waits, and is counted and named as not judged, or neither")
        self.kept = counted & placed(steps).keys()
        bound = Bound(self.dump, finding["bound"], dict.fromkeys(counted, 1))
        return len(counted), len(self.kept), bound.most_that_come()

    def _that_wait(self, keys: Sequence[str]) -> set[str]:
        insist(len(self.dump.waiting.keys() & set(keys)) == len(keys), "a pod is counted that does not wait, or twice")
        return set(keys)

    def _gangs(self, finding: Object, steps: Sequence[Object], _: Replay) -> Figures:
        gangs = finding["gangs"]
        insist(len({gang["name"] for gang in gangs}) == len(gangs), "a gang is counted twice")
        for gang in gangs:
            insist(gang["needs"] > 0 and self._that_wait(gang["pods"]), f"the gang {gang['name']} needs no pods")
        counted = {key for gang in gangs for key in gang["pods"]}
        others = [key for key, pod in self.judged.items() if pod.names_gang and key not in counted]
        if others:
            which = f"{so_many(len(others), 'pod')}, such as {min(others)}"
            self.unchecked.add(f"whether gangs wait that the audit does not count: of {which}")
        runs = sum(len(placed(steps).keys() & set(gang["pods"])) >= gang["needs"] for gang in gangs)
        coming = dict.fromkeys((key for gang in gangs for key in gang["pods"]), 1)
        return len(gangs), runs, Bound(self.dump, finding["bound"], coming).most_gangs(gangs)

    def _inversions(self, finding: Object, steps: Sequence[Object], _: Replay) -> Figures:
        leaving = {key: pod for key, pod in self.dump.running.items() if not pod.static}
        lowest = min((pod.priority for pod in leaving.values()), default=sys.maxsize)
        counted, places = self._that_wait(finding["counted"]), placed(steps)
        urgent = {key for key, pod in self.judged.items() if pod.priority > lowest and self.dump.may_evict(pod)}
        insist(counted == urgent - self.kept, "other pods are left and may evict pods of lower priority")
        # The whole of a gang may leave for a pod that comes to one of its nodes.
        coming = [pod.priority for key in places if self.dump.may_evict(pod := self.dump.waiting[key])]
        for pod in (leaving[step["pod"]] for step in steps if step["action"] == "Evict"):
            insist(pod.priority < max(coming, default=pod.priority), f"{pod.key} is evicted, and nobody may evict it")
        highest = max((pod.priority for pod in self.judged.values() if pod.evicts), default=lowest)
        away = [key for key, pod in leaving.items() if pod.priority < highest]
        most = Bound(self.dump, finding["bound"], dict.fromkeys(counted, 1), away).most_that_come() if counted else 0
        return len(counted), len(counted & places.keys()), most

    def _stranded(self, finding: Object, _: Sequence[Object], replay: Replay) -> Figures:
        like, resource, begun = finding["like"], finding["resource"], Replay(self.dump)
        pod, nodes = self.dump.pods.get(like), self.dump.nodes
        amount = pod.requests.get(resource, 0) if pod else 0
        if pod is None or not amount:
            raise Untrue(f"{like} is no pod that asks for {resource}")
        usable = [name for name, node in nodes.items() if not node.refuses(pod)]
        before, after = (sum(state.fitting(pod, name)[0] for name in usable) for state in (begun, replay))
        free = sum(max(0, nodes[name].offers.get(resource, 0) - begun.used[name][resource]) for name in usable)
        ever = sum(max(0, node.offers.get(resource, 0)) // amount for node in nodes.values())
        most = Bound(self.dump, finding["bound"], {like: ever}).most_that_come()
        return free - before * amount, max(0, after - before) * amount, (most - before) * amount

    def _empty(self, finding: Object, _: Sequence[Object], replay: Replay) -> Figures:
        full = {pod.node for pod in self.dump.running.values() if not pod.permanent}
        left = {name for name, pods in replay.on.items() if any(not (p.permanent or p.deleting) for p in pods.values())}
        self.filled = len(left - full)
        insist(full == set(finding["counted"]), "the nodes that are counted are not those that hold pods")
        never = {pod.node for pod in self.dump.running.values() if pod.stays and not pod.permanent}
        most = Bound(self.dump, finding["bound"], {}).most_empty(self.dump.nodes.keys() - never)
        return len(full), len(full) - len(left), most - (len(self.dump.nodes) - len(full))

    def _check_lost(self, step: Object) -> None:
        """What a step says of lost work, if the moment of the audit is known."""
        pod, now, said = self.dump.running.get(step["pod"]), moment(self.audit["now"]), step.get("lostSeconds", 0)
        if pod is None:
            return
        if not now:
            self.unchecked.add("the work that is lost: the moment of the audit is not known")
            return
        started, saved = pod.started, pod.saved if pod.saved <= now + _SKEW else 0.0
        lost = max(0.0, now - max(started, saved)) if started else 0.0
        insist(abs(said - lost) <= _SKEW, f"{step['pod']} loses {lost:.0f} seconds of work, it says {said}")


def placed(steps: Iterable[Object]) -> dict[str, str]:
    """The nodes of the pods that come in a plan."""
    return {step["pod"]: step["node"] for step in steps if step["action"] == "Place"}


def write(line: str) -> None:
    """A line for people. What names of others have in them for their terminal is escaped."""
    shown = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    sys.stdout.write(f"{''.join(shown)}\n")


def main(arguments: Sequence[str]) -> int:
    """Checks an audit; returns the exit code."""
    if len(arguments) < 2:
        sys.stderr.write("usage: verify_audit.py audit.json dump.json [dump.json ...]\n")
        return 2
    name = "the audit"
    try:
        checked = Audit(json.loads(Path(arguments[0]).read_text()), Dump(map(Path, arguments[1:])))
        for finding in checked.audit["findings"]:
            name = f"{finding['kind']} {finding.get('resource', '')}".strip()
            write(f"{name}: {checked.check(finding)}")
    except Untrue as error:
        write(f"NOT TRUE: {name}: {error}")
        return 1
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.stderr.write(f"cannot read: {type(error).__name__}: {error}\n")
        return 2
    unchecked = checked.unchecked | {kind for kind in ("FlowSchedulingPolicy", "FlowQueue") if checked.dump.of(kind)}
    write(f"not checked: {'; '.join(sorted(unchecked))}")
    write("true, as far as the dump shows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
