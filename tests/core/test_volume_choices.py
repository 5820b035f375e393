"""What claims of pods get, one pod after the other, on all nodes at once: against a plain computation, and by work."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.work import lines_run

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    Capacity,
    Claim,
    ClaimRef,
    ClaimVolume,
    CsiDriver,
    PersistentVolume,
    StorageClass,
    StorageObject,
    Volumes,
)
from flowcore.planning.round import run_round
from flowcore.rules.filters import volume_binding
from flowcore.rules.volumes import PlacedVolumes

HOST, LATE, MADE, DRIVER = "kubernetes.io/hostname", "late", "made", "csi.example.com"
CLASSES = (
    StorageClass(LATE, "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    StorageClass(MADE, DRIVER, "WaitForFirstConsumer"),
    CsiDriver(DRIVER, tracks_capacity=True),
)
NODES = ("a", "b", "c", "d")
GIGABYTE = 10**18


def node(name: str) -> Node:
    return Node(name, labels=((HOST, name),), allocatable=(("cpu", 10_000), ("pods", 100)))


def volume(name: str, size: int, nodes: Sequence[str] = (), kept_for: str = "") -> PersistentVolume:
    """A volume that these nodes reach; all nodes where none is named."""
    affinity = (NodeSelectorTerm((Requirement(HOST, "In", tuple(nodes)),)),) if nodes else None
    return PersistentVolume(
        name,
        storage_class=LATE,
        size=Decimal(size),
        claim=ClaimRef("ns", kept_for) if kept_for else None,
        available=True,
        access_modes=("ReadWriteOnce",),
        affinity=affinity,
    )


def claim(name: str, size: int, of: str = LATE) -> Claim:
    modes = ("ReadWriteOnce",)
    return Claim("ns", name, uid=f"u-{name}", storage_class=of, size=Decimal(size), access_modes=modes)


def claims_of(*names: str) -> Volumes:
    return tuple(ClaimVolume("ns", name) for name in names)


def space(largest: int, nodes: Sequence[str]) -> Capacity:
    """Room for volumes that are made: the largest on these nodes, in gigabytes."""
    topology = LabelSelector((Requirement(HOST, "In", tuple(nodes)),))
    return Capacity(("ns", f"{largest}-{'-'.join(nodes)}"), MADE, largest * 10**9, topology)


# --- against a plain computation ---


@dataclass
class PlainVolumes:
    """What pods leave to each other, node by node and volume by volume."""

    storage: Storage
    taken: set[str]
    #: Claim -> the volume that it gets, or "", and the node of its pod.
    promised: dict[str, tuple[str, str]]

    def choose(self, names: Sequence[str], node_name: str) -> dict[str, str] | None:
        """The volume of each claim, "" where one is made; None where a claim gets nothing."""
        chosen: dict[str, str] = {}
        claims = [self.storage.claims["ns", name] for name in names]
        for wanted in sorted(claims, key=lambda each: each.size or 0):
            if wanted.name in self.promised:
                got, on = self.promised[wanted.name]
                if not (_reaches(self.storage.volumes[got], node_name) if got else on == node_name):
                    return None
                chosen[wanted.name] = got
                continue
            volumes = sorted(self.storage.volumes.values(), key=lambda each: (each.size, each.name))
            fitting = [each for each in volumes if each.storage_class == wanted.storage_class]
            fitting = [each for each in fitting if each.size >= (wanted.size or 0)]
            kept = [each for each in fitting if each.claim is not None and each.claim.name == wanted.name]
            free = [each for each in fitting if each.claim is None and each.name not in {*self.taken, *chosen.values()}]
            near = [each for each in kept[:1] or free if _reaches(each, node_name)]
            if near:
                chosen[wanted.name] = near[0].name
            elif self._is_made_at(wanted, node_name):
                chosen[wanted.name] = ""
            else:
                return None
        return chosen

    def _is_made_at(self, wanted: Claim, node_name: str) -> bool:
        return wanted.storage_class == MADE and any(
            each.topology is not None
            and node_name in each.topology.requirements[0].values
            and each.largest * 10**9 >= (wanted.size or 0)
            for each in self.storage.spaces(MADE)
        )

    def take(self, names: Sequence[str], node_name: str) -> None:
        for name, got in (self.choose(names, node_name) or {}).items():
            self.promised.setdefault(name, (got, node_name))
            self.taken |= {got} - {""}


def _reaches(held: PersistentVolume, node_name: str) -> bool:
    return held.affinity is None or node_name in held.affinity[0].expressions[0].values


_reached = st.sets(st.sampled_from(NODES), max_size=4).map(sorted)
_volumes = st.lists(st.tuples(st.integers(1, 9), _reached, st.sampled_from(["", "", "", "c0", "c1"])), max_size=9)
_claims = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([LATE, LATE, MADE])), min_size=6, max_size=6)
_pods = st.lists(
    st.tuples(
        st.lists(st.sampled_from([f"c{number}" for number in range(6)]), min_size=1, max_size=3, unique=True),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=7,
)


@pytest.mark.hypothesis
@given(
    volumes=_volumes,
    claims=_claims,
    spaces=st.lists(st.tuples(st.integers(1, 9), _reached.filter(bool)), max_size=2),
    pods=_pods,
)
@settings(max_examples=examples(100), deadline=None)
def test_pods_get_what_a_plain_computation_gives_them(
    volumes: list[tuple[int, list[str], str]],
    claims: list[tuple[int, str]],
    spaces: list[tuple[int, list[str]]],
    pods: list[tuple[list[str], int, int]],
) -> None:
    """Volumes and claims of many sizes, several nodes reached, pods with several claims; some pods leave again."""
    stored: list[StorageObject] = [
        volume(f"v{place}", size * GIGABYTE, nodes, kept_for) for place, (size, nodes, kept_for) in enumerate(volumes)
    ]
    stored += [claim(f"c{place}", size * GIGABYTE, of) for place, (size, of) in enumerate(claims)]
    stored += {each.key: each for each in (space(largest, nodes) for largest, nodes in spaces)}.values()
    storage, table = Storage.of([*CLASSES, *stored], []), NodeTable.of([node(name) for name in NODES])
    placed, plain = PlacedVolumes(storage, table), PlainVolumes(storage, set(), {})
    for names, row, kind in pods:
        used = claims_of(*names)
        nowhere = np.zeros(len(NODES), dtype=np.bool_)
        rejected = [each.nodes for each in volume_binding.rejections(used, storage, table)]
        at_first = ~np.logical_or.reduce([nowhere, *rejected])
        untouched = PlainVolumes(storage, set(), {})
        assert at_first.tolist() == [untouched.choose(names, name) is not None for name in NODES]
        now = [plain.choose(names, name) for name in NODES]
        assert (at_first & placed.fitting(used)).tolist() == [each is not None for each in now]
        if now[row] is not None:
            before = placed.copy()
            placed.take(used, row)
            if kind == 0:
                placed.release(used, row)
                assert (at_first & placed.fitting(used)).tolist() == (at_first & before.fitting(used)).tolist()
            else:
                plain.take(names, NODES[row])


# --- work ---


def cluster_of(nodes: int, volumes: Sequence[PersistentVolume], sizes: Sequence[int]) -> Snapshot:
    """A cluster with a waiting pod for each size of a claim."""
    claims = [claim(f"c{place}", size) for place, size in enumerate(sizes)]
    pods = [
        PendingPod(f"ns/p{place}", f"u-{place}", PodClass((("cpu", 1),), volumes=claims_of(each.name)), BUILT_IN.name)
        for place, each in enumerate(claims)
    ]
    return build_snapshot(
        generation=1,
        now=0.0,
        table=NodeTable.of([node(f"n{place}") for place in range(nodes)]),
        running=[],
        pending=tuple(pods),
        storage=Storage.of([*CLASSES, *volumes, *claims], []),
        pod_index=PodIndex(),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of volumes about which it was asked whether they suit a claim, once for each time."""
    names: list[str] = []
    may_hold = volume_binding.may_hold

    def counted(held: PersistentVolume, wanted: Claim) -> bool:
        names.append(held.name)
        return may_hold(held, wanted)

    monkeypatch.setattr(volume_binding, "may_hold", counted)
    return names


