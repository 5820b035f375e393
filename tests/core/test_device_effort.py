"""What claims may cost a round: one namespace's do not hold up others, and what is left is done in later rounds."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from support.device_clusters import Manifest, claim, devices_of, of_template, slice_of
from support.draw_devices import cel, read_slices
from support.model import node, snapshot

from flowcore.cluster.arrays.device_objects import SEARCH, DeviceObjects
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, PodClaim
from flowcore.rules.devices import claimable_devices, device_selectors, search_effort
from flowcore.rules.devices.allocation.allocator import REASON_NONE_FIT
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.node_reach import reached_node
from flowcore.rules.devices.search_effort import REASON_LATER, EffortSpentError, SearchEffort
from flowcore.rules.filters import dynamic_resources

NODES = [f"n{number}" for number in range(20)]
#: Counts to a hundred thousand.
DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
DRIVER = "gpu.example.com"
COSTLY = f"{DIGITS}.all(a, {DIGITS}.all(b, {DIGITS}.all(c, {DIGITS}.all(d, {DIGITS}.all(e, a+b+c+d+e >= 0)))))"


def with_serials(name: str, devices: int, **reach: Any) -> Manifest:
    """A slice of which no two devices are alike."""
    manifest = slice_of(name, devices, **reach)
    for number, device in enumerate(manifest["spec"]["devices"]):
        device["attributes"] = {"serial": {"string": f"{name}-{number}"}}
    return manifest


def selecting(name: str, expression: str, namespace: str = "default") -> Manifest:
    manifest = claim(name, owner=name, selectors=cel(expression))
    manifest["metadata"]["namespace"] = namespace
    return manifest


def in_namespace(namespace: str, name: str) -> ClaimingPod:
    return ClaimingPod(namespace, name, name, (PodClaim("gpu", template="t"),), (("gpu", name),))


def cluster(slices: list[Manifest], claims: list[Manifest], *, limited: bool = True) -> Snapshot:
    objects = devices_of(slices, claims)
    if limited:
        objects.begin_round()
    return replace(snapshot([node(name) for name in NODES], []), devices=objects)


def rejected(known: Snapshot, pod: ClaimingPod) -> dict[str, int]:
    """How many nodes are rejected for each reason."""
    rejections = dynamic_resources.rejections(PodClass(devices=pod), known)
    return {each.reason: int(each.nodes.sum()) for each in rejections}


def next_round(objects: DeviceObjects) -> list[str]:
    """The kinds that count as changed in it."""
    kinds = objects.apply(ClusterChanges())
    objects.begin_round()
    return kinds


def test_a_costly_selector_is_searched_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round searches further, and the last one says what a search without limits says."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 1000)
    slices = [with_serials(name, 1) for name in NODES]
    claims = [selecting("p", "device.attributes['gpu.example.com'].serial == 'n19-0'")]
    known = cluster(slices, claims)
    left = [rejected(known, of_template("p")).get(REASON_LATER, 0)]
    assert 0 < left[0] < len(NODES)
    while left[-1]:
        assert rejected(known, of_template("p"))[REASON_LATER] == left[-1]  # the round has nothing left to spend
        assert next_round(known.devices) == [SEARCH]
        left.append(rejected(known, of_template("p")).get(REASON_LATER, 0))
        assert left[-1] < left[-2]
    assert rejected(known, of_template("p")) == {REASON_NONE_FIT: len(NODES) - 1}
    assert rejected(cluster(slices, claims, limited=False), of_template("p")) == {REASON_NONE_FIT: len(NODES) - 1}
    assert next_round(known.devices) == []


def test_one_namespace_does_not_spend_what_others_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred selectors, each for all devices; then the one pod of somebody else."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 5000)
    many = [f"p{number}" for number in range(100)]
    claims = [selecting(name, f"{number} < 0", "greedy") for number, name in enumerate(many)]
    known = cluster([with_serials(name, 2) for name in NODES], [*claims, selecting("q", "true", "modest")])
    reasons = [rejected(known, in_namespace("greedy", name)) for name in many]
    assert reasons[0] == {REASON_NONE_FIT: len(NODES)}
    assert reasons[-1] == {REASON_LATER: len(NODES)}
    assert rejected(known, in_namespace("modest", "q")) == {}


def test_all_namespaces_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a tenant with many of them would have many times the time."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 5000)
    monkeypatch.setattr(search_effort, "MOST_OF_ROUND", 20_000)
    monkeypatch.setattr(search_effort, "KEPT_OF_ROUND", 10_000)
    names = [f"p{number}" for number in range(20)]
    claims = [selecting(name, f"{number} < 0", name) for number, name in enumerate(names)]
    known = cluster([with_serials(name, 2) for name in NODES], claims)
    reasons = [rejected(known, in_namespace(name, name)) for name in names]
    assert reasons[0] == {REASON_NONE_FIT: len(NODES)}
    assert reasons[-1] == {REASON_LATER: len(NODES)}


@pytest.mark.parametrize("greedy", [2, 7])
def test_several_namespaces_do_not_spend_what_another_needs(monkeypatch: pytest.MonkeyPatch, greedy: int) -> None:
    """Each of some has claims that cost more than a round has for all; what another begins with is kept for it."""
    first = 8 * (search_effort.NODE + search_effort.LOOK_UP) * len(NODES)
    monkeypatch.setattr(search_effort, "FIRST_OF_NAMESPACE", first)
    monkeypatch.setattr(search_effort, "KEPT_OF_ROUND", 8 * first)
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 8 * first)
    monkeypatch.setattr(search_effort, "MOST_OF_ROUND", 16 * first)
    claims = [
        selecting(f"p{number}", f"{number} < 0", f"greedy-{tenant}")
        for tenant in range(greedy)
        for number in range(100)
    ]
    known = cluster([with_serials(name, 2) for name in NODES], [*claims, selecting("q", "true", "modest")])
    for tenant in range(greedy):
        reasons = [rejected(known, in_namespace(f"greedy-{tenant}", f"p{number}")) for number in range(100)]
        assert reasons[0] == {REASON_NONE_FIT: len(NODES)}
        assert reasons[-1] == {REASON_LATER: len(NODES)}
    assert rejected(known, in_namespace("modest", "q")) == {}


@pytest.mark.slow
def test_eight_alternatives_on_5000_nodes_leave_a_node_to_others() -> None:
    """Twenty claims that no device serves, with as many alternatives as there may be; then one of somebody else."""
    nodes = [f"n{number}" for number in range(5_000)]
    many = [f"p{number}" for number in range(20)]
    claims = [selecting(name, "true", "greedy") for name in many]
    for name, each in zip(many, claims, strict=True):
        alternatives = [
            {"name": f"a{place}", "deviceClassName": "gpu",
             "selectors": cel(f"device.attributes['{DRIVER}'].serial == '{name}-{place}'")}
            for place in range(8)
        ]  # fmt: skip
        each["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": alternatives}]
    objects = devices_of([with_serials(name, 2) for name in nodes], [*claims, selecting("q", "true", "modest")])
    objects.begin_round()
    known = replace(snapshot([node(name) for name in nodes], []), devices=objects)
    reasons = [rejected(known, in_namespace("greedy", name)) for name in many]
    assert reasons[-1] == {REASON_LATER: len(nodes)}
    assert sum(rejected(known, in_namespace("modest", "q")).values()) < len(nodes)


def test_a_single_namespace_has_all_of_its_own() -> None:
    """What is kept for others does not make its limit smaller."""
    effort = SearchEffort()
    effort.begin_round(1)
    for _ in range(search_effort.MOST_OF_NAMESPACE // 1000):
        effort.spend("alone", 1000)
    with pytest.raises(EffortSpentError):
        effort.spend("alone", 1)


def test_an_expression_costs_a_device_so_much_at_most() -> None:
    """A tenth of what the API server lets it: one that counts to a hundred thousand is that claim's error."""
    known = cluster([with_serials("n0", 1)], [selecting("p", COSTLY)])
    (reason,) = [each for each in rejected(known, of_template("p")) if each != REASON_NONE_FIT]
    assert reason == "claim default/p: selector #0: CEL runtime error: operation cancelled: actual cost limit exceeded"
    assert device_selectors.MAX_COST <= search_effort.MOST_OF_NAMESPACE // 10


