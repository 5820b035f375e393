"""Simulated nodes with devices for ``thalweg up``, and what a driver of devices would publish about them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final

from thalweg_controlplane.client.objects import node

#: A driver that does not exist: nobody prepares the devices, as nobody starts containers.
DRIVER: Final = "gpu.example.com"
_API: Final = "resource.k8s.io/v1"
_MODELS: Final = ("H100", "A100")
_GPUS, _GPUS_IN_DOMAIN = 8, 4

#: A template for claims of two GPUs, and pods that have such a claim each.
CLAIMING_PODS: Final = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-gpus}
spec:
  spec:
    devices:
      requests:
        - name: gpus
          exactly:
            deviceClassName: gpu
            count: 2
            selectors:
              - cel: {expression: 'device.attributes["gpu.example.com"].model == "H100"'}
      constraints:
        - {requests: [gpus], matchAttribute: gpu.example.com/nvlinkDomain}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: claiming}
spec:
  replicas: 2
  selector: {matchLabels: {app: claiming}}
  template:
    metadata: {labels: {app: claiming}}
    spec:
      schedulerName: thalweg
      resourceClaims: [{name: gpus, resourceClaimTemplateName: two-gpus}]
      containers:
        - name: main
          image: example.invalid/claiming
          resources:
            requests: {cpu: "1"}
            claims: [{name: gpus}]
"""


@dataclass(frozen=True)
class DeviceNodes:
    """Nodes with devices.

    Attributes:
        nodes: manifests.
        objects: a DeviceClass, and a ResourceSlice for each node; none without nodes.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    objects: list[dict[str, Any]] = field(default_factory=list)


def nodes_with_devices(number: int, taken: Collection[str]) -> DeviceNodes:
    """Nodes with eight GPUs each, four on one NVLink domain. H100 and A100 take turns.

    Args:
        number: of nodes.
        taken: names that other nodes have.
    """
    if not number:
        return DeviceNodes()
    free = (name for place in count() if (name := f"gpu-{place}") not in taken)
    names = list(islice(free, number))
    slices = [_slice(name, _MODELS[place % len(_MODELS)]) for place, name in enumerate(names)]
    return DeviceNodes([node(name, "64", "512Gi") for name in names], [_CLASS, *slices])


_CLASS: Final = {
    "apiVersion": _API,
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def _slice(node_name: str, model: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{place}",
            "attributes": {"model": {"string": model}, "nvlinkDomain": {"int": place // _GPUS_IN_DOMAIN}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for place in range(_GPUS)
    ]
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
