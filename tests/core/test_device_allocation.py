"""Which devices of a node claims can have: rule by rule, and against a search that tries everything."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations, product
from math import prod
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.draw_devices import (
    DeviceCase,
    cel,
    device_cases,
    reached_node,
    read_claims,
    read_classes,
    read_slices,
)
from support.profiles import examples

from flowcore.api.claim_allocations import WireDeviceConfig, allocation_object
from flowcore.model.device_gates import FRACTIONAL_RANGES, DeviceGates
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.quantities import NANO
from flowcore.model.resource_claims import (
    ALL,
    MAX_DEVICES,
    AttributeConstraint,
    ClaimAllocation,
    ClaimRequest,
    DeviceRequest,
    ResourceClaim,
)
from flowcore.model.resource_slices import DeviceId, NodeReach
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.allocator import Unallocatable, allocate
from flowcore.rules.devices.allocation.consumable_capacity import (
    FinerThanStepsError,
    consumed_capacity,
    fits_capacity,
)
from flowcore.rules.devices.allocation.had_twice import PoolAmounts, device_had_twice
from flowcore.rules.devices.allocation.pools import Pool, PooledDevice, SliceIndex
from flowcore.rules.devices.allocation.requested_devices import taints_keep_out
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode, reaches

Manifest = dict[str, Any]
DRIVER = "gpu.example.com"
CLASSES = [{"metadata": {"name": "gpu"}, "spec": {}}]
#: Choices that the search of everything looks at, of one case.
MOST_CHOICES = 5000
NONE_FIT = Unallocatable("cannot allocate all claims")
#: A capacity that is given out in quarters of a unit.
PARTS = {"default": "500m", "validRange": {"min": "500m", "max": "3", "step": "250m"}}


def pool(*devices: Manifest, name: str = "p", **spec: Any) -> Manifest:
    """A slice that is a whole pool of the node, unless further words say otherwise."""
    pooled = {"name": name, "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    reach = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n0"}
    return {
        "metadata": {"name": spec.pop("slice", name)},
        "spec": {"driver": DRIVER, "pool": pooled, "devices": list(devices), **reach, **spec},
    }


def device(name: str, numa: int | None = None, **fields: Any) -> Manifest:
    attributes = {} if numa is None else {"numa": {"int": numa}}
    return {"name": name, "attributes": attributes, **fields}


def request(name: str = "r", **fields: Any) -> Manifest:
    return {"name": name, "exactly": {"deviceClassName": "gpu", "count": 1, **fields}}


def claim(*requests: Manifest, name: str = "c", **devices: Any) -> Manifest:
    meta = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": meta, "spec": {"devices": {"requests": list(requests), **devices}}}


def allocated(*results: Manifest) -> Manifest:
    """A claim of others with these devices of pool ``p``."""
    full = [{"request": "r", "driver": DRIVER, "pool": "p", **result} for result in results]
    return {**claim(name="other"), "status": {"allocation": {"devices": {"results": full}}}}


def solve(case: DeviceCase, **options: Any) -> tuple[ClaimAllocation, ...] | Unallocatable:
    node = reached_node()
    return allocate(
        read_claims(case.claims),
        node,
        SliceIndex(read_slices(case.slices)).pools(node),
        read_classes(case.classes),
        AllocatedDevices.of_claims(read_claims(case.others)),
        DeviceSelectors(),
        **options,
    )


def names(
    slices: Sequence[Manifest], *claims: Manifest, others: Sequence[Manifest] = (), **options: Any
) -> list[list[str]] | Unallocatable:
    """The devices of each claim by name."""
    found = solve(DeviceCase(list(slices), CLASSES, list(claims), list(others)), **options)
    return found if isinstance(found, Unallocatable) else [[each.device.device for each in a.devices] for a in found]


GPUS = pool(device("a", 0), device("b", 0), device("c", 1), device("d", 1))


def test_a_number_of_devices() -> None:
    """The first ones; no claim has a device of another."""
    assert names([GPUS], claim(request(count=3))) == [["a", "b", "c"]]
    assert names([GPUS], claim(request(count=2)), claim(request(count=2), name="e")) == [["a", "b"], ["c", "d"]]
    assert names([GPUS], claim(request(count=5))) == NONE_FIT
    assert names([GPUS], claim(request(count=3)), others=[allocated({"device": "a"})]) == [["b", "c", "d"]]
    assert names([GPUS], claim(request(count=4)), others=[allocated({"device": "a"})]) == NONE_FIT
    assert names([GPUS], claim(request()), others=[allocated({"device": "a", "adminAccess": True})]) == [["a"]]


def test_all_devices() -> None:
    """All that match, at least one, and none of them may be taken."""
    selected = cel(f"device.attributes['{DRIVER}'].numa == 1")
    every = {"allocationMode": "All", "selectors": selected}
    assert names([GPUS], claim(request(**every))) == [["c", "d"]]
    assert names([GPUS], claim(request(**every)), others=[allocated({"device": "d"})]) == NONE_FIT
    assert names([GPUS], claim(request(allocationMode="All", selectors=cel("false")))) == NONE_FIT
    many = pool(*(device(f"d{place:02}") for place in range(MAX_DEVICES + 1)))
    assert names([many], claim(request(allocationMode="All"))) == Unallocatable(
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32", is_error=True
    )


def test_admin_access() -> None:
    """Devices that others have, but not one twice in a claim."""
    taken = [allocated(*({"device": name} for name in "abcd"))]
    assert names([GPUS], claim(request(count=2, adminAccess=True)), others=taken) == [["a", "b"]]
    two = claim(request("r", adminAccess=True), request("s", adminAccess=True))
    assert names([GPUS], two, others=taken) == [["a", "b"]]


def test_a_prioritised_list() -> None:
    """The first alternative that there is, and the next one where the rest of the claim needs it."""
    alternatives = [
        {"name": "three", "deviceClassName": "gpu", "count": 3},
        {"name": "one", "deviceClassName": "gpu", "count": 1},
    ]
    listed = {"name": "r", "firstAvailable": alternatives}
    found = solve(DeviceCase([GPUS], CLASSES, [claim(listed, request("s", count=2))], []))
    assert not isinstance(found, Unallocatable)
    assert [(each.request, each.device.device) for each in found[0].devices] == [("r/one", "a"), ("s", "b"), ("s", "c")]
    assert names([GPUS], claim(listed)) == [["a", "b", "c"]]


def test_attributes_in_common_and_apart() -> None:
    """Within the requests that a constraint names, or all of the claim."""
    numa = f"{DRIVER}/numa"
    taken = [allocated({"device": "a"})]
    assert names([GPUS], claim(request(count=2), constraints=[{"matchAttribute": numa}]), others=taken) == [["c", "d"]]
    assert names([GPUS], claim(request(count=3), constraints=[{"matchAttribute": numa}])) == NONE_FIT
    assert names([GPUS], claim(request(count=2), constraints=[{"distinctAttribute": numa}])) == [["a", "c"]]
    assert names([GPUS], claim(request(count=3), constraints=[{"distinctAttribute": numa}])) == NONE_FIT
    only = [{"matchAttribute": numa, "requests": ["r"]}]
    assert names([GPUS], claim(request(count=2), request("s", count=2), constraints=only)) == [["a", "b", "c", "d"]]
    bare = pool(device("x"), name="q")
    assert names([bare], claim(request(), constraints=[{"matchAttribute": numa}])) == NONE_FIT
    every = claim(request(allocationMode="All"), constraints=[{"matchAttribute": numa}])
    assert names([GPUS], every) == Unallocatable(
        f"claim default/c, request r: cannot add device {DRIVER}/p/c because a claim constraint would not be satisfied",
        is_error=True,
    )


def test_partitions_share_counters() -> None:
    """What is left of a card decides which of its parts can be had."""
    needs = lambda slots: [{"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}]  # noqa: E731
    counters = [{"name": "card", "counters": {"slots": {"value": "4"}}}]
    parts = [device("whole", consumesCounters=needs(4)), *(device(n, consumesCounters=needs(2)) for n in ("h0", "h1"))]
    slices = [
        pool(*parts, slice="devices", pool={"resourceSliceCount": 2}),
        pool(slice="counters", pool={"resourceSliceCount": 2}, sharedCounters=counters, allNodes=True),
    ]
    assert names(slices, claim(request())) == [["whole"]]
    assert names(slices, claim(request(count=2))) == [["h0", "h1"]]
    assert names(slices, claim(request(count=3))) == NONE_FIT
    assert names(slices, claim(request()), others=[allocated({"device": "h1"})]) == [["h0"]]
    assert names(slices, claim(request()), others=[allocated({"device": "whole"})]) == NONE_FIT
    # Devices of other nodes take counters of the same pool.
    far = pool(device("far", consumesCounters=needs(3)), slice="far", pool={"resourceSliceCount": 3}, nodeName="n1")
    three = [{**each, "spec": {**each["spec"], "pool": far["spec"]["pool"]}} for each in slices]
    assert names([*three, far], claim(request()), others=[allocated({"device": "far"})]) == NONE_FIT
    wrong = pool(device("x", consumesCounters=[{"counterSet": "gone", "counters": {}}]))
    assert names([wrong], claim(request())) == Unallocatable("invalid resource pools were encountered")


def had_twice(slices: Sequence[Manifest], *results: Manifest) -> list[bool]:
    """Of claims with one device each, whether other claims have it too."""
    pools = read_slices(list(slices))
    allocations = [each.allocation for each in read_claims([allocated(result) for result in results])]
    everything = AllocatedDevices()
    for allocation in allocations:
        assert allocation is not None
        everything.add(allocation)
    amounts_of = lambda pool_id: PoolAmounts.of(pool_id, [each for each in pools if each.pool_id == pool_id])  # noqa: E731
    return [
        device_had_twice(allocation, everything, amounts_of) is not None for allocation in allocations if allocation
    ]


def test_devices_of_which_claims_have_more_than_there_is() -> None:
    """Whole ones, capacities of shared ones, and counters; what is had with admin access counts for nobody."""
    whole = [pool(device("a"), device("b"))]
    assert had_twice(whole, {"device": "a"}, {"device": "b"}) == [False, False]
    assert had_twice(whole, {"device": "a"}, {"device": "b"}, {"device": "a"}) == [True, False, True]
    assert had_twice(whole, {"device": "a"}, {"device": "a", "adminAccess": True}) == [False, False]
    assert had_twice([], {"device": "a"}, {"device": "a"}) == [True, True]
    shared = [pool(device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "8"}}))]
    share = lambda number, memory: {"device": "a", "shareID": f"s{number}", "consumedCapacity": {"memory": memory}}  # noqa: E731
    assert had_twice(shared, share(1, "3"), share(2, "5")) == [False, False]
    assert had_twice(shared, share(1, "4"), share(2, "5")) == [True, True]
    assert had_twice(shared, share(1, "4"), {"device": "a"}) == [True, True]
    assert had_twice([], share(1, "4"), share(2, "5")) == [False, False], "nobody knows what there is"
    assert had_twice(shared, share(1, "9")) == [False], "its driver offers less by now, and no other claim is to blame"
    counters = [{"name": "card", "counters": {"slots": {"value": "2"}}}]
    needs = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    two = {"resourceSliceCount": 2}
    parts = [device(name, consumesCounters=needs) for name in ("h0", "h1", "h2")]
    slices = [
        pool(slice="counters", pool=two, sharedCounters=counters, allNodes=True),
        pool(*parts, device("x"), slice="devices", pool=two),
    ]
    assert had_twice(slices, {"device": "h0"}, {"device": "h1"}, {"device": "x"}) == [False, False, False]
    three = ({"device": "h0"}, {"device": "h1"}, {"device": "h2"})
    assert had_twice(slices, *three, {"device": "x"}) == [True, True, True, False]
    assert had_twice(slices[1:], *three) == [False, False, False], "the pool is not complete"
    shrunk = [{"name": "card", "counters": {"slots": {"value": "0"}}}]
    slices[0] = pool(slice="counters", pool=two, sharedCounters=shrunk, allNodes=True)
    assert had_twice(slices, {"device": "h0"}) == [False]


@settings(max_examples=examples(200))
@given(device_cases())
def test_what_is_chosen_is_not_had_twice(case: DeviceCase) -> None:
    """Beside what others have, whatever that is; and it is once two claims have it."""
    found = solve(case)
    if isinstance(found, Unallocatable):
        return
    slices = read_slices(case.slices)
    everything = AllocatedDevices.of_claims(read_claims(case.others))
    for allocation in found:
        everything.add(allocation)
    amounts_of = lambda pool_id: PoolAmounts.of(pool_id, [each for each in slices if each.pool_id == pool_id])  # noqa: E731
    assert not any(device_had_twice(allocation, everything, amounts_of) for allocation in found)
    for allocation in found:
        everything.add(allocation)
        if any(each.share_id is None and not each.admin_access for each in allocation.devices):
            assert device_had_twice(allocation, everything, amounts_of) is not None


def test_counters_of_one_other_node_are_not_looked_at() -> None:
    """A thousand nodes with partitions would see the counters of a thousand each; of several nodes they are seen."""
    counters = [{"name": "card", "counters": {"slots": {"value": "1"}}}]
    needs = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    two = {"name": "far", "resourceSliceCount": 2}
    far = [
        pool(device("d0", consumesCounters=needs), slice="far-devices", pool=two, nodeName="n1"),
        pool(slice="far-counters", pool=two, sharedCounters=counters, nodeName="n1"),
    ]
    node = reached_node()
    index = SliceIndex(read_slices(far))
    assert not index.pools(node)
    assert [each.pool_id.pool for each in index.pools(ReachedNode("n1"))] == ["far"]
    everywhere = pool(slice="far-counters", pool=two, sharedCounters=counters, allNodes=True)
    changed = index.changed(
        read_slices([far[0], everywhere]), {each.pool_id for each in index.pools(ReachedNode("n1"))}
    )
    assert [each.pool_id.pool for each in changed.pools(node)] == ["far"]
    again = changed.changed(read_slices(far), {each.pool_id for each in changed.pools(node)})
    assert not again.pools(node)


@pytest.mark.parametrize(
    ("requested", "policy", "taken"),
    [
        (None, None, 8),
        (None, {"default": "2"}, 2),
        ("3", None, 3),
        ("9", None, 9),
        ("1", {"default": "2", "validRange": {"min": "2", "step": "3"}}, 2),
        ("3", {"default": "2", "validRange": {"min": "2", "step": "3"}}, 5),
        ("6", {"default": "2", "validRange": {"min": "2", "max": "5"}}, None),
        ("3", {"default": "2", "validValues": ["2", "4"]}, 4),
        ("5", {"default": "2", "validValues": ["2", "4"]}, None),
        ("0.1", PARTS, 0.5),
        ("2.6", PARTS, 2.75),
        ("2.75", PARTS, 2.75),
        ("3.001", PARTS, None),
        # Steps that are no number of thousandths count in whole units, as all do without the gate.
        ("2.6", {"default": "1", "validRange": {"min": "500m", "step": "1500u"}}, 3),
        ("0.25", {"default": "1", "validRange": {"min": "500m", "step": "1500u"}}, 0.5),
    ],
)
def test_what_a_request_takes_of_a_capacity(
    requested: str | None, policy: Manifest | None, taken: float | None
) -> None:
    """The default, or what is requested, rounded up to what the driver gives out."""
    amount = {"value": "8"} | ({} if policy is None else {"requestPolicy": policy})
    (pooled,) = read_slices([pool(device("a", capacity={"memory": amount}))])[0].devices
    amounts = () if requested is None else (("memory", Decimal(requested) * NANO),)
    assert consumed_capacity(amounts, pooled) == (None if taken is None else {"memory": taken * NANO})
    assert consumed_capacity((("gone", Decimal(1)),), pooled) is None


def test_parts_of_a_unit() -> None:
    """Without the gate steps are whole units. With it an amount that no step can be made of is an error."""
    shared = pool(
        device("a", allowMultipleAllocations=True, capacity={"cores": {"value": "4", "requestPolicy": PARTS}})
    )
    (read,) = read_slices([shared])
    (whole,) = DeviceGates(frozenset({FRACTIONAL_RANGES})).as_read(read).devices
    amounts = (("cores", Decimal("2.6") * NANO),)
    assert consumed_capacity(amounts, read.devices[0]) == {"cores": 2_750_000_000}
    assert consumed_capacity(amounts, whole) == {"cores": 3 * NANO}
    words = "capacity request cannot be represented in the device's range arithmetic"
    for mode, named in ((request(), f"{DRIVER}/p/a"), (request(allocationMode="All"), "a")):
        mode["exactly"]["capacity"] = {"requests": {"cores": "2500100u"}}
        assert names([shared], claim(mode)) == Unallocatable(
            f"claim default/c, request r: checking capacity for device {named}: "
            f'capacity "cores": {words}: request 2500100000n is not a representable milli value',
            is_error=True,
        )


@pytest.mark.parametrize(("version", "expected"), [("v1.36.3", [["b"]]), ("v1.37.2", NONE_FIT), ("", NONE_FIT)])
def test_all_devices_are_those_that_match(version: str, expected: Any) -> None:
    """Since 1.37 also those that others have too much of: then the request fails. Before, they were passed over."""
    amount = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    slices = [pool(device("a", **amount), device("b", **amount), device("small", capacity={"memory": {"value": "1"}}))]
    holds = read_claims([allocated({"device": "a", "shareID": "s", "consumedCapacity": {"memory": "6"}})])
    wants = claim(request(allocationMode="All", capacity={"requests": {"memory": "3"}}))
    claims = [DeviceGates(version=KubernetesVersion(version)).as_claimed(each) for each in read_claims([wants])]
    pools, node = SliceIndex(read_slices(slices)).pools(reached_node()), reached_node()
    others = AllocatedDevices.of_claims(holds)
    found = allocate(claims, node, pools, read_classes(list(CLASSES)), others, DeviceSelectors())
    if isinstance(found, Unallocatable):
        assert found == expected
    else:
        assert [[each.device.device for each in allocation.devices] for allocation in found] == expected


def test_claims_share_a_device_by_amounts() -> None:
    """As long as its capacity lasts; a request never gets so much that there is not."""
    shared = pool(device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "8"}}))
    wants = lambda amount, name: claim(request(capacity={"requests": {"memory": amount}}), name=name)  # noqa: E731
    found = solve(DeviceCase([shared], CLASSES, [wants("3", "c"), wants("4", "d")], []))
    assert not isinstance(found, Unallocatable)
    shares = [each for allocation in found for each in allocation.devices]
    assert [(each.share_id, each.consumed) for each in shares] == [
        ("", (("memory", 3 * NANO),)),
        ("", (("memory", 4 * NANO),)),
    ]
    assert names([shared], wants("3", "c"), wants("6", "d")) == NONE_FIT
    holds = [allocated({"device": "a", "shareID": "s", "consumedCapacity": {"memory": "6"}})]
    assert names([shared], wants("2", "c"), others=holds) == [["a"]]
    assert names([shared], wants("3", "c"), others=holds) == NONE_FIT
    assert names([shared], claim(request(capacity={"requests": {"gone": "1"}}))) == NONE_FIT


def test_taints_keep_out_who_does_not_tolerate_them() -> None:
    """Of the effects that are known."""
    taint = {"key": "broken", "value": "yes", "effect": "NoExecute"}
    slices = [pool(device("a", taints=[taint]), device("b", taints=[{**taint, "effect": "None"}]))]
    assert names(slices, claim(request())) == [["b"]]
    for toleration in (
        {"operator": "Exists"},
        {"key": "broken", "value": "yes"},
        {"operator": "Exists", "effect": "NoExecute"},
    ):
        assert names(slices, claim(request(tolerations=[toleration]))) == [["a"]]
    for toleration in (
        {"key": "broken"},
        {"key": "other", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
    ):
        assert names(slices, claim(request(tolerations=[toleration]))) == [["b"]]


def test_pools_that_are_being_written() -> None:
    """Nothing comes from an incomplete pool; of an older generation nothing counts."""
    incomplete = pool(device("a"), pool={"resourceSliceCount": 2})
    other = pool(device("z"), name="q")
    assert names([incomplete], claim(request())) == NONE_FIT
    assert names([incomplete, other], claim(request())) == [["z"]]
    assert names([incomplete, other], claim(request(allocationMode="All"))) == Unallocatable(
        f"claim default/c, request r: asks for all devices, but resource pool {DRIVER}/p is currently being updated",
        is_error=True,
    )
    newer = pool(device("new"), pool={"generation": 2}, slice="newer")
    assert names([GPUS, newer], claim(request())) == [["new"]]
    elsewhere = pool(device("new"), pool={"generation": 2, "resourceSliceCount": 2}, slice="newer", nodeName="n1")
    stale = pool(device("a"), pool={"resourceSliceCount": 2})
    assert names([stale, elsewhere], claim(request())) == NONE_FIT
    twice = pool(device("a"), device("a"))
    assert names([twice], claim(request())) == Unallocatable("invalid resource pools were encountered")


@pytest.mark.parametrize(
    ("reach", "expected", "terms"),
    [
        ({"allNodes": True}, True, None),
        ({"nodeName": "n1"}, False, None),
        ({"nodeName": "n0"}, True, ["metadata.name"]),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}}, True,
         ["topology.kubernetes.io/zone"]),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]}}, False, None),
        ({}, False, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_per_device", [False, True])
def test_the_nodes_that_reach_a_device(
    *, reach: Manifest, expected: bool, terms: list[str] | None, is_per_device: bool
) -> None:
    """By the slice or by the device; the allocation says which nodes it holds on."""
    if is_per_device:
        slices = [pool(device("a", **reach), perDeviceNodeSelection=True)]
    else:
        slices = [pool(device("a"), **reach)]
        if not reach:
            del slices[0]["spec"]["nodeName"]
    found = solve(DeviceCase(slices, CLASSES, [claim(request())], []))
    assert (not isinstance(found, Unallocatable)) == expected
    if not isinstance(found, Unallocatable):
        (allocation,) = found
        keys = [each.key for term in allocation.terms or () for each in (*term.expressions, *term.fields)]
        assert (keys or None) == terms


def test_what_is_wrong_with_a_claim_is_an_error() -> None:
    """Expressions that say nothing, classes that are not there, and what no version of the API has yet."""
    bad = cel(f"device.attributes['{DRIVER}'].gone == 1")
    found = names([GPUS], claim(request(selectors=bad)))
    assert found == Unallocatable("claim default/c: selector #0: CEL runtime error: no such key: gone", is_error=True)
    found = names([GPUS], claim(request(selectors=cel("x"))))
    assert isinstance(found, Unallocatable)
    assert found.reason.startswith("claim default/c: selector #0: CEL compile error: compilation failed: undeclared")
    for fields, text in (
        ({"deviceClassName": "none"}, "could not retrieve device class none"),
        ({"deviceClassName": ""}, "missing device class name"),
        ({"allocationMode": "Some"}, "unsupported count mode Some"),
        ({"selectors": [{}]}, "selector #0: CEL expression empty"),
    ):
        found = names([GPUS], claim(request(**fields)))
        assert isinstance(found, Unallocatable)
        assert text in found.reason
        assert found.is_error
    found = names([GPUS], claim(request(), constraints=[{}]))
    assert isinstance(found, Unallocatable)
    assert "constraint #0: empty constraint" in found.reason


def test_an_expression_is_not_asked_where_the_search_does_not_come() -> None:
    """As kube-scheduler has it: a device that errs does no harm behind one that serves."""
    slices = [pool(device("a", 0), device("b"))]
    assert names(slices, claim(request(selectors=cel(f"device.attributes['{DRIVER}'].numa == 0")))) == [["a"]]


def test_interchangeable_devices_are_tried_once() -> None:
    """Twenty-four of one kind for a request that can be served, and one that cannot: no two hundred million ways."""
    slices = [pool(*(device(f"d{place:02}", 0) for place in range(24)))]
    impossible = claim(request(count=12), request("s", selectors=cel("false")))
    assert names(slices, impossible, max_steps=1000) == NONE_FIT


def test_a_search_ends() -> None:
    """Devices that differ in all that the claim reads: what kube-scheduler would end after ten seconds."""
    slices = [pool(*(device(f"d{place:02}", place) for place in range(24)))]
    constraints = [{"distinctAttribute": f"{DRIVER}/numa"}]
    impossible = claim(request(count=12), request("s", selectors=cel("false")), constraints=constraints)
    assert names(slices, impossible) == Unallocatable(
        "timed out trying to allocate devices", is_error=True, is_limit=True
    )


def test_many_claims_with_many_devices() -> None:
    """As many as a pod may have: no recursion by device."""
    slices = [pool(*(device(f"d{place:03}") for place in range(128)), name=f"p{number}") for number in range(8)]
    claims = [claim(request(count=32), name=f"c{number}") for number in range(32)]
    found = names(slices, *claims)
    assert not isinstance(found, Unallocatable)
    assert len({name for number in found for name in number}) == 128
    assert [len(each) for each in found] == [32] * 32


# --- against a search that tries everything -------------------------------------------------------------------------


Choice = list[tuple[int, ClaimRequest, DeviceRequest, tuple[PooledDevice, ...]]]


def matching(
    claims: Sequence[ResourceClaim], case: DeviceCase, pools: Sequence[Pool]
) -> Mapping[int, list[PooledDevice]]:
    """Devices that match each way to serve a request, by the request's identity; raises where an expression errs."""
    classes, selectors, node = read_classes(case.classes), DeviceSelectors(), reached_node()
    found = dict[int, list[PooledDevice]]()
    for each in (way for one_claim in claims for parent in one_claim.requests for way in parent.alternatives):
        found[id(each)] = []
        for pooled in (device for usable in pools if usable.is_usable for device in usable.devices):
            answers = [
                selectors.matches(str(expression), pooled.driver, pooled.device)
                for expression in (*classes[each.device_class].selectors, *each.selectors)
            ]
            if any(isinstance(answer, CelProblem) for answer in answers):
                raise ValueError
            near = not pooled.resource_slice.per_device or reaches(pooled.device.reach, node)
            if all(answers) and near:
                found[id(each)].append(pooled)
    return found


