"""DeviceTaintRules taint devices as drivers do: kube-scheduler's ResourceSlice tracker, by the server's version."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import Manifest, claim, naming, slice_of
from support.draw_devices import read_claims, read_classes, read_slices
from support.profiles import examples
from support.work import lines_run

from flowcore.api.device_taint_rules import WireDeviceTaintRule, to_device_taint_rule
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.model.device_gates import DEVICE_TAINT_RULES, DEVICE_TAINTS, DeviceGates
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_slices import Device, DeviceTaint, ResourceSlice
from flowcore.rules.devices.allocation.allocator import REASON_NONE_FIT
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.pod_claims import ClaimRejection

NODE = ReachedNode("n0")
DRIVER = "gpu.example.com"
TAINT = DeviceTaint("broken", "", "NoSchedule")
TOLERATES = [{"key": "broken", "operator": "Exists"}]
ANY: Manifest = {}


def rule(name: str, selector: Manifest | None, effect: str = "NoSchedule") -> DeviceTaintRule:
    """A rule as it is read; None: it has no selector."""
    spec: Manifest = {"taint": {"key": "broken", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return to_device_taint_rule(msgspec.convert({"metadata": {"name": name}, "spec": spec}, WireDeviceTaintRule))


def known(*rules: DeviceTaintRule, version: str = "v1.37.2", gates: dict[str, bool] | None = None) -> Cluster:
    """A cluster with two devices of a pool, and rules that came before them."""
    cluster = Cluster()
    cluster.version = KubernetesVersion(version)
    cluster.device_gates = DeviceGates.of_server(cluster.version, gates or {})
    for each in rules:
        cluster.set_device_taint_rule(each.name, each)
    for name, device_class in read_classes([{"metadata": {"name": "gpu"}, "spec": {}}]).items():
        cluster.set_device_class(name, device_class)
    (resource_slice,) = read_slices([slice_of("n0", 2)])
    cluster.set_resource_slice(resource_slice.name, resource_slice)
    return cluster


def tainted(cluster: Cluster) -> set[str]:
    """Names of the devices with the taint, as allocations read them."""
    devices = (device for each in cluster.devices.slices.values() for device in each.devices)
    return {device.name for device in devices if TAINT in device.taints}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (ANY, {"gpu-0", "gpu-1"}),
        ({"driver": DRIVER, "pool": "n0", "device": "gpu-1"}, {"gpu-1"}),
        ({"device": "gpu-0"}, {"gpu-0"}),
        ({"pool": "n0"}, {"gpu-0", "gpu-1"}),
        ({"pool": "n1"}, set()),
        ({"driver": "nic.example.com"}, set()),
        ({"driver": DRIVER, "pool": "n0", "device": "gpu-7"}, set()),
        (None, set()),
    ],
)
def test_all_that_a_selector_says_must_be_true(selector: Manifest | None, expected: set[str]) -> None:
    """One that says nothing is about every device. Without a selector a rule is about none."""
    assert tainted(known(rule("r", selector))) == expected


@pytest.mark.parametrize(
    ("version", "gates", "is_followed"),
    [
        ("v1.37.2", {}, True),
        ("", {}, True),
        ("v1.36.3", {}, False),
        ("v1.36.3", {DEVICE_TAINT_RULES: True}, True),
        ("v1.37.2", {DEVICE_TAINT_RULES: False}, False),
        ("v1.37.2", {DEVICE_TAINTS: False}, False),
    ],
)
def test_rules_count_where_their_gate_is_on(version: str, gates: dict[str, bool], *, is_followed: bool) -> None:
    """On since 1.37. Before that version a rule without a selector is about every device."""
    assert bool(tainted(known(rule("r", ANY), version=version, gates=gates))) is is_followed
    everywhere = tainted(known(rule("r", None), version=version, gates=gates))
    assert bool(everywhere) is (is_followed and version == "v1.36.3")


def answer(cluster: Cluster, manifest: Manifest) -> list[str] | ClaimRejection:
    """The devices that a claim gets on the node, or why it gets none."""
    (resource_claim,) = read_claims([manifest])
    cluster.set_resource_claim((resource_claim.namespace, resource_claim.name), resource_claim)
    devices = DeviceIndex.of(cluster.devices).devices
    pod_claims = devices.claims_of(naming("p", "c"))
    assert not isinstance(pod_claims, ClaimRejection)
    allocations = devices.answer(pod_claims, NODE)
    if isinstance(allocations, ClaimRejection):
        return allocations
    return [each.device.device for each in allocations[0].devices]


@pytest.mark.parametrize(("effect", "keeps_out"), [("NoSchedule", True), ("NoExecute", True), ("None", False)])
def test_claims_get_devices_that_they_tolerate(effect: str, *, keeps_out: bool) -> None:
    """As with a taint that the driver publishes."""
    one = rule("r", {"device": "gpu-0"}, effect)
    assert answer(known(one), claim("c")) == ["gpu-1" if keeps_out else "gpu-0"]
    assert answer(known(one), claim("c", tolerations=TOLERATES)) == ["gpu-0"]
    every = known(rule("r", ANY, effect))
    assert answer(every, claim("c")) == (ClaimRejection(REASON_NONE_FIT) if keeps_out else ["gpu-0"])


def test_a_rule_that_goes_is_news_for_pods_that_claim() -> None:
    """One that changes its status is none."""
    cluster, one = known(rule("r", ANY)), rule("r", ANY)
    cluster.put_pod(Pod("default", "p", "p", PodClass(devices=naming("p", "c"))))
    before = cluster.generation
    assert not cluster.set_device_taint_rule("r", one)
    assert cluster.generation == before
    assert cluster.set_device_taint_rule("r", None)
    assert cluster.generation > before
    assert tainted(cluster) == set()
    assert not cluster.set_device_taint_rule("other", rule("other", {"pool": "elsewhere"}))


def test_a_saved_state_has_rules_and_slices_apart() -> None:
    """So that a rule can go: who reads a dump plans as the operator does."""
    cluster, again = known(rule("r", {"device": "gpu-0"})), Cluster()
    put_lines([line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)], again)
    assert again.devices.slices == cluster.devices.slices
    again.set_device_taint_rule("r", None)
    assert tainted(again) == set()


NAMES = st.sampled_from(["a", "b", "c"])
SELECTED = st.none() | st.sampled_from(["a", "b"])
RULE = st.builds(
    DeviceTaintRule,
    st.just(""),
    st.builds(DeviceTaint, st.sampled_from(["k", "l"]), st.just(""), st.just("NoSchedule")),
    st.booleans(),
    SELECTED,
    SELECTED,
    SELECTED,
)
SLICE = st.builds(
    ResourceSlice,
    st.just(""),
    NAMES,
    NAMES,
    devices=st.lists(st.builds(Device, NAMES), max_size=2, unique_by=lambda each: each.name).map(tuple),
)
EVENT = st.tuples(NAMES, st.none() | RULE | SLICE, st.booleans())


def _expected(published: dict[str, ResourceSlice], rules: dict[str, DeviceTaintRule]) -> dict[str, Any]:
    """Each device with the taints of all rules, asked one by one."""

    def taints(of: ResourceSlice, device: Device) -> tuple[DeviceTaint, ...]:
        asked = [
            (one.taint, [(one.driver, of.driver), (one.pool, of.pool), (one.device, device.name)])
            for _, one in sorted(rules.items())
            if one.selects
        ]
        return tuple(taint for taint, pairs in asked if all(wanted in (None, has) for wanted, has in pairs))

    return {name: [(device.name, taints(each, device)) for device in each.devices] for name, each in published.items()}


@settings(max_examples=examples(200))
@given(events=st.lists(EVENT, max_size=12))
def test_any_order_of_events_gives_the_same_taints(events: list[tuple[str, Any, bool]]) -> None:
    """Slices and rules come, change and go: each device has the taints of the rules that are about it now."""
    cluster = Cluster()
    published, rules = dict[str, ResourceSlice](), dict[str, DeviceTaintRule]()
    for name, value, is_rule in events:
        made = None if value is None else msgspec.structs.replace(value, name=name)
        if isinstance(made, DeviceTaintRule) or (made is None and is_rule):
            cluster.set_device_taint_rule(name, made)
            rules.pop(name, None) if made is None else rules.update({name: made})
        else:
            cluster.set_resource_slice(name, made)
            published.pop(name, None) if made is None else published.update({name: made})
        known_slices = cluster.devices.slices.items()
        known_taints = {name: [(each.name, each.taints) for each in one.devices] for name, one in known_slices}
        assert known_taints == _expected(published, rules)


def test_a_rule_about_all_devices_asks_no_rule_about_others() -> None:
    """There may be one for each broken device of a cluster, without its pool, and one for each driver."""

    def lines(count: int) -> int:
        others = [{"device": f"broken-{at}"} if at % 2 else {"driver": f"{at}.example.com"} for at in range(count)]
        cluster = known(*(rule(f"r{at}", selector) for at, selector in enumerate(others)))
        return lines_run(lambda: cluster.set_device_taint_rule("all", rule("all", ANY)))

    assert lines(60) == lines(10)
