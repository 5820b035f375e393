"""Device classes, resource slices and claims as Kubernetes JSON, drawn by hypothesis: see support/draw.py.

What the API server refuses is not drawn. Each driver has pools of names of its own: kube-scheduler 1.36 counts shared
counters by the name of the pool alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from flowcore.api.devices import WireDeviceClass, to_device_class
from flowcore.api.resource_claims import WireDeviceClaim, to_resource_claim
from flowcore.api.resource_slices import WireResourceSlice, to_resource_slice
from flowcore.model.devices import DeviceClass
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.rules.devices.node_reach import ReachedNode

Manifest = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com")
MODELS, MEMORY = ("a100", "h100"), ("8Gi", "16Gi")
DOMAIN = DRIVERS[0]
#: Selectors that say something of the devices below; some of them err on some devices.
EXPRESSIONS = (
    "true",
    f'device.driver == "{DOMAIN}"',
    f'device.attributes["{DOMAIN}"].model == "h100"',
    f'has(device.attributes["{DOMAIN}"].numa) && device.attributes["{DOMAIN}"].numa < 1',
    f'"{DOMAIN}" in device.attributes && device.attributes["{DOMAIN}"].ready',
    f'device.attributes["{DOMAIN}"].?version.hasValue()',
    f'device.capacity["{DOMAIN}"].memory.compareTo(quantity("10Gi")) >= 0',
    f'cel.bind(own, device.attributes["{DOMAIN}"], own.model.startsWith("h") || own.numa == 0)',
    "device.allowMultipleAllocations",
)
ZONE = "topology.kubernetes.io/zone"
NODE: Manifest = {"metadata": {"name": "n0", "labels": {ZONE: "a"}}}


@dataclass(frozen=True)
class DeviceCase:
    """A node, the devices that there are, claims to allocate, and claims that have devices."""

    slices: list[Manifest]
    classes: list[Manifest]
    claims: list[Manifest]
    others: list[Manifest]


def reached_node() -> ReachedNode:
    """The node of all cases."""
    return ReachedNode(NODE["metadata"]["name"], tuple(sorted(NODE["metadata"]["labels"].items())))


def read_slices(manifests: list[Manifest]) -> list[ResourceSlice]:
    """Slices as plans have them."""
    return [to_resource_slice(msgspec.convert(each, WireResourceSlice)) for each in manifests]


def read_claims(manifests: list[Manifest]) -> list[ResourceClaim]:
    """Claims as plans have them."""
    return [to_resource_claim(msgspec.convert(each, WireDeviceClaim)) for each in manifests]


def read_classes(manifests: list[Manifest]) -> dict[str, DeviceClass]:
    """Classes by name."""
    classes = [to_device_class(msgspec.convert(each, WireDeviceClass)) for each in manifests]
    return {each.name: each for each in classes}


def cel(*expressions: str) -> list[Manifest]:
    """Selectors with these expressions."""
    return [{"cel": {"expression": expression}} for expression in expressions]


@st.composite
def _attributes(draw: st.DrawFn) -> Manifest:
    drawn: Manifest = {}
    if draw(st.integers(0, 5)):
        drawn["model"] = {"string": draw(st.sampled_from(MODELS))}
    if draw(st.integers(0, 3)):
        drawn[draw(st.sampled_from(("numa", f"{DOMAIN}/numa")))] = {"int": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        drawn["ready"] = {"bool": draw(st.booleans())}
    if draw(st.booleans()):
        drawn["version"] = {"version": draw(st.sampled_from(("1.2.3", "1.2.3-rc.1")))}
    return drawn


#: What a capacity's driver gives out.
_POLICIES: tuple[Manifest, ...] = (
    {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}},
    {"default": "2Gi", "validRange": {"min": "1Gi", "max": "4Gi"}},
    {"default": "4Gi", "validValues": ["1Gi", "4Gi", "8Gi"]},
)


#: Cores that are given out in parts.
_CORES: Manifest = {
    "value": "4",
    "requestPolicy": {"default": "500m", "validRange": {"min": "500m", "max": "3", "step": "250m"}},
}


@st.composite
def _device(draw: st.DrawFn, name: str) -> Manifest:
    device: Manifest = {"name": name, "attributes": draw(_attributes())}
    if draw(st.booleans()):
        device["capacity"] = {"memory": {"value": draw(st.sampled_from(MEMORY))}}
    if not draw(st.integers(0, 2)):
        device["allowMultipleAllocations"] = True
        memory = device.setdefault("capacity", {}).setdefault("memory", {"value": "8Gi"})
        if draw(st.integers(0, 3)):
            memory["requestPolicy"] = draw(st.sampled_from(_POLICIES))
        if draw(st.booleans()):
            device["capacity"]["cores"] = _CORES
    if not draw(st.integers(0, 5)):
        effect = draw(st.sampled_from(("NoSchedule", "NoExecute", "None")))
        device["taints"] = [{"key": "broken", "value": draw(st.sampled_from(("", "yes"))), "effect": effect}]
    if not draw(st.integers(0, 7)):
        device["bindsToNode"] = True
    if not draw(st.integers(0, 7)):
        device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    return device


_REACHES: tuple[Manifest, ...] = (
    {"nodeName": "n0"},
    {"nodeName": "n0"},
    {"nodeName": "n1"},
    {"allNodes": True},
    {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}},
    {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]}},
)


@st.composite
def _pool(draw: st.DrawFn, driver: str, name: str) -> list[Manifest]:
    devices = [draw(_device(f"d{place}")) for place in range(draw(st.integers(1, 4)))]
    reach = draw(st.sampled_from(_REACHES))
    if not draw(st.integers(0, 5)):
        reach = {"perDeviceNodeSelection": True}
        for device in devices:
            device.update(draw(st.sampled_from(_REACHES)))
    counters: list[Manifest] = []
    if not draw(st.integers(0, 2)):
        counters = [{"name": "card", "counters": {"slots": {"value": str(draw(st.integers(1, 4)))}}}]
        for device in devices:
            if draw(st.integers(0, 3)):
                needs = {"slots": {"value": str(draw(st.integers(1, 2)))}}
                device["consumesCounters"] = [{"counterSet": "card", "counters": needs}]
    parts = [devices] if draw(st.booleans()) else [devices[:1], devices[1:]]
    generation, stated = draw(st.integers(1, 2)), len(parts) + bool(counters) + (not draw(st.integers(0, 9)))
    pool = {"name": name, "generation": generation, "resourceSliceCount": stated}
    specs: list[Manifest] = [{"driver": driver, "pool": pool, "devices": part, **reach} for part in parts]
    if counters:
        specs.append({"driver": driver, "pool": pool, "sharedCounters": counters, "allNodes": True})
    if not draw(st.integers(0, 7)):
        old = {**pool, "generation": generation - 1}
        specs.append({"driver": driver, "pool": old, "devices": [{"name": "old"}], "nodeName": "n0"})
    return [{"metadata": {"name": f"{name}-{place}"}, "spec": spec} for place, spec in enumerate(specs)]


_TOLERATIONS: tuple[Manifest, ...] = (
    {"operator": "Exists"},
    {"key": "broken", "operator": "Equal", "value": "yes"},
    {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
)


@st.composite
def _request(draw: st.DrawFn, *, with_admin: bool) -> Manifest:
    request: Manifest = {"deviceClassName": draw(st.sampled_from(("any", "gpu"))), "allocationMode": "ExactCount"}
    request["count"] = draw(st.integers(1, 3))
    if not draw(st.integers(0, 5)):
        request["allocationMode"] = "All"
        del request["count"]
    if draw(st.booleans()):
        request["selectors"] = cel(draw(st.sampled_from(EXPRESSIONS)))
    if not draw(st.integers(0, 3)):
        request["tolerations"] = [draw(st.sampled_from(_TOLERATIONS))]
    if not draw(st.integers(0, 2)):
        request["capacity"] = {"requests": {"memory": draw(st.sampled_from(("1Gi", "1500Mi", "4Gi", "12Gi")))}}
    elif not draw(st.integers(0, 3)):
        cores = st.sampled_from(("100m", "600m", "1", "1750m", "1751m", "2500100u", "3500m"))
        request["capacity"] = {"requests": {"cores": draw(cores)}}
    if with_admin and not draw(st.integers(0, 9)):
        request["adminAccess"] = True
    return request


@st.composite
def _claim(draw: st.DrawFn, name: str) -> Manifest:
    requests: list[Manifest] = []
    for place in range(draw(st.integers(1, 2))):
        if draw(st.integers(0, 3)):
            requests.append({"name": f"r{place}", "exactly": draw(_request(with_admin=True))})
        else:
            alternatives = [{"name": f"a{rank}", **draw(_request(with_admin=False))} for rank in range(2)]
            requests.append({"name": f"r{place}", "firstAvailable": alternatives})
    devices: Manifest = {"requests": requests}
    if not draw(st.integers(0, 2)):
        kind, attribute = draw(st.sampled_from(("matchAttribute", "distinctAttribute"))), f"{DOMAIN}/numa"
        devices["constraints"] = [{kind: attribute, "requests": draw(st.sampled_from(([], ["r0"], ["r0", "r1"])))}]
    if draw(st.booleans()):
        wanted = draw(st.lists(st.sampled_from(("r0", "r1", "r0/a0", "r1/a1")), unique=True, max_size=2))
        devices["config"] = [_config("claim") | ({"requests": wanted} if wanted else {})]
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def _config(word: str) -> Manifest:
    return {"opaque": {"driver": DOMAIN, "parameters": {"from": word}}}


@st.composite
def _others(draw: st.DrawFn, slices: list[Manifest]) -> list[Manifest]:
    """A claim with some of the devices: whole, or in shares."""
    results: list[Manifest] = []
    for spec in (each["spec"] for each in slices):
        for device in spec.get("devices", ()):
            if draw(st.integers(0, 3)):
                continue
            result = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            if device.get("allowMultipleAllocations"):
                result |= {
                    "shareID": f"00000000-0000-0000-0000-{len(results):012}",
                    "consumedCapacity": {"memory": "1Gi"}
                    | ({"cores": "1500m"} if "cores" in device["capacity"] else {}),
                }
            results.append(result)
    meta = {"name": "other", "namespace": "default", "uid": "other"}
    return [{"metadata": meta, "spec": {"devices": {"requests": []}},
             "status": {"allocation": {"devices": {"results": results}}}}]  # fmt: skip


@st.composite
def device_cases(draw: st.DrawFn) -> DeviceCase:
    """Cases with at most eight devices, so that all choices can be tried."""
    slices = [*draw(_pool(DRIVERS[0], "p0")), *draw(_pool(DRIVERS[draw(st.integers(0, 1))], "p1"))]
    classes = [
        {"metadata": {"name": "any"}, "spec": {}},
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": cel(f'device.driver == "{DOMAIN}"'), "config": [_config("class")]},
        },
    ]
    claims = [draw(_claim(f"c{place}")) for place in range(draw(st.integers(1, 2)))]
    return DeviceCase(slices, classes, claims, draw(_others(slices)))
