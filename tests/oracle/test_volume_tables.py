"""kube-scheduler's own table cases for the filters on volumes, as data of ours.

Rebuilt from the tables in volume_restrictions_test.go, csi_test.go, volume_binding_test.go and volume_zone_test.go of
1.36. Kept apart from what is drawn: each row says what it is about, and what kube-scheduler is expected to say.
"""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from support.draw import GENEROUS, Case, Manifest
from support.verdicts import assert_same
from thalweg_controlplane import Oracle

from flowcore.model.volumes import BETA_REGION, BETA_ZONE, REGION, ZONE

NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
TOO_MANY = "node(s) exceed max volume count"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
FAR = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE = "node(s) did not have enough free storage"
NO_ZONE = "node(s) had no available volume zone"
LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
DRIVER, EBS = "csi.example.com", "ebs.csi.aws.com"


@dataclass(frozen=True)
class Row:
    """A cluster with one waiting pod: its volumes, what is there, and the reason on each node ("" where it fits)."""

    about: str
    plugin: str
    volumes: list[Manifest]
    expected: dict[str, str]
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    running: dict[str, list[list[Manifest]]] = field(default_factory=dict)
    storage: dict[str, list[Manifest]] = field(default_factory=dict)

    def case(self) -> Case:
        """The row as a case."""
        nodes = [
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **self.labels.get(name, {})}},
                "spec": {},
                "status": {"allocatable": GENEROUS},
            }
            for name in self.expected
        ]
        pods = [
            _pod(f"{node}-{at}", volumes, nodeName=node)
            for node, each in self.running.items()
            for at, volumes in enumerate(each)
        ]
        return Case(nodes, pods, [_pod("p", self.volumes)], [], self.storage)


def _pod(name: str, volumes: list[Manifest], **spec: Any) -> Manifest:
    named = [{"name": f"v{at}", **volume} for at, volume in enumerate(volumes)]
    own = {"containers": [{"name": "main"}], "volumes": named, **spec}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": own}


def claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}


