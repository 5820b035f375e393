"""The operator with the rights of rights/ and no others; and what somebody could do who stole its token."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.cluster_scenario import POLICIES, ClusterScenario
from support.operator import running_operator, until
from support.proxy import proxied
from support.rights import grant, kubeconfig, token
from support.steering import DelayingProxy, gates_in_effect
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.api import STRATEGIC_PATCH

from flowcore.model.policies import GATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED = {"waiting": "Gate"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OPEN = {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}
THEIRS = "example.com/later"


async def test_the_rights_are_enough(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], relay: DelayingProxy, tmp_path: Path
) -> None:
    """Binder, extender, gates, reasons, eviction: all work, and the API server refuses no request."""
    control, api = plane
    await scene.operator.stop()
    await grant(api)
    user = {"token": await token(api)}
    await scene.nodes("a", "b", cpu="4")
    async with (
        proxied(control, api, tmp_path, user) as proxy,
        running_operator(
            proxy.kubeconfig,
            tmp_path / "operator.log",
            lease="kube-system/thalweg",
            extender=("--extender-listen", relay.to),
        ) as operator,
    ):
        await gates_in_effect(scene, scene.pod("probe"))
        await scene.policy("bound", selects={"podSelector": {}}, delivery="Binder")
        steered = [scene.pod(f"steered-{n}", "100m") for n in range(20)]
        made = await api.create_many(steered)
        assert all(each["spec"]["schedulingGates"] == [{"name": GATE}] for each in made)
        await api.create_many([scene.pod(f"bound-{n}", "100m", scheduler="thalweg") for n in range(20)])
        await scene.nodes_of(within=60)
        await scene.create("big", "16")
        await scene.reason_of("big", "Insufficient cpu")
        await scene.create("large", "16", scheduler="thalweg")
        await scene.reason_of("large", "Insufficient cpu")
        assert await operator.stop() == 0
        assert [(each.method, each.path) for each in proxy.requests if each.status in (401, 403, 422)] == []
        assert {each.method for each in proxy.writes} == {"POST", "PATCH"}
        lease = await api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg")
        assert lease["spec"]["holderIdentity"] == ""
    assert "Forbidden" not in operator.log
    await scene.operator.start()


async def test_without_the_lease(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """An account that may not use the lease: the operator ends, names the right, and has written nothing."""
    control, api = plane
    await grant(api)
    async with (
        proxied(control, api, tmp_path, {"token": await token(api)}) as proxy,
        running_operator(
            proxy.kubeconfig, tmp_path / "operator.log", lease="kube-system/other", wait=False
        ) as operator,
    ):
        process = operator._process
        assert process is not None
        await until(lambda: process.poll() is not None, 40, lambda: "it to end")
        assert process.returncode == 1
        assert "it needs get, create and update on leases.coordination.k8s.io" in operator.log
        assert proxy.writes == []


async def test_a_stolen_token(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """It opens our gates, nominates and says why pods wait; it changes nothing else of pods and nothing else at all."""
    control, api = plane
    await grant(api)
    pod = await scene.create(
        "p",
        "64",
        scheduler="nobody",
        labels={"app": "p"},
        schedulingGates=[{"name": THEIRS}, {"name": GATE}],
        terminationGracePeriodSeconds=5,
    )
    path, name = scene.path("p"), pod["metadata"]["name"]
    async with Api(await kubeconfig(control, api, tmp_path)) as thief:

        async def refused(action: Callable[[], Awaitable[Any]]) -> bool:
            try:
                await action()
            except ApiError as error:
                return error.status in (403, 422)
            return False

        async def patch(body: dict[str, Any], under: str = "") -> Any:
            return await thief.patch(path + under, body, content_type=STRATEGIC_PATCH)

        label = {"metadata": {"labels": {"app": "stolen"}}}
        # The API server takes a moment to notice its own admission policies.
        await until(lambda: refused(lambda: patch({"metadata": {"labels": {"probe": "x"}}})), 30, lambda: "the policy")
        toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
        container = pod["spec"]["containers"][0]["name"]
        ready = {"type": "Ready", "status": "True"}
        for body, under in (
            (label, ""),
            (label, "/status"),
            ({"metadata": {"annotations": {"example.com/a": "b"}}}, ""),
            ({"metadata": {"annotations": {"example.com/a": "b"}}}, "/status"),
            ({"metadata": {"finalizers": ["example.com/f"]}}, ""),
            ({"spec": {"containers": [{"name": container, "image": "stolen"}]}}, ""),
            ({"spec": {"tolerations": [toleration]}}, ""),
            ({"spec": {"activeDeadlineSeconds": 1}}, ""),
            ({"spec": {"nodeSelector": {"stolen": "yes"}}}, ""),
            ({"spec": {"schedulingGates": [{"name": THEIRS, "$patch": "delete"}]}}, ""),
            ({"status": {"phase": "Failed"}}, "/status"),
            ({"status": {"message": "stolen"}}, "/status"),
            ({"status": {"conditions": [ready]}}, "/status"),
            ({"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": "1"}}}]}}, "/resize"),
            ({"spec": {"ephemeralContainers": [{"name": "e", "image": "e"}]}}, "/ephemeralcontainers"),
        ):
            assert await refused(lambda body=body, under=under: patch(body, under)), (body, under)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
        assert await refused(lambda: patch({"metadata": {"ownerReferences": [owner]}}))
        rule = (await api.list(f"{ADMISSION}/mutatingadmissionpolicies"))[0]
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}
        copy = {**rule, **kind, "metadata": {"name": "thalweg-gate-stolen"}}
        policies = f"{ADMISSION}/mutatingadmissionpolicies"
        secrets = "/api/v1/namespaces/default/secrets"
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        for action in (
            lambda: thief.create(copy),
            lambda: thief.patch(f"{policies}/thalweg-gate", {"spec": {"failurePolicy": "Fail"}}),
            lambda: thief.delete(f"{policies}/thalweg-gate"),
            lambda: thief.delete(f"{ADMISSION}/validatingadmissionpolicies/thalweg-confinement"),
            lambda: thief.get(secrets),
            lambda: thief.request("POST", secrets, body),
            lambda: thief.get("/api/v1/configmaps"),
            lambda: thief.delete(path),
            lambda: thief.create(scene.pod("stolen")),
            lambda: thief.request("PUT", path, pod),
            lambda: thief.patch("/api/v1/nodes/a", label),
            lambda: thief.patch(f"{POLICIES}/steered", {"spec": {"precedence": 1}}),
            lambda: thief.get(lease),
            lambda: thief.get(f"{lease}/kube-controller-manager"),
            lambda: thief.request("POST", f"{ACCOUNTS}/thalweg/token", {}),
        ):
            assert await refused(action)
        before = await scene.get("p")
        assert (before["metadata"]["labels"], len(before["spec"]["schedulingGates"])) == ({"app": "p"}, 2)
        # What the operator does is allowed.
        ours = {"metadata": {"annotations": {"scheduling.thalweg/nominated": "a"}}}
        await patch({**ours, "status": {"nominatedNodeName": "a"}}, "/status")
        told = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "no room"}
        await patch({"status": {"conditions": [told]}}, "/status")
        await patch({"metadata": {"annotations": {"scheduling.thalweg/woken": "now"}}})
        await patch(OPEN)
    after = await scene.get(name)
    assert after["spec"]["schedulingGates"] == [{"name": THEIRS}]
    assert after["status"]["nominatedNodeName"] == "a"
    await scene.delete("p")


ACCOUNTS = "/api/v1/namespaces/thalweg-system/serviceaccounts"
