"""What pods and PodGroups say of a gang's topology, and the gangs that a round is told of."""

from typing import Any

import msgspec
import pytest

from flowcore.api import Interner, WirePod, WirePodGroup, to_pod, to_pod_group
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.round_gangs import MAX_PREFERRED_LEVELS, gangs_for
from flowcore.model.gang_parents import GangParent, PartSize
from flowcore.model.gang_spec import GANG, GANG_MIN_MEMBER, GANG_TOPOLOGY, GangKey, GangRef, GangSource, PodGroup
from flowcore.model.gang_topology import (
    ADMITTED_BY_KUEUE,
    GANG_PREFERRED_TOPOLOGY,
    GANG_SLICE_SIZE,
    GANG_SLICE_TOPOLOGY,
    KUEUE_PREFERRED_TOPOLOGY,
    KUEUE_REQUIRED_TOPOLOGY,
    KUEUE_SLICE_SIZE,
    KUEUE_SLICE_TOPOLOGY,
    MAX_SLICES,
    GangTopology,
    rank_of,
)
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io/"
SLICED = {GANG_SLICE_TOPOLOGY: "rack", GANG_SLICE_SIZE: "2"}
#: Of a round: name of a gang -> the gang, and its pods that wait.
GangsAndPods = dict[str, tuple[Gang, set[str]]]
TRAIN = "gang ml/train"
JOB = GangKey(GangSource.CONTROLLER, "ml", "train", "Job.batch")


def read(name: str, annotations: dict[str, str], labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    """A pod of the namespace ml."""
    meta = {"name": name, "namespace": "ml", "uid": name, "annotations": annotations, "labels": labels or {}}
    return to_pod(msgspec.convert({"metadata": meta, "spec": spec}, WirePod), Interner())


def ours(rank: int | None, annotations: dict[str, str] | None = None, least: int = 4, **spec: Any) -> Pod:
    """A pod of a gang by annotations, with a rank."""
    said = {GANG: "train", GANG_MIN_MEMBER: str(least), **(SLICED if annotations is None else annotations)}
    return read(f"p{rank}", said, {} if rank is None else {INDEX: str(rank)}, **spec)


def told(
    *pods: Pod, group: PodGroup | None = None, parent: GangParent | None = None
) -> dict[str, tuple[Gang, set[str]]]:
    """The gangs of a round with these pods, and the waiting pods of each."""
    registry = GangRegistry()
    if group is not None:
        registry.put_group(group)
    if parent is not None:
        registry.set_parent(JOB.parent, parent)
    for pod in pods:
        registry.put(pod)
    waiting = [(pod, Delivery.BINDER) for pod in pods if not pod.node_name]
    racks = {("n1", "rack"): "r1", ("n2", "rack"): "r2", ("n1", "block"): "b", ("n1", "block, rack"): "b, r1"}
    names, gangs = gangs_for(registry, waiting, {}, lambda node, label: racks.get((node, label), ""))
    members = {
        gang.name: {pod.name for (pod, _), of in zip(waiting, names, strict=True) if gang.name in of} for gang in gangs
    }
    return {gang.name: (gang, members[gang.name]) for gang in gangs}


def why(*pods: Pod) -> set[str]:
    """Why no pod of the gang is planned."""
    return {gang.unschedulable_reason for gang, _ in told(*pods).values()}


# --- what is read ---


def test_annotations_of_ours_and_of_kueue() -> None:
    """Those of Kueue say the same. Where one of ours is there, only ours count."""
    written = {GANG_TOPOLOGY: "zone,block", GANG_PREFERRED_TOPOLOGY: "block, rack", **SLICED}
    topology = GangTopology("zone, block", ("block", "rack"), "rack", 2)
    assert read("p", written).gang_topology == topology
    kueue = {
        KUEUE_REQUIRED_TOPOLOGY: "zone, block",
        KUEUE_PREFERRED_TOPOLOGY: "block,rack",
        KUEUE_SLICE_TOPOLOGY: "rack",
        KUEUE_SLICE_SIZE: "2",
    }
    assert read("p", kueue).gang_topology == topology
    assert read("p", {**kueue, GANG_TOPOLOGY: "zone"}).gang_topology == GangTopology("zone")
    assert read("p", {}).gang_topology is None
    for label in ADMITTED_BY_KUEUE:
        assert read("p", kueue, {label: "true"}).gang_topology is None


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({GANG_TOPOLOGY: "rack,"}, f'annotation {GANG_TOPOLOGY}: "rack," is no key of a label'),
        ({GANG_PREFERRED_TOPOLOGY: "rack,"}, f'annotation {GANG_PREFERRED_TOPOLOGY}: "rack," is no key of a label'),
        ({**SLICED, GANG_SLICE_SIZE: "0"}, f'annotation {GANG_SLICE_SIZE}: "0" is no whole number above zero'),
        ({GANG_SLICE_SIZE: "2"}, f"annotation {GANG_SLICE_SIZE}: it needs {GANG_SLICE_TOPOLOGY} beside it"),
        ({KUEUE_SLICE_TOPOLOGY: "rack"}, f"annotation {KUEUE_SLICE_TOPOLOGY}: it needs {KUEUE_SLICE_SIZE} beside it"),
    ],
)
def test_an_annotation_that_cannot_be_read(annotations: dict[str, str], problem: str) -> None:
    """The pod waits, and the others if they need it: they say whom they wait for. A bound one keeps nobody waiting."""
    pods = [ours(rank, annotations if rank == 2 else {}) for rank in range(4)]
    short = f"gang ml/train: it needs 4 pods at once, 3 can be planned now; ml/p2: {problem}"
    bad = f"gang ml/train: ml/p2: {problem}"
    assert why(*pods) == {bad, short}
    assert why(*pods, ours(4, {})) == {bad, ""}
    pods[2] = ours(2, annotations, nodeName="n1")
    assert why(*pods) == {""}


