"""``thalweg uninstall`` on a real API server: a thousand gated pods, an operator that runs, stopped, or was killed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.plane import gate_admission
from support.cli import thalweg
from support.cluster_scenario import POLICIES, policy
from support.operator import Operator, running_operator, until
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import collection_path, pod

from flowcore.model.policies import GATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

BREAKS_PLANE = True

RULES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
NAME = "kube-system/thalweg-removed"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
THEIRS = {"name": "example.com/later"}


async def uninstall(plane: ControlPlane, *arguments: str, lease: str | None = NAME) -> tuple[int, dict[str, Any], str]:
    """Exit code, answer and what it said."""
    if lease:
        arguments = ("--lease", lease, *arguments)
    words = ("uninstall", "--kubeconfig", plane.kubeconfig, "--yes", "-o", "json")
    done = await asyncio.to_thread(thalweg, *words, *arguments)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def steered(name: str, **options: Any) -> dict[str, Any]:
    return pod(name, scheduler="thalweg-steered", **options)


async def gated(api: Api) -> int:
    """How many pods have our gate."""
    pods = await api.list("/api/v1/pods")
    return sum(GATE in {gate["name"] for gate in each["spec"].get("schedulingGates", [])} for each in pods)


async def prepare(api: Api, count: int) -> None:
    """A policy in effect, and so many pods that the API server has gated. No nodes: they wait."""
    for each in gate_admission():
        await api.apply(each)
    await api.create(policy("all", delivery="Extender", waiting="Gate", selects={"podSelector": {}}))
    probe = steered("probe")

    async def in_effect() -> bool:
        made = await api.request("POST", collection_path(probe), probe, params={"dryRun": "All"})
        return GATE in {gate["name"] for gate in made["spec"].get("schedulingGates", [])}

    await until(in_effect, 30, lambda: "the gate to be in effect")
    await api.create_many([steered(f"p{n}", schedulingGates=[THEIRS] if n == 0 else []) for n in range(count)], 16)
    assert await gated(api) == count


async def clean(api: Api) -> None:
    await api.delete(POLICIES)
    await api.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds="0")


async def nothing_left(api: Api) -> None:
    """No admission policy, no gate of ours; a gate of somebody else's stays; new pods are not gated."""
    assert [*await api.list(RULES), *await api.list(BINDINGS)] == []
    assert await gated(api) == 0
    kept = await api.get("/api/v1/namespaces/default/pods/p0")
    assert kept["spec"]["schedulingGates"] == [THEIRS]
    made = await api.create(steered("after"))
    assert made["spec"].get("schedulingGates", []) == []


async def test_after_the_operator_was_stopped(plane: tuple[ControlPlane, Api], account: Path, tmp_path: Path) -> None:
    """A thousand gated pods are opened, our admission policies are gone, and a second run finds nothing to do."""
    control, api = plane
    async with running_operator(account, tmp_path / "operator.log", lease=NAME) as operator:
        await prepare(api, 1000)
        # As the chart labels its Lease, which has the release's name: it is found without --lease.
        await api.patch(f"{LEASES}/thalweg-removed", {"metadata": {"labels": {"app.kubernetes.io/name": "thalweg"}}})
        code, _, said = await uninstall(control, lease=None)
        assert code == 1
        assert f"holds the lease {NAME} and renews it" in said
        assert "Stop the operator first" in said
        assert len(await api.list(BINDINGS)) == 1
        assert await operator.stop() == 0
    code, done, said = await uninstall(control)
    assert (code, done["problems"]) == (0, [])
    # The operator may have opened some: kube-scheduler is to say why they wait.
    assert (done["admissionObjectsRemoved"], done["gatesOpened"]) == (2, 1000)
    assert "opened the gates of 500 pods" in said
    await nothing_left(api)
    # As client-go releases a Lease: it is free at once.
    await api.patch(f"{LEASES}/thalweg", {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    code, done, _ = await uninstall(control, "--policies", lease=None)
    assert (code, done) == (
        0,
        {"admissionObjectsRemoved": 0, "gatesOpened": 0, "policiesDeleted": 1, "problems": []},
    )
    assert await api.list(POLICIES) == []
    await clean(api)


async def test_by_force_while_an_operator_runs(plane: tuple[ControlPlane, Api], account: Path, tmp_path: Path) -> None:
    """The lease is taken from it: it ends by itself before anything is removed, and makes nothing anew."""
    control, api = plane
    async with running_operator(account, tmp_path / "operator.log", lease=NAME) as operator:
        await prepare(api, 100)
        code, done, said = await uninstall(control, "--force")
        assert (code, done["problems"]) == (0, []), said
        assert (done["admissionObjectsRemoved"], done["gatesOpened"]) == (2, 100)
        assert await _ended(operator) == 1
        assert "took the lease" in operator.log
    await nothing_left(api)
    await clean(api)


async def test_without_a_lease(plane: tuple[ControlPlane, Api]) -> None:
    """An operator may have a Lease without the label: the command changes nothing until somebody names a Lease."""
    control, api = plane
    for each in await api.list("/apis/coordination.k8s.io/v1/leases"):
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "thalweg":
            await api.delete(f"{LEASES}/{each['metadata']['name']}")
    for each in gate_admission():
        await api.apply(each)
    code, _, said = await uninstall(control, "--force", lease=None)
    assert code == 1
    assert "Name the Lease of your operator with --lease NAMESPACE/NAME" in said
    assert len(await api.list(RULES)) == 1
    code, done, _ = await uninstall(control, "--force", lease="kube-system/thalweg")
    assert (code, done["admissionObjectsRemoved"]) == (0, 2)


async def _ended(operator: Operator) -> int:
    process = operator._process
    assert process is not None
    return await asyncio.to_thread(process.wait, 10)