def amounts_taken(way: DeviceRequest, pooled: PooledDevice) -> Mapping[str, int] | None:
    """What a request takes of a device's capacities; None: it cannot have it, perhaps by an error."""
    try:
        return consumed_capacity(way.capacity, pooled.device)
    except FinerThanStepsError:
        return None


def choices(
    claims: Sequence[ResourceClaim], found: Mapping[int, list[PooledDevice]], others: AllocatedDevices
) -> Iterator[Choice]:
    """All ways to serve all requests, whatever rules they break; not drawn are cases with too many to look at."""
    options: list[list[tuple[int, ClaimRequest, DeviceRequest, tuple[PooledDevice, ...]]]] = []
    for index, one_claim in enumerate(claims):
        for parent in one_claim.requests:
            ways = []
            for way in parent.alternatives:
                if way.mode == ALL:
                    every = tuple(
                        pooled
                        for pooled in found[id(way)]
                        if (taken := amounts_taken(way, pooled)) is not None and fits_capacity(taken, pooled.device)
                    )
                    ways += [(index, parent, way, every)] if every else []
                else:
                    ways += [(index, parent, way, chosen) for chosen in combinations(found[id(way)], way.count)]
            options.append(ways)
    assume(prod(map(len, options)) <= MOST_CHOICES)
    yield from (list(choice) for choice in product(*options))