def pvc(name: str, volume: str = "", storage_class: str | None = "wait", **more: Any) -> Manifest:
    """A claim, bound when it names a volume; further words are fields of its spec, but for metadata and status."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    metadata, status = more.pop("metadata", {}), more.pop("status", {})
    spec = {"volumeName": volume, "storageClassName": storage_class, **more}
    meta = {"name": name, "namespace": "default", "annotations": annotations, **metadata}
    return {"metadata": meta, "spec": spec, "status": status}


def pv(name: str, *, labels: dict[str, str] | None = None, near: dict[str, list[str]] | None = None,
       storage_class: str = "wait", size: str = "1Gi", **source: Any) -> Manifest:  # fmt: skip
    spec: Manifest = {"storageClassName": storage_class, "capacity": {"storage": size}, **source}
    if near is not None:
        terms = [{"key": key, "operator": "In", "values": values} for key, values in near.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"phase": "Available"}}


def csi(name: str, driver: str = DRIVER) -> Manifest:
    return {"csi": {"driver": driver, "volumeHandle": name}}


def csi_node(name: str, **limits: int) -> Manifest:
    names = {"csi": DRIVER, "ebs": EBS}
    drivers = [{"name": names[each], "nodeID": "n", "allocatable": {"count": limits[each]}} for each in limits]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def storage_class(name: str, mode: str | None = "WaitForFirstConsumer", provisioner: str = DRIVER,
                  **more: Any) -> Manifest:  # fmt: skip
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}


WAIT = storage_class("wait", provisioner="kubernetes.io/no-provisioner")
MAKE = storage_class("wait")
GCE, GCE_READ = ({"gcePersistentDisk": {"pdName": "foo", "readOnly": only}} for only in (False, True))
EBS_FOO, EBS_BAR = ({"awsElasticBlockStore": {"volumeID": f"vol-{name}"}} for name in ("foo", "bar"))
RBD = {"rbd": {"monitors": ["a", "b"], "pool": "foo", "image": "bar"}}
RBD_OVERLAPPING = {"rbd": {"monitors": ["c", "b"], "pool": "foo", "image": "bar"}}
RBD_ELSEWHERE = {"rbd": {"monitors": ["c", "d"], "pool": "foo", "image": "bar"}}
ISCSI, ISCSI_OTHER = ({"iscsi": {"targetPortal": "p", "iqn": name, "lun": 0}} for name in ("iqn.foo", "iqn.bar"))
EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
OWNED = {"metadata": {"ownerReferences": [{"uid": "p", "controller": True, "kind": "Pod", "name": "p"}]}}
RUN = {"a": [[claim("r")]]}
_RESTRICTIONS = [
    ("nothing", [GCE], [[]], ""),
    ("the same disk", [GCE], [[GCE]], NO_DISK),
    ("the same disk, both read-only", [GCE_READ], [[GCE_READ]], ""),
    ("the same disk, one read-only", [GCE_READ], [[GCE]], NO_DISK),
    ("a volume without restrictions", [{"emptyDir": {}}], [[GCE]], ""),
    ("the same EBS volume", [EBS_FOO], [[EBS_FOO]], NO_DISK),
    ("another EBS volume", [EBS_FOO], [[EBS_BAR]], ""),
    ("the same image", [RBD], [[RBD]], NO_DISK),
    ("the same image by a monitor in common", [RBD], [[RBD_OVERLAPPING]], NO_DISK),
    ("an image of that name elsewhere", [RBD], [[RBD_ELSEWHERE]], ""),
    ("the same target", [ISCSI], [[ISCSI]], NO_DISK),
    ("another target", [ISCSI], [[ISCSI_OTHER]], ""),
]  # fmt: skip
ONE_POD = {"accessModes": ["ReadWriteOncePod"]}
_IN_USE = [
    ("no claim of that name", [claim("none")], 'persistentvolumeclaim "none" not found'),
    ("claims that nobody uses", [claim("free")], ""),
    ("a claim of many pods in use", [claim("many")], ""),
    ("a claim of one pod in use", [claim("one")], IN_USE),
    ("two claims of one pod in use", [claim("one"), claim("two")], IN_USE),
]
_LIMIT_STORAGE = {
    "persistentVolumes": [pv(name, **csi(name)) for name in ("v1", "v2", "v3")]
    + [pv("other", **csi("x", "other.example.com")), pv("ebs", awsElasticBlockStore={"volumeID": "vol-1"})]
    + [pv("as-csi", **csi("vol-1", EBS)), pv("path", hostPath={"path": "/"})],
    "persistentVolumeClaims": [pvc(name, name) for name in ("v1", "v2", "v3", "other", "ebs", "as-csi", "path")]
    + [pvc("pending"), pvc("pending2"), pvc("gone", "gone"), pvc("classless", storage_class="none")]
    + [pvc("p-v0", "v3", **OWNED), pvc("r", "v1")],
    "storageClasses": [MAKE, storage_class("ebs", provisioner="kubernetes.io/aws-ebs")],
}
_ATTACHED = [
    {"metadata": {"name": f"at-{name}"}, "spec": {"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": name}}}
    for name in ("v2", "v3")
]  # fmt: skip
_LIMITS: list[tuple[str, list[Manifest], list[list[Manifest]], Manifest, str]] = [
    ("fewer than the limit", [claim("v1")], [[claim("v2")]], {"csi": 2}, ""),
    ("as many as the limit", [claim("v1")], [[claim("v2"), claim("v3")]], {"csi": 2}, TOO_MANY),
    ("one volume of two pods counts once", [claim("v2")], [[claim("v2"), claim("v3")]], {"csi": 2}, ""),
    ("a driver without a limit", [claim("other")], [[claim("v2")]], {"csi": 1}, ""),
    ("unbound claims count by their class", [claim("v1")], [[claim("pending")]], {"csi": 1}, TOO_MANY),
    ("each unbound claim", [claim("pending")], [[claim("pending"), claim("pending2")]], {"csi": 2}, ""),
    ("a claim whose volume is not there counts by its class", [claim("v1")], [[claim("gone")]], {"csi": 1}, TOO_MANY),
    ("a claim without a class is not counted", [claim("v1")], [[claim("classless")]], {"csi": 1}, ""),
    ("volumes of other drivers are not counted", [claim("v1")], [[claim("other")]], {"csi": 1}, ""),
    ("in-tree volumes count as their driver's", [claim("ebs")], [[EBS_FOO]], {"ebs": 1}, TOO_MANY),
    ("the same disk in-tree and by its driver", [claim("ebs")], [[claim("as-csi")]], {"ebs": 1}, ""),
    ("other in-tree volumes are not counted", [claim("path")], [[claim("v1")]], {"csi": 1}, ""),
    ("inline disks count", [EBS_FOO], [[claim("ebs")]], {"ebs": 1}, TOO_MANY),
    ("an ephemeral volume's claim counts", [EPHEMERAL], [[claim("v1")]], {"csi": 1}, TOO_MANY),
    ("no limit is told", [claim("v1")], [[claim("v2")]], {}, ""),
]
_BINDING: list[tuple[str, list[Manifest], list[Manifest], dict[str, list[Manifest]], dict[str, str]]] = [
    ("no claims", [], [], {}, {"a": ""}),
    ("all bound", [claim("c")], [pvc("c", "v")], {"persistentVolumes": [pv("v")]}, {"a": ""}),
    ("no such claim", [claim("c")], [], {}, {"a": 'persistentvolumeclaim "c" not found'}),
    ("one of two claims missing", [claim("c"), claim("d")], [pvc("c", "v")], {}, {"a": 'persistentvolumeclaim "d" not found'}),
    ("immediate claims not bound", [claim("c")], [pvc("c", storage_class="now")], {"storageClasses": [storage_class("now", "Immediate")]},
     {"a": "pod has unbound immediate PersistentVolumeClaims"}),
    ("nothing to bind to", [claim("c")], [pvc("c")], {}, {"a": NO_VOLUME}),
    ("bound far away and nothing to bind to", [claim("c"), claim("d")], [pvc("c", "v"), pvc("d")],
     {"persistentVolumes": [pv("v", near={"foo": ["bar"]})]}, {"a": f"{NO_VOLUME}, {FAR}"}),
    ("bound to a volume that is not there", [claim("c")], [pvc("c", "v")], {}, {"a": LOST}),
    ("lost", [claim("c")], [pvc("c", "v", status={"phase": "Lost"})], {},
     {"a": 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'}),
    ("local volumes", [claim("c")], [pvc("c", resources={"requests": {"storage": "50Gi"}})],
     {"persistentVolumes": [pv("va", size="200Gi", near={"kubernetes.io/hostname": ["a"]}),
                            pv("vb", size="40Gi", near={"kubernetes.io/hostname": ["b"]})]},
     {"a": "", "b": NO_VOLUME, "c": NO_VOLUME}),
    ("the smallest volume is taken first", [claim("c"), claim("d")],
     [pvc("c", resources={"requests": {"storage": "1Gi"}}), pvc("d", resources={"requests": {"storage": "2Gi"}})],
     {"persistentVolumes": [pv("v3", size="3Gi"), pv("v1", size="1Gi", near={"kubernetes.io/hostname": ["a"]})]},
     {"a": "", "b": NO_VOLUME}),
    ("made where there is space", [claim("c")], [pvc("c", resources={"requests": {"storage": "5Gi"}})],
     {"storageClasses": [MAKE], "csiDrivers": [{"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}],
      "csiStorageCapacities": [{"metadata": {"name": f"q{size}", "namespace": "x"}, "storageClassName": "wait", "capacity": size,
                                "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}}}
                               for name, size in (("a", "5Gi"), ("b", "4Gi"))]},
     {"a": "", "b": NO_SPACE, "c": NO_SPACE}),
    ("made in the topology of the class", [claim("c")], [pvc("c")],
     {"storageClasses": [storage_class("wait", allowedTopologies=[
         {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["a"]}]}])]}, {"a": "", "b": NO_VOLUME}),
    ("being made for a node", [claim("c")],
     [pvc("c", metadata={"annotations": {"volume.kubernetes.io/selected-node": "a"}})], {"storageClasses": [MAKE]},
     {"a": "", "b": NO_VOLUME}),
    ("an ephemeral volume without its claim", [EPHEMERAL], [], {},
     {"a": 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'}),
    ("an ephemeral volume with another's claim", [EPHEMERAL], [pvc("p-v0", "v")], {},
     {"a": "PVC default/p-v0 was not created for pod default/p (pod is not owner)"}),
    ("a claim that is being deleted", [claim("c")], [pvc("c", "v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})], {},
     {"a": 'persistentvolumeclaim "c" is being deleted'}),
]  # fmt: skip
_ZONES = [
    ("a node without labels", {BETA_ZONE: "us-west1-a"}, {}, ""),
    ("the older zone", {BETA_ZONE: "us-west1-a"}, {BETA_ZONE: "us-west1-a"}, ""),
    ("another older zone", {BETA_ZONE: "us-west1-a"}, {BETA_ZONE: "us-west1-b"}, NO_ZONE),
    ("the older region", {BETA_REGION: "us-west1"}, {BETA_REGION: "us-west1"}, ""),
    ("another older region", {BETA_REGION: "us-west1"}, {BETA_REGION: "us-west2"}, NO_ZONE),
    ("the zone", {ZONE: "us-west1-a"}, {ZONE: "us-west1-a"}, ""),
    ("another zone", {ZONE: "us-west1-a"}, {ZONE: "us-west1-b"}, NO_ZONE),
    ("the region", {REGION: "us-west1"}, {REGION: "us-west1"}, ""),
    ("a node without the region", {ZONE: "us-west1-a", REGION: "us-west1"}, {ZONE: "us-west1-a"}, NO_ZONE),
    ("a node with the older label only", {ZONE: "us-west1-a"}, {BETA_ZONE: "us-west1-a"}, NO_ZONE),
    ("a volume with the older label only", {BETA_ZONE: "us-west1-a"}, {ZONE: "us-west1-a"}, ""),
    ("one of several zones", {ZONE: "us-west1-c__us-west1-a"}, {ZONE: "us-west1-a"}, ""),
    ("none of several zones", {ZONE: "us-west1-c__us-west1-a"}, {ZONE: "us-west1-b"}, NO_ZONE),
    ("a list of zones with a gap is no rule", {ZONE: "us-west1-c__"}, {ZONE: "us-west1-a"}, ""),
]
_UNBOUND_ZONES = [
    ("unbound without a class", pvc("c", storage_class=""), "PersistentVolumeClaim had no pv name and storageClass name"),
    ("unbound with a class that is not there", pvc("c", storage_class="x"), 'storageclass.storage.k8s.io "x" not found'),
    ("unbound and immediate", pvc("c", storage_class="now"), "PersistentVolume had no name"),
    ("unbound, waiting for its first consumer", pvc("c"), ""),
    ("unbound with a class without a mode", pvc("c", storage_class="odd"), 'VolumeBindingMode not set for StorageClass "odd"'),
    ("bound to a volume that is not there", pvc("c", "v"), 'persistentvolume "v" not found'),
]  # fmt: skip

ROWS = [
    *(
        Row(about, "VolumeRestrictions", volumes, {"a": reason}, running={"a": running})
        for about, volumes, running, reason in _RESTRICTIONS
    ),
    *(
        Row(about, "VolumeRestrictions", volumes, {"a": reason}, running={"a": [[claim("one"), claim("two"), claim("many")]]},
            storage={"persistentVolumeClaims": [pvc("one", "v", **ONE_POD), pvc("two", "w", **ONE_POD), pvc("free", "x", **ONE_POD),
                                                pvc("many", "y", accessModes=["ReadWriteOnce"])]})
        for about, volumes, reason in _IN_USE
    ),
    *(
        Row(about, "NodeVolumeLimits", volumes, {"a": reason}, running={"a": running},
            storage={**_LIMIT_STORAGE, "csiNodes": [csi_node("a", **limits)]})
        for about, volumes, running, limits, reason in _LIMITS
    ),
    *(
        Row(about, "NodeVolumeLimits", [claim("v1")], {"a": reason},
            storage={**_LIMIT_STORAGE, "csiNodes": [csi_node("a", csi=limit)], "volumeAttachments": _ATTACHED})
        for about, limit, reason in (("attachments alone fill the node", 2, TOO_MANY), ("attachments leave room", 3, ""))
    ),
    Row("a volume both mounted and attached counts once", "NodeVolumeLimits", [claim("v1")], {"a": ""}, running={"a": [[claim("v2")]]},
        storage={**_LIMIT_STORAGE, "csiNodes": [csi_node("a", csi=3)], "volumeAttachments": _ATTACHED}),
    Row("a node without a CSINode", "NodeVolumeLimits", [claim("v1")], {"a": ""}, running=RUN, storage=_LIMIT_STORAGE),
    Row("an ephemeral volume without its claim", "NodeVolumeLimits", [EPHEMERAL], {"a": 'looking up PVC default/p-v0: persistentvolumeclaim "p-v0" not found'}),
    *(
        Row(about, "VolumeBinding", volumes, expected,
            storage={"storageClasses": [WAIT], "persistentVolumeClaims": claims, **storage})
        for about, volumes, claims, storage, expected in _BINDING
    ),
    *(
        Row(about, "VolumeZone", [claim("c")], {"a": reason}, {"a": node},
            storage={"persistentVolumes": [pv("v", labels=volume)], "persistentVolumeClaims": [pvc("c", "v")]})
        for about, volume, node, reason in _ZONES
    ),
    *(
        Row(about, "VolumeZone", [claim("c")], {"a": reason}, {"a": {ZONE: "us-west1-a"}},
            storage={"persistentVolumeClaims": [own], "storageClasses": [WAIT, storage_class("now", "Immediate"), storage_class("odd", None)]})
        for about, own, reason in _UNBOUND_ZONES
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.plugin}: {row.about}")
def test_a_row_of_kube_schedulers_own_tables(oracle: Oracle, row: Row) -> None:
    """The oracle says what the table says, so it sees the storage objects; and we say the same, alone and in the profile."""
    case = row.case()
    theirs = oracle.judge(case.nodes, case.pods, case.pending, [row.plugin], storage=case.storage)[row.plugin]
    assert {name: verdict.reason for name, verdict in theirs["default/p"].items()} == row.expected
    assert_same(oracle, case, row.plugin)
    assert_same(oracle, case)
