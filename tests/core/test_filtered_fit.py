"""Trials of evictions for pods that more than amounts decide about: every filter judges, and seldom is asked."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain, combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import HOSTNAME, keeps_apart, node, running, selects, snapshot, waiting
from support.leaving import LEAVING_MAY_HELP, OURS
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.costs import MODELS
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    ISCSI,
    Attachment,
    Claim,
    ClaimVolume,
    CsiNode,
    Disk,
    PersistentVolume,
    StorageClass,
    StorageObject,
    Volumes,
)
from flowcore.planning.evictions import fit_checks
from flowcore.planning.evictions.fit_checks import FilteredFit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round
from flowcore.rules.filters import Verdicts, node_resources_fit, run_filters
from flowcore.rules.filters.registry import EASED_BY_LEAVING
from flowcore.rules.verdicts import VerdictCache

LATE, MADE, DRIVER, ONE_POD = "late", "made", "csi.example.com", "ReadWriteOncePod"
CLASSES = (
    StorageClass(LATE, "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    StorageClass(MADE, DRIVER, "WaitForFirstConsumer"),
)
NODES = ("n0a", "n1b", "n2a")
PORTS = (HostPort(ANY_ADDRESS, "TCP", 80),)
DISK = (Disk(ISCSI, ("x",)),)


def claim(name: str, size: int = 1, *, of: str = LATE, mode: str = "ReadWriteOnce", bound: bool = False) -> Claim:
    to = f"v-{name}" if bound else ""
    size_of = Decimal(size)
    return Claim(
        "default",
        name,
        uid=f"u-{name}",
        storage_class=of,
        size=size_of,
        access_modes=(mode,),
        bound=bound,
        volume_name=to,
    )


def free_volume(name: str, size: int, nodes: Sequence[str]) -> PersistentVolume:
    """A free volume that these nodes reach, all where none is named."""
    affinity = (NodeSelectorTerm((Requirement(HOSTNAME, "In", tuple(nodes)),)),) if nodes else None
    modes = ("ReadWriteOnce", ONE_POD)
    return PersistentVolume(
        name, storage_class=LATE, size=Decimal(size), available=True, access_modes=modes, affinity=affinity
    )


def bound_volume(name: str) -> PersistentVolume:
    """The volume of a bound claim, which counts on the nodes that limit the driver."""
    return PersistentVolume(f"v-{name}", size=Decimal(1), attachment=Attachment(DRIVER, name))


def claims_of(*names: str) -> Volumes:
    return tuple(ClaimVolume("default", name) for name in names)


def mounting(pod: Pod, volumes: Volumes) -> Pod:
    return msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, volumes=volumes))


def waiting_with(name: str, cpu: int, volumes: Volumes, constraints: InterPodConstraints | None = None) -> PendingPod:
    pod = waiting(name, cpu, priority=10)
    signature = msgspec.structs.replace(
        pod.signature, namespace="default", labels=(("app", "a"),), constraints=constraints
    )
    return msgspec.structs.replace(
        pod, pod_class=msgspec.structs.replace(pod.pod_class, volumes=volumes), signature=signature
    )


def cluster(pods: Sequence[Pod], stored: Sequence[StorageObject], pending: Sequence[PendingPod]) -> Snapshot:
    mounted = [(pod.node_name, pod.pod_class.volumes) for pod in pods]
    drawn = snapshot([node(name, 4) for name in NODES], pods, pending)
    return replace(drawn, storage=Storage.of([*CLASSES, *stored], mounted))


_of_running = st.tuples(
    st.sampled_from(NODES),
    st.integers(1, 2),
    st.sampled_from(["", "", "claim", "shared", "disk", "port"]),
    st.sampled_from(["a", "b"]),
    st.booleans(),
)
_of_waiting = st.tuples(
    st.integers(1, 3),
    st.sampled_from([("c0",), ("c1",), ("c2",), ("c0", "c3"), ("shared",), ()]),
    st.sampled_from(["", "", "", "disk", "port", "apart", "beside b"]),
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Running pods with volumes, disks, ports and rules; pods that wait for the same, and for volumes of many sizes."""
    stored: list[StorageObject] = [claim("shared", mode=ONE_POD, bound=True), bound_volume("shared")]
    pods = []
    for place, (on, cpu, holds, app, alone) in enumerate(draw(st.lists(_of_running, max_size=6))):
        pod = running(
            f"r{place}",
            on,
            cpu,
            priority=-1,
            labels=(("app", app),),
            host_ports=PORTS if holds == "port" else (),
            constraints=keeps_apart("a") if alone and app == "b" else None,
        )
        if holds == "claim":
            stored += [claim(f"r{place}", bound=True), bound_volume(f"r{place}")]
        held = {"claim": claims_of(f"r{place}"), "shared": claims_of("shared"), "disk": DISK}
        pods.append(mounting(pod, held.get(holds, ())))
    for place, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))):
        stored.append(claim(f"c{place}", size, of=draw(st.sampled_from([LATE, LATE, MADE]))))
    reached = st.sampled_from([NODES[:1], NODES[1:2], NODES[:2], NODES[2:], ()])
    for place, (size, nodes) in enumerate(draw(st.lists(st.tuples(st.integers(1, 5), reached), max_size=5))):
        stored.append(free_volume(f"f{place}", size, nodes))
    stored += [CsiNode(name, limits=((DRIVER, draw(st.integers(1, 3))),)) for name in NODES]
    beside = InterPodConstraints(affinity=(AffinityTerm(HOSTNAME, selects("b"), ("default",)),))
    rules = {"apart": keeps_apart("b"), "beside b": beside}
    pending = []
    for place, (cpu, names, wants) in enumerate(draw(st.lists(_of_waiting, min_size=1, max_size=4))):
        volumes = (*claims_of(*names), *(DISK if wants == "disk" else ()))
        pod = waiting_with(f"w{place}", cpu, volumes, rules.get(wants))
        if wants == "port":
            pod = msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, host_ports=PORTS))
        pending.append(pod)
    return cluster(pods, stored, pending)