def keeps_rules(claims: Sequence[ResourceClaim], choice: Choice, others: AllocatedDevices) -> bool:
    """Whether a choice breaks no rule, looked at as a whole."""
    holders: dict[DeviceId, list[tuple[int, DeviceRequest]]] = {}
    pooled_by_id: dict[DeviceId, PooledDevice] = {}
    for index, _, way, devices in choice:
        for pooled in devices:
            holders.setdefault(pooled.device_id, []).append((index, way))
            pooled_by_id[pooled.device_id] = pooled
            if taints_keep_out(pooled.device.taints, way.tolerations):
                return False
    for device_id, users in holders.items():
        pooled = pooled_by_id[device_id]
        device = pooled.device
        exclusive = [way for _, way in users if not way.admin_access]
        if exclusive and others.is_whole(device_id):
            return False
        taken = [amounts_taken(way, pooled) for _, way in users]
        if None in taken:
            return False
        used = [each for each in taken if each is not None]
        shared = used if device.allow_multiple else []
        if any(not fits_capacity(each, device, others.consumed(device_id)) for each in used):
            return False
        if shared and not fits_capacity(shared[0], device, others.consumed(device_id), *shared[1:]):
            return False
        # Without admin access nobody may have the device before; with it, no request of the same claim.
        for place, (index, way) in enumerate(users if not device.allow_multiple else ()):
            before = users[:place]
            if (before and not way.admin_access) or index in {earlier for earlier, _ in before}:
                return False
    return _keeps_counters(holders, pooled_by_id, others) and _keeps_constraints(claims, choice)


