"""Volumes of pods and storage objects, as they are read, and odd ones: nothing raises, and what is wrong is named."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import draw_volumes
from support.draw import GENEROUS, Case, Manifest, cases_for
from support.profiles import examples
from support.verdicts import read_pods, snapshot_of

from flowcore.api import STORAGE_KINDS, to_storage_object
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.quantities import nanos
from flowcore.model.volumes import ZONE, Claim, PersistentVolume
from flowcore.planning.round import run_round
from flowcore.rules.filters import Verdicts, run_filters

LATE = {"metadata": {"name": "late"}, "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}


def pod(name: str, *volumes: Manifest, **spec: Any) -> Manifest:
    named = [{"name": f"v{at}", **volume} for at, volume in enumerate(volumes)]
    own = {"containers": [{"name": "main"}], "volumes": named, **spec}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": own}


def claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}


def node(name: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": GENEROUS}}


def pvc(name: str, **spec: Any) -> Manifest:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "late", **spec}}


def verdicts(case: Case) -> list[Verdicts]:
    cluster = snapshot_of(case)
    return [run_filters(each.pod_class, cluster, each.signature) for each in cluster.pending]


def test_volumes_that_no_filter_reads_cost_nothing() -> None:
    """Most pods have some of these, and share their class with pods that have none."""
    bare, mounted = read_pods([pod("a"), pod("b", {"emptyDir": {}}, {"configMap": {"name": "c"}}, {"csi": {}})])
    assert mounted.pod_class is bare.pod_class
    assert mounted.pod_class.volumes == ()


def test_pods_with_the_same_claims_share_a_class_and_ephemeral_volumes_are_a_pods_own() -> None:
    """A claim that is made for a pod bears the pod's name."""
    found = read_pods([pod(name, claim("c")) for name in "ab"] + [pod(name, {"ephemeral": {}}) for name in "ab"])
    assert len({each.pod_class for each in found}) == 3


@pytest.mark.parametrize(
    ("volume", "claims"),
    [
        (claim("c"), True),
        ({"ephemeral": {}}, True),
        ({"gcePersistentDisk": {"pdName": "d"}}, False),
        ({"cinder": {"volumeID": "d"}}, False),
        ({"rbd": {"monitors": None, "image": "d"}}, False),
    ],
)
def test_a_pod_with_volumes_is_planned(volume: Manifest, *, claims: bool) -> None:
    """Rounds know what its volumes take from others, and the binder binds claims."""
    read = read_pods([pod("p", volume)])[0]
    assert not read.skip_reason
    assert read.claims_volumes is claims


def test_a_claim_whose_size_cannot_be_read_holds_its_own_pods_only() -> None:
    """They are told which claim, and which field of it."""
    claims = [pvc("bad", resources={"requests": {"storage": "much"}}), pvc("good")]
    storage = {"persistentVolumeClaims": claims, "storageClasses": [LATE]}
    bad, good = verdicts(Case([node("a")], [], [pod("p", claim("bad")), pod("q", claim("good"))], [], storage))
    by, reason = bad.of_node(0)
    assert by == "VolumeBinding"
    assert reason.startswith('persistentvolumeclaim "bad" cannot be read: spec.resources.requests.storage: "much"')
    assert good.fits.all()


def test_a_volume_whose_capacity_cannot_be_read_is_large_enough_for_no_claim() -> None:
    """Not even for one that asks for nothing."""
    found = to_storage_object("PersistentVolume", {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "x"}}})
    assert isinstance(found, PersistentVolume)
    assert found.size < 0