def state_of(drawn: Snapshot) -> Plan:
    problem = Problem(drawn, {BUILT_IN.name: BUILT_IN}, MODELS)
    assert drawn.running is not None
    residents = Residents.of(drawn, drawn.running, ())
    return Plan(drawn, residents, problem.demands)


def checks_of(state: Plan, drawn: Snapshot) -> list[FilteredFit]:
    return [FilteredFit(state, demand, VerdictCache.of(drawn)) for demand in state.demands]


def compare(state: Plan, checks: Sequence[FilteredFit], drawn: Snapshot) -> None:
    """That each trial has the answer of all filters, for a cluster that was made anew."""
    fresh = state_of(drawn)
    for resident, leaving in state.leaving.items():
        fresh.let_leave(resident, EvictionKind.PREEMPTION, leaving.for_pods)
    for arrival in state.arrivals:
        fresh.arrive(arrival.pod, arrival.demand, arrival.node)
    stay = [resident for resident in range(len(state.residents.pods)) if resident not in state.leaving]
    for demand, check in zip(state.demands, checks, strict=True):
        group = demand.group

        def fits(without: Sequence[int]) -> list[bool]:
            verdicts = run_filters(group.pod_class, fresh.snapshot(without), group.signature)  # noqa: B023 - asked now
            return verdicts.fits.tolist()

        assert check.fits_now().tolist() == fits(())
        possible = check.possible_without(np.isin(np.arange(len(state.residents.pods)), stay))
        for row in range(len(NODES)):
            here = [resident for resident in stay if state.residents.nodes[resident] == row]
            for without in chain.from_iterable(combinations(here, count) for count in (0, 1, len(here))):
                expected = fits(without)[row]
                assert check.fits(row, without) == expected
                assert possible is None or possible[row] or not expected


