"""Selectors and allocations of devices, against kube-scheduler's own evaluation and structured allocator."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw_devices import (
    DOMAIN,
    EXPRESSIONS,
    NODE,
    DeviceCase,
    device_cases,
    reached_node,
    read_claims,
    read_classes,
    read_slices,
)
from support.profiles import examples
from thalweg_controlplane import Oracle, OracleDevices

from flowcore.api.claim_allocations import WireDeviceConfig, allocation_object
from flowcore.model.resource_claims import ClaimAllocation
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.allocator import REASON_NONE_FIT, Unallocatable, allocate
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.device_selectors import DeviceSelectors

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


@settings(max_examples=examples(200))
@given(case=device_cases(), expressions=st.lists(_expressions(), min_size=5, max_size=20))
def test_selectors_say_what_kube_scheduler_hears(oracle: Oracle, case: DeviceCase, expressions: list[str]) -> None:
    """Each expression, of each device: whether it holds, or that it says nothing.

    One difference is meant: what kube-scheduler refuses by its types before it evaluates may have a value here.
    """
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
    pools = SliceIndex(read_slices(case.slices)).pools(reached_node())
    devices = {pooled.device_id: pooled.device for pool in pools for pooled in pool.devices}
    objects = []
    for claim, allocation, manifest in zip(read_claims(case.claims), allocations, case.claims, strict=True):
        own = _config(manifest["spec"]["devices"])
        objects.append(allocation_object(claim, allocation, own, class_config, devices, lambda: "share"))
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


def _has_distinct(claims: list[dict[str, Any]]) -> bool:
    return any(
        "distinctAttribute" in each for claim in claims for each in claim["spec"]["devices"].get("constraints", ())
    )


@settings(max_examples=examples(1000))
@given(case=device_cases())
def test_claims_get_the_devices_that_kube_scheduler_gives_them(oracle: Oracle, case: DeviceCase) -> None:
    """The same devices, amounts and nodes, or the same reason.

    Where devices are to differ in an attribute, kube-scheduler may find devices that do not: decision 103.
    """
    theirs = oracle.allocate(NODE, case.slices, case.classes, case.claims, case.others)
    node = reached_node()
    ours = allocate(
        read_claims(case.claims),
        node,
        SliceIndex(read_slices(case.slices)).pools(node),
        read_classes(case.classes),
        AllocatedDevices.of_claims(read_claims(case.others)),
        DeviceSelectors(),
    )
    if theirs.timed_out:
        return
    if _has_distinct(case.claims):
        assert isinstance(ours, Unallocatable) or theirs.allocations is not None
        return
    if not isinstance(ours, Unallocatable):
        assert list(ours) == _allocations(theirs), theirs.error
        assert _objects(case, ours) == [_without_amounts(each) for each in theirs.allocations or ()]
        return
    assert theirs.allocations is None, ours.reason
    assert ours.is_error == (bool(theirs.error) and not theirs.on_node_only), (ours, theirs.error)
    reason = theirs.error or REASON_NONE_FIT
    if " CEL " in reason:
        assert ours.reason.split(" CEL ")[0] == reason.split(" CEL ")[0]
    else:
        assert ours.reason == reason