def test_volumes_that_many_nodes_reach_cost_no_more_than_others() -> None:
    """Which volumes a pod finds is worked out for all nodes at once: ten times the nodes are not ten times the work."""

    def work(nodes: int) -> int:
        cluster = cluster_of(nodes, [volume(f"v{place}", 9) for place in range(30)], [1] * 30)
        return lines_run(lambda: run_round(cluster))

    assert work(300) < 2 * work(30)


@pytest.mark.parametrize("sizes", [[1] * 40, range(1, 41), range(40, 0, -1)])
def test_each_volume_is_looked_at_once_whatever_sizes_claims_have(asked: list[str], sizes: Sequence[int]) -> None:
    """Claims that ask for the same but for the size share what is known of the volumes."""
    volumes = [volume(f"v{place}", place, [f"n{place % 8}"]) for place in range(1, 61)]
    result = run_round(cluster_of(8, volumes, sizes))
    assert len(result.placements) == 40
    assert sorted(asked) == sorted(each.name for each in volumes)


def test_claims_of_many_sizes_that_the_same_volumes_can_hold_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of a claim is which volumes are large enough, not its size."""
    judged: list[Sequence[Claim]] = []
    judge = volume_binding._rejections
    monkeypatch.setattr(
        volume_binding, "_rejections", lambda claims, *rest: (judged.append(claims), judge(claims, *rest))[1]
    )
    volumes = [volume(f"v{place}", size, ["n0"]) for place, size in enumerate([100] * 10 + [200] * 10)]
    cluster = cluster_of(2, volumes, range(1, 21))
    table, storage = cluster.table, cluster.storage
    for pod in cluster.pending:
        rejected = [each.nodes.tolist() for each in volume_binding.rejections(pod.pod_class.volumes, storage, table)]
        assert [False, True] in rejected, "the second node has no volume"
    assert len(judged) == 1


@pytest.mark.parametrize("kept_for", ["", "c"])
def test_a_volume_that_changes_costs_the_same_however_many_there_are(kept_for: str) -> None:
    """Also where all of them name one claim."""

    def work(count: int) -> int:
        volumes = [volume(f"v{place}", 1, kept_for=kept_for) for place in range(count)]
        storage = Storage.of(volumes, [])
        return lines_run(lambda: storage.put(volume("v0", 2, kept_for=kept_for)))

    assert work(1000) == work(10)