@pytest.mark.hypothesis
@given(drawn=clusters(), steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_a_trial_has_the_answer_of_all_filters(drawn: Snapshot, steps: Sequence[tuple[int, int]]) -> None:
    """After each decision, and after some were taken back; victims with volumes among them."""
    state = state_of(drawn)
    checks = checks_of(state, drawn)
    compare(state, checks, drawn)
    for kind, number in steps:
        stay = [resident for resident in range(len(state.residents.pods)) if resident not in state.leaving]
        here = {arrival.pod.key for arrival in state.arrivals}
        come = [
            (pod, demand) for demand, each in enumerate(state.demands) for pod in each.group.pods if pod.key not in here
        ]
        before = state.checkpoint()
        if kind and stay:
            state.let_leave(stay[number % len(stay)], EvictionKind.PREEMPTION, ["default/w"])
        elif come:
            pod, demand = come[number % len(come)]
            state.arrive(pod, demand, number % len(NODES))
        compare(state, checks, drawn)
        if number % 3 == 0:
            state.roll_back(before)
            compare(state, checks, drawn)


def test_filters_that_may_take_a_node_again_are_known() -> None:
    """Those with a reason that goes away when others leave; amounts are counted."""
    helped = {name for table in (LEAVING_MAY_HELP, OURS) for name, reasons in table.items() if any(reasons.values())}
    assert helped - {node_resources_fit.NAME} <= EASED_BY_LEAVING


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The clusters that all filters judge for trials of evictions."""
    seen: list[Snapshot] = []

    def counted(pod_class: PodClass, judged: Snapshot, signature: PodSignature, *, errors_end: bool = True) -> Verdicts:
        seen.append(judged)
        return run_filters(pod_class, judged, signature, errors_end=errors_end)

    monkeypatch.setattr(fit_checks, "run_filters", counted)
    return seen


@pytest.mark.parametrize("volumes_of_victims", [False, True])
def test_filters_judge_the_cluster_once_after_each_decision(asked: list[Snapshot], *, volumes_of_victims: bool) -> None:
    """Not once for each node and victim: pods with claims of their own preempt on nodes that have volumes for them."""
    count = 12
    names = [f"n{place}a" for place in range(count)]
    pods = [running(f"r{place}", names[place % count], 2, priority=-5) for place in range(2 * count)]
    stored: list[StorageObject] = [free_volume(f"f{place}", 10 + place, [name]) for place, name in enumerate(names)]
    if volumes_of_victims:
        pods = [mounting(pod, claims_of(f"r{place}")) for place, pod in enumerate(pods)]
        for place in range(2 * count):
            stored += [claim(f"r{place}", bound=True), bound_volume(f"r{place}")]
    stored += [claim(f"c{place}", 1 + place) for place in range(count)]
    pending = [waiting_with(f"w{place}", 2, claims_of(f"c{place}")) for place in range(count)]
    drawn = snapshot([node(name, 4) for name in names], pods, pending)
    mounted = [(pod.node_name, pod.pod_class.volumes) for pod in pods]
    drawn = replace(drawn, storage=Storage.of([*CLASSES, *stored], mounted))
    result = run_round(drawn)
    assert len(result.placements) == len(result.evictions) == count
    assert len(asked) <= 4 * count


def test_limits_of_volumes_are_judged_on_one_node(asked: list[Snapshot]) -> None:
    """Where all nodes have as many volumes of a driver as they take, and each pod comes once one of them has left."""
    count = 12
    names = [f"n{place}a" for place in range(count)]
    victims = [running(f"r{place}", names[place % count], 1, priority=-5) for place in range(2 * count)]
    pods = [mounting(pod, claims_of(f"r{place}")) for place, pod in enumerate(victims)]
    stored: list[StorageObject] = [CsiNode(name, limits=((DRIVER, 2),)) for name in names]
    for claimed in [*(f"r{place}" for place in range(2 * count)), *(f"w{place}" for place in range(count))]:
        stored += [claim(claimed, bound=True), bound_volume(claimed)]
    pending = [waiting_with(f"w{place}", 1, claims_of(f"w{place}")) for place in range(count)]
    drawn = snapshot([node(name, 4) for name in names], pods, pending)
    mounted = [(pod.node_name, pod.pod_class.volumes) for pod in pods]
    drawn = replace(drawn, storage=Storage.of([*CLASSES, *stored], mounted))
    result = run_round(drawn)
    assert len(result.placements) == len(result.evictions) == count
    assert len(asked) <= 4 * count
