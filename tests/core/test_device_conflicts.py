"""Pods that need devices of running pods preempt, however many others ask for the same devices in other ways."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from core.test_device_columns import MODEL, check_devices, columns_of, with_models
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import Manifest, allocated, claim, devices_of, of_template
from support.draw_devices import cel
from support.eviction_clusters import node, running, waiting
from support.eviction_clusters import snapshot as snapshot_with_running
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.pods import Pod
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.devices.search_effort import REASON_OTHERS_FIRST
from flowcore.rules.filters import run_filters

#: More cores than a node has.
TOO_MANY = 10**6


class DeviceCluster:
    """Nodes with devices, pods with claims."""

    def __init__(self, **models: str) -> None:
        """Takes the models of each node's devices, a letter each."""
        self.nodes, self.slices = list(models), [with_models(name, *of_node) for name, of_node in models.items()]
        self.claims, self.running, self.pending = list[Manifest](), list[Pod](), list[PendingPod]()

    def run(self, name: str, on: str, device: int, priority: int = 0) -> None:
        """A running pod with a device."""
        pod = running(name, on, 1, priority=priority)
        held = allocated(self._claim(name, pod.uid), on, f"gpu-{device}")
        held["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": pod.uid}]
        devices = msgspec.structs.replace(of_template(name), uid=pod.uid)
        self.running.append(msgspec.structs.replace(pod, pod_class=_with_devices(pod.pod_class, devices)))
        self.claims.append(held)

    def wait(
        self, name: str, selector: str = "", namespace: str = "default", cpu: int = 1, priority: int = 0, **asks: Any
    ) -> None:
        """A waiting pod."""
        pod = waiting(name, cpu, priority=priority)
        asks |= {"selectors": cel(selector)} if selector else {}
        made = self._claim(name, pod.uid, **asks)
        made["metadata"]["namespace"] = namespace
        devices = msgspec.structs.replace(of_template(name), uid=pod.uid, namespace=namespace)
        self.pending.append(msgspec.structs.replace(pod, pod_class=_with_devices(pod.pod_class, devices)))
        self.claims.append(made)

    def _claim(self, name: str, uid: str, **asks: Any) -> Manifest:
        made = claim(name, asks.pop("count", 1), owner=name, **asks)
        made["metadata"]["ownerReferences"][0]["uid"] = uid
        return made

    def snapshot(self, turn: int = 0) -> Snapshot:
        known = snapshot_with_running([node(name) for name in self.nodes], self.running, self.pending)
        known = replace(known, devices=devices_of(self.slices, self.claims))
        known.devices.begin_round(turn)
        return known


def _with_devices(pod_class: Any, devices: Any) -> Any:
    return msgspec.structs.replace(pod_class, devices=devices)


def names(pods: Iterable[Any]) -> set[str]:
    return {each.pod.key.partition("/")[2] for each in pods}


def check_without_victims(cluster: DeviceCluster, known: Snapshot, result: RoundResult) -> None:
    """Every placed pod gets its devices, and no device is had twice, once those that are evicted are gone."""
    gone = names(result.evictions)
    objects = devices_of(cluster.slices, [each for each in cluster.claims if each["metadata"]["name"] not in gone])
    check_devices(replace(known, devices=objects), replace(result, after=replace(result.after, devices=objects)))


def waits_for_others(result: RoundResult) -> set[str]:
    return names(each for each in result.unplaced if REASON_OTHERS_FIRST in each.reason)


def full_node() -> DeviceCluster:
    """Two devices, had by a pod of a low and by one of a high priority; an urgent pod waits for any."""
    cluster = DeviceCluster(n0="ab")
    cluster.run("low", "n0", 0)
    cluster.run("high", "n0", 1, priority=5000)
    cluster.wait("urgent", priority=1000)
    return cluster


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([{}], id="one more way to ask"),
        pytest.param([{"allocationMode": "All"}], id="no number"),
        pytest.param([{"selector": f'{MODEL} != "{number}"'} for number in range(33)], id="as many kinds, all alike"),
        pytest.param([{"selector": f'{MODEL} == "a" || {MODEL} == "{n}"'} for n in range(33)], id="many that cross"),
    ],
)
def test_an_urgent_pod_preempts_whatever_others_ask_for(others: Sequence[dict[str, Any]]) -> None:
    """Pods of another tenant, which can never run, ask for some of the same devices in another way."""
    cluster = full_node()
    for number, asks in enumerate(others):
        cluster.wait(f"t{number}", **{"selector": f'{MODEL} == "a"', "namespace": "other", "cpu": TOO_MANY, **asks})
    known = cluster.snapshot()
    result = run_round(known)
    assert names(result.placements) == {"urgent"}
    assert names(result.evictions) == {"low"}


