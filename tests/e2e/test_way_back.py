"""From Thalweg back to kube-scheduler on a real control plane, by the steps of docs/how-to/remove-thalweg.md.

No operator runs here: Thalweg was stopped, and workloads still name its scheduler.
"""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cli import thalweg
from support.operator import until
from support.tools import kubectl
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import node, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG, SCHEDULER

from flowcore.model.policies import GATE

__all__ = ["kubectl"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
BREAKS_PLANE = True

PAGE = Path(__file__).parents[2] / "docs/how-to/remove-thalweg.md"
DEFAULT = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"


def workload(kind: str, name: str, replicas: int) -> dict[str, Any]:
    template = pod(name, cpu="100m", labels={"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def deployment(name: str, replicas: int) -> dict[str, Any]:
    made = workload("Deployment", name, replicas)
    del made["spec"]["serviceName"], made["spec"]["podManagementPolicy"]
    return made


@pytest_asyncio.fixture(loop_scope="module")
async def stranded(plane: tuple[ControlPlane, Api]) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """A Deployment and a StatefulSet whose pods wait for a scheduler that is not there, and one gated pod."""
    control, api = plane
    await api.create_many([node("a"), node("b")])
    await api.create(deployment("web", 3))
    await api.create(workload("StatefulSet", "db", 2))
    await api.create(pod("gated", schedulingGates=[{"name": GATE}]))

    async def made() -> bool:
        return len(await api.list(f"{DEFAULT}/pods")) == 6

    await until(made, 60, lambda: "the controllers to make the pods")
    yield control, api
    for path in (f"{APPS}/deployments", f"{APPS}/statefulsets", f"{DEFAULT}/pods", "/api/v1/nodes"):
        await api.delete(path, gracePeriodSeconds="0")

    async def gone() -> bool:
        return not await api.list(f"{DEFAULT}/pods")

    await until(gone, 60, lambda: "the pods to go")


async def run_everywhere(api: Api) -> None:
    """Waits until all pods of both workloads run."""
    for path in (f"{APPS}/deployments/web", f"{APPS}/statefulsets/db"):

        def runs(found: Any) -> bool:
            status, wanted = found["status"], found["spec"]["replicas"]
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return current and status.get("availableReplicas") == status.get("updatedReplicas", wanted) == wanted

        await api.wait_for(path, runs, within=120)


async def test_who_waits_for_ever(stranded: tuple[ControlPlane, Api]) -> None:
    """Nobody looks at the pods, no Event says so, and the command names them before anything is removed."""
    control, api = stranded
    waiting = await api.list(f"{DEFAULT}/pods")
    assert not any(each["spec"].get("nodeName") for each in waiting)
    about_pods = await api.list(f"{DEFAULT}/events", fieldSelector="involvedObject.kind=Pod")
    assert about_pods == []
    words = ("uninstall", "--kubeconfig", control.kubeconfig)
    listed = json.loads((await asyncio.to_thread(thalweg, *words, "--list", "-o", "json")).stdout)
    assert listed["warnings"] == []
    rows = [(each["kind"], each["name"], each["running"], each["waiting"], each["gated"]) for each in listed["users"]]
    assert rows == [("Deployment", "web", 0, 3, 0), ("Pod", "gated", 0, 1, 1), ("StatefulSet", "db", 0, 2, 0)]
    table = (await asyncio.to_thread(thalweg, *words, "--list")).stdout
    assert re.search(r"^default +Deployment +web +thalweg +0 +3 +0$", table, re.MULTILINE)
    assert "Without Thalweg waiting, new and restarted pods wait for ever, without an Event." in table
    asked = await asyncio.to_thread(thalweg, *words, "--lease", "kube-system/thalweg", stdin="n\n")
    assert asked.returncode == 1
    assert asked.stderr.index("Deployment default/web (thalweg): 0 running, 3 waiting") < asked.stderr.index(
        f"open its gates on {control.url}"
    )
    assert "Aborted!" in asked.stderr
    assert (await api.get(f"{DEFAULT}/pods/gated"))["spec"]["schedulingGates"] == [{"name": GATE}]


async def test_a_profile_of_kube_scheduler(stranded: tuple[ControlPlane, Api]) -> None:
    """With the configuration of the page kube-scheduler places the pods, also one whose gate the command opens."""
    control, api = stranded
    (text,) = re.findall(r"```yaml\n(.*?KubeSchedulerConfiguration.*?)```", PAGE.read_text(), re.DOTALL)
    text = text.replace("/etc/kubernetes/scheduler.conf", "{kubeconfig}").replace("Elect: true", "Elect: false")
    control.configure_scheduler(text)
    await control.restart(SCHEDULER)
    try:
        words = ("--kubeconfig", control.kubeconfig, "--lease", "kube-system/thalweg", "--yes", "-o", "json")
        done = await asyncio.to_thread(thalweg, "uninstall", *words)
        assert json.loads(done.stdout)["gatesOpened"] == 1, done.stderr
        await run_everywhere(api)
        await api.wait_for(f"{DEFAULT}/pods/gated", lambda each: each["spec"].get("nodeName"))
        assert {each["spec"]["schedulerName"] for each in await api.list(f"{DEFAULT}/pods")} == {"thalweg"}
    finally:
        control.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
        await control.restart(SCHEDULER)


async def test_other_templates(stranded: tuple[ControlPlane, Api], kubectl: Path) -> None:
    """The printed commands, run by a shell with the real kubectl, bring the workloads to kube-scheduler."""
    control, api = stranded
    words = ("--kubeconfig", control.kubeconfig, "--patches", "default-scheduler")
    script = (await asyncio.to_thread(thalweg, "uninstall", *words)).stdout
    environment = {
        **os.environ,
        "KUBECONFIG": str(control.kubeconfig),
        "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
    }
    run = ["sh", "-e", "-c", script]
    done = await asyncio.to_thread(subprocess.run, run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    await run_everywhere(api)
    named = {each["metadata"]["name"]: each["spec"]["schedulerName"] for each in await api.list(f"{DEFAULT}/pods")}
    assert named.pop("gated") == "thalweg"
    assert set(named.values()) == {"default-scheduler"}
    assert "# Pod default/gated: a pod cannot change its scheduler." in script
    again = json.loads((await asyncio.to_thread(thalweg, "uninstall", *words[:2], "--list", "-o", "json")).stdout)
    assert [each["name"] for each in again["users"]] == ["gated"]
