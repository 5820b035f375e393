"""The view of a running operator: who is told what, by the API server's own word, directly and through its proxy."""

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, free_address, running_operator, until
from support.rights import ACCOUNTS, token
from support.viewing import ALL, SYSTEM, Viewer, account_that_lists, answered, view_session
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.api import _read
from thalweg_controlplane.client.objects import pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICE, POD, LEASE = "thalweg-view", "thalweg-0", "kube-system/thalweg-view"
PROXY = f"/api/v1/namespaces/{SYSTEM}/services/https:{SERVICE}:https/proxy"
#: Seconds: longer than the API server's answers hold.
FORGOTTEN = 60.0


def own_address() -> str:
    """An address of this machine that is not on loopback: an EndpointSlice may have no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # nothing is sent
        return str(sock.getsockname()[0])


@pytest.fixture(scope="module")
def port() -> int:
    return int(free_address().rpartition(":")[2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    plane: tuple[ControlPlane, Api], account: Path, port: int, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    metadata = {"name": SERVICE, "namespace": SYSTEM}
    ports = [{"name": "https", "port": 443}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}
    await plane[1].apply(service)
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    options = ("--view-listen", f":{port}", "--view-endpoints", f"{SYSTEM}/{SERVICE}")
    environment = {"POD_IP": own_address(), "POD_NAMESPACE": SYSTEM, "POD_NAME": POD}
    async with running_operator(
        account, log, lease=LEASE, extender=options, environment=environment, replicated=True
    ) as operator:
        yield operator


async def running_pod(api: Api) -> None:
    """The operator's own pod, with this machine's address: the API server's proxy leads to addresses of pods only."""
    await api.create(pod(POD, namespace=SYSTEM, scheduler="nobody", nodeName="elsewhere"))
    address = own_address()
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await api.patch(f"/api/v1/namespaces/{SYSTEM}/pods/{POD}/status", {"status": status})


async def test_nobody_sees_a_pod_that_they_may_not_read(scene: ClusterScenario, port: int) -> None:
    """A tenant's answers, of all operations and to all errors, hold no name of other tenants or of nodes."""
    await scene.nodes("n-secret", cpu="1")
    await scene.create("mine-runs", "500m")
    await scene.node_of("mine-runs")
    other = f"{scene.namespace}-other"
    await scene.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    large = scene.pod("of-others", "64")
    large["metadata"]["namespace"] = other
    await scene.api.create(large)
    await scene.create("mine", "64")
    scene.ignored_reasons.update(("mine", "of-others"))
    everybody = await account_that_lists(scene.api, "sees-all", cluster=ALL)
    tenant = await account_that_lists(scene.api, "tenant", pods_of=scene.namespace)
    nobody = await account_that_lists(scene.api, "sees-nothing")
    async with view_session() as http:
        whole, part, none = (Viewer(http, port, each) for each in (everybody, tenant, nobody))

        async def both_wait() -> bool:
            pending = await answered(whole, "pending", 200)
            return {f"{other}/of-others", f"{scene.namespace}/mine"} <= {each["pod"] for each in pending["items"]}

        await until(both_wait, 60, lambda: "both pods to wait")
        status, unknown = await whole.ask("nothing")
        assert status == 404
        names = unknown["error"].partition("there are ")[2].split(", ")
        operations = [each for each in names if each not in ("events", "pods")]
        assert len(operations) >= 7
        told = {}
        for operation in (*operations, f"pods/{other}/of-others", f"pods/{scene.namespace}/mine"):
            for who, viewer in (("tenant", part), ("nobody", none)):
                status, answer = await viewer.ask(operation)
                told[who, operation] = status
                text = json.dumps(answer)
                if not operation.startswith(f"pods/{other}"):
                    assert other not in text, (who, operation, answer)
                assert "of-others" not in text.replace(f"{other}/of-others", ""), (who, operation, answer)
                assert "n-secret" not in text, (who, operation, answer)
                if who == "nobody" and not operation.startswith("pods/"):
                    assert "mine" not in text, (operation, answer)
        pending = (await part.ask("pending"))[1]
        assert [each["pod"] for each in pending["items"]] == [f"{scene.namespace}/mine"]
        assert told["tenant", f"pods/{scene.namespace}/mine"] == 200
        assert {status for (who, _), status in told.items() if who == "nobody"} <= {403, 405}
        assert told["tenant", "nodes"] == told["tenant", "policies"] == 403
        # A pod that may not be seen is answered in the words of one that does not exist.
        hidden = (await part.ask(f"pods/{other}/of-others"))[1]["error"]
        missing = (await part.ask(f"pods/{other}/missing"))[1]["error"]
        assert hidden.replace("of-others", "missing") == missing
        why = await part.ask("why", {"target": f"{scene.namespace}/mine"})
        assert (why[0], why[1]["kind"]) == (200, "NothingFits")
        assert other not in json.dumps(why[1])
        assert "n-secret" not in json.dumps(why[1])
        status, answer = await part.ask("why", {"target": f"{other}/of-others"})
        assert status == 404
        assert (
            answer["error"].replace("of-others", "missing")
            == ((await part.ask("why", {"target": f"{other}/missing"}))[1]["error"])
        )
        # Whose node goes away names pods of everybody: it takes the right to list nodes.
        assert (await part.ask("what-if", {"changes": []}))[0] == 403
        assert (await whole.ask("what-if", {"changes": []}))[0] == 200
        # Named, the namespace alone is asked about; naming another one opens nothing.
        status, answer = await part.ask("pending", namespace=other)
        assert (status, answer["items"]) == (200, [])
    await scene.api.delete(f"/api/v1/namespaces/{other}/pods/of-others", gracePeriodSeconds="0")
    await scene.api.delete(f"/api/v1/namespaces/{other}")


