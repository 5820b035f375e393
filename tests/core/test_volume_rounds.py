"""Volumes in rounds: what each claim gets, and what pods of one round leave to each other."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw import Case, cases_for
from support.profiles import examples
from support.safety import plan_and_check
from support.verdicts import snapshot_of

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    ISCSI,
    Attachment,
    Capacity,
    Claim,
    ClaimVolume,
    CsiDriver,
    CsiNode,
    Disk,
    PersistentVolume,
    StorageClass,
    StorageObject,
    VolumeChoice,
    Volumes,
)
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.filters import run_filters, volume_binding
from flowcore.rules.volumes import choose

HOST, LATE, MADE = "kubernetes.io/hostname", "late", "made"
CLASSES = (
    StorageClass(LATE, "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    StorageClass(MADE, "csi.example.com", "WaitForFirstConsumer"),
)


def node(name: str, cpu: int = 10_000) -> Node:
    return Node(name, labels=((HOST, name),), allocatable=(("cpu", cpu), ("pods", 100)))


def volume(name: str, size: int, *nodes: str, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> PersistentVolume:
    """A volume that these nodes reach; all nodes where none is named."""
    affinity = (NodeSelectorTerm((Requirement(HOST, "In", nodes),)),) if nodes else None
    return PersistentVolume(name, storage_class=LATE, size=size, available=True, access_modes=modes, affinity=affinity)


def claim(name: str, size: int = 1, *, of: str = LATE, mode: str = "ReadWriteOnce") -> Claim:
    return Claim("ns", name, uid=f"u-{name}", storage_class=of, size=size, access_modes=(mode,))


def waiting(name: str, volumes: Volumes, priority: int = 0) -> PendingPod:
    pod_class = PodClass(requests=(("cpu", 100),), volumes=volumes, priority=priority)
    return PendingPod(f"ns/{name}", f"u-{name}", pod_class, BUILT_IN.name)


def claims_of(*names: str) -> Volumes:
    return tuple(ClaimVolume("ns", name) for name in names)


def snapshot(
    nodes: list[Node], stored: list[StorageObject], pods: list[PendingPod], mounted: Sequence[tuple[str, Volumes]] = ()
) -> Snapshot:
    storage = Storage.of([*CLASSES, *stored], mounted)
    table = NodeTable.of(nodes)
    return build_snapshot(
        generation=1, now=0.0, table=table, running=[], pending=tuple(pods), storage=storage, pod_index=PodIndex()
    )


def where(result: RoundResult) -> dict[str, str]:
    return {each.pod.key.removeprefix("ns/"): each.node for each in result.placements}


def chosen(result: RoundResult) -> dict[str, str]:
    """What each claim gets."""
    return {choice.name: choice.volume for each in result.placements for choice in each.volumes}


# --- one pod ---


@pytest.mark.hypothesis
@given(case=cases_for(["VolumeBinding"]))
@settings(max_examples=examples(60))
def test_who_passes_the_filter_gets_its_volumes(case: Case) -> None:
    """And on the other nodes it gets none, where nothing but free volumes decides."""
    cluster = snapshot_of(case)
    table, storage = cluster.table, cluster.storage
    for pod in cluster.pending:
        volumes = pod.pod_class.volumes
        if not volumes or volume_binding.prefilter_reason(volumes, storage):
            continue
        rejected = volume_binding.rejections(volumes, storage, table)
        fine = ~np.logical_or.reduce([each.nodes for each in rejected] or [np.zeros(len(table.nodes), dtype=np.bool_)])
        unbound = [storage.claims[each.key] for each in volumes if isinstance(each, ClaimVolume)]
        for row in range(len(table.nodes)):
            choices = choose(volumes, row, storage, table)
            if fine[row]:
                assert choices is not None
                assert {choice.key for choice in choices} == {
                    (each.namespace, each.name) for each in unbound if not each.bound
                }
                names = [choice.volume for choice in choices if choice.volume]
                assert len(set(names)) == len(names)
            elif not any(each.bound or each.selected_node is not None for each in unbound) and all(
                each.reason in (volume_binding.REASON_NO_VOLUME, volume_binding.REASON_NO_SPACE) for each in rejected
            ):
                assert choices is None


@pytest.mark.hypothesis
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", ""])), max_size=6),
    wanted=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
@settings(max_examples=examples(80))
def test_each_claim_takes_the_smallest_that_will_do(sizes: list[tuple[int, str]], wanted: list[int]) -> None:
    """Against the definition: claims take turns, the smallest first."""
    volumes = [volume(f"v{place}", size, *filter(None, [node])) for place, (size, node) in enumerate(sizes)]
    claims = [claim(f"c{place}", size) for place, size in enumerate(wanted)]
    cluster = snapshot([node("a"), node("b")], [*volumes, *claims], [])
    expected: dict[str, str] | None = {}
    free = [each for each, (_, node) in zip(volumes, sizes, strict=True) if node in ("a", "")]
    for each in sorted(claims, key=lambda each: each.size or 0):
        fitting = sorted((v.size, v.name) for v in free if v.size >= (each.size or 0))
        if not fitting:
            expected = None
            break
        assert expected is not None
        expected[each.name] = fitting[0][1]
        free = [v for v in free if v.name != fitting[0][1]]
    choices = choose(claims_of(*(each.name for each in claims)), 0, cluster.storage, cluster.table)
    assert (None if choices is None else {choice.name: choice.volume for choice in choices}) == expected


# --- pods of one round ---


_pods = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True),
        st.sampled_from(["", "", "shared disk", "own disk"]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.hypothesis
@given(
    volumes=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ()])), max_size=6
    ),
    claims=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([LATE, LATE, MADE]), st.booleans()), min_size=6, max_size=6
    ),
    pods=_pods,
    limit=st.integers(1, 3),
)
@settings(max_examples=examples(40), deadline=None)
def test_no_two_pods_of_a_round_get_one_volume(
    volumes: list[tuple[int, tuple[str, ...]]],
    claims: list[tuple[int, str, bool]],
    pods: list[tuple[list[int], str, int]],
    limit: int,
) -> None:
    """Whatever the round does: every plan can be carried out, and a pod that stays fits nowhere beside it."""
    stored: list[StorageObject] = [
        volume(f"v{place}", size, *nodes, modes=("ReadWriteOnce", "ReadWriteOncePod"))
        for place, (size, nodes) in enumerate(volumes)
    ]
    stored += [
        claim(f"c{place}", size, of=of, mode="ReadWriteOncePod" if alone else "ReadWriteOnce")
        for place, (size, of, alone) in enumerate(claims)
    ]
    stored.append(CsiNode("a", limits=(("csi.example.com", limit),)))
    disks = {
        "shared disk": (Disk(ISCSI, ("x",), shareable=True),),
        "own disk": (Disk(ISCSI, ("x",)),),
        "": (),
    }
    pending = [
        waiting(f"p{place}", (*claims_of(*(f"c{number}" for number in numbers)), *disks[disk]), priority)
        for place, (numbers, disk, priority) in enumerate(pods)
    ]
    cluster = snapshot([node("a"), node("b"), node("c")], stored, pending)
    result = plan_and_check(cluster)
    check_volumes(cluster, result)


def check_volumes(cluster: Snapshot, result: RoundResult) -> None:
    """That all placements get what their claims need, no two of them the same."""
    storage = cluster.storage
    owner: dict[str, tuple[str, str]] = {}
    got: dict[tuple[str, str], tuple[VolumeChoice, str]] = {}
    users: Counter[tuple[str, str]] = Counter()
    for placement in result.placements:
        used = [each.key for each in placement.pod.pod_class.volumes if isinstance(each, ClaimVolume)]
        assert {choice.key for choice in placement.volumes} == {key for key in used if not storage.claims[key].bound}
        users.update(used)
        for choice in placement.volumes:
            known, place = got.setdefault(choice.key, (choice, placement.node))
            assert known == choice, "one claim gets one thing"
            if choice.volume:
                assert owner.setdefault(choice.volume, choice.key) == choice.key, "a volume for two claims"
                assert reaches(storage.volumes[choice.volume], placement.node)
                assert storage.volumes[choice.volume].size >= (storage.claims[choice.key].size or 0)
            else:
                assert storage.claims[choice.key].storage_class == MADE
                assert place == placement.node, "a volume is provisioned on one node"
    for key, count in users.items():
        assert count == 1 or "ReadWriteOncePod" not in storage.claims[key].access_modes
    for first, second in product(result.placements, repeat=2):
        if first.pod.key < second.pod.key and first.node == second.node:
            disks = [
                [each for each in placement.pod.pod_class.volumes if isinstance(each, Disk)]
                for placement in (first, second)
            ]
            assert not any(one.conflicts(two) for one, two in product(*disks))
    for name, csi_node in storage.csi_nodes.items():
        made = {choice.key for choice, node in got.values() if node == name and not choice.volume}
        assert len(made) <= dict(csi_node.limits)["csi.example.com"]
    for left in result.unplaced:
        assert not run_filters(left.pod.pod_class, result.after, left.pod.signature).fits.any()


def reaches(held: PersistentVolume, node: str) -> bool:
    return held.affinity is None or any(node in each.values for term in held.affinity for each in term.expressions)


def test_a_statefulset_takes_as_many_local_volumes_as_there_are() -> None:
    """Of nodes that cost alike: the plan knows how many volumes each has."""
    nodes = [f"n{number}" for number in range(5)]
    volumes = [volume(f"v-{name}-{number}", 10, name) for name in nodes for number in range(3)]
    claims = [claim(f"c{number}") for number in range(16)]
    pods = [waiting(f"p{number:02}", claims_of(f"c{number}")) for number in range(16)]
    result = run_round(snapshot([node(name) for name in nodes], [*volumes, *claims], pods))
    assert Counter(where(result).values()) == dict.fromkeys(nodes, 3)
    assert len(set(chosen(result).values())) == 15
    (left,) = result.unplaced
    assert volume_binding.REASON_NO_VOLUME in left.reason


def test_a_large_claim_gets_the_large_volume_though_a_small_one_comes_first() -> None:
    """The small one takes the smallest that will do."""
    stored = [volume("small", 1, "a"), volume("large", 9, "a"), claim("c0", 1), claim("c1", 9)]
    pods = [waiting("p0", claims_of("c0"), 1), waiting("p1", claims_of("c1"))]
    result = run_round(snapshot([node("a")], stored, pods))
    assert chosen(result) == {"c0": "small", "c1": "large"}


def test_pods_that_share_a_claim_go_where_it_is_had() -> None:
    """The first decides; a node without room for all keeps some waiting."""
    pods = [waiting(f"p{number}", claims_of("c")) for number in range(3)]
    result = run_round(snapshot([node("a", 200), node("b", 200)], [claim("c", of=MADE)], pods))
    assert len(set(where(result).values())) == 1
    assert len(result.placements) == 2


def test_pods_that_share_a_disk_are_all_placed() -> None:
    """Read-only beside each other, as many on a node as there is room for."""
    disk = (Disk(ISCSI, ("x",), shareable=True),)
    result = run_round(snapshot([node("a", 300), node("b", 300)], [], [waiting(f"p{n}", disk) for n in range(6)]))
    assert Counter(where(result).values()) == {"a": 3, "b": 3}


def test_pods_that_share_an_attachment_are_all_placed() -> None:
    """A volume counts once on a node, however many pods mount it; another one has no place beside it."""
    stored: list[StorageObject] = [CsiNode("a", limits=(("csi.example.com", 1),))]
    for name in ("shared", "other"):
        bound = msgspec.structs.replace(claim(name), bound=True, volume_name=f"v-{name}")
        stored += [bound, PersistentVolume(f"v-{name}", size=1, attachment=Attachment("csi.example.com", name))]
    pods = [waiting(f"p{n}", claims_of("shared"), 1) for n in range(4)]
    result = run_round(snapshot([node("a")], stored, [*pods, waiting("q", claims_of("other"))]))
    assert set(where(result)) == {each.key.removeprefix("ns/") for each in pods}


def test_bound_claims_that_any_number_of_pods_may_mount_change_nothing() -> None:
    """Their pods are planned as those without volumes."""
    bound = msgspec.structs.replace(claim("c"), bound=True, volume_name="v")
    pods = [waiting(f"p{number}", claims_of("c")) for number in range(4)]
    result = run_round(snapshot([node("a"), node("b")], [bound, volume("v", 9)], pods))
    assert len(result.placements) == 4
    assert chosen(result) == {}


def test_a_volume_is_provisioned_where_its_class_may_and_where_there_is_space() -> None:
    """AllowedTopologies of the class, and CSIStorageCapacity of a driver that tracks it."""
    topology = (NodeSelectorTerm((Requirement(HOST, "In", ("a", "b")),)),)
    gigabyte = Decimal(10**9 * 10**9)
    stored = [
        StorageClass("zoned", "csi.example.com", "WaitForFirstConsumer", topology),
        CsiDriver("csi.example.com", tracks_capacity=True),
        Capacity(("ns", "on-a"), "zoned", 10**9 - 1, LabelSelector((Requirement(HOST, "In", ("a",)),))),
        Capacity(("ns", "on-b"), "zoned", 10**9, LabelSelector((Requirement(HOST, "In", ("b", "c")),))),
        msgspec.structs.replace(claim("c", of="zoned"), size=gigabyte),
    ]
    cluster = snapshot([node(name) for name in "abc"], stored, [waiting("p", claims_of("c"))])
    choices = [choose(claims_of("c"), row, cluster.storage, cluster.table) for row in range(3)]
    assert choices == [None, (VolumeChoice("ns", "c", "u-c"),), None]
    assert where(run_round(cluster)) == {"p": "b"}


def test_the_last_attachment_of_a_node_is_given_once() -> None:
    """Volumes that are provisioned count as they are planned."""
    attached = PersistentVolume("v", size=1, attachment=Attachment("csi.example.com", "h"))
    mounted = msgspec.structs.replace(claim("m", of=MADE), bound=True, volume_name="v")
    stored = [
        mounted,
        attached,
        CsiNode("a", limits=(("csi.example.com", 2),)),
        claim("c0", of=MADE),
        claim("c1", of=MADE),
    ]
    pods = [waiting(f"p{number}", claims_of(f"c{number}")) for number in range(2)]
    result = run_round(snapshot([node("a")], stored, pods, [("a", claims_of("m"))]))
    assert len(result.placements) == 1