def _keeps_counters(
    holders: Mapping[DeviceId, Sequence[Any]], pooled_by_id: Mapping[DeviceId, PooledDevice], others: AllocatedDevices
) -> bool:
    for used in {pooled_by_id[each].pool.pool_id: pooled_by_id[each].pool for each in holders}.values():
        left = {(name, key): value for name, values in used.counters.items() for key, value in values.items()}
        known = {each.device_id: each for each in (*used.devices, *Pool(used.pool_id, used.unreached).devices)}
        needs_any = False
        for device_id, pooled in known.items():
            users = len(holders.get(device_id, ()))
            times = int(others.is_allocated(device_id))
            if users:
                first_share = pooled.device.allow_multiple and not others.has_consumption(device_id)
                takes = not pooled.device.allow_multiple or first_share
                needs_any |= bool(pooled.device.consumes) and takes
                times += int(first_share) if pooled.device.allow_multiple else users
            for consumption in pooled.device.consumes:
                for key, amount in consumption.counters:
                    left[consumption.name, key] -= times * amount
        if needs_any and min(left.values()) < 0:
            return False
    return True


def _keeps_constraints(claims: Sequence[ResourceClaim], choice: Choice) -> bool:
    for index, one_claim in enumerate(claims):
        for constraint in one_claim.constraints:
            values = [
                _value(pooled, constraint)
                for owner, parent, way, devices in choice
                for pooled in devices
                if owner == index
                and (not constraint.requests or {parent.name, f"{parent.name}/{way.name}"} & set(constraint.requests))
            ]
            if None in values:
                return False
            if constraint.match_attribute and len(set(values)) > 1:
                return False
            if constraint.distinct_attribute and len(set(values)) < len(values):
                return False
    return True


