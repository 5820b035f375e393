"""Clusters for Kubernetes' own tests, in which one of three schedulers places the pods."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from support.cluster_scenario import install_crds, policy
from support.controlplane import running
from support.operator import free_address, running_operator, until
from support.rights import acting_account
from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg_controlplane import Api, ApiError, Binaries, ControlPlane
from thalweg_controlplane.client.objects import collection_path, node, object_path, pod

from flowcore.model.policies import SCHEDULER_NAME

_DEFAULT: Final = "default-scheduler"
_ZONES: Final = 3
#: What items of lists do not say.
_NODE: Final = {"apiVersion": "v1", "kind": "Node"}
_POD: Final = {"apiVersion": "v1", "kind": "Pod"}
#: A policy of delivery Binder may not select the default scheduler's pods: the API server renames their scheduler.
_RENAMED: Final = "default-scheduler-is-thalweg"
_RENAMING: Final[tuple[dict[str, Any], ...]] = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _RENAMED},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [
                {"name": "default", "expression": f'object.spec.schedulerName == "{_DEFAULT}"'},
                {"name": "unbound", "expression": '!has(object.spec.nodeName) || object.spec.nodeName == ""'},
            ],
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": '[JSONPatch{op: "replace", path: "/spec/schedulerName", '
                        f'value: "{SCHEDULER_NAME}"}}]'
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _RENAMED},
        "spec": {"policyName": _RENAMED},
    },
)


class Placing(StrEnum):
    """Who places the default scheduler's pods."""

    ALONE = "kube-scheduler"
    BINDER = "binder"
    STEERED = "steered"


@asynccontextmanager
async def cluster(placing: Placing, binaries: Binaries, folder: Path, nodes: int) -> AsyncIterator[ControlPlane]:
    """A control plane, and with ``nodes`` so many nodes of KWOK in three zones, each with a pod that runs.

    Without nodes no kubelet and no controller runs: those who play tests there make nodes themselves.
    """
    options: dict[str, Any] = {"audit": True, "scheduler": placing is not Placing.BINDER}
    options |= dict.fromkeys(("controller_manager", "kwok"), nodes > 0)
    if nodes:
        options["stages_off"] = ("pod-delete",)
    else:  # as these tests start it themselves
        options["admission_off"] = ("Priority", "StorageObjectInUseProtection")
    extender = free_address()
    if placing is Placing.STEERED:
        config = SchedulerConfig(
            url=f"http://{extender}/extender", kubeconfig="{kubeconfig}", qps=10_000, leader_elect=False
        )
        options["scheduler_config"] = str(config)
    async with AsyncExitStack() as stack:
        plane, api = await stack.enter_async_context(running(binaries, **options))
        if placing is not Placing.ALONE:
            await install_crds(api)
            account = await stack.enter_async_context(acting_account(plane, api, folder))
            listen = ("--extender-listen", extender) if placing is Placing.STEERED else ()
            await stack.enter_async_context(running_operator(account, folder / "operator.log", extender=listen))
            await (_bind_all(api) if placing is Placing.BINDER else _steer_all(api))
        if nodes:
            await _populate(api, nodes)
            kubelets = asyncio.create_task(_play_kubelets(api))
            stack.callback(kubelets.cancel)
        yield plane


async def _bind_all(api: Api) -> None:
    for each in _RENAMING:
        await api.apply(each)
    probe = pod("probe", scheduler=_DEFAULT)

    async def renamed() -> bool:
        made = await api.request("POST", collection_path(probe), probe, params={"dryRun": "All"})
        return bool(made["spec"]["schedulerName"] == SCHEDULER_NAME)

    await until(renamed, 30, lambda: "pods of the default scheduler to be renamed")


async def _steer_all(api: Api) -> None:
    everybody = policy(
        "everybody", selects={"schedulerNames": [_DEFAULT], "podSelector": {}}, delivery="Extender", steering="Require"
    )
    await api.create(everybody)
    await api.wait_for(object_path(everybody), lambda each: each.get("status", {}).get("observedGeneration"), within=60)


async def _populate(api: Api, nodes: int) -> None:
    """Nodes, and the pods without which e2e tests take a node for broken.

    See ``requiredPerNodePods`` in test/e2e/framework/node/wait.go.
    """
    names = [f"node-{number}" for number in range(nodes)]
    for number, name in enumerate(names):
        labels = {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "region",
            "topology.kubernetes.io/zone": f"zone-{number % _ZONES}",
        }
        made = node(name, cpu="8", memory="32Gi", labels=labels, extended={"ephemeral-storage": "100Gi"})
        made["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.240.0.{number + 10}"}]
        await api.create(made)
    await api.wait_for("/api/v1/namespaces/kube-system/serviceaccounts/default", lambda _: True)
    for name in names:
        system = pod(f"kube-proxy-fluentd-elasticsearch-node-problem-detector-{name}", namespace="kube-system",
                     scheduler=_DEFAULT, nodeSelector={"kubernetes.io/hostname": name},
                     tolerations=[{"operator": "Exists"}], priorityClassName="system-node-critical")  # fmt: skip
        await api.create(system)
        await api.wait_for(object_path(system), lambda each: each["status"]["phase"] == "Running", within=60)


async def _play_kubelets(api: Api) -> None:
    """What kubelets do beside what KWOK plays.

    Where a test gives a node's capacity one more resource, or takes it away, the allocatable follows. Pods that are to
    end leave. KWOK deletes by name, and tests use names again.
    """
    while True:
        with suppress(ApiError):
            for each in await api.list("/api/v1/nodes"):
                capacity, allocatable = each["status"]["capacity"], each["status"]["allocatable"]
                if capacity != allocatable:
                    change = dict.fromkeys(allocatable.keys() - capacity.keys()) | capacity
                    await api.patch(f"{object_path(each | _NODE)}/status", {"status": {"allocatable": change}})
            for each in await api.list("/api/v1/pods"):
                if "deletionTimestamp" in each["metadata"] and each["spec"].get("nodeName"):
                    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": each["metadata"]["uid"]}}
                    with suppress(ApiError):  # it is gone
                        await api.request("DELETE", object_path(each | _POD), options)
        await asyncio.sleep(0.2)
