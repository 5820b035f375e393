"""`kubectl thalweg` against a real operator, by the API server's proxy: what it says, and to whom."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, free_address, running_operator
from support.rights import token
from support.tools import tool
from support.view_service import (
    NAMESPACE,
    PODS,
    PROXY,
    account_kubeconfig,
    allow,
    kubeconfig_of,
    leading_to,
    own_address,
)
from thalweg_controlplane import Api, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PLUGIN = Path(sys.executable).with_name("kubectl-thalweg")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    plane: tuple[ControlPlane, Api], account: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    address, port = own_address(), free_address().rpartition(":")[2]
    options = ("--view-listen", f"{address}:{port}")
    log = tmp_path_factory.mktemp("operator") / "log"
    async with running_operator(account, log, extender=options) as operator, leading_to(plane[1], address, int(port)):
        yield operator


async def plugin(kubeconfig: Path, *words: str, program: tuple[Path | str, ...] = (_PLUGIN,)) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, as kubectl runs it: the kubeconfig is in the environment."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert b"Traceback" not in err, err.decode()
    return process.returncode or 0, out.decode(), err.decode()


async def answer(kubeconfig: Path, *words: str) -> Any:
    """The answer as JSON."""
    code, out, err = await plugin(kubeconfig, *words, "-o", "json")
    assert code == 0, err
    return json.loads(out)


async def test_the_plan_and_who_may_see_it(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """All of it for an administrator; his own pods for a developer, in the namespace of his context."""
    control_plane, api = plane
    await scene.nodes("small", cpu="2")
    await scene.create("runs", "1")
    await scene.node_of("runs")
    await scene.create("large", "3")
    await scene.reason_of("large", "Insufficient cpu")
    other = f"{scene.namespace}-other"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    try:
        secret = scene.pod("secret", "3")
        secret["metadata"]["namespace"] = other
        await api.create(secret)
        found = await answer(control_plane.kubeconfig, "plan", "-A")
        assert {each["pod"] for each in found["waiting"]} >= {f"{scene.namespace}/large", f"{other}/secret"}

        await allow(api, "developer", namespace=scene.namespace, rules=PODS, name="pods")
        await allow(api, "developer", namespace=NAMESPACE, rules=PROXY, name="view")
        developer = await account_kubeconfig(control_plane, api, tmp_path / "config", "developer", scene.namespace)
        code, out, err = await plugin(developer, "plan")
        assert code == 0, err
        assert "large" in out
        assert "0/1 nodes are available: 1 Insufficient cpu." in out
        found = await answer(developer, "plan", "-A")
        assert [each["pod"] for each in found["waiting"]] == [f"{scene.namespace}/large"]
        assert found["hidden"] >= 1
        assert "secret" not in json.dumps(found)
        assert (await answer(developer, "plan", "-n", other))["waiting"] == []
        code, out, err = await plugin(developer, "status")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "flowschedulingpolicies" in err or "policies" in err
    finally:
        await api.delete(f"/api/v1/namespaces/{other}/pods/secret", gracePeriodSeconds="0")


async def test_every_kind_of_login(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """A token, a token file, a plug-in's token; a file's token and a service account's for logins without one."""
    control_plane, api = plane
    await scene.nodes("a")
    await allow(api, "thalweg-viewer", namespace=scene.namespace, rules=PODS, name="pods")
    await allow(api, "thalweg-viewer", namespace=NAMESPACE, rules=PROXY, name="view")
    shown = await token(api, 3600, "thalweg-viewer")
    (tmp_path / "token").write_text(shown)
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": shown},
    }
    (tmp_path / "credential").write_text(json.dumps(credential))
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(tmp_path / "credential")],
        "interactiveMode": "Never",
    }
    logins: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"tokenFile": "token"}, ()),
        ({"exec": run}, ()),
        ({"token": shown}, ("--token-file", str(tmp_path / "token"))),
    ]
    for number, (user, options) in enumerate(logins):
        config = kubeconfig_of(control_plane, tmp_path / f"config-{number}", user, scene.namespace)
        assert (await answer(config, "plan", *options))["nodes"] == 1
    account = ("--service-account", f"{NAMESPACE}/thalweg-viewer")
    assert (await answer(control_plane.kubeconfig, "plan", *account))["nodes"] == 1
    code, _, err = await plugin(control_plane.kubeconfig, "plan", "--service-account", f"{NAMESPACE}/nobody")
    assert (code, err.count("\n")) == (2, 1)
    assert f"service account {NAMESPACE}/nobody gives none" in err