def test_ten_thousand_devices_that_all_nodes_reach_are_searched_once() -> None:
    """Within one round, and again only after something of them was taken."""
    slices = []
    for number in range(80):
        part = with_serials(f"s{number}", 125, allNodes=True)
        part["spec"]["pool"] = {"name": "fabric", "generation": 1, "resourceSliceCount": 80}
        for device in part["spec"]["devices"]:
            device["name"] = f"s{number}-{device['name']}"
        slices.append(part)
    asked = "device.attributes['gpu.example.com'].serial == 's79-124'"
    known = cluster(slices, [selecting("p", asked), selecting("q", asked)])
    assert rejected(known, of_template("p")) == {}
    taken = replace(known, takers=(dynamic_resources.taker_on(of_template("p"), known.table, 3),))
    assert rejected(taken, of_template("q")) == {REASON_NONE_FIT: len(NODES)}


def test_what_a_pod_gets_is_not_searched_once_more() -> None:
    """It was found out when the pod's nodes were: claims that are hard to serve cost once for each state of a node."""
    claims = [claim(name, 2, owner=name) for name in ("p", "q")]
    known = cluster([with_serials(name, 5) for name in NODES], claims)
    plain = dynamic_resources.claimable_devices(cluster([with_serials(name, 5) for name in NODES], claims)).copy()
    rejected(known, of_template("p"))
    devices = dynamic_resources.claimable_devices(known).copy()
    takers = [dynamic_resources.taker_on(of_template(name), known.table, 3) for name in ("p", "q")]
    with patch.object(claimable_devices, "node_devices", side_effect=claimable_devices.node_devices) as searches:
        devices.take(takers[0])
        assert searches.call_count == 0
        assert devices.fitting(of_template("q"), [reached_node(known.table.nodes[3])]) == [True]
        devices.take(takers[1])
        assert searches.call_count == 1
    for taker in takers:
        plain.take(taker)
    assert devices.allocations == plain.allocations
    assert len({each.device for allocation in devices.allocations.values() for each in allocation.devices}) == 4