def _value(pooled: PooledDevice, constraint: AttributeConstraint) -> Any:
    name = constraint.match_attribute or constraint.distinct_attribute
    attributes, local = dict(pooled.device.attributes), name.removeprefix(f"{pooled.driver}/")
    return attributes.get(name) or (attributes.get(local) if local != name else None)


@settings(max_examples=examples(400))
@given(case=device_cases())
def test_the_search_misses_nothing_and_breaks_nothing(case: DeviceCase) -> None:
    """There is an allocation if and only if some choice of devices keeps all rules; and what is found keeps them."""
    claims, node = read_claims(case.claims), reached_node()
    pools = SliceIndex(read_slices(case.slices)).pools(node)
    others = AllocatedDevices.of_claims(read_claims(case.others))
    found = solve(case)
    if isinstance(found, Unallocatable):
        if found.is_error:
            return
        try:
            matches = matching(claims, case, pools)
        except ValueError:
            return
        assert not any(keeps_rules(claims, choice, others) for choice in choices(claims, matches, others))
        return
    by_id = {each.device_id: each for usable in pools for each in usable.devices}
    choice: Choice = []
    for index, (one_claim, allocation) in enumerate(zip(claims, found, strict=True)):
        for parent in one_claim.requests:
            (reference,) = {each.request for each in allocation.devices if each.request.split("/")[0] == parent.name}
            (way,) = (each for each in parent.alternatives if parent.reference(each) == reference)
            chosen = tuple(by_id[each.device] for each in allocation.devices if each.request == reference)
            assert way.mode == ALL or len(chosen) == way.count
            choice.append((index, parent, way, chosen))
    assert keeps_rules(claims, choice, others)