async def test_what_stands_in_the_way_is_one_sentence(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """No such Service, no right to the proxy, an unknown policy, nobody behind the Service."""
    control_plane, api = plane
    await scene.nodes("a")
    code, out, err = await plugin(control_plane.kubeconfig, "plan", "--service", f"{NAMESPACE}/none")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert 'services "none" not found' in err
    await allow(api, "stranger", namespace=scene.namespace, rules=PODS, name="pods-of-strangers")
    stranger = await account_kubeconfig(control_plane, api, tmp_path / "config", "stranger", scene.namespace)
    code, out, err = await plugin(stranger, "plan")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"services/proxy of thalweg-view in namespace {NAMESPACE}" in err
    code, out, err = await plugin(control_plane.kubeconfig, "plan", "--policy", "none")
    assert (code, out, err) == (2, "", 'Error: policy "none": no FlowSchedulingPolicy has this name\n')


async def test_watching(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """The plan is printed again once it changes; Ctrl-C ends it."""
    environment = {**os.environ, "KUBECONFIG": str(plane[0].kubeconfig), "PYTHONUNBUFFERED": "1"}
    await scene.nodes("small", cpu="2")
    process = await asyncio.create_subprocess_exec(
        _PLUGIN, "plan", "-n", scene.namespace, "--watch", stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            while b"0 placed, 0 pending" not in await process.stdout.readline():
                pass
            await scene.create("large", "3")
            while b"large" not in await process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()


async def test_observed_pods_beside_the_other_schedulers_choice(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """A pod that another scheduler put elsewhere is listed with both nodes; the status counts policies and pods."""
    scene.watches_history.clear()
    await scene.nodes("old", "new", cpu="4")
    await scene.create("big", "3", nodeName="old", scheduler="other")
    await scene.policy(
        "observed",
        selects={"schedulerNames": ["other"], "podSelector": {}},
        delivery="Observe",
        cost={"model": "BinPacking"},
    )
    await scene.create("apart", "1", nodeName="new", scheduler="other")

    async def observed() -> list[dict[str, Any]]:
        found = await answer(plane[0].kubeconfig, "plan", "-n", scene.namespace, "--policy", "observed")
        return list(found["observed"])

    found = await observed()
    while len(found) < 2:  # until the watch has shown both to the operator
        found = await observed()
    assert {each["pod"].rpartition("/")[2]: each["node"] for each in found} == {"big": "old", "apart": "new"}
    assert len({each["planned"] for each in found}) == 1, "both fit on one node, and BinPacking puts them there"
    status = await answer(plane[0].kubeconfig, "status")
    assert {"observed": "Observe"}.items() <= {each["name"]: each["delivery"] for each in status["policies"]}.items()
    assert status["overview"]["nodes"] == 2


@pytest.mark.slow
async def test_the_real_kubectl(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], request: pytest.FixtureRequest
) -> None:
    """It finds the plug-in and its completion by their names."""
    await scene.nodes("a")
    kubectl, folder = tool("kubectl", request.config), str(_PLUGIN.parent)
    program = ("env", f"PATH={folder}:{os.environ['PATH']}", kubectl)
    code, out, err = await plugin(plane[0].kubeconfig, "thalweg", "plan", program=program)
    assert code == 0, err
    assert "on 1 node" in out
    code, out, err = await plugin(plane[0].kubeconfig, "__complete", "thalweg", "pl", program=program)
    assert code == 0, err
    assert out.splitlines()[0].startswith("plan\t")
