"""What decides on gangs by controllers changes: few pods are looked at, and all is as in a fresh cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counted import counted
from support.profiles import examples

from flowcore.api import Interner, WirePod, to_pod
from flowcore.api.kinds import JOB, JOB_SET, RAY_CLUSTER
from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.cluster.kinds import GANG_PARENTS
from flowcore.model.cost_policy import KnownModels
from flowcore.model.gang_parents import GangParent, ParentKey, PartSize
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy

MODELS = KnownModels(("CPUMemory",))
RULE = {"apiVersion": "example.com/v1", "kind": "Training", "plural": "trainings", "size": ["spec.n"]}
KINDS = (JOB.qualified, JOB_SET.qualified, RAY_CLUSTER.qualified, "Training.example.com")
NAMESPACES = ("ml", "other", "kube-system")


def policy(name: str, selects: dict[str, Any], **spec: Any) -> Policy:
    """A policy that selects these pods."""
    return parse_policy(name, {"selects": selects, **spec}, MODELS)


POLICIES = (
    policy("jobs", {"podSelector": {}}, gangs={"controllers": ["Job", "RayCluster"]}),
    policy("none", {"podSelector": {"matchLabels": {"app": "x"}}}, precedence=1, gangs={"controllers": []}),
    policy("team", {"schedulerNames": ["other"], "namespaceSelector": {"matchLabels": {"team": "a"}}},
           precedence=2, delivery="Extender"),
    policy("first", {"podSelector": {"matchExpressions": [{"key": "index", "operator": "In", "values": ["1", "2"]}]}},
           precedence=3, gangs={"controllers": ["IndexedJob"]}),
    policy("ours", {"schedulerNames": ["other"]}, gangs={"parents": [RULE]}),
    policy("jobs", {"podSelector": {"matchLabels": {"app": "y"}}}, precedence=4, gangs={"controllers": ["Job"]}),
    policy("labelled", {"podSelector": {"matchExpressions": [{"key": "training", "operator": "Exists"}]}},
           gangs={"parents": [RULE | {"podLabel": "training"}]}),
)  # fmt: skip


def pod(
    index: int, by: str, *, namespace: str = "ml", app: str = "x", scheduler: str = "thalweg", phase: str = "Pending",
    deleting: bool = False, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None,
) -> Pod:  # fmt: skip
    """A pod with a label that no other has; ``by``: its controller as ``batch/v1/Job/t``, "": it has none."""
    version, kind, controller = by.rsplit("/", 2) if by else ("", "", "")
    owner = {"apiVersion": version, "kind": kind, "name": controller, "uid": f"u-{controller}", "controller": True}
    labels = {"app": app, "index": str(index), **(labels or {})}
    if controller == "t-a-0":
        labels |= {f"jobset.sigs.k8s.io/{label}": value for label, value in
                   (("jobset-name", "t"), ("replicatedjob-name", "a"), ("job-index", "0"))}  # fmt: skip
    metadata: dict[str, Any] = {"name": f"p{index}", "namespace": namespace, "uid": f"p{index}", "labels": labels,
                "ownerReferences": [owner] if by else [], "annotations": annotations or {}}  # fmt: skip
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
    manifest = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


CONTROLLERS = (
    "batch/v1/Job/t", "batch/v1/Job/t-a-0", "ray.io/v1/RayCluster/t", "example.com/v1/Training/t",
    "apps/v1/ReplicaSet/t",
)  # fmt: skip
PARENTS_OF_PODS = tuple(ParentKey(kind, namespace, "t") for kind in KINDS for namespace in NAMESPACES)
#: Label, whether it goes, and how large each of its parts is; None: it is gone.
PARENT = st.tuples(st.sampled_from(PARENTS_OF_PODS), st.booleans(), st.sampled_from([None, 0, 2]))
CONTROLLED = st.builds(
    pod, st.integers(0, 4), st.sampled_from([*CONTROLLERS, *CONTROLLERS, ""]), namespace=st.sampled_from(NAMESPACES),
    app=st.sampled_from("xy"), scheduler=st.sampled_from(["thalweg", "other"]), deleting=st.booleans(),
    phase=st.sampled_from(["Pending", "Pending", "Failed", "Succeeded"]),
    labels=st.sampled_from([{}, {"training": "t"}]),
    annotations=st.sampled_from(
        [{}, {"scheduling.thalweg/gang-of-controller": "true"}, {"scheduling.thalweg/gang": "g"}]
    ),
)  # fmt: skip
SOME_KINDS, SOME_PARENTS = st.frozensets(st.sampled_from(KINDS)), st.frozensets(st.sampled_from(PARENTS_OF_PODS))
CONTROLLER_EVENT = st.one_of(
    CONTROLLED,
    CONTROLLED,
    st.tuples(st.sampled_from(["policies", "planned policies"]),
              st.lists(st.integers(0, len(POLICIES) - 1), unique=True, max_size=4)),
    st.tuples(st.just("follow"), SOME_KINDS, SOME_PARENTS),
    st.tuples(st.just("parent"), PARENT),
    st.tuples(st.just("no pod"), st.sampled_from(NAMESPACES), st.integers(0, 4)),
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.sampled_from([None, (), (("team", "a"),)])),
)  # fmt: skip


def happen(cluster: Cluster, event: Any) -> None:
    """Has one thing happen."""
    match event:
        case Pod():
            cluster.put_pod(event)
        case ("policies", numbers):
            cluster.replace_policies(_policies(numbers))
        case ("planned policies", numbers):
            cluster.govern_gangs(PolicyIndex(_policies(numbers)))
        case ("follow", kinds, gone):
            cluster.follow_parents(kinds, gone)
        case ("parent", (key, deleting, size)):
            sizes = {role: PartSize(size) for role in ("", "Indexed", "a")} if size is not None else {}
            GANG_PARENTS.put(cluster, key, None if size is None else GangParent(key, "u-t", sizes, deleting=deleting))
        case ("no pod", namespace, index):
            cluster.remove_pod(f"{namespace}/p{index}")
        case ("namespace", name, labels):
            system = (("kubernetes.io/metadata.name", name),)
            cluster.set_namespace(name, None if labels is None else (*system, *labels))


def _policies(numbers: Sequence[int]) -> Iterable[Policy]:
    """Policies by number; of several with one name the last."""
    return {POLICIES[at].name: POLICIES[at] for at in numbers}.values()


def decided(cluster: Cluster) -> dict[str, Any]:
    """All that is remembered of pods and the parents that they name."""
    parents = cluster.parent_gangs
    return {
        "naming": parents._naming,
        "pods": parents._pods,
        "gang of": parents._gang_of,
        "ways": (parents._mixed._of_pods, parents._mixed._ways),
        "unseen": set(parents.unseen()),
    }


@pytest.mark.parametrize("followed", [None, frozenset(KINDS)], ids=["of a dump", "watched"])
@settings(max_examples=examples(300))
@given(history=st.lists(CONTROLLER_EVENT, max_size=20))
def test_pods_are_in_the_gangs_of_a_fresh_cluster(followed: frozenset[str] | None, history: list[Any]) -> None:
    """Whatever changed, and in whatever order: policies, labels, parents, and which of them are followed."""
    cluster, kept = Cluster(), dict[str, Pod]()
    if followed is not None:
        cluster.follow_parents(followed)
    for event in history:
        happen(cluster, event)
        if isinstance(event, Pod):
            kept[event.key] = event
        elif event[0] == "no pod":
            kept.pop(f"{event[1]}/p{event[2]}", None)
    parents, fresh = cluster.parent_gangs, Cluster()
    fresh.govern_gangs(PolicyIndex(each for each in parents.policies.ordered if each is not BUILT_IN))
    for name, labels in cluster.namespaces.items():
        fresh.set_namespace(name, labels)
    if parents.followed is not None:
        fresh.follow_parents(parents.followed, parents.gone)
    for key, parent in cluster.gangs.parents.items():
        GANG_PARENTS.put(fresh, key, parent)
    for each in kept.values():
        fresh.put_pod(each)
    assert decided(cluster) == decided(fresh)
    assert counted(cluster) == counted(fresh)
    assert set(parents.unseen()) == {key for key in parents._pods if key not in cluster.gangs.parents}


def looks(cluster: Cluster, change: Callable[[], object]) -> int:
    """How many pods a change has looked at."""
    put, count = cluster.parent_gangs.put, 0

    def counting(of: Pod, namespaces: Any) -> Any:
        nonlocal count
        count += 1
        return put(of, namespaces)

    cluster.parent_gangs.put = counting  # type: ignore[method-assign]
    try:
        change()
    finally:
        cluster.parent_gangs.put = put  # type: ignore[method-assign]
    return count


def controlled(*policies: Policy, kinds: Sequence[str] = ()) -> Cluster:
    """Pods of a Job, of a RayCluster and of a ReplicaSet, two of each."""
    cluster = Cluster()
    cluster.set_namespace("ml", ())
    cluster.replace_policies(policies)
    cluster.follow_parents(frozenset(kinds))
    for index, by in enumerate((CONTROLLERS[0], CONTROLLERS[2], CONTROLLERS[4]) * 2):
        cluster.put_pod(pod(index, by, app="xy"[index // 3]))
    return cluster


def test_a_kind_that_is_followed_concerns_pods_that_name_one() -> None:
    """A tenant's pod may ask for it, and others have very many pods of other kinds."""
    cluster = controlled(POLICIES[0])
    kinds = frozenset({JOB.qualified, JOB_SET.qualified})
    assert looks(cluster, lambda: cluster.follow_parents(kinds)) == 2
    assert looks(cluster, lambda: cluster.follow_parents(kinds, frozenset(PARENTS_OF_PODS))) == 0
    assert looks(cluster, lambda: cluster.follow_parents(frozenset())) == 2