def test_what_is_given_back_is_free() -> None:
    """Allocations come and go; what was counted twice is still there after one of them has gone."""
    share = {"driver": DRIVER, "pool": "p", "device": "a", "shareID": "s", "consumedCapacity": {"memory": "2"}}
    whole = {"driver": DRIVER, "pool": "p", "device": "b"}
    first, second = (
        each.allocation
        for each in read_claims([allocated(share, whole), allocated({**share, "shareID": "t"}, {"device": "c"})])
    )
    assert first is not None
    assert second is not None
    state = AllocatedDevices()
    a, b = (DeviceId(DRIVER, "p", name) for name in "ab")
    state.add(first)
    state.add(second)
    assert state.consumed(a) == {"memory": 4 * NANO}
    state.remove(first)
    assert state.consumed(a) == {"memory": 2 * NANO}
    assert (state.is_allocated(a), state.is_whole(b)) == (True, False)
    state.remove(second)
    assert (state.is_allocated(a), state.has_consumption(a)) == (False, False)


def test_an_allocation_is_written_as_it_is_read() -> None:
    """With what drivers are told: a class's config once for all its requests, a claim's for each that it names."""
    shared = pool(
        device("a", allowMultipleAllocations=True, capacity={"memory": {"value": "2"}}, bindingConditions=["ready"]),
        device("b", taints=[{"key": "broken", "effect": "NoSchedule"}]),
    )
    toleration = {"key": "broken", "operator": "Exists", "tolerationSeconds": 5}
    alternatives = [{"name": "x", "deviceClassName": "gpu", "count": 3}, {"name": "y", "deviceClassName": "gpu"}]
    manifest = claim(
        request("r", capacity={"requests": {"memory": "500m"}}),
        {"name": "s", "firstAvailable": [{**each, "tolerations": [toleration]} for each in alternatives]},
    )
    found = solve(DeviceCase([shared], CLASSES, [manifest], []))
    assert not isinstance(found, Unallocatable)
    (read,), (allocation,) = read_claims([manifest]), found
    made = allocation_object(
        read,
        allocation,
        [WireDeviceConfig(["s/y"], {"driver": "d"}), WireDeviceConfig(["s/x"], {"driver": "e"}), WireDeviceConfig()],
        {"gpu": [WireDeviceConfig(None, {"driver": "c"})]},
        lambda: "drawn",
    )
    assert made["devices"]["config"] == [
        {"source": "FromClass", "requests": ["r", "s/y"], "opaque": {"driver": "c"}},
        {"source": "FromClaim", "requests": ["s/y"], "opaque": {"driver": "d"}},
        {"source": "FromClaim"},
    ]
    first, second = made["devices"]["results"]
    assert (first["shareID"], first["bindingConditions"], first["consumedCapacity"]) == (
        "drawn",
        ["ready"],
        {"memory": "500000000n"},
    )
    assert second["tolerations"] == [toleration]
    (again,) = read_claims([{**manifest, "status": {"allocation": made}}])
    assert again.allocation is not None
    shares = [msgspec.structs.replace(each, share_id=each.share_id and "") for each in again.allocation.devices]
    assert msgspec.structs.replace(again.allocation, devices=tuple(shares)) == allocation


