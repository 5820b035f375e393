"""The operator as a process: it starts whatever the cluster is like, says how it is, and ends when told to."""

import asyncio
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from support.cluster_scenario import ClusterScenario, install_crds, policy
from support.operator import free_address, running_operator, until
from thalweg_controlplane import Api, ControlPlane
from thalweg_operator.health import PAGE_LIMITS

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flowschedulingpolicies.scheduling.thalweg"


async def test_probes_and_metrics(scene: ClusterScenario) -> None:
    """/healthz and /readyz say ok; /metrics counts what was done, by the names that the docs use."""
    before = await scene.operator.metrics()
    await scene.nodes("a", "b", cpu="1")
    await scene.api.create_many([scene.pod(f"p{number}", "500m") for number in range(6)])
    await scene.wait_settled()
    assert await scene.operator.get("/healthz") == (200, "ok\n")
    assert await scene.operator.get("/readyz") == (200, "ok\n")
    after = await scene.operator.metrics()

    def more(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    waiting = "thalweg_waiting_pods NodeResourcesFit"
    assert more("thalweg_bindings_total bound") == 4
    # Pods that come alone may get their places without a round.
    assert more("thalweg_placements_total reserved") + more("thalweg_placements_total priced") == 4
    assert more("thalweg_creation_to_binding_seconds_count") == 4
    assert more("thalweg_reasons_written_total") == 2
    assert sum(more(name) for name in after if name.startswith("thalweg_rounds_total")) >= 1
    assert more("thalweg_watch_events_total pods") >= 6 + 4
    assert (after["thalweg_nodes"], after["thalweg_pods"]) == (2, 6)
    assert after[waiting] == 2
    assert after["thalweg_leader"] == 1
    assert after["thalweg_event_loop_longest_lag_seconds"] > 0
    assert after["process_resident_memory_bytes"] > 0
    await scene.delete(*(f"p{number}" for number in range(6)))

    async def empty() -> bool:
        now = await scene.operator.metrics()
        return not any(now[name] for name in ("thalweg_pods", "thalweg_reservations", waiting))

    await until(empty, 60, lambda: "the gauges to follow")


async def test_probes_at_an_address_of_their_own(account: Path, scene: ClusterScenario, tmp_path: Path) -> None:
    """With --probe-listen the same pages are there, also while strangers fill the first address."""
    assert scene
    probes = free_address()
    options = ("--probe-listen", probes)
    async with (
        running_operator(account, tmp_path / "operator.log", extender=options) as operator,
        AsyncExitStack() as stack,
    ):
        host, _, port = operator.address.partition(":")
        for number in range(2 * PAGE_LIMITS.connections):
            _, writer = await asyncio.open_connection(host, int(port), local_addr=(f"127.0.1.{number}", 0))
            stack.callback(writer.close)
        async with aiohttp.ClientSession() as http:
            for page in ("/healthz", "/readyz"):
                async with http.get(f"http://{probes}{page}") as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
        assert await operator.get("/healthz") == (200, "ok\n")


async def test_started_before_the_api_server(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """It lives and is not ready, says what it waits for, keeps trying, and goes to work when the server is there."""
    await scene.operator.stop()
    await scene.nodes("a")
    await scene.create("waiting")
    kubeconfig = scene.operator.kubeconfig
    await plane[0].kill("kube-apiserver")
    async with running_operator(kubeconfig, tmp_path / "early.log", wait=False) as early:
        await early.answers("/healthz", 200)
        said = await early.answers("/readyz", 503)
        assert said.startswith("nodes: not in sync yet\npods: not in sync yet\n")
        assert said.endswith("policies: not in sync yet\nlease: not acquired yet\n")
        await until(lambda: "connection lost" in early.log, 60, lambda: "it to try")
        early.check()
        await plane[0].start("kube-apiserver")
        await early.ready()
        assert await scene.node_of("waiting") == "a"
        assert await early.stop() == 0
    await scene.operator.start()


async def test_sigterm_while_the_api_server_is_away(
    plane: tuple[ControlPlane, Api], account: Path, tmp_path: Path
) -> None:
    """Told to stop before it ever got anywhere, it stops."""
    await plane[0].kill("kube-apiserver")
    try:
        async with running_operator(account, tmp_path / "operator.log", wait=False) as operator:
            await operator.answers("/readyz", 503)
            await until(lambda: "connection lost" in operator.log, 60, lambda: "it to try")
            assert await operator.stop() == 0
            assert "Traceback" not in operator.log
    finally:
        await plane[0].start("kube-apiserver")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it_cleanly(scene: ClusterScenario, how: signal.Signals) -> None:
    """Exit code 0 in the middle of its work, no worker left behind, and bindings under way are finished."""
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="8")
    pods = [scene.pod(f"p{number}", "100m") for number in range(400)]
    creating = asyncio.create_task(scene.api.create_many(pods, 8))
    await until(lambda: len(scene.history.nodes_of) > 50, 60, lambda: "some to be bound")
    workers = scene.operator.worker_pids()
    assert await scene.operator._end(how) == 0
    assert "Traceback" not in scene.operator.log
    assert not [pid for pid in workers if _exists(pid)]
    await creating
    await scene.operator.start()
    await scene.nodes_of()


async def test_without_the_crd(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """It works by the built-in default; policies are taken up once the CRD is there, and forgotten when it goes."""
    _, api = plane
    await scene.operator.stop()
    await api.delete(CRD)
    await until(lambda: _absent(api, CRD), 30, lambda: "the CRD to be gone")
    await scene.nodes("a")
    async with running_operator(scene.operator.kubeconfig, tmp_path / "without.log") as operator:
        await scene.create("before")
        assert await scene.node_of("before") == "a"
        assert "FlowSchedulingPolicy is not installed" in operator.log
        await install_crds(api)
        await api.create(policy("late", selects={"podSelector": {}}, delivery="Observe"))
        await scene.policy_seen("late", 1, lambda each: each["status"]["pods"]["governed"] == 1)
        await scene.create("held")
        await scene.policy_seen("late", 1, lambda each: each["status"]["pods"]["waiting"] == 1)
        assert "nodeName" not in (await scene.get("held"))["spec"]
        await api.delete(CRD)
        assert await scene.node_of("held") == "a"
        await until(lambda: _absent(api, CRD), 30, lambda: "the CRD to be gone")
        await install_crds(api)
        await api.create(policy("again", selects={"podSelector": {}}, delivery="Observe"))
        await scene.policy_seen("again", 1, lambda each: each["status"]["pods"]["governed"] == 2)
        assert await operator.stop() == 0
    await scene.operator.start()


async def test_policies_that_were_there_first(scene: ClusterScenario) -> None:
    """Restarted, it knows all policies before its first round: none of their pods slips through to the default."""
    await scene.nodes("a")
    await scene.operator.stop()
    for number in range(5):
        await scene.api.create(
            policy(f"p{number}", selects={"podSelector": {"matchLabels": {"p": str(number)}}}, delivery="Observe")
        )
    held = [scene.pod(f"held-{number}", labels={"p": str(number % 5)}) for number in range(50)]
    await scene.api.create_many(held)
    scene.ignored_reasons.update(each["metadata"]["name"] for each in held)
    await scene.create("free")
    await scene.operator.start()
    assert await scene.node_of("free") == "a"
    for number in range(5):
        await scene.policy_seen(f"p{number}", 1, lambda each: each["status"]["pods"]["waiting"] == 10)
    assert [each["metadata"]["name"] for each in await scene.pods() if each["spec"].get("nodeName")] == ["free"]


async def test_what_is_bound_is_told(scene: ClusterScenario) -> None:
    """The Event that kube-scheduler writes too, a line in the log for rounds, and one for bindings."""
    await scene.nodes("a")
    scene.operator.new_log()
    names = [f"p{number}" for number in range(5)]
    await scene.api.create_many([scene.pod(name) for name in names])
    await scene.nodes_of(*names)
    for name in names:
        await until(partial(scene.events_of, name), 30, lambda name=name: f"the Event on {name}")
        (event,) = await scene.events_of(name)
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Scheduled", "Binding")
        assert event["message"] == f"Successfully assigned {scene.namespace}/{name} to a"
        assert (event["reportingComponent"], event["count"]) == ("thalweg", 1)
    lines: list[str] = []

    def logged() -> bool:
        lines.extend(scene.operator.new_log().splitlines())
        return all(any(word in line for line in lines) for word in (" rounds ", " bindings "))

    await until(logged, 60, lambda: f"both lines; there are {lines}")
    # Bindings are summed up, not listed.
    assert sum(" bindings " in line for line in lines) < len(names)
    assert not any(name in line for line in lines for name in names)


async def test_reasons_outlive_a_restart(scene: ClusterScenario) -> None:
    """A pod that was told its reason before is not told the same again by the next operator."""
    await scene.nodes("a", cpu="1")
    await scene.create("big", "2")
    await scene.reason_of("big", "Insufficient cpu")
    await until(lambda: _count(scene, "big", 1), 60, lambda: "its event")
    version = (await scene.get("big"))["metadata"]["resourceVersion"]
    assert await scene.operator.stop() == 0
    await scene.operator.start()
    for number in range(2):
        await scene.wait_for_round(f"p{number}")
    # Another pod is told meanwhile, so the writer was at work.
    await scene.create("bigger", "3")
    await scene.reason_of("bigger", "Insufficient cpu")
    assert (await scene.get("big"))["metadata"]["resourceVersion"] == version
    assert len(await scene.events_of("big")) == 1


async def test_a_cluster_full_of_finished_pods(scene: ClusterScenario) -> None:
    """Started into it, the operator counts what runs and nothing else."""
    await scene.nodes("a", cpu="1")
    await scene.operator.stop()
    target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
    for number in range(6):
        name = f"old-{number}"
        await scene.create(name, "200m", scheduler="by-hand")
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await scene.api.request("POST", scene.path(name) + "/binding", body)
        if number < 4:
            await scene.api.patch(scene.path(name) + "/status", {"status": {"phase": "Succeeded"}})
    await scene.operator.start()
    await scene.api.create_many([scene.pod(f"new-{number}", "200m") for number in range(4)])
    await scene.wait_settled()
    placed = [
        each
        for each in await scene.pods()
        if each["metadata"]["name"].startswith("new") and each["spec"].get("nodeName")
    ]
    assert len(placed) == 3


async def test_mistakes_at_the_start(plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """A port in use and a kubeconfig that is none end it with code 1 and one line, not a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = await _run("--kubeconfig", str(plane[0].kubeconfig), "--listen", f"127.0.0.1:{port}")
        assert said[0] == 1
        assert f"cannot listen on 127.0.0.1:{port}" in said[1]
        assert "Traceback" not in said[1]
    for garbage in ("", "not: a kubeconfig\n", "}{", "[]"):
        wrong = tmp_path / "kubeconfig"
        wrong.write_text(garbage)
        code, text = await _run("--kubeconfig", str(wrong), "--listen", f"127.0.0.1:{port}")
        assert (code, f"kubeconfig {wrong}" in text, "Traceback" in text) == (1, True, False), (garbage, text)


async def _run(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "thalweg", "run", "--log-format", "text", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


async def _absent(api: Api, path: str) -> bool:
    group, _, name = path.rpartition("/")
    return name not in {each["metadata"]["name"] for each in await api.list(group)}


async def _count(scene: ClusterScenario, name: str, count: int) -> bool:
    return len(await scene.events_of(name)) == count


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
