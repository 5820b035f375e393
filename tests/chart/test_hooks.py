"""Hooks as Helm runs them: accounts and roles of uninstall and test are there while their pods run, and go with them.

KWOK ends the pods of Jobs at once, so nothing of the image runs here.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.controlplane import running
from support.helm import CHART, NAMESPACE, Helm
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.client.objects import node

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(binaries: Binaries) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """With a kube-scheduler and KWOK: pods run."""
    async with running(binaries) as (plane, api):
        await api.create(node("n", labels={"kubernetes.io/os": "linux"}, extended={"ephemeral-storage": "100Gi"}))
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await api.wait_for(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", lambda _: True)
        yield plane, api


async def test_uninstall(helm: Helm, plane: tuple[ControlPlane, Api]) -> None:
    """The Job had its role while it ran. Afterwards nothing of it is left; the CRDs are."""
    control, api = plane

    async def run(*words: str) -> str:
        return await asyncio.to_thread(helm.run, *words, "-n", NAMESPACE, kubeconfig=control.kubeconfig)

    async def named(path: str) -> set[str]:
        return {each["metadata"]["name"] for each in await api.list(path)}

    await run("install", "thalweg", str(CHART))
    assert not {"thalweg-uninstall", "thalweg-test"} & await named(ROLES)
    await api.patch("/api/v1/nodes/n", {"spec": {"unschedulable": True}})
    uninstalling = asyncio.create_task(run("uninstall", "thalweg", "--wait", "--timeout", "100s"))
    await api.wait_for(f"{JOBS}/thalweg-uninstall", lambda job: job["status"].get("active"), within=60)
    assert "thalweg-uninstall" in await named(ROLES)
    await api.patch("/api/v1/nodes/n", {"spec": {"unschedulable": None}})
    await uninstalling
    assert await named(JOBS) == set()
    assert not [name for name in await named(ROLES) if name.startswith("thalweg")]
    crds = await named("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    kinds = ("flowqueues", "flowschedulingpolicies", "newpodrules")
    assert crds == {f"{kind}.scheduling.thalweg" for kind in kinds}