async def test_tokens_for_the_api_server_are_refused(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], port: int
) -> None:
    """Of an account that sees all, and of an administrator: nobody gets used to showing them."""
    viewing = await account_that_lists(scene.api, "both-audiences", cluster=ALL)
    ours = await token(scene.api, account="both-audiences")
    admins = yaml.safe_load(plane[0].kubeconfig.read_text())["users"][0]["user"]["token"]
    async with view_session() as http:
        await answered(Viewer(http, port, viewing), "overview", 200)
        for shown in (ours, admins):
            status, answer = await Viewer(http, port, shown).ask("overview")
            assert status == 401
            assert "not for the audience thalweg-view" in answer["error"]


async def test_a_token_is_of_use_until_it_is_revoked(scene: ClusterScenario, port: int) -> None:
    """The API server says so some seconds later; a stream of events ends too."""
    account = await account_that_lists(scene.api, "revoked", cluster=ALL)
    async with view_session() as http:
        viewer = Viewer(http, port, account)
        await answered(viewer, "overview", 200)
        await scene.api.delete(f"{ACCOUNTS}/revoked")
        refused = await answered(viewer, "overview", 401, FORGOTTEN)
        assert "revoked" in refused["error"]
        assert (await Viewer(http, port, "no-token-of-this-cluster").ask("overview"))[0] == 401


async def test_through_the_proxy_of_the_api_server(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], port: int
) -> None:
    """The Service leads to the leader. The proxy takes Authorization away, so the token has a header of its own."""
    await scene.nodes("n1", cpu="4")
    await running_pod(scene.api)
    account = await account_that_lists(scene.api, "through-proxy", cluster=ALL)
    server, headers, context = _read(plane[0].kubeconfig)
    base = server + PROXY
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=120)
    ) as http:
        last: list[Any] = []

        async def leads() -> bool:
            async with http.get(f"{base}/api/v1/overview", headers={"X-Thalweg-Token": account}) as answer:
                last[:] = [answer.status, await answer.text()]
                return answer.status == 200

        await until(leads, 60, lambda: f"the Service to lead to the view; last {last}")
        async with http.get(f"{base}/api/v1/overview") as answer:
            assert answer.status == 401, "the caller's own certificate is none of the view's business"
        async with http.get(f"{base}/api/v1/events", headers={"X-Thalweg-Token": account}) as stream:
            assert stream.status == 200
            await scene.create("new")
            seen = b""
            async with asyncio.timeout(60):
                while b"event: round" not in seen or not seen.endswith(b"\n\n"):
                    seen += await stream.content.readany()
        event = seen[seen.index(b"event: round") :].split(b"\n")[1].removeprefix(b"data: ")
        assert json.loads(event)["placed"] >= 0


def compute_pids(operator: Operator) -> list[int]:
    """Compute processes of the operator's view."""
    children = Path(f"/proc/{operator.pid}/task/{operator.pid}/children").read_text().split()
    return [
        pid
        for pid in map(int, children)
        if b"thalweg_view.compute_process.compute" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


async def test_rounds_go_on_while_the_compute_process_is_stuck_and_it_comes_back(
    scene: ClusterScenario, operator: Operator, port: int
) -> None:
    """With the process stopped and questions waiting pods are bound as ever; killed, it is started again."""
    await scene.nodes("n1", cpu="4")
    account = await account_that_lists(scene.api, "patient", cluster=ALL)
    async with view_session() as http:
        viewer = Viewer(http, port, account)
        await answered(viewer, "overview", 200)
        (pid,) = compute_pids(operator)
        os.kill(pid, signal.SIGSTOP)
        questions = [asyncio.create_task(viewer.ask("pending", offset=str(at))) for at in range(20)]

        def statuses() -> Counter[int]:
            return Counter(each.result()[0] for each in questions if each.done())

        for at in range(5):
            await scene.create(f"p{at}")
        await scene.nodes_of(*(f"p{at}" for at in range(5)))
        await until(lambda: statuses()[429], 30, lambda: f"too many questions to be refused; {statuses()}")
        assert not statuses()[200], "the process is stopped"
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*questions)
        assert set(statuses()) <= {200, 429, 503}
        overview = await answered(viewer, "overview", 200)
        assert overview["rounds"], "the new process was told the rounds of before"
        (again,) = compute_pids(operator)
        assert again != pid


async def test_a_standby_says_who_leads(scene: ClusterScenario, account: Path, tmp_path: Path) -> None:
    """It answers 503 with the leader's name, and only to callers with a good token."""
    address = free_address()
    options = ("--view-listen", address)
    reader = await account_that_lists(scene.api, "asks-standby", cluster=ALL)
    async with running_operator(
        account, tmp_path / "log", wait=False, lease=LEASE, extender=options, replicated=True
    ) as standby:
        await standby.answers("/readyz?exclude=lease", 200)
        async with aiohttp.ClientSession() as http:
            for sent, status, words in ((reader, 503, "leads"), ("wrong", 401, "does not accept the token")):
                headers = {"Authorization": f"Bearer {sent}"}
                async with http.get(f"http://{address}/api/v1/overview", headers=headers) as answer:
                    assert answer.status == status
                    assert words in (await answer.json())["error"]
