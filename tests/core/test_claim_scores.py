"""What the claims of a pod get on a node costs as kube-scheduler scores it: alternatives of devices, free storage."""

from typing import Any

import pytest
from support.device_clusters import API
from support.scenario_state import manifest_node, manifest_pod, scenario_of

from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader

Manifest = dict[str, Any]
NOW = 1_770_000_000.0
MODELS = ("large", "medium", "small")


def device_class(model: str) -> Manifest:
    expression = f"device.attributes['gpu.example.com'].model == '{model}'"
    return {**API, "kind": "DeviceClass", "metadata": {"name": model}, "spec": {"selectors": [cel(expression)]}}


def cel(expression: str) -> Manifest:
    return {"cel": {"expression": expression}}


def slice_with(node: str, *models: str) -> Manifest:
    """A node's devices, each of a model."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"model": {"string": model}}} for number, model in enumerate(models)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return {**API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def asking(name: str, *requests: tuple[str, ...], cpu: str = "100m", **fields: Any) -> list[Manifest]:
    """A pod with a claim; each request has alternatives, classes in their order."""
    pod = manifest_pod(name, cpu=cpu, **fields)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    asked = [
        {
            "name": f"r{number}",
            "firstAvailable": [{"name": each, "deviceClassName": each} for each in classes],
        }
        for number, classes in enumerate(requests)
    ]
    metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    claim = {**API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {"requests": asked}}}
    return [pod, claim]


def filling(node: str, share: int) -> Manifest:
    """A pod that runs on a node of ten cpus and takes so many of them."""
    return manifest_pod(f"on-{node}", node, cpu=str(share))


def nodes(*names: str) -> list[Manifest]:
    return [manifest_node(name, "z", cpu="10", pods=110) for name in names]


def classes() -> list[Manifest]:
    return list(map(device_class, MODELS))


def homes(plan: ScenarioPlan) -> dict[str, str]:
    return {each.pod.key.partition("/")[2]: each.node for each in plan.result.placements}


def planned(objects: list[Manifest]) -> ScenarioPlan:
    return plan_scenario(scenario_of(objects), NOW)


def models_in_use(plan: ScenarioPlan, slices: list[Manifest]) -> list[str]:
    """The models of the devices that the plan gives away, sorted."""
    model = {
        (each["metadata"]["name"], device["name"]): device["attributes"]["model"]["string"]
        for each in slices
        for device in each["spec"]["devices"]
    }
    claims = [claim for taker in plan.result.after.takers for claim in taker.claims]
    given = [device.device for claim in claims for device in claim.allocation.devices]
    return sorted(model[device.pool, device.device] for device in given)


def test_the_node_with_the_earlier_alternative() -> None:
    """It is 20 % full, and an empty one has the later alternative: 8 to 7 are 100 to 87 points of weight 2."""
    slices = [slice_with("a", "small"), slice_with("b", "large")]
    cluster = [*nodes("a", "b"), *classes(), *slices, *asking("p", ("large", "small"))]
    assert homes(planned([*cluster, filling("b", 2)])) == {"p": "b"}
    # An alternative later costs 26 points, and a node that is 90 % full of cpu has far fewer of those for its load.
    assert homes(planned([*cluster, filling("b", 9)])) == {"p": "a"}


def test_the_sum_over_all_requests_counts() -> None:
    """One node has the first alternative of one of three requests, another those of two."""
    slices = [slice_with("a", "large", "small", "small"), slice_with("b", "large", "large", "small")]
    wanted = ("large", "small")
    cluster = [*nodes("a", "b"), *classes(), *slices, *asking("p", wanted, wanted, wanted)]
    assert homes(planned(cluster)) == {"p": "b"}


def test_weights_of_a_policy() -> None:
    """A policy may turn the cost off: the load decides."""
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "loads"},
        "spec": {"selects": {"podSelector": {}}, "cost": {"weights": {"deviceAlternatives": 0}}},
    }
    slices = [slice_with("a", "small"), slice_with("b", "large")]
    pods = asking("p", ("large", "small"))
    pods[0]["spec"]["schedulerName"] = "thalweg"
    assert homes(planned([*nodes("a", "b"), *classes(), *slices, *pods, filling("b", 1), policy])) == {"p": "a"}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_pods_of_one_round_use_the_earlier_alternatives_first(count: int) -> None:
    """Node a is empty and has one large device, b is fuller and has two: three pods get large ones."""
    slices = [slice_with("a", "large", "small", "small"), slice_with("b", "large", "large", "small")]
    pods = [each for number in range(count) for each in asking(f"p{number}", MODELS)]
    cluster = [*nodes("a", "b"), *classes(), *slices, *pods, filling("b", 3)]
    plan = planned(cluster)
    assert len(homes(plan)) == count
    assert models_in_use(plan, slices) == ["large"] * min(count, 3) + ["small"] * (count - 3)
    assert plan.result.lower_bound <= plan.result.cost
    paid = sum(each.price for each in plan.result.placements)
    assert paid == plan.result.cost


STORAGE = "storage.k8s.io/v1"


def storage_class(provisioner: str = "disk.example.com") -> Manifest:
    return {
        "apiVersion": STORAGE,
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def driver() -> list[Manifest]:
    spec = {"storageCapacity": True, "attachRequired": False}
    return [{"apiVersion": STORAGE, "kind": "CSIDriver", "metadata": {"name": "disk.example.com"}, "spec": spec}]


def capacity(node: str, amount: str) -> Manifest:
    return {
        "apiVersion": STORAGE,
        "kind": "CSIStorageCapacity",
        "metadata": {"name": node, "namespace": "csi"},
        "storageClassName": "disk",
        "capacity": amount,
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
    }


def local_volume(name: str, node: str, amount: str) -> Manifest:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": amount},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disk",
        "local": {"path": f"/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    volume = {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
    return {"apiVersion": "v1", **volume}


def with_claims(name: str, *amounts: str) -> list[Manifest]:
    """A pod whose claims have no volumes yet."""
    pod = manifest_pod(name, cpu="100m")
    volumes, claims = [], []
    for number, amount in enumerate(amounts):
        claimed = f"{name}-{number}"
        volumes.append({"name": f"v{number}", "persistentVolumeClaim": {"claimName": claimed}})
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "resources": {"requests": {"storage": amount}},
        }
        metadata = {"name": claimed, "namespace": "default", "uid": claimed}
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    pod["spec"]["volumes"] = volumes
    return [pod, *claims]


def in_version(objects: list[Manifest], version: str) -> Scenario:
    """A scenario of a cluster of this version of Kubernetes."""
    scenario = scenario_of([])
    scenario.cluster.version = KubernetesVersion(version)
    reader = ObjectReader(Edits(scenario), NOW, BUILT_IN_MODELS)
    for each in objects:
        reader.put(each, each["kind"])
    scenario.gaps += reader.resolve()
    return scenario


@pytest.mark.parametrize(("version", "home"), [("v1.36.3", "a"), ("v1.37.0", "b"), ("", "b")])
def test_free_capacity_counts_since_1_37(version: str, home: str) -> None:
    """Node a is empty and has little more than is asked for, b has much and is 10 % full."""
    space = [storage_class(), *driver(), capacity("a", "11Gi"), capacity("b", "1000Gi")]
    cluster = [*nodes("a", "b"), *space, *with_claims("p", "10Gi"), filling("b", 1)]
    assert homes(plan_scenario(in_version(cluster, version), NOW)) == {"p": home}


@pytest.mark.parametrize(("version", "home"), [("v1.36.3", "a"), ("v1.37.0", "b")])
def test_local_volumes_count_since_1_37(version: str, home: str) -> None:
    """The volume of node a is as large as the claim, that of b, which is 10 % full, a hundred times larger."""
    space = [storage_class("kubernetes.io/no-provisioner"), local_volume("v-a", "a", "10Gi")]
    space.append(local_volume("v-b", "b", "1000Gi"))
    cluster = [*nodes("a", "b"), *space, *with_claims("p", "10Gi"), filling("b", 1)]
    assert homes(plan_scenario(in_version(cluster, version), NOW)) == {"p": home}


def test_the_next_pod_pays_for_the_volume_that_is_left() -> None:
    """Node b has a small volume, which the first pod takes, and a large one, which the second does."""
    volumes = [("v-a0", "a", "20Gi"), ("v-a1", "a", "20Gi"), ("v-b0", "b", "30Gi"), ("v-b1", "b", "1000Gi")]
    space = [storage_class("kubernetes.io/no-provisioner"), *(local_volume(*each) for each in volumes)]
    cluster = [*nodes("a", "b"), *space, *with_claims("p", "10Gi"), *with_claims("q", "10Gi")]
    plan = plan_scenario(in_version(cluster, "v1.37.0"), NOW)
    assert homes(plan) == {"p": "b", "q": "b"}
    assert sum(each.price for each in plan.result.placements) == plan.result.cost
    assert plan.result.lower_bound <= plan.result.cost