def test_a_pod_group_says_it_for_its_pods() -> None:
    """Its annotations go before those of pods; what it does not say, pods say."""
    meta = {"name": "train", "namespace": "ml", "annotations": SLICED}
    raw = {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
    group = to_pod_group(msgspec.convert(raw, WirePodGroup), GangSource.NATIVE, Interner())
    native = {"schedulingGroup": {"podGroupName": "train"}}
    said = {GANG_TOPOLOGY: "block", GANG_SLICE_TOPOLOGY: "host", GANG_SLICE_SIZE: "3"}
    pods = [read(f"p{rank}", said, {INDEX: str(rank)}, **native) for rank in range(4)]
    gangs = told(*pods, group=group)
    assert gangs["PodGroup ml/train"][0].topology_key == "block"
    assert {name: of for name, (gang, of) in gangs.items() if gang.topology_key == "rack"} == {
        "PodGroup ml/train slice 0": {"p0", "p1"},
        "PodGroup ml/train slice 1": {"p2", "p3"},
    }


def test_pods_of_a_gang_that_say_different_things() -> None:
    """The gang waits, and the reason names two of them. Pods that say nothing disagree with nobody."""
    racks, blocks = ({GANG_PREFERRED_TOPOLOGY: level} for level in ("rack", "block"))
    assert why(ours(0, racks), ours(1, blocks), ours(2, {}), ours(3, {})) == {
        "gang ml/train: its pods name different topologies: ml/p0 has preferred rack, ml/p1 has preferred block"
    }
    assert why(ours(0, racks), *(ours(rank, {}) for rank in (1, 2, 3))) == {""}


def test_pods_of_controllers() -> None:
    """A Job's pods say the topology of its gang, and a pod of another Job with the same name says nothing of it."""

    def of_job(rank: int, topology: GangTopology, owner: str = "uid") -> Pod:
        pod = ours(rank, {})
        controlled = {"owner": owner, "controller": "Job/train", "controller_group": "batch"}
        return msgspec.structs.replace(pod, gang=GangRef(JOB), gang_topology=topology, **controlled)

    pods = [of_job(rank, GangTopology("block", ("rack",))) for rank in range(2)]
    stranger = of_job(2, GangTopology("zone"), "stranger")
    gangs = told(*pods, stranger, parent=GangParent(JOB.parent, "uid", {"": PartSize(2)}))
    assert gangs["Job ml/train"] == (
        Gang("Job ml/train", 2, topology_key="block", preferred=(("block, rack", ""),)),
        {"p0", "p1"},
    )


def test_a_namespace_with_many_levels() -> None:
    """Its gangs prefer so many in a round, shared ones once; the others are placed as if they preferred none."""
    levels = [f"l{number},m{number}" for number in range(MAX_PREFERRED_LEVELS)]
    pods = [
        read(f"p{at}", {GANG: f"g{at:03}", GANG_MIN_MEMBER: "1", GANG_PREFERRED_TOPOLOGY: level})
        for at, level in enumerate([*levels[:2], *levels])
    ]
    gangs = told(*pods)
    expected = [2, 2, *[2] * (MAX_PREFERRED_LEVELS // 2), *[0] * (MAX_PREFERRED_LEVELS // 2)]
    assert [len(gang.preferred) for _, (gang, _) in sorted(gangs.items())] == expected


# --- slices and ranks ---


def test_slices_are_gangs_of_neighbours() -> None:
    """Each shares its pods with the gang, so that all are placed or none."""
    gangs = told(*(ours(rank) for rank in range(4)))
    assert gangs == {
        "gang ml/train": (Gang("gang ml/train", 4), {"p0", "p1", "p2", "p3"}),
        f"{TRAIN} slice 0": (Gang(f"{TRAIN} slice 0", 2, slice_of=TRAIN, topology_key="rack"), {"p0", "p1"}),
        f"{TRAIN} slice 1": (Gang(f"{TRAIN} slice 1", 2, slice_of=TRAIN, topology_key="rack"), {"p2", "p3"}),
    }


def test_a_size_that_does_not_divide_the_gang() -> None:
    """The last slice is smaller; one of more than all pods is the gang."""
    assert [len(of) for _, (_, of) in sorted(told(*(ours(rank, least=3) for rank in range(3))).items())] == [3, 2, 1]
    large = {GANG_SLICE_TOPOLOGY: "rack", GANG_SLICE_SIZE: str(2**31 - 1)}
    assert told(*(ours(rank, large) for rank in range(4)))["gang ml/train slice 0"][0].min_placed == 4


def test_a_pod_that_comes_again_goes_to_its_slice() -> None:
    """The domains where the others run are those of its slice and of its gang."""
    said = {**SLICED, GANG_PREFERRED_TOPOLOGY: "block,rack"}
    running = [ours(0, said, nodeName="n2"), ours(1, said, nodeName="n1"), ours(2, said, nodeName="n1")]
    gangs = told(*running, ours(3, said))
    assert gangs["gang ml/train slice 1"][0] == Gang(
        f"{TRAIN} slice 1", 1, slice_of=TRAIN, topology_key="rack", domain="r1", partially_placed=True, placed=1
    )
    assert gangs["gang ml/train"][0].preferred == (("block", "b"), ("block, rack", "b, r1"))


def test_more_slices_than_the_gang_needs() -> None:
    """Whole slices come after the gang has what it needs, and then one pod at a time to those that have begun."""
    gangs = told(*(ours(rank, least=2) for rank in range(4)))
    assert gangs["gang ml/train"][1] == gangs["gang ml/train slice 0"][1] == {"p0", "p1"}
    late = "gang ml/train slice 1 is placed after the slices that the gang needs"
    waits = Gang(f"{TRAIN} slice 1", 2, slice_of=TRAIN, unschedulable_reason=late)
    assert gangs[f"{TRAIN} slice 1"] == (waits, {"p2", "p3"})
    running = [ours(rank, least=2, nodeName="n1") for rank in range(3)]
    begun = Gang(f"{TRAIN} slice 1", 0, slice_of=TRAIN, topology_key="rack", domain="r1", placed=1)
    assert told(*running, *(ours(rank, least=2) for rank in (3, 4, 5))) == {
        begun.name: (begun, {"p3"}),
        f"{TRAIN} slice 2": (Gang(f"{TRAIN} slice 2", 2, slice_of=TRAIN, topology_key="rack"), {"p4", "p5"}),
    }


def test_a_pod_without_annotation_is_in_no_slice() -> None:
    """A launcher has no rank and needs none."""
    launcher = read("launcher", {GANG: "train", GANG_MIN_MEMBER: "4"})
    gangs = told(launcher, *(ours(rank) for rank in range(3)))
    assert "launcher" in gangs["gang ml/train"][1]
    assert not any("launcher" in of for name, (_, of) in gangs.items() if "slice" in name)


def test_ranks_that_say_nothing() -> None:
    """Twice the same, none, or too many slices: the gang waits with a reason that names the pods."""
    twin = msgspec.structs.replace(ours(1), name="twin", uid="twin")
    assert why(*(ours(rank) for rank in range(3)), twin) == {
        "gang ml/train: it has slices, and ml/p1 and ml/twin have the same rank 1"
    }
    assert why(ours(0), ours(1), ours(2), ours(None)) == {
        "gang ml/train: it has slices, and ml/pNone has no label with its rank"
    }
    single = {GANG_SLICE_TOPOLOGY: "rack", GANG_SLICE_SIZE: "1"}
    assert why(*(ours(rank, single) for rank in range(MAX_SLICES + 1))) == {
        f"gang ml/train: it has {MAX_SLICES + 1} slices of 1, {MAX_SLICES} are allowed"
    }


def test_jobs_of_which_pods_ended() -> None:
    """Their ranks stay apart, however few pods of the JobSet are needed or left."""
    labels = {JOB_SET + "replicatedjob-replicas": "2"}
    said = {GANG: "train", GANG_MIN_MEMBER: "1", **SLICED}
    gangs = told(
        *(
            read(f"p{job}{rank}", said, {**labels, JOB_SET + "job-index": str(job), INDEX: str(rank)})
            for job, rank in ((0, 0), (0, 1), (1, 0))
        )
    )
    assert [of for name, (_, of) in sorted(gangs.items()) if "slice" in name] == [{"p00", "p01"}, {"p10"}]


def of_kubeflow(kind: str, index: int, said: dict[str, str], **spec: Any) -> Pod:
    """A pod of a job of Kubeflow."""
    labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}
    return read(f"{kind.lower()}-{index}", said, labels, **spec)


@pytest.mark.parametrize(("master", "worker"), [("master", "worker"), ("Master", "Worker"), ("chief", "ps")])
def test_a_master_ranks_before_the_workers(master: str, worker: str) -> None:
    """Both count from 0. Slices of a PodGroup have neighbours by the ranks of the training operator."""
    meta = {"name": "train", "namespace": "ml", "annotations": SLICED}
    raw = {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
    group = to_pod_group(msgspec.convert(raw, WirePodGroup), GangSource.NATIVE, Interner())
    native = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [of_kubeflow(master, 0, {}, **native), *(of_kubeflow(worker, index, {}, **native) for index in range(3))]
    slices = [of for name, (_, of) in sorted(told(*pods, group=group).items()) if "slice" in name]
    first, *others = (pod.name for pod in pods)
    assert slices == [{first, others[0]}, {others[1], others[2]}]


def test_workers_that_alone_ask_for_slices_count_from_0() -> None:
    """Their master is in no slice."""
    said = {GANG: "train", GANG_MIN_MEMBER: "5"}
    workers = (of_kubeflow("worker", index, {**said, **SLICED}) for index in range(4))
    gangs = told(of_kubeflow("master", 0, said), *workers)
    slices = [of for name, (_, of) in sorted(gangs.items()) if "slice" in name]
    assert slices == [{"worker-0", "worker-1"}, {"worker-2", "worker-3"}]


def test_a_rank_that_is_mended_on_a_running_pod() -> None:
    """Its waiting gang is planned anew. A label that says no rank changes nothing."""
    registry = GangRegistry()
    registry.put(ours(0))
    running = ours(1, nodeName="n1")
    registry.put(running)
    assert not registry.put(msgspec.structs.replace(running, labels=((INDEX, "1"), ("team", "a"))))
    assert registry.put(msgspec.structs.replace(running, labels=((INDEX, "2"),)))


@pytest.mark.parametrize(
    ("labels", "rank"),
    [
        ({INDEX: "3"}, 3),
        (
            {INDEX: "3", "jobset.sigs.k8s.io/job-index": "2", "jobset.sigs.k8s.io/replicatedjob-replicas": "4"},
            2 * 4 + 3,
        ),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "1", "apps.kubernetes.io/pod-index": "1"}, 0),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "0", "apps.kubernetes.io/pod-index": "7"}, 0),
        ({"scheduling.thalweg/gang-rank": "5", INDEX: "3"}, 5),
        ({INDEX: "three"}, None),
        ({INDEX: "٣"}, None),
        ({INDEX: "9" * 60}, None),
        ({}, None),
    ],
)
def test_ranks(labels: dict[str, str], rank: int | None) -> None:
    """From the labels of a gang of 16: of a JobSet's Jobs one after the other, of workers without their leader."""
    assert rank_of(tuple(sorted(labels.items())), 16) == rank
