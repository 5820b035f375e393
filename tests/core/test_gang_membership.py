"""What pods and PodGroup objects say of gangs is read as their own projects do; what cannot be read blocks one pod."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.api import (
    Interner,
    WirePod,
    WirePodGroup,
    to_pod,
    to_pod_group,
    to_unreadable_pod_group,
)
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import Pod

OURS, KOORDINATOR = "scheduling.thalweg/gang", "gang.scheduling.koordinator.sh/"
KUEUE = "kueue.x-k8s.io/pod-group-"


def pod(
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> Pod:
    """Decoded from JSON."""
    metadata = {"name": "p", "namespace": "ml", "annotations": annotations, "labels": labels}
    raw = msgspec.json.encode({"metadata": metadata, "spec": spec or {}, "status": status})
    return to_pod(msgspec.json.decode(raw, type=WirePod), Interner())


def ref(source: GangSource, name: str = "train", **terms: Any) -> GangRef:
    """A membership in namespace ml."""
    return GangRef(GangKey(source, "ml", name), GangSpec(**terms))


def test_every_source_names_a_gang() -> None:
    """The field, two labels, three annotations and ours; what is said on the pod comes along."""
    assert pod().gang is None
    assert pod(spec={"schedulingGroup": {"podGroupName": "train"}}).gang == ref(GangSource.NATIVE)
    assert pod(labels={"scheduling.x-k8s.io/pod-group": "train"}).gang == ref(GangSource.COSCHEDULING)
    assert pod(labels={"pod-group.scheduling.sigs.k8s.io": "train"}).gang == ref(GangSource.COSCHEDULING)
    assert pod({"scheduling.k8s.io/group-name": "train"}).gang == ref(GangSource.VOLCANO)
    assert pod({"scheduling.volcano.sh/group-name": "train"}).gang == ref(GangSource.VOLCANO)
    said = {
        "min-available": "3",
        "groups": '["ml/train", "web/eval"]',
        "waiting-time": "1h0m30.5s",
        "mode": "NonStrict",
    }
    found = pod({KOORDINATOR + "name": "train", **{KOORDINATOR + key: value for key, value in said.items()}})
    group = (GangKey(GangSource.KOORDINATOR, "ml", "train"), GangKey(GangSource.KOORDINATOR, "web", "eval"))
    assert (found.gang, found.blocked_reason) == (
        ref(GangSource.KOORDINATOR, min_member=3, group=group, timeout=3630),
        "",
    )
    found = pod(
        {OURS: "train", OURS + "-min-member": "4", OURS + "-group": "web/b, a", OURS + "-topology": "x.io/rack"}
    )
    group = tuple(GangKey(GangSource.THALWEG, ns, name) for ns, name in (("ml", "a"), ("ml", "train"), ("web", "b")))
    assert (found.gang, found.blocked_reason) == (
        ref(GangSource.THALWEG, min_member=4, group=group, topology_key="x.io/rack"),
        "",
    )


def test_groups_of_kueue() -> None:
    """All pods of a group at once. A group that runs before all of its pods exist is no gang."""
    label, total = {KUEUE + "name": "train"}, {KUEUE + "total-count": "3"}
    assert pod(total, label).gang == ref(GangSource.KUEUE, min_member=3)
    assert pod({**total, KUEUE + "fast-admission": "false"}, label).gang == ref(GangSource.KUEUE, min_member=3)
    for grows in ("fast-admission", "serving"):
        assert pod({**total, KUEUE + grows: "true"}, label).gang is None
    assert (pod({}, label).gang, pod(labels=label).gang, pod(total).gang) == (None, None, None)
    assert pod({**total, OURS: "ours"}, label).gang == ref(GangSource.THALWEG, "ours")
    found = pod({KUEUE + "total-count": "all"}, label)
    assert (
        'annotation kueue.x-k8s.io/pod-group-total-count: "all" is no whole number above zero' in found.blocked_reason
    )


def test_the_first_source_counts() -> None:
    """Kubernetes' own field before labels, labels before annotations; the others are not even parsed."""
    every = {
        "scheduling.k8s.io/group-name": "volcano",
        KOORDINATOR + "name": "koordinator",
        KOORDINATOR + "min-available": "none",
        OURS: "ours",
        OURS + "-min-member": "none",
    }
    labels = {"scheduling.x-k8s.io/pod-group": "label"}
    order = [(GangSource.NATIVE, "native"), (GangSource.COSCHEDULING, "label"), (GangSource.VOLCANO, "volcano")]
    found = pod(every, labels, {"schedulingGroup": {"podGroupName": "native"}})
    assert (found.gang, found.blocked_reason) == (ref(*order[0]), "")
    assert pod(every, labels).gang == ref(*order[1])
    found = pod(every)
    assert (found.gang, found.blocked_reason) == (ref(*order[2]), "")


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({OURS: ""}, 'annotation scheduling.thalweg/gang: "" is no name of a gang'),
        ({OURS: "other/train"}, 'annotation scheduling.thalweg/gang: "other/train" is no name of a gang'),
        ({OURS: "a", OURS + "-min-member": "0"}, 'gang-min-member: "0" is no whole number above zero'),
        ({OURS: "a", OURS + "-min-member": "٣"}, 'gang-min-member: "٣" is no whole number above zero'),
        ({OURS: "a", OURS + "-min-member": "3000000000"}, "is no whole number above zero"),
        ({OURS: "a", OURS + "-group": "b,"}, 'annotation scheduling.thalweg/gang-group: "" is no name of a gang'),
        ({KOORDINATOR + "name": "a", KOORDINATOR + "min-available": "x"}, 'min-available: "x" is no whole number'),
        ({KOORDINATOR + "name": "a", KOORDINATOR + "groups": "[1]"}, 'groups: "[1]" is no JSON list of names'),
        ({KOORDINATOR + "name": "a", KOORDINATOR + "waiting-time": "5"}, 'waiting-time: "5" is no duration'),
    ],
)
def test_an_annotation_that_does_not_parse_blocks_the_pod(annotations: dict[str, str], problem: str) -> None:
    """With a reason that names it; a pod that has its node is as it was."""
    assert problem in pod(annotations).blocked_reason
    bound = pod(annotations, spec={"nodeName": "n"})
    assert bound.blocked_reason == ""
    assert bound.gang is not None


