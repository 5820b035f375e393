"""Objects with the fields that plans read, and no others: the same values come out of them."""

from typing import Any

import msgspec
import pytest

from flowcore.api import Interner
from flowcore.api.gang_parents import rules_in, to_gang_parent
from flowcore.api.kinds import IN_DUMPS, KINDS
from flowcore.api.policies import GROUP
from flowcore.api.read_fields import read_fields, read_parent_fields
from flowcore.model.cost_policy import KnownModels
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader
from flowcore.questions.scenario.reading.saved import state_of

SECRET = "hush"  # noqa: S105 - it stands for what must not leave
NOISE = {"example.com/note": SECRET, "kubectl.kubernetes.io/last-applied-configuration": SECRET}
MANAGED = [{"manager": SECRET, "operation": "Update", "fieldsV1": {"f:spec": SECRET}}]
SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}


def manifest(kind: str, name: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """An object with annotations and managed fields that no plan reads."""
    metadata = {"name": name, "annotations": dict(NOISE), "managedFields": MANAGED, "labels": {"app": "web"}}
    metadata |= fields.pop("metadata", {})
    metadata["annotations"] = NOISE | metadata["annotations"]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


CONTAINER = {
    "name": "main",
    "image": "registry.example/web:1",
    "env": [{"name": "PASSWORD", "value": SECRET}],
    "command": [SECRET],
    "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": 1}},
    "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
}
TERM = {"topologyKey": "zone", "labelSelector": SELECTOR, "namespaceSelector": {}}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        }
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": TERM}],
    },
}
POD = manifest(
    "Pod",
    "web-0",
    metadata={
        "namespace": "shop",
        "uid": "1",
        "creationTimestamp": "2026-11-01T10:00:00Z",
        "annotations": {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "3"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "7", "controller": True}],
    },
    spec={
        "containers": [CONTAINER],
        "initContainers": [CONTAINER | {"name": "init", "restartPolicy": "Always", "ports": []}],
        "affinity": AFFINITY,
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "config", "configMap": {"name": SECRET}},
            {"name": "disk", "awsElasticBlockStore": {"volumeID": "v1"}},
        ],
        "priority": 10,
        "preemptionPolicy": "Never",
        "schedulerName": "thalweg",
        "serviceAccountName": SECRET,
    },
    status={
        "phase": "Pending",
        "podIP": SECRET,
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}],
    },
)
OBJECTS = [
    manifest(
        "Node",
        "n1",
        spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}], "providerID": SECRET},
        status={
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 110},
            "addresses": [{"type": "InternalIP", "address": SECRET}],
            "images": [{"names": ["registry.example/web:1"], "sizeBytes": 1000}],
        },
    ),
    manifest("Namespace", "shop"),
    POD,
    manifest("PersistentVolumeClaim", "data-web-0", metadata={"namespace": "shop", "annotations": {
        "pv.kubernetes.io/bind-completed": "yes"}}, spec={"volumeName": "v", "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
    manifest("PersistentVolume", "v", spec={
        "capacity": {"storage": "1Gi"}, "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "shop", "name": "data-web-0", "uid": "2"},
        "csi": {"driver": "csi.example", "volumeHandle": "h", "volumeAttributes": {"password": SECRET}}}),
    manifest("StorageClass", "fast", "storage.k8s.io/v1", provisioner="csi.example", parameters={"secret": SECRET}),
    manifest("CSINode", "n1", "storage.k8s.io/v1", spec={"drivers": [
        {"name": "csi.example", "nodeID": SECRET, "allocatable": {"count": 4}}]}),
    manifest("CSIDriver", "csi.example", "storage.k8s.io/v1", spec={"storageCapacity": True}),
    manifest("CSIStorageCapacity", "c", "storage.k8s.io/v1", metadata={"namespace": "shop"}, storageClassName="fast",
             nodeTopology=SELECTOR, capacity="10Gi"),
    manifest("VolumeAttachment", "a", "storage.k8s.io/v1", spec={
        "attacher": "csi.example", "nodeName": "n1", "source": {"persistentVolumeName": "v"}}),
    manifest("DeviceClass", "gpu", "resource.k8s.io/v1", spec={"extendedResourceName": "example.com/gpu"}),
    manifest("PodDisruptionBudget", "web", "policy/v1", metadata={"namespace": "shop", "generation": 1},
             spec={"selector": SELECTOR}, status={"disruptionsAllowed": 1, "observedGeneration": 1}),
    manifest("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000, description=SECRET),
    manifest("PodGroup", "g", "scheduling.x-k8s.io/v1alpha1", metadata={"namespace": "shop", "annotations": {
             "scheduling.thalweg/gang-group": "a,b"}}, spec={"minMember": 2}),
    manifest("FlowSchedulingPolicy", "p", f"{GROUP}/v1alpha1", spec={"selects": {"podSelector": SELECTOR}}),
    manifest("FlowQueue", "q", f"{GROUP}/v1alpha1", spec={"weight": 2}),
    manifest("NodeMetrics", "n1", "metrics.k8s.io/v1beta1", timestamp="2026-11-01T10:00:00Z", window="30s",
             usage={"cpu": "1", "memory": "1Gi"}),
]  # fmt: skip


def put(items: list[dict[str, Any]]) -> bytes:
    """The scenario of these objects, as its lines are saved."""
    scenario = Scenario()
    reader = ObjectReader(Edits(scenario), 1.8e9, KnownModels(("CPUMemory",)))
    for item in items:
        reader.put(item, item["kind"])
    return b"".join(state_of(scenario))


def test_the_scenario_stays_and_what_is_not_read_goes() -> None:
    """Of every kind: the same values are read, and no secret is left."""
    kept = [read_fields(item) for item in OBJECTS]
    assert put(kept) == put(OBJECTS)
    assert SECRET.encode() not in msgspec.json.encode(kept)
    assert SECRET.encode() in msgspec.json.encode(OBJECTS)


def test_what_only_the_binder_reads_goes() -> None:
    """Plans read neither who allocated nor what drivers say and are told; devices and consumers stay."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "0", "bindingConditions": ["ready"]}
    said = {"driver": "d", "pool": "p", "device": "0", "conditions": [{"type": "broken", "message": SECRET}]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "u"}]}
    claim = manifest(
        "ResourceClaim", "c", "resource.k8s.io/v1", metadata={"namespace": "shop"}, status={**status, "devices": [said]}
    )
    device_class = manifest("DeviceClass", "gpu", "resource.k8s.io/v1", spec={
        "selectors": [{"cel": {"expression": "true"}}], "config": [{"opaque": {"driver": "d", "parameters": SECRET}}],
    })  # fmt: skip
    kept = [read_fields(claim), read_fields(device_class)]
    assert SECRET.encode() not in msgspec.json.encode(kept)
    assert kept[0]["status"]["allocation"]["devices"]["results"][0].items() >= result.items()
    assert kept[0]["status"]["reservedFor"] == [{"uid": "u"}]
    assert kept[1]["spec"]["selectors"] == [{"cel": {"expression": "true"}}]
    assert [read_fields(item) for item in kept] == kept


def test_reading_twice_changes_nothing() -> None:
    """What was read is read again."""
    kept = [read_fields(item) for item in OBJECTS]
    assert [read_fields(item) for item in kept] == kept


@pytest.mark.parametrize("kind", [*KINDS, *IN_DUMPS], ids=lambda kind: kind.kind)
def test_an_object_of_every_kind_has_a_name_afterwards(kind: Any) -> None:
    """No kind that is dumped is forgotten."""
    item: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": {}}
    kept = read_fields(item)
    assert (kept["kind"], kept["apiVersion"], kept["metadata"]["name"]) == (kind.kind, kind.api_version, "x")


def test_kinds_that_are_kept_whole() -> None:
    """Plans read all of their spec, and they hold no secret. Every other kind has a struct, so the rest of it goes."""
    whole = set()
    for kind in (*KINDS, *IN_DUMPS):
        item = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": {}, "unread": 1}
        if "unread" in read_fields(item):
            whole.add(kind.kind)
    assert whole == {"FlowSchedulingPolicy", "FlowQueue", "NodeMetrics", "PodMetrics"}


def test_an_object_of_another_shape_is_an_error() -> None:
    """With the path of the field."""
    with pytest.raises(msgspec.ValidationError, match=r"\$\.metadata\.labels"):
        read_fields({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": 3}, "spec": {}})


def test_parents_of_kinds_that_a_policy_names_keep_their_sizes() -> None:
    """And nothing else of their spec; the gang is the same."""
    rule = {"apiVersion": "example.com/v1", "kind": "Training", "plural": "trainings",
            "size": ["spec.head.replicas", "spec.groups[].replicas", "spec.none", "spec.list"]}  # fmt: skip
    policy = manifest("FlowSchedulingPolicy", "p", f"{GROUP}/v1alpha1", spec={"gangs": {"parents": [rule]}})
    bad = manifest(
        "FlowSchedulingPolicy", "bad", f"{GROUP}/v1alpha1", spec={"gangs": {"parents": [rule | {"size": []}]}}
    )
    spec = {"head": {"replicas": 1, "env": SECRET}, "groups": [{"replicas": 2, "env": SECRET}, SECRET], "env": SECRET,
            "list": [SECRET]}  # fmt: skip
    item = manifest(
        "Training", "t", "example.com/v1", metadata={"namespace": "ml", "annotations": {"a": SECRET}}, spec=spec
    )
    ((kind, known),) = rules_in([bad, policy]).values()
    kept = read_parent_fields(item, known)
    assert kept["spec"] == {"head": {"replicas": 1}, "groups": [{"replicas": 2}, {}]}
    assert SECRET.encode() not in msgspec.json.encode(kept)
    numbers = msgspec.structs.replace(known, sizes=known.sizes[:1])
    assert to_gang_parent(kept, kind, numbers) == to_gang_parent(item, kind, numbers)


def test_pods_read_alike() -> None:
    """Field by field, since the saved state leaves some out."""
    from flowcore.api import WirePod, to_pod

    whole, kept = (msgspec.convert(item, WirePod) for item in (POD, read_fields(POD)))
    assert to_pod(kept, Interner()) == to_pod(whole, Interner())
