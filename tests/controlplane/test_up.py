"""`thalweg up` as a user meets it: a process that serves until Ctrl-C."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml
from support.cli import thalweg
from support.up import started
from thalweg_controlplane import Api, Binaries

PROGRAM = """
import asyncio, sys
from thalweg_controlplane.client.objects import node
from thalweg_controlplane.up import serve

crd = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.test.thalweg"},
    "spec": {
        "group": "test.thalweg",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
operator = [sys.executable, "-c", OPERATOR, "{kubeconfig}"]
report = lambda line: print(line, flush=True)
asyncio.run(serve(report, nodes=[node("a"), node("b")], objects=[crd], start_operator=operator))
"""
LASTING = "import sys, time; open(sys.argv[1]).close(); time.sleep(600)"
FAILING = "raise SystemExit('I have no idea')"


def start(operator: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("OPERATOR", repr(operator))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def test_what_it_says_to_try_works(binaries: Binaries) -> None:
    """Its own operator and kube-scheduler's profile for it: the pods that it says are bound by either are.

    The printed page shows them to the printed token, which may do nothing else, and the doctor finds no fault.
    """
    with started("--nodes", "5") as (process, said):
        try:
            (kubeconfig,) = [line.rpartition("=")[2] for line in said if line.startswith("export KUBECONFIG=")]
            files = [Path(line.split()[3]) for line in said if line.startswith("kubectl apply -f ")]
            (metrics,) = [line.split()[2] for line in said if line.startswith("curl -s ")]
            (page,) = [line for line in said if "/#token=" in line]
            (doctor,) = [line.partition("#")[0].split() for line in said if line.startswith("thalweg doctor ")]
            async with Api(Path(kubeconfig)) as api:
                nodes = await api.list("/api/v1/nodes")
                labels = [each["metadata"]["labels"] for each in nodes]
                assert {each["topology.kubernetes.io/zone"] for each in labels} == {"a", "b"}
                assert len({each["topology.kubernetes.io/rack"] for each in labels}) == 4
                assert len([each for each in nodes if "nvidia.com/gpu" in each["status"]["allocatable"]]) == 1
                for each in [each for file in files for each in yaml.safe_load_all(file.read_text())]:
                    if each["kind"] == "Deployment":
                        each["metadata"]["namespace"] = "default"
                    await api.apply(each)
                path = "/apis/apps/v1/namespaces/default/deployments"
                for name, count in (("steered", 20), ("web", 30)):
                    await api.wait_for(
                        f"{path}/{name}",
                        lambda found, count=count: found["status"].get("availableReplicas") == count,
                        within=60,
                    )
            async with aiohttp.ClientSession() as session:
                async with session.get(metrics) as answer:
                    counts = r'^thalweg_extender_answers_total\{.*verb="filter".*\} (\S+)'
                    asked = re.findall(counts, await answer.text(), re.MULTILINE)
                url, _, token = page.partition("#token=")
                async with session.get(url) as answer:
                    assert (answer.status, answer.content_type) == (200, "text/html")
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(f"{url}api/v1/overview", headers=headers) as answer:
                    assert (await answer.json())["running"] == 50
            assert sum(map(float, asked)) >= 20
            done = await asyncio.to_thread(thalweg, *doctor[1:], "--kubeconfig", kubeconfig, "-o", "json")
            found = {each["check"]: each["verdict"] for each in json.loads(done.stdout)}
            skipped = {
                "versions",
                "second-scheduler",
                "gang-scheduling",
            }  # nothing runs in pods; feature gates not known
            assert found == {check: "SKIP" if check in skipped else "OK" for check in found}, done.stdout
            assert {"rights", "confinement", "view", "extender"} <= found.keys() - skipped
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


TUTORIAL = Path(__file__).parents[2] / "docs/tutorial/first-cluster.md"


async def test_devices_of_the_tutorial(binaries: Binaries) -> None:
    """The pods that it says are claimed for run, two others wait, and `why` says its lines of them.

    The same for the file that the command itself names.
    """
    (section,) = re.findall(r"^## \d+. Claim devices\n(.*?)^## ", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    (manifests,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    lines = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[-1].splitlines()
    (command,) = [line.split() for line in section.splitlines() if " up --gpu-nodes " in line]
    with started(*command[2:]) as (process, said):
        try:
            (kubeconfig,) = [line.rpartition("=")[2] for line in said if line.startswith("export KUBECONFIG=")]
            applied = [line.split()[3] for line in said if line.startswith("kubectl apply -f ")]
            (named,) = [Path(file) for file in applied if file.endswith("claiming.yaml")]
            async with Api(Path(kubeconfig)) as api:
                for text, count in ((named.read_text(), 2), (manifests, 4)):
                    for manifest in yaml.safe_load_all(text):
                        manifest["metadata"]["namespace"] = "default"
                        await api.apply(manifest)
                    path = "/apis/apps/v1/namespaces/default/deployments/claiming"
                    await api.wait_for(
                        path, lambda found, count=count: found["status"].get("availableReplicas") == count, within=60
                    )
                pods = await api.list("/api/v1/namespaces/default/pods")
                assert [each["spec"].get("nodeName", "") for each in pods].count("gpu-0") == 4
                claims = await api.list("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
                assert len(claims) == len(pods) == 6
                held = [each["status"]["allocation"] for each in claims if "allocation" in each.get("status", {})]
                devices = [{each["device"] for each in one["devices"]["results"]} for one in held]
                assert sorted(map(sorted, devices)) == [[f"gpu-{n}", f"gpu-{n + 1}"] for n in (0, 2, 4, 6)]
            asked = ("why", "--direct", "deployment/claiming", "-n", "default")
            done = await asyncio.to_thread(thalweg, *asked, "--kubeconfig", kubeconfig)
            assert not [line for line in lines if line not in done.stdout], done.stdout
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_leaves_nothing(binaries: Binaries, number: signal.Signals) -> None:
    """It prints a kubeconfig that works, exits clean, and its workdir is gone."""
    with start(LASTING) as process:
        assert process.stdout is not None
        kubeconfig = None
        for line in process.stdout:
            if line.startswith("  export KUBECONFIG="):
                kubeconfig = Path(line.strip().removeprefix("export KUBECONFIG="))
            if line.startswith("Ctrl-C"):
                break
        assert kubeconfig is not None, process.communicate()[1]
        assert kubeconfig.exists()
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, "stopping\nstopped\n", "")
    assert not kubeconfig.parent.exists()


def test_an_operator_that_fails_ends_it_with_its_log(binaries: Binaries) -> None:
    """Its last words are in the error."""
    with start(FAILING) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "operator ended with exit code 1; the end of its log:\nI have no idea" in error