def test_device_preemption_of_a_higher_priority_does_not_stop() -> None:
    """A pod of any tenant takes single devices of its column: it waits, and gets the free device a round later."""
    cluster = DeviceCluster(n0="a", n1="b")
    cluster.run("low", "n0", 0)
    cluster.wait("urgent", f'{MODEL} == "a"', priority=1000)
    cluster.wait("any", namespace="other")
    for turn in range(3):
        known = cluster.snapshot(turn)
        result = run_round(known)
        assert names(result.placements) == {"urgent"}
        assert names(result.evictions) == {"low"}
        assert waits_for_others(result) == {"any"}
        assert not known.devices.is_searched, "the next round follows at once"


#: Every round has pods with devices, or the rounds between are of others: of networks that take long, for instance.
ROUNDS = pytest.mark.parametrize("rounds", [range(16), range(0, 32, 2), range(1, 33, 2), range(3, 67, 4)], ids=str)


@ROUNDS
def test_nobody_waits_for_ever_for_a_higher_priority(rounds: range) -> None:
    """In about one of four rounds all take devices one by one: the others go on if the urgent pod never can."""
    cluster = DeviceCluster(n0="a", n1="b")
    cluster.run("low", "n0", 0)
    cluster.wait("never", f'{MODEL} == "a"', priority=1000, cpu=TOO_MANY)
    cluster.wait("any", namespace="other")
    placed = [names(run_round(cluster.snapshot(turn)).placements) for turn in rounds]
    assert 3 <= placed.count({"any"}) <= 5
    assert placed.count(set()) == len(rounds) - placed.count({"any"})


@ROUNDS
def test_a_pod_that_takes_single_devices_and_one_that_preempts_take_turns(rounds: range) -> None:
    """Both are of one priority: each goes first in about one of two rounds."""
    cluster = DeviceCluster(n0="ab")
    cluster.run("low", "n0", 0)
    cluster.wait("urgent", f'{MODEL} == "a"', priority=1000)
    cluster.wait("any", namespace="other", priority=1000, cpu=TOO_MANY)
    evicting = [names(run_round(cluster.snapshot(turn)).evictions) for turn in rounds]
    assert 7 <= evicting.count({"low"}) <= 9
    assert evicting.count(set()) == len(rounds) - evicting.count({"low"})


def test_pods_of_other_devices_do_not_wait() -> None:
    """Neither those that take single devices of theirs, nor those that have columns."""
    cluster = DeviceCluster(n0="a", n1="bd", n2="c")
    cluster.run("low", "n0", 0)
    cluster.run("lower", "n2", 0)
    cluster.wait("urgent", f'{MODEL} == "a"', priority=1000)
    cluster.wait("some", f'{MODEL} == "a" || {MODEL} == "d"', namespace="other")
    cluster.wait("all", f'{MODEL} == "b"', namespace="other", allocationMode="All")
    cluster.wait("third", f'{MODEL} == "c"', namespace="third", priority=10)
    result = run_round(cluster.snapshot())
    assert names(result.placements) == {"urgent", "all", "third"}
    assert names(result.evictions) == {"low", "lower"}
    assert waits_for_others(result) == {"some"}


def test_rounds_that_change_nothing_come_to_an_end() -> None:
    """Nobody can help a pod whose turn has come and that still waits."""
    cluster = full_node()
    cluster.wait("never", f'{MODEL} == "a"', namespace="other", cpu=TOO_MANY, priority=1000)
    same = cluster.snapshot()
    for turn in range(1, 12):
        same.devices.is_searched = True
        same.devices.begin_round(turn)
        run_round(same)
    assert same.devices.is_searched


def test_a_pod_that_no_node_can_ever_serve_crosses_nobody() -> None:
    """It asks for more devices than a node has, by a selector that crosses the others' kind."""
    cluster = full_node()
    cluster.wait("hopeless", f'{MODEL} == "a"', count=2)
    assert list(columns_of(cluster.snapshot()).values()) == [[[2], [2]]]


def test_a_pod_of_a_higher_priority_with_free_devices_does_not_wait() -> None:
    """The urgent pod has its turn once that one is placed."""
    cluster = DeviceCluster(n0="a", n1="b")
    cluster.run("low", "n0", 0)
    cluster.wait("urgent", f'{MODEL} == "a"', priority=1000)
    cluster.wait("any", namespace="other", priority=2000)
    result = run_round(cluster.snapshot())
    assert names(result.placements) == {"any"}
    assert not result.evictions


