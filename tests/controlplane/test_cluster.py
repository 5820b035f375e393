"""The control plane starts, does what a cluster does, breaks on purpose and comes back."""

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.controlplane import running
from thalweg_controlplane import Api, ApiError, Binaries, ComponentFailed, ControlPlane
from thalweg_controlplane.client.objects import node, object_path, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(binaries: Binaries) -> AsyncIterator[tuple[ControlPlane, Api]]:
    async with running(binaries) as (plane, api):
        await api.create_many([node(f"node-{number}") for number in range(3)])
        yield plane, api


def phase(wanted: str) -> Any:
    return lambda each: each["status"].get("phase") == wanted


async def test_a_pod_of_the_default_scheduler_becomes_running(cluster: tuple[ControlPlane, Api]) -> None:
    """kube-scheduler binds it, KWOK runs it, and once deleted it is gone."""
    _, api = cluster
    lone = pod("lone", cpu="1", scheduler="default-scheduler")
    await api.create(lone)
    seen = await api.wait_for(object_path(lone), phase("Running"))
    assert seen["spec"]["nodeName"].startswith("node-")
    assert seen["status"]["podIP"]
    await api.delete(object_path(lone))
    await api.wait_for("/api/v1/namespaces/default/pods", lambda pods: not _named(pods, "lone"))


async def test_a_pod_of_another_scheduler_is_left_alone(cluster: tuple[ControlPlane, Api]) -> None:
    """It waits until its own scheduler binds it, and then runs."""
    _, api = cluster
    ours = pod("ours")
    await api.create(ours)
    assert "nodeName" not in (await api.get(object_path(ours)))["spec"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "ours"}, "target": target}
    await api.request("POST", object_path(ours) + "/binding", binding)
    assert (await api.wait_for(object_path(ours), phase("Running")))["spec"]["nodeName"] == "node-1"


async def test_a_deployment_comes_up_and_a_job_completes(cluster: tuple[ControlPlane, Api]) -> None:
    """The controller manager makes their pods, and KWOK runs the ones and finishes the others."""
    _, api = cluster
    spec = {"containers": [{"name": "main", "image": "example.invalid/web"}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    once = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once", "namespace": "default"},
        "spec": {"completions": 2, "template": {"spec": {**spec, "restartPolicy": "Never"}}},
    }
    await api.create_many([web, once])
    await api.wait_for(object_path(web), lambda each: each["status"].get("availableReplicas") == 4)
    await api.wait_for(object_path(once), lambda each: each["status"].get("succeeded") == 2)


async def test_a_node_keeps_what_its_manifest_says(cluster: tuple[ControlPlane, Api]) -> None:
    """KWOK leases the node and does not touch its allocatable; extended resources are there."""
    _, api = cluster
    big = node("big", cpu="64", memory="512Gi", labels={"zone": "a"}, extended={"nvidia.com/gpu": "8"})
    await api.create(big)
    await api.wait_for("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/big", lambda _: True)
    untainted = await api.wait_for(object_path(big), lambda each: not each["spec"].get("taints"))
    assert untainted["status"]["allocatable"] == big["status"]["allocatable"]
    assert untainted["metadata"]["labels"]["zone"] == "a"
    await api.delete(object_path(big))


async def test_an_api_error_carries_status_and_message(cluster: tuple[ControlPlane, Api]) -> None:
    """The same object twice is a 409, in the API server's words."""
    _, api = cluster
    with pytest.raises(ApiError) as caught:
        await api.create(node("node-0"))
    assert caught.value.status == 409
    assert str(caught.value) == '409: nodes "node-0" already exists'


async def test_lists_are_whole_over_many_pages(cluster: tuple[ControlPlane, Api], monkeypatch: Any) -> None:
    """What one page does not hold comes with the next."""
    _, api = cluster
    monkeypatch.setattr("thalweg_controlplane.client.api._PAGE", 2)
    assert {each["metadata"]["name"] for each in await api.list("/api/v1/nodes")} >= {"node-0", "node-1", "node-2"}


async def test_state_outlives_a_killed_api_server(binaries: Binaries) -> None:
    """Killed, it does not answer; started again it has the same address, certificate and objects."""
    async with running(binaries, controller_manager=False, scheduler=False, kwok=False) as (plane, api):
        await api.create_many([node("kept"), pod("kept")])
        before = await api.get("/api/v1/namespaces/default/pods/kept")
        await plane.kill("kube-apiserver")
        with pytest.raises(ApiError) as caught:
            await api.get("/api/v1/nodes/kept")
        assert caught.value.status == 0
        await plane.start("kube-apiserver")
        assert await api.get("/api/v1/namespaces/default/pods/kept") == before
        await plane.restart("etcd")
        await plane.restart("kube-apiserver")
        assert await api.get("/api/v1/namespaces/default/pods/kept") == before
        workdir = plane.workdir
    assert not workdir.exists()


async def test_a_component_that_fails_shows_its_log(binaries: Binaries) -> None:
    """kube-scheduler does not take a configuration of an unknown kind, and says so."""
    broken = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Nonsense\n"
    with pytest.raises(ComponentFailed) as caught:
        async with ControlPlane(binaries, controller_manager=False, kwok=False, scheduler_config=broken):
            pass
    assert caught.value.component == "kube-scheduler"
    assert caught.value.exit_code == 1
    assert "Nonsense" in str(caught.value)


async def test_a_component_that_dies_later_is_noticed(binaries: Binaries) -> None:
    """`check_invariants` names the one that ended by itself."""
    async with ControlPlane(binaries, controller_manager=False, scheduler=False) as plane:
        plane.check()
        child = plane._children["kwok"]
        assert child.pid is not None
        child._signal(signal.SIGKILL)
        assert child._process is not None
        child._process.wait()
        with pytest.raises(ComponentFailed, match="kwok ended with exit code -9"):
            plane.check()


def _named(pods: Any, name: str) -> bool:
    return any(each["metadata"]["name"] == name for each in pods["items"])
