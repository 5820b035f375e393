"""A real API server serves every kind of storage object where the operator looks for it, in the shape that it reads."""

from typing import Any

import pytest
from support.operator import until
from support.watching import watched_cluster
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import object_path

from flowcore.api import STORAGE_KINDS
from flowcore.model.volumes import Attachment, Claim, PersistentVolume

pytestmark = pytest.mark.asyncio(loop_scope="module")

STORAGE = "storage.k8s.io/v1"


def made(kind: str, version: str = STORAGE, namespace: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}, **fields}


GI = {"storage": "1Gi"}
CLAIM = made("PersistentVolumeClaim", "v1", "default", spec={"accessModes": ["ReadWriteOnce"],
             "storageClassName": "x", "resources": {"requests": GI}})  # fmt: skip
VOLUME = made("PersistentVolume", "v1", spec={"capacity": GI, "accessModes": ["ReadWriteOnce"],
              "storageClassName": "x", "csi": {"driver": "csi.example.com", "volumeHandle": "h"}})  # fmt: skip
OBJECTS = [
    CLAIM,
    VOLUME,
    made("StorageClass", provisioner="csi.example.com", volumeBindingMode="WaitForFirstConsumer"),
    made("CSINode", spec={"drivers": [{"name": "csi.example.com", "nodeID": "x", "allocatable": {"count": 3}}]}),
    made("CSIDriver", spec={"storageCapacity": True, "attachRequired": True}),
    made("CSIStorageCapacity", namespace="default", storageClassName="x", capacity="1Gi"),
    made("VolumeAttachment", spec={"attacher": "csi.example.com", "nodeName": "n",
         "source": {"persistentVolumeName": "x"}}),
]  # fmt: skip
DEVICES = [
    made("DeviceClass", "resource.k8s.io/v1", spec={"extendedResourceName": "example.com/gpu"}),
    made("ResourceSlice", "resource.k8s.io/v1", spec={"driver": "gpu.example.com", "nodeName": "n",
         "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}),
    made("ResourceClaim", "resource.k8s.io/v1", namespace="default", spec={"devices": {"requests": [
         {"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}}]}}),
]  # fmt: skip


async def test_every_kind_comes_and_goes(plane: tuple[ControlPlane, Api]) -> None:
    """By a list, by a watch, and out again."""
    api = plane[1]
    every = [*OBJECTS, *DEVICES]
    await api.create_many(every[::2])
    async with watched_cluster(plane[0]) as state:

        def known() -> tuple[list[Any], ...]:
            devices = state.devices
            storage = sorted(kind for kind, _, _ in state.storage.objects)
            return storage, list(devices.classes), list(devices.slices), list(devices.claims)

        await api.create_many(every[1::2])
        await until(
            lambda: known() == (sorted(STORAGE_KINDS), ["x"], ["x"], [("default", "x")]), 60, lambda: str(known())
        )
        claim = state.storage.objects["PersistentVolumeClaim", "default", "x"]
        volume = state.storage.objects["PersistentVolume", "", "x"]
        assert isinstance(claim, Claim)
        assert isinstance(volume, PersistentVolume)
        assert (claim.storage_class, claim.size) == ("x", 2**30 * 10**9)
        assert volume.attachment == Attachment("csi.example.com", "h")
        assert state.devices.classes["x"].extended_resource == "example.com/gpu"
        assert [each.name for each in state.devices.slices["x"].devices] == ["gpu-0"]
        assert state.devices.claims["default", "x"].requests[0].alternatives[0].device_class == "x"
        for each in every:
            await api.patch(object_path(each), {"metadata": {"finalizers": None}})
            await api.delete(object_path(each))
        await until(lambda: known() == ([], [], [], []), 60, lambda: str(known()))