@given(st.text(), st.text(), st.text(), st.text())
def test_garbage_in_annotations_never_raises(one: str, two: str, three: str, four: str) -> None:
    """Whatever stands there, the pod is read: blocked, or in a gang of which only what parses counts."""
    for name, keys in ((OURS, ("-min-member", "-group", "-topology")), (KOORDINATOR + "name", ())):
        found = pod({name: one, **dict(zip((OURS + key for key in keys), (two, three, four), strict=False))})
        assert found.gang is None or found.gang.key.name == one
    koordinator = dict(zip(("name", "min-available", "groups", "waiting-time"), (one, two, three, four), strict=True))
    found = pod({KOORDINATOR + key: value for key, value in koordinator.items()})
    assert found.gang is None or (found.gang.spec.min_member or 1) > 0


def test_pods_that_succeeded_say_so_and_whose_they_are() -> None:
    """Failed pods are terminal as well, and not the same."""
    owner = {"ownerReferences": [{"uid": "no"}, {"uid": "job", "controller": True}]}
    raw = {"metadata": {"name": "p", "annotations": {OURS: "a"}, **owner}, "spec": {}, "status": {"phase": "Succeeded"}}
    found = to_pod(msgspec.convert(raw, WirePod), Interner())
    assert (found.terminal, found.succeeded, found.owner) == (True, True, "job")
    assert (pod(phase="Failed").terminal, pod(phase="Failed").succeeded) == (True, False)


def group_of(source: GangSource, spec: dict[str, Any] | None, **annotations: str) -> tuple[GangSpec, str]:
    """Terms and problem of a decoded PodGroup."""
    said = {key.replace("_", "/", 1): value for key, value in annotations.items()}
    raw = {"metadata": {"name": "train", "namespace": "ml", "annotations": said}, "spec": spec}
    found = to_pod_group(msgspec.convert(raw, WirePodGroup), source, Interner())
    assert found.key == GangKey(source, "ml", "train")
    return found.spec, found.problem


def test_pod_groups_of_all_sources() -> None:
    """Native gang and basic policy with a topology, the coscheduling plugin's with its timeout, Volcano's."""
    gang = {"schedulingPolicy": {"gang": {"minCount": 5}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
    assert group_of(GangSource.NATIVE, gang) == (GangSpec(min_member=5, topology_key="rack"), "")
    assert group_of(GangSource.NATIVE, {"schedulingPolicy": {"basic": {}}}) == (GangSpec(min_member=0), "")
    assert group_of(GangSource.NATIVE, None) == (GangSpec(min_member=0), "")
    spec = {"minMember": 3, "scheduleTimeoutSeconds": 90, "minResources": {"cpu": "3"}}
    assert group_of(GangSource.COSCHEDULING, spec) == (GangSpec(min_member=3, timeout=90), "")
    spec = {"minMember": 2, "queue": "q", "minTaskMember": {"a": 1}}
    assert group_of(GangSource.VOLCANO, spec) == (GangSpec(min_member=2), "")
    keys = tuple(GangKey(GangSource.COSCHEDULING, "ml", name) for name in ("eval", "train"))
    said = {"gang.scheduling.koordinator.sh_groups": '["ml/eval"]'}
    assert group_of(GangSource.COSCHEDULING, {"minMember": 1}, **said)[0].group == keys
    terms, problem = group_of(GangSource.VOLCANO, {"minMember": 1}, **{"scheduling.thalweg_gang-group": "/"})
    assert (terms.group, problem) == ((), 'annotation scheduling.thalweg/gang-group: "/" is no name of a gang')


def test_a_pod_group_of_another_shape_keeps_its_name() -> None:
    """Its pods are to wait with the problem, not for an object that seems not to exist."""
    raw = b'{"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": "three"}}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=WirePodGroup)
    found = to_unreadable_pod_group(raw, GangSource.VOLCANO, "no")
    assert (found.key, found.problem) == (GangKey(GangSource.VOLCANO, "ml", "train"), "no")