def test_who_might_take_what_a_waiting_pod_waits_for_waits_too() -> None:
    """The pod of priority 0 would get the free device, though one of priority 500 waits that could have it."""
    cluster = DeviceCluster(n0="a", n1="b")
    cluster.run("low", "n0", 0, priority=100)
    cluster.wait("urgent", f'{MODEL} == "a"', priority=1000)
    cluster.wait("any", namespace="other", priority=500)
    cluster.wait("least", f'{MODEL} == "b"', priority=0)
    result = run_round(cluster.snapshot())
    assert names(result.placements) == {"urgent"}
    assert waits_for_others(result) == {"any", "least"}


@ROUNDS
def test_tenants_take_turns(rounds: range) -> None:
    """Two of one priority need the same device in ways that cross: one of them can never run, and is asked first."""
    cluster = DeviceCluster(n0="ab")
    for device in range(2):
        cluster.run(f"low-{device}", "n0", device)
    cluster.wait("never", f'{MODEL} == "a"', namespace="other", cpu=TOO_MANY, priority=1000)
    cluster.wait("urgent", priority=1000)
    assert 7 <= sum(bool(run_round(cluster.snapshot(turn)).evictions) for turn in rounds) <= 9


def test_rounds_for_all_take_the_turn_of_no_single_tenant() -> None:
    """Four tenants of one priority are in each other's way, and a pod of a lower one waits for them: each has turns."""
    firsts = set[str]()
    for able in "abcd":
        cluster = DeviceCluster(n0="abcd")
        for device in range(4):
            cluster.run(f"low-{device}", "n0", device)
        for name, models in (("a", "ab"), ("b", "ac"), ("c", "ad"), ("d", "bcd")):
            selector = " || ".join(f'{MODEL} == "{model}"' for model in models)
            cluster.wait(name, selector, namespace=name, priority=1000, cpu=1 if name == able else TOO_MANY)
        cluster.wait("least", f'{MODEL} == "a" || {MODEL} == "b" || {MODEL} == "c"', namespace="a", cpu=TOO_MANY)
        firsts = firsts.union(*(names(run_round(cluster.snapshot(turn)).placements) for turn in range(16)))
    assert firsts == set("abcd")


# --- drawn ---

_SELECTORS = ["", f'{MODEL} == "a"', f'{MODEL} != "b"', f'{MODEL} == "b"', f'{MODEL} != "c"']


@st.composite
def device_clusters(draw: st.DrawFn) -> DeviceCluster:
    """Some devices are had by pods of several priorities; pods of three tenants ask for others in several ways."""
    models = {f"n{number}": draw(st.text("abc", min_size=1, max_size=3)) for number in range(draw(st.integers(1, 3)))}
    cluster = DeviceCluster(**models)
    for name, of_node in models.items():
        for device in range(len(of_node)):
            if draw(st.integers(0, 2)):
                cluster.run(f"r{name}{device}", name, device, priority=draw(st.integers(0, 2)))
    for number in range(draw(st.integers(1, 6))):
        asks = {"allocationMode": "All"} if draw(st.integers(0, 9)) == 0 else {"count": draw(st.integers(1, 2))}
        cluster.wait(
            f"p{number}",
            draw(st.sampled_from(_SELECTORS)),
            namespace=draw(st.sampled_from("xyz")),
            priority=draw(st.integers(0, 3)),
            cpu=TOO_MANY if draw(st.integers(0, 5)) == 0 else 1,
            **asks,
        )
    return cluster


@settings(max_examples=examples(100), deadline=None)
@given(device_clusters(), st.integers(0, 7), st.sampled_from([1, 2, 32]))
def test_no_device_is_had_twice_and_priorities_hold(cluster: DeviceCluster, turn: int, most: int) -> None:
    """Also if few kinds are known at once; who waits for others' turn loses nothing to a lower priority."""
    known = cluster.snapshot(turn)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("conflicts", "with_columns", "column_sets"):
            patch.setattr(f"flowcore.rules.devices.columns.{module}.MOST_KINDS", most)
        result = run_round(known)
    check_without_victims(cluster, known, result)
    held = waits_for_others(result)
    for left in result.unplaced:
        if left.pod.key.partition("/")[2] in held:
            fits = run_filters(left.pod.pod_class, known, left.pod.signature)
            lower = [each for each in result.placements if each.pod.pod_class.priority < left.pod.pod_class.priority]
            assert not any(fits.fits[known.table.index[each.node]] for each in lower)