def test_a_policy_that_changes_concerns_pods_that_it_selects() -> None:
    """As it is or as it was, and only pods that name a parent."""
    jobs, none, _, _, ours, of_y, _ = POLICIES
    cluster = controlled(jobs, kinds=[JOB.qualified])
    assert looks(cluster, lambda: cluster.replace_policies([jobs, none])) == 2
    of_label_y = msgspec.structs.replace(none, selects=of_y.selects)
    assert looks(cluster, lambda: cluster.replace_policies([jobs, of_label_y])) == 4
    assert looks(cluster, lambda: cluster.replace_policies([jobs])) == 2
    assert looks(cluster, lambda: cluster.replace_policies([jobs, ours])) == 6, "its row may be about any pod"


def test_labels_that_no_policy_reads_are_not_asked_about() -> None:
    """Each pod of a Job has an index of its own, and all have one policy; others are asked about."""
    _, none, team, first, *_ = POLICIES
    of = controlled(none, team).policies
    answers = [of.governing("thalweg", (("app", "x"), ("index", str(at))), ()) for at in range(9)]
    assert len({id(answer) for answer in answers}) == 1
    assert answers[0] == [none, BUILT_IN]
    assert of.governing("thalweg", (("app", "y"),), ()) == [BUILT_IN]
    assert [of.governing("other", (), labels) for labels in ((), (("team", "a"),))] == [[], [team]]
    of.replace([first])
    assert [len(of.governing("thalweg", (("index", at),), ())) for at in "123"] == [2, 2, 1]
