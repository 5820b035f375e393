"""Selectors, allocations of devices and extended resources, against kube-scheduler's own code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.draw_devices import (
    DOMAIN,
    DRIVERS,
    EXPRESSIONS,
    NODE,
    DeviceCase,
    cel,
    device_cases,
    reached_node,
    read_claims,
    read_classes,
    read_slices,
)
from support.minor_versions import EACH_VERSION, share
from support.profiles import examples
from thalweg_controlplane import Oracle, OracleDevices
from thalweg_controlplane.building.build import MINOR_VERSION

from flowcore.api import Interner, WireNode, WirePod, to_node, to_pod
from flowcore.api.claim_allocations import WireDeviceConfig, allocation_object
from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.model.device_gates import (
    BINDING_CONDITIONS,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE_CAPACITY,
    DEVICE_TAINT_RULES,
    EXTENDED_RESOURCE,
    FRACTIONAL_RANGES,
    ON_SINCE,
    PRIORITIZED_LIST,
    WORKLOAD_CLAIMS,
    DeviceGates,
)
from flowcore.model.devices import DeviceClass
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.resource_claims import ClaimAllocation, ClaimingPod, PodClaim, ResourceClaim
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.allocator import REASON_NONE_FIT, Unallocatable, allocate
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.pod_claims import REASON_LEFT_OVER, ClaimRejection, claims_of
from flowcore.rules.filters import run_filters

#: What expressions are made of: each by its type, with the types of its parts after a dollar.
_PARTS: dict[str, tuple[str, ...]] = {
    "bool": (
        "true", "false", "!$bool", "($bool && $bool)", "($bool || $bool)", "($bool ? $bool : $bool)",
        "$int < $int", "$int == $int", "$int >= $double", "$string == $string", "$string != $string",
        "$string < $string", "$any == $any", "$int in $ints", "$string in $strings", "$domain in device.attributes",
        "has(device.attributes[$domain].$field)", "$string.startsWith($string)", "$string.contains($string)",
        "$string.endsWith($string)", "$string.matches($pattern)", "$ints.all(x, x > $int)",
        "$strings.exists(x, x == $string)",
        "$ints.exists_one(x, x == $int)", "device.attributes.exists(d, d == $domain)",
        "device.allowMultipleAllocations",
        "$quantity == $quantity", "$quantity == $any", "$any != $quantity", "$version == $any", "$any == $version",
        "$any in [$quantity]", "$quantity.isLessThan($quantity)", "device.capacity[$domain].memory.isInteger()",
        "isQuantity('8X')",
        "$version.isGreaterThan($version)", "$version == $version", "isSemver($string)", "isSemver($string, true)",
        "sets.contains($ints, $ints)", "cel.bind(b, $int, b == b)",
        "$ints.isSorted()", "$optional.hasValue()",
        "type($any) == string", "$any",
    ),
    "int": (
        "0", "1", "-2", "$int + $int", "$int - $int", "$int * $int", "$int / $int", "$int % $int", "-($int)",
        "size($string)", "$strings.size()", "$ints.sum()", "$ints.max()", "$quantity.compareTo($quantity)",
        "device.capacity[$domain].memory.asInteger()", "$version.minor()", "$string.indexOf($string)", "int($string)",
        "$ints[$int]",
        "device.attributes[$domain].?numa.orValue($int)", "9223372036854775807", "sign($quantity)",
    ),
    "double": ("1.5", "-0.5", "double($int)", "$double * $double", "$quantity.asApproximateFloat()"),
    "string": (
        "''", "'h100'", "'1.2.3'", "'8Gi'", "device.driver", "$string + $string", "$string.upperAscii()",
        "string($int)",
        "$string.replace($string, $string)", "$strings.join('-')", "$string.substring($int)", "$string.trim()",
        "string(device.attributes[$domain].model)", "$string.find($pattern)", "$strings[0]", "$string.charAt($int)",
    ),
    "ints": ("[1, 2, 3]", "[$int]", "[$int, $int]", "$ints + $ints", "$ints.map(x, x + $int)",
             "$ints.filter(x, x > $int)"),
    "strings": ("['a', 'b']", "['a', $string]", "$string.split('-')", "$strings.map(x, x + $string)",
                "$string.findAll($pattern)"),
    "quantity": (
        "quantity('1Gi')", "quantity('1500m')", "quantity('x')", "device.capacity[$domain].memory",
        "$quantity.add($quantity)", "$quantity.sub($int)",
    ),
    "version": (
        "semver('1.2.3')", "semver('1.2.3-rc.1')", "semver($string)", "semver('v1', true)",
        "device.attributes[$domain].version",
    ),
    "optional": ("device.attributes[$domain].?$field", "optional.of($int)", "optional.none()", "{'a': $int}[?'a']"),
    "any": ("device.attributes[$domain].$field", "device.attributes[$domain]['$field']", "$int", "$string"),
    "domain": (f"'{DOMAIN}'", f"'{DOMAIN}'", "'gone.example.com'", "device.driver"),
    "field": ("model", "numa", "ready", "gone"),
    "pattern": ("'^h'", "'[0-9]+'", "'a|b'", "'.*00$'"),
}  # fmt: skip
#: The ends of expressions.
_PLAIN = {kind: next((form for form in forms if "$" not in form), "") for kind, forms in _PARTS.items()} | {"any": "1"}


@st.composite
def _expressions(draw: st.DrawFn, kind: str = "bool", depth: int = 4) -> str:
    if not depth:
        return _PLAIN[kind]
    form = draw(st.sampled_from(_PARTS[kind]))
    return re.sub(r"\$(\w+)", lambda part: _bracketed(draw(_expressions(part[1], depth - 1))), form)


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


@EACH_VERSION
def test_selectors_say_what_kube_scheduler_hears(oracle: Oracle) -> None:
    """Each expression, of each device: whether it holds, or that it says nothing.

    One difference is meant: what kube-scheduler refuses by its types before it evaluates may have a value here.
    """

    @settings(max_examples=examples(share(oracle, 200)))
    @given(case=device_cases(), expressions=st.lists(_expressions(), min_size=5, max_size=20))
    def agree(case: DeviceCase, expressions: list[str]) -> None:
        _compare_selectors(oracle, case, expressions)

    agree()


def _compare_selectors(oracle: Oracle, case: DeviceCase, expressions: list[str]) -> None:
    expressions = [*expressions, *EXPRESSIONS]
    selectors = DeviceSelectors()
    answers = oracle.select(expressions, case.slices)
    devices = [(each.driver, device) for each in read_slices(case.slices) for device in each.devices]
    for expression, row in zip(expressions, answers, strict=True):
        for (driver, device), theirs in zip(devices, row, strict=True):
            ours = selectors.matches(expression, driver, device)
            if theirs.stage == "compile":
                continue
            if theirs.stage:
                assert isinstance(ours, CelProblem), f"{expression}: {ours}, kube-scheduler: {theirs.error}"
            else:
                assert ours == theirs.matches, f"{expression}: {ours}, kube-scheduler: {theirs.matches}"


def _allocations(answer: OracleDevices) -> list[ClaimAllocation]:
    """As plans have them; which share of a device it is, is drawn by who writes it."""
    claims = read_claims(
        [{"metadata": {"name": "c"}, "status": {"allocation": each}} for each in answer.allocations or ()]
    )
    return [_without_shares(claim.allocation) for claim in claims if claim.allocation is not None]


def _without_shares(allocation: ClaimAllocation) -> ClaimAllocation:
    devices = tuple(
        msgspec.structs.replace(each, share_id=None if each.share_id is None else "") for each in allocation.devices
    )
    return msgspec.structs.replace(allocation, devices=devices)


def _objects(case: DeviceCase, allocations: tuple[ClaimAllocation, ...]) -> list[dict[str, Any]]:
    """What is written of allocations."""
    class_config = {
        each["metadata"]["name"]: [
            msgspec.convert(config, WireDeviceConfig) for config in each["spec"].get("config", ())
        ]
        for each in case.classes
    }
    objects = []
    for claim, allocation, manifest in zip(read_claims(case.claims), allocations, case.claims, strict=True):
        own = _config(manifest["spec"]["devices"])
        objects.append(allocation_object(claim, allocation, own, class_config, lambda: "share"))
    return [_without_amounts(each) for each in objects]


def _config(holder: dict[str, Any]) -> list[WireDeviceConfig]:
    return [msgspec.convert(each, WireDeviceConfig) for each in holder.get("config", ())]


def _without_amounts(written: dict[str, Any]) -> dict[str, Any]:
    """Amounts may be written in several ways, and the identity of a share is drawn."""
    for result in written["devices"]["results"]:
        result.pop("consumedCapacity", None)
        if "shareID" in result:
            result["shareID"] = "share"
    return written


def _with_meant_config(written: dict[str, Any]) -> dict[str, Any]:
    """Each config once, with the devices that it is for: kube-scheduler 1.37 writes it more briefly."""
    meant = list[Any]()
    for config in written["devices"].get("config", ()):
        named = config.get("requests")
        references = {result["request"] for result in written["devices"]["results"]}
        concerned = {each for each in references if not named or each in named or each.split("/")[0] in named}
        one = (config["source"], config.get("opaque"), concerned)
        if one not in meant:
            meant.append(one)
    return written | {"devices": written["devices"] | {"config": meant}}


def _has_distinct(claims: list[dict[str, Any]]) -> bool:
    return any(
        "distinctAttribute" in each for claim in claims for each in claim["spec"]["devices"].get("constraints", ())
    )


@EACH_VERSION
def test_claims_get_the_devices_that_kube_scheduler_gives_them(oracle: Oracle) -> None:
    """The same devices, amounts and nodes, or the same reason.

    Where devices are to differ in an attribute, kube-scheduler 1.36 may find devices that do not: decision 103.
    """

    @settings(max_examples=examples(share(oracle, 1000)))
    @given(case=device_cases())
    def agree(case: DeviceCase) -> None:
        _compare(oracle, case, frozenset())

    agree()


#: What the allocator reads, in all versions; others read the rest.
_GATES = sorted(ON_SINCE.keys() - {EXTENDED_RESOURCE, DEVICE_TAINT_RULES, FRACTIONAL_RANGES, WORKLOAD_CLAIMS})
_gates_off = st.frozensets(st.sampled_from(_GATES), min_size=1, max_size=3)


@EACH_VERSION
def test_gates_that_are_off_mean_what_kube_scheduler_means(oracle: Oracle) -> None:
    """The same devices, or the same reason, whichever gates are off.

    An expression that reads ``allowMultipleAllocations`` does not compile for kube-scheduler without that gate.
    """

    @settings(max_examples=examples(share(oracle, 1000)))
    @given(case=device_cases(), off=_gates_off)
    def agree(case: DeviceCase, off: frozenset[str]) -> None:
        assume(CONSUMABLE_CAPACITY not in off or "allowMultipleAllocations" not in str(case.claims))
        _compare(oracle, case, off)

    agree()


def _compare(oracle: Oracle, case: DeviceCase, off: frozenset[str]) -> None:
    """Raises AssertionError where kube-scheduler never says the same.

    Without these gates it takes its oldest allocator, which goes through pools in the order of a map, so by chance
    (structured/internal/stable/pools_stable.go). Two pools: 30 questions miss an order once in a billion.
    """
    is_by_chance = CONSUMABLE_CAPACITY in off and off & {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}
    for tries_left in reversed(range(30 if is_by_chance else 1)):
        try:
            _compare_once(oracle, case, off)
        except AssertionError:
            if not tries_left:
                raise
        else:
            return


def _compare_once(oracle: Oracle, case: DeviceCase, off: frozenset[str]) -> None:
    theirs = oracle.allocate(NODE, case.slices, case.classes, case.claims, case.others, off)
    node = reached_node()
    gates = DeviceGates.of_server(KubernetesVersion(oracle.minor_version), dict.fromkeys(off, False))
    claims = tuple(map(gates.as_claimed, read_claims(case.claims)))
    if any(request.lacks == PRIORITIZED_LIST for claim in claims for request in claim.requests):
        # kube-scheduler's plug-in has rejected the pod before.
        rejection = claims_of(_naming(claims), {(each.namespace, each.name): each for each in claims}, _ALL_CLASSES)
        assert isinstance(rejection, ClaimRejection)
        assert theirs.error  # of an earlier request perhaps
        assert PRIORITIZED_LIST not in theirs.error or rejection.reason.removeprefix("resource ") == theirs.error
        return
    ours = allocate(
        claims,
        node,
        SliceIndex(map(gates.as_read, read_slices(case.slices))).pools(node),
        read_classes(case.classes),
        AllocatedDevices.of_claims(map(gates.as_claimed, read_claims(case.others))),
        DeviceSelectors(),
    )
    if theirs.timed_out:
        return
    if _has_distinct(case.claims) and oracle.minor_version == MINOR_VERSION:
        assert isinstance(ours, Unallocatable) or theirs.allocations is not None
        return
    if not isinstance(ours, Unallocatable):
        assert list(ours) == _allocations(theirs), theirs.error
        if off & {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}:
            return  # kube-scheduler does not write them
        written = [_without_amounts(each) for each in theirs.allocations or ()]
        if oracle.minor_version == MINOR_VERSION:
            assert _objects(case, ours) == written
        else:
            assert list(map(_with_meant_config, _objects(case, ours))) == list(map(_with_meant_config, written))
        return
    assert theirs.allocations is None, ours.reason
    assert ours.is_error == (bool(theirs.error) and not theirs.on_node_only), (ours, theirs.error)
    reason = re.sub(r"( selector #\d+) on device [^:]+:", r"\1:", theirs.error) or REASON_NONE_FIT  # the words of 1.37
    # Text of CEL's library, and amounts, may be written in several ways.
    end = next((each for each in (" CEL ", ": request ") if each in reason), None)
    assert ours.reason.split(end)[0] == reason.split(end)[0]


_ALL_CLASSES = {name: DeviceClass(name) for name in ("any", "gpu")}


def _naming(claims: Sequence[ResourceClaim]) -> ClaimingPod:
    """A pod that names some claims."""
    return ClaimingPod("default", "p", "p", tuple(PodClaim(each.name, claim=each.name) for each in claims))


# --- extended resources that a DeviceClass backs ---

RESOURCES = ("example.com/gpu", "example.com/nic", "deviceclass.resource.kubernetes.io/gpu", "example.com/none")


@dataclass(frozen=True)
class ExtendedCase:
    """Nodes that offer some resources, devices of some nodes, and pods that wait."""

    nodes: list[dict[str, Any]]
    slices: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    pods: list[dict[str, Any]]


@st.composite
def _amounts_of(draw: st.DrawFn, most: int) -> dict[str, str]:
    names = draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=2))
    return {name: str(draw(st.integers(0, most))) for name in names}


@st.composite
def _extended_pod(draw: st.DrawFn, name: str) -> dict[str, Any]:
    def container(number: int, *, starts: bool) -> dict[str, Any]:
        requests = {"cpu": "1"} | draw(_amounts_of(2))
        made = {"name": f"c{number}", "resources": {"requests": requests}}
        return made | ({"restartPolicy": "Always"} if starts and draw(st.booleans()) else {})

    starting = [container(number, starts=True) for number in range(draw(st.integers(0, 2)))]
    staying = [container(2 + number, starts=False) for number in range(draw(st.integers(1, 2)))]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"initContainers": starting, "containers": staying}}


@st.composite
def extended_cases(draw: st.DrawFn) -> ExtendedCase:
    """Drivers of GPUs and NICs; of two classes for one resource the newer counts, and comes later.

    kube-scheduler 1.36 forgets the name of its own of a class that comes after such a newer one (decision 110).
    """
    nodes, slices, results = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for place in range(2):
        name = f"n{place}"
        allocatable = {"cpu": "16", "memory": "16Gi", "pods": "10"} | draw(_amounts_of(3))
        nodes.append({"metadata": {"name": name, "labels": {}}, "status": {"allocatable": allocatable}})
        for driver in DRIVERS:
            devices = [{"name": f"d{number}"} for number in range(draw(st.integers(0, 3)))]
            pool = {"name": f"{name}-{driver}", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "pool": pool, "nodeName": name, "devices": devices}
            slices.append({"metadata": {"name": pool["name"]}, "spec": spec})
            if devices and draw(st.booleans()):
                results.append({"request": "r", "driver": driver, "pool": pool["name"], "device": "d0"})
    names = draw(st.lists(st.sampled_from(("gpu", "nic", "newer")), unique=True))
    classes = [
        {
            "metadata": {"name": name, "creationTimestamp": f"2026-01-0{1 + draw(st.integers(0, 1))}T00:00:00Z"},
            "spec": {
                "extendedResourceName": "example.com/nic" if name == "nic" else "example.com/gpu",
                "selectors": cel(f'device.driver == "{DRIVERS[name != "gpu"]}"'),
            },
        }
        for name in sorted(names, reverse=True)
    ]
    classes.sort(key=lambda each: each["metadata"]["creationTimestamp"])
    pods = [draw(_extended_pod(f"p{number}")) for number in range(2)]
    allocation = {"devices": {"results": results}}
    claims = [
        {
            "metadata": {"name": "held", "namespace": "default", "uid": "held"},
            "spec": {"devices": {"requests": []}},
            "status": {"allocation": allocation},
        }
    ]
    if draw(st.integers(0, 5)) == 0:
        metadata = {
            "name": "left",
            "namespace": "default",
            "uid": "left",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": "p0", "controller": True}],
        }
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
        left = {"devices": {"results": [{"request": "r", "driver": "x", "pool": "x", "device": "x"}]}}
        claims.append({"metadata": metadata, "spec": {"devices": {"requests": [request]}},
                       "status": {"allocation": left}})  # fmt: skip
    return ExtendedCase(nodes, slices, classes, claims, pods)


def _ours(case: ExtendedCase) -> dict[str, dict[str, tuple[bool, str, str]]]:
    """Of each pod and node: whether it fits, the filter that rejects it, and the reason."""
    intern, cluster = Interner(), Cluster()
    for manifest in case.nodes:
        cluster.put_node(to_node(msgspec.convert(manifest, WireNode), intern))
    for resource_slice in read_slices(case.slices):
        cluster.set_resource_slice(resource_slice.name, resource_slice)
    for name, device_class in read_classes(case.classes).items():
        cluster.set_device_class(name, device_class)
    for claim in read_claims(case.claims):
        cluster.set_resource_claim((claim.namespace, claim.name), claim)
    for manifest in case.pods:
        cluster.put_pod(to_pod(msgspec.convert(manifest, WirePod), intern))
    table = NodeTable.of(cluster.nodes.values())
    known = build_snapshot(generation=1, now=0.0, table=table, running=(), pending=())
    known = replace(known, devices=cluster.devices)
    answers = {}
    for pod in cluster.waiting.values():
        verdicts = run_filters(pod.pod_class, known, pod.signature)
        answers[pod.key] = {
            node.name: (bool(verdicts.fits[row]), *verdicts.of_node(row)) for row, node in enumerate(table.nodes)
        }
    return answers


def _in_any_order(reason: str) -> str:
    return ", ".join(sorted(reason.split(", ")))


@EACH_VERSION
def test_extended_resources_are_judged_as_by_kube_scheduler(oracle: Oracle) -> None:
    """The whole default profile, DynamicResources in it: the same filter and the same words for each pod and node."""

    @settings(max_examples=examples(share(oracle, 300)), deadline=None)
    @given(case=extended_cases())
    def agree(case: ExtendedCase) -> None:
        _compare_extended(oracle, case)

    agree()


def _compare_extended(oracle: Oracle, case: ExtendedCase) -> None:
    devices = {"slices": case.slices, "classes": case.classes, "claims": case.claims}
    theirs = oracle.judge(case.nodes, [], case.pods, devices=devices)[""]
    ours = _ours(case)
    for pod, verdicts in theirs.items():
        for node, verdict in verdicts.items():
            fits, name, reason = ours[pod][node]
            if reason == REASON_LEFT_OVER and verdict.filter == "NodeResourcesFit":
                continue  # said of all nodes, before any filter
            expected = (verdict.fits, verdict.filter, _in_any_order(verdict.reason))
            assert (fits, name, _in_any_order(reason)) == expected, f"{pod} on {node}"