def test_a_broken_pool_is_its_own_matter() -> None:
    """A counter that does not exist, and an amount below zero: other pools serve."""
    broken = slice_of("n0", 1)
    broken["spec"]["devices"][0]["consumesCounters"] = [{"counterSet": "none", "counters": {"slots": {"value": "1"}}}]
    negative = slice_of("n1", 1)
    negative["spec"]["devices"][0]["capacity"] = {"memory": {"value": "-5Gi"}}
    asking = claim(
        "p", owner="p", selectors=cel("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('0'))")
    )
    whole = with_serials("n2", 1)
    whole["spec"]["devices"][0]["capacity"] = {"memory": {"value": "5Gi"}}
    known = cluster([broken, negative, whole], [asking])
    assert rejected(known, of_template("p")) == {
        "invalid resource pools were encountered": 1,
        REASON_NONE_FIT: len(NODES) - 2,
    }


def test_a_generation_that_goes_backwards_counts_as_it_is() -> None:
    """A driver that starts anew: what it says last is what there is."""
    newer = slice_of("n0", 2)
    newer["spec"]["pool"] = {"name": "n0", "generation": 7, "resourceSliceCount": 1}
    known = cluster([newer], [claim("p", 2, owner="p")])
    assert rejected(known, of_template("p")) == {REASON_NONE_FIT: len(NODES) - 1}
    older = devices_of([slice_of("n0", 1)], []).slices["n0"]
    known.devices.set_slice("n0", older)
    assert rejected(known, of_template("p")) == {REASON_NONE_FIT: len(NODES)}


def test_what_kube_scheduler_will_choose_is_guessed_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pods on their way that others bind; the next round begins anew with the first of them."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 3 * search_effort.NODE)
    names = [f"p{number}" for number in range(10)]
    known = cluster([slice_of(name, 1) for name in NODES], [claim(name, owner=name) for name in names])
    known.devices.takers = tuple(DeviceTaker(of_template(name), node) for name, node in zip(names, NODES, strict=False))
    known.devices.version += 1
    devices = dynamic_resources.claimable_devices(known)
    searched = len(devices.allocations)
    assert 1 < searched <= 3
    assert list(devices.allocations) == [("default", name) for name in names[:searched]]
    assert [taker.pod.name for taker in devices.waiting.values()] == names[searched:]


def test_an_expression_costs_all_devices_so_much_at_most_where_no_rounds_share_the_work() -> None:
    """Else one claim would hold up an answer for hours: each device looks different to it. Others are answered."""
    selectors, spent = device_selectors.DeviceSelectors(), list[int]()
    costly = f"device.attributes['{DRIVER}'].serial == 'x' || {COSTLY}"
    devices = read_slices([with_serials("n0", 60)])[0].devices
    answers = [selectors.matches(costly, DRIVER, device, spent.append) for device in devices]
    assert sum(spent) <= device_selectors.MOST_OF_EXPRESSION + 2 * device_selectors.MAX_COST
    assert answers[0] != answers[-1]
    assert isinstance(answers[-1], CelProblem)
    assert answers[-1].text == "it costs more than 1,000,000 units for all devices"
    assert selectors.matches("true", DRIVER, devices[-1]) is True
    selectors.forget_costs()
    assert selectors.matches(costly, DRIVER, devices[-1]) == answers[0]


def test_a_costly_claim_is_a_reason_of_its_own_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a plan without rounds, where nothing else ends a search."""
    monkeypatch.setattr(device_selectors, "MOST_OF_EXPRESSION", 3_000)
    monkeypatch.setattr(device_selectors, "MAX_COST", 1_000)
    costly = f"device.attributes['{DRIVER}'].serial == 'x' || {COSTLY}"
    claims = [selecting("p", costly), selecting("q", f"device.attributes['{DRIVER}'].serial == 'n19-0'")]
    known = cluster([with_serials(name, 1) for name in NODES], claims, limited=False)
    reasons = rejected(known, of_template("p"))
    assert sum(reasons.values()) == len(NODES)
    assert sum(nodes for reason, nodes in reasons.items() if "it costs more than" in reason) >= len(NODES) - 4
    assert rejected(known, of_template("q")) == {REASON_NONE_FIT: len(NODES) - 1}