@pytest.mark.parametrize("size", ["1500m", "32Gi", "16Ei"])
def test_any_size_is_sent_and_kept_exactly(size: str) -> None:
    """The worker and saved state get what was read; a size in billionths of a byte is no number of 64 bits."""
    read = [
        to_storage_object("PersistentVolume", {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": size}}}),
        to_storage_object("PersistentVolumeClaim", pvc("c", resources={"requests": {"storage": size}})),
        to_storage_object("CSIStorageCapacity", {"metadata": {"name": "s"}, "capacity": size}),
    ]
    sent = msgspec.msgpack.encode(ClusterChanges(storage=[each for each in read if each is not None]))
    assert msgspec.msgpack.decode(sent, type=ClusterChanges).storage == read
    assert read[0].size == nanos(size)  # type: ignore[union-attr]


def test_claims_and_volumes_that_name_each_other_in_a_circle() -> None:
    """Nobody follows such names further than one step."""
    claims = [pvc("c", volumeName="v"), pvc("d", volumeName="w")]
    for each in claims:
        each["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    volumes = [
        {"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "default", "name": other}}}
        for name, other in (("v", "d"), ("w", "c"))
    ]
    storage = {"persistentVolumeClaims": claims, "persistentVolumes": volumes}
    (found,) = verdicts(Case([node("a")], [], [pod("p", claim("c"), claim("d"))], [], storage))
    assert found.fits.all()


@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_an_object_with_nothing_but_a_name(kind: str) -> None:
    """As if every field were null."""
    empty = {"metadata": {"name": "x", "labels": None, "annotations": None}, "spec": None, "status": None}
    found = to_storage_object(kind, empty)
    assert (found is None) == (kind == "VolumeAttachment")


@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_labels_that_are_not_strings_are_said_where_they_are(kind: str) -> None:
    """The path of the field, for whoever reads the objects."""
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$\.metadata\.labels"):
        to_storage_object(kind, {"metadata": {"name": "x", "labels": {"a": 1}}})


def test_the_class_of_older_versions_goes_before_the_field() -> None:
    """Even when it is empty."""
    metadata = {"name": "c", "annotations": {"volume.beta.kubernetes.io/storage-class": ""}}
    found = to_storage_object("PersistentVolumeClaim", {"metadata": metadata, "spec": {"storageClassName": "late"}})
    assert isinstance(found, Claim)
    assert found.storage_class == ""


def test_rounds_place_pods_where_their_volumes_can_be_had() -> None:
    """As the cluster stands when the round begins; those that nothing can be had for are told why."""
    zoned = [{**node(name), "metadata": {"name": name, "labels": {ZONE: name}}} for name in "ab"]
    reach = {"key": ZONE, "operator": "In", "values": ["b"]}
    volume = {"capacity": {"storage": "1Gi"}, "csi": {"driver": "csi.example.com", "volumeHandle": "h"},
              "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [reach]}]}}}  # fmt: skip
    bound = pvc("c", volumeName="v")
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    storage = {"persistentVolumeClaims": [bound], "storageClasses": [LATE],
               "persistentVolumes": [{"metadata": {"name": "v"}, "spec": volume}]}  # fmt: skip
    pending = [pod("p", claim("c")), pod("q", claim("c")), pod("r", claim("missing"))]
    cluster = snapshot_of(Case(zoned, [], pending, [], storage))
    result = run_round(cluster)
    assert {each.pod.key: each.node for each in result.placements} == {"default/p": "b", "default/q": "b"}
    ((key, reason),) = [(each.pod.key, each.reason) for each in result.unplaced]
    assert key == "default/r"
    assert 'persistentvolumeclaim "missing" not found' in reason
    full = {**storage, "csiNodes": [{"metadata": {"name": "b"}, "spec": {"drivers": [
        {"name": "csi.example.com", "nodeID": "b", "allocatable": {"count": 0}}]}}]}  # fmt: skip
    result = run_round(snapshot_of(Case(zoned, [], pending[:1], [], full)))
    assert not result.placements
    assert "exceed max volume count" in result.unplaced[0].reason


_SPOILED = st.sampled_from((None, {}, [], "", "x", 1, -(2**40), [None], {"x": None}))


@settings(max_examples=examples(50))
@given(cases_for(draw_volumes.ASPECTS), st.data())
def test_a_spoiled_field_anywhere_raises_no_more_than_a_validation_error(case: Case, data: st.DataObject) -> None:
    """And where the object can be read nevertheless, all pods are judged."""
    kinds = [kind for kind in sorted(case.storage) if case.storage[kind]]
    if not kinds:
        return
    spoiled: Any = data.draw(st.sampled_from(case.storage[data.draw(st.sampled_from(kinds))]))
    while isinstance(spoiled, dict) and spoiled:
        key = data.draw(st.sampled_from(sorted(spoiled)))
        if key != "name" and (not isinstance(spoiled[key], dict) or data.draw(st.booleans())):
            spoiled[key] = data.draw(_SPOILED)
            break
        spoiled = spoiled[key]
    try:
        found = verdicts(case)
    except msgspec.ValidationError:
        return
    assert len(found) == len(case.pending)
