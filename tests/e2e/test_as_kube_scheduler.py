"""What kube-scheduler does for a pod that says nothing of it, or makes a mistake: the same by both ways of delivery."""

from collections import Counter

import pytest
from support.cluster_scenario import ClusterScenario
from support.device_driver import API, DRIVER
from support.operator import until
from thalweg_controlplane.client.objects import object_path

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])
REPLICAS = 12


@BOTH
async def test_replicas_are_spread_over_zones(scene: ClusterScenario, scheduler: str) -> None:
    """Twelve of a ReplicaSet that a Service selects, none with constraints of its own; one zone is half full."""
    scene.scheduler = scheduler
    zones = {f"n{number}": f"zone-{number % 3}" for number in range(6)}
    for name, zone in zones.items():
        await scene.nodes(name, cpu="8", labels={"topology.kubernetes.io/zone": zone})
    for name in ("n0", "n3"):
        await scene.create(f"other-{name}", "4", nodeSelector={"kubernetes.io/hostname": name})
        await scene.node_of(f"other-{name}")
    labels, metadata = {"app": "web"}, {"name": "web", "namespace": scene.namespace}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    await scene.api.create({**service, "spec": {"selector": labels, "ports": [{"port": 80}]}})
    template = {"metadata": {"labels": labels}, "spec": scene.pod("template")["spec"]}
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    await scene.api.create({**replicas, "spec": spec})
    counts = Counter[str]()

    async def all_placed() -> bool:
        placed = [each for each in await scene.pods() if each["metadata"].get("labels", {}).get("app") == "web"]
        names = [each["spec"].get("nodeName", "") for each in placed]
        counts.clear()
        counts.update(zones[name] for name in names if name)
        return counts.total() == REPLICAS

    await until(all_placed, 60, lambda: f"all replicas to be placed: {counts}")
    assert min(counts[zone] for zone in zones.values()) >= REPLICAS // 3 - 1, counts


@BOTH
async def test_an_error_of_a_claim_is_not_hidden(scene: ClusterScenario, scheduler: str) -> None:
    """Its selector is true of a device of one node, and reads an attribute that the other node's device lacks."""
    scene.scheduler = scheduler
    await scene.nodes("a", "b")
    kind = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "cel"}}
    kind["spec"] = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    slices = []
    for name, attributes in (("a", {"exists": {"bool": True}}), ("b", {"other": {"bool": True}})):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": device, "attributes": attributes} for device in ("d", "e")]
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        slices.append({"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"cel-{name}"}, "spec": spec})
    exists = {"cel": {"expression": f'device.attributes["{DRIVER}"].exists'}}
    request = {"name": "r", "exactly": {"deviceClassName": "cel", "selectors": [exists]}}
    claim = {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": scene.namespace}}
    claim["spec"] = {"devices": {"requests": [request]}}
    first = {**claim, "metadata": {"name": "first", "namespace": scene.namespace}}
    first["spec"] = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cel"}}]}}
    made = [kind, *slices, claim, first]
    try:
        await scene.api.create_many(made)
        # Watches of several kinds are not in step: once this pod has a device of b, its slice is known.
        of_b = {"nodeSelector": {"kubernetes.io/hostname": "b"}}
        await scene.create("first", resourceClaims=[{"name": "r", "resourceClaimName": "first"}], **of_b)
        await scene.node_of("first")
        await scene.create("p", resourceClaims=[{"name": "r", "resourceClaimName": "c"}])
        await scene.reason_of("p", "CEL runtime error", "no such key: exists")
        await scene.wait_for_round("barrier")
        assert "nodeName" not in (await scene.get("p"))["spec"]
    finally:
        for each in made:
            await scene.api.delete(object_path(each))