def _zone(value: str, operator: str = "In") -> Manifest:
    requirement = {"key": "zone", "operator": operator} | ({"values": [value]} if operator == "In" else {})
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


def _named(name: str) -> Manifest:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


@pytest.mark.parametrize("kind", ["label", "name", "device by device"])
def test_slices_that_select_nodes_cost_nodes_and_slices(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A slice is compared with the nodes that have a label that it asks for, and not with all of them."""
    compared = Counter[str]()

    def counting(reach: NodeReach, node: ReachedNode) -> bool:
        compared["all"] += 1
        return reaches(reach, node)

    monkeypatch.setattr("flowcore.rules.devices.allocation.pools.reaches", counting)
    number = 300
    slices = []
    for place in range(number):
        reach = _named(f"n{place}") if kind == "name" else _zone(f"z{place}")
        if kind == "device by device":
            slices.append(pool(device("d", **reach), name=f"p{place:03}", perDeviceNodeSelection=True))
        else:
            slices.append(pool(device("d"), name=f"p{place:03}", **reach))
    nodes = [ReachedNode(f"n{place}", (("other", "x"), ("zone", f"z{place}"))) for place in range(number)]
    index = SliceIndex(read_slices(slices))
    assert [[each.pool_id.pool for each in index.pools(node)] for node in nodes] == [
        [f"p{place:03}"] for place in range(number)
    ]
    assert 0 < compared["all"] <= 2 * number


@st.composite
def _selectors(draw: st.DrawFn) -> Manifest:
    """Node selectors of one to two terms, of labels and names."""

    def requirement(key: str) -> Manifest:
        operator = draw(st.sampled_from(("In", "In", "NotIn", "Exists")))
        values = draw(st.lists(st.sampled_from(("a", "b", "n0", "n1")), min_size=1, max_size=2, unique=True))
        return {"key": key, "operator": operator} | ({} if operator == "Exists" else {"values": values})

    terms = []
    for _ in range(draw(st.integers(1, 2))):
        keys = draw(st.lists(st.sampled_from(("zone", "rack", "metadata.name")), max_size=2, unique=True))
        term: Manifest = {"matchExpressions": [requirement(key) for key in keys]}
        if draw(st.booleans()):
            name = draw(st.sampled_from(("n0", "n1")))
            field = {"key": "metadata.name", "operator": draw(st.sampled_from(("In", "NotIn"))), "values": [name]}
            term["matchFields"] = [field]
        terms.append(term)
    return {"nodeSelector": {"nodeSelectorTerms": terms}}


@settings(max_examples=examples(200))
@given(selectors=st.lists(_selectors(), min_size=1, max_size=4), by_device=st.booleans())
def test_nodes_get_the_slices_that_select_them(selectors: list[Manifest], *, by_device: bool) -> None:
    """Whatever slices ask of nodes: each node has the pools that reach it, as if each were compared with each."""
    slices = [
        pool(device("d", **reach), name=f"p{place}", perDeviceNodeSelection=True)
        if by_device
        else pool(device("d"), name=f"p{place}", **reach)
        for place, reach in enumerate(selectors)
    ]
    read = read_slices(slices)
    index = SliceIndex(read)
    for name, zone, more in product(("n0", "n1", "n2"), ("a", "b", ""), ((), (("metadata.name", "a"),))):
        labels = (*more, ("rack", "b"), *((("zone", zone),) if zone else ()))
        node = ReachedNode(name, labels)
        expected = [each.pool for each in read if reaches(each.devices[0].reach if by_device else each.reach, node)]
        assert [each.pool_id.pool for each in index.pools(node)] == expected


def test_a_constraint_on_all_devices_is_an_error_before_amounts_are_looked_at() -> None:
    """Another claim of the pod takes what there is of the device. kube-scheduler ends its attempt, and so do plans."""
    shared = device("d", allowMultipleAllocations=True, capacity={"memory": {"value": "8Gi"}})
    every = claim(
        request(allocationMode="All", adminAccess=True),
        name="every",
        constraints=[{"matchAttribute": f"{DRIVER}/numa"}],
    )
    every["spec"]["devices"]["requests"][0]["exactly"].pop("count")
    answer = names([pool(shared)], claim(request(), name="first"), every)
    assert isinstance(answer, Unallocatable)
    assert answer.is_error
    assert answer.reason.endswith("because a claim constraint would not be satisfied")
