"""What Thalweg does, once each, on one control plane with one operator.

tests/e2e has the corners of all of it. The last test uninstalls, so the file keeps its order.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support import gang_scenarios
from support.cli import thalweg
from support.cluster_scenario import POLICIES, QUEUES, ClusterScenario, policy, queue
from support.operator import Operator, free_address, running_operator, until
from support.steering import DelayingProxy, count, gates_in_effect, pods_go_where_the_plan_says
from support.viewing import ALL, Viewer, account_that_lists, answered, view_session
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import pod

from flowcore.model.policies import GATE, SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}
BREAKS_PLANE = True
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])
LEASE = "kube-system/thalweg-smoke"
ON = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def port() -> int:
    """Of the view."""
    return int(free_address().rpartition(":")[2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    account: Path, relay: DelayingProxy, port: int, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    options = ("--extender-listen", relay.to, "--view-listen", f":{port}")
    async with running_operator(account, log, lease=LEASE, extender=options) as operator:
        yield operator


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of an object; empty where it has none of this type."""
    return next((each for each in found.get("status", {}).get("conditions", ()) if each["type"] == kind), {})


async def test_bind(scene: ClusterScenario) -> None:
    """A pod goes to the node whose labels it names, with an Event; one that no node meets waits and is told why."""
    await scene.nodes("a", labels={"disk": "hdd"})
    await scene.nodes("b", labels={"disk": "ssd"})
    await scene.create("picky", scheduler=SCHEDULER_NAME, nodeSelector={"disk": "ssd"})
    await scene.create("impossible", scheduler=SCHEDULER_NAME, nodeSelector={"disk": "tape"})
    assert await scene.node_of("picky") == "b"
    await scene.reason_of("impossible", "0/2 nodes are available", "node affinity/selector")

    async def bound() -> list[dict[str, Any]]:
        """Its Events but those of a moment in which its node was not ready."""
        return [each for each in await scene.events_of("picky") if each["reason"] == "Scheduled"]

    await until(bound, 30, lambda: "the Event")
    (event,) = await bound()
    assert event["message"] == f"Successfully assigned {scene.namespace}/picky to b"


async def test_steer(scene: ClusterScenario) -> None:
    """kube-scheduler asks the extender about each pod, and binds it where the plan says."""
    await pods_go_where_the_plan_says(scene)


async def test_gate(scene: ClusterScenario) -> None:
    """The API server gates the pods itself. One with room comes through; the other waits and is told why."""
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", waiting="Gate")
    await scene.nodes("a", cpu="1")
    await gates_in_effect(scene, scene.pod("probe", "64"))
    await scene.create("first", "1")
    await scene.node_of("first")
    await scene.create("second", "1")
    await scene.reason_of("second", "0/1 nodes are available: 1 Insufficient cpu")
    assert (await scene.get("second"))["spec"]["schedulingGates"] == [{"name": GATE}]
    await scene.delete("first")
    assert await scene.node_of("second") == "a"


@BOTH
async def test_gang(scene: ClusterScenario, scheduler: str) -> None:
    """A gang waits until all that it needs are there; what comes late joins it as long as there is room."""
    scene.scheduler = scheduler
    if scheduler == STEERED_NAME:
        await gates_in_effect(scene, gang_scenarios.members(scene, "gated", 1)[0])
    await gang_scenarios.a_gang_that_comes_bit_by_bit(scene)


@BOTH
async def test_preempt(scene: ClusterScenario, scheduler: str) -> None:
    """One pod of a full node leaves for an urgent one, and no other."""
    await scene.policy("own", selects={"podSelector": {}})
    await scene.priority_class("urgent", 1000)
    await scene.nodes("a", cpu="4")
    for name in ("low-0", "low-1"):
        await scene.create(name, "2", scheduler=SCHEDULER_NAME)
        await scene.api.wait_for(scene.path(name), lambda each: each["status"].get("phase") == "Running")
    await scene.create("urgent", "2", scheduler=scheduler, priorityClassName="urgent")
    assert await scene.node_of("urgent") == "a"
    (left,) = {each["metadata"]["name"] for each in await scene.pods()} - {"urgent"}
    assert left in ("low-0", "low-1")


@BOTH
async def test_move(scene: ClusterScenario, scheduler: str) -> None:
    """A running pod is evicted for a large one, and its replacement takes the room that was reserved for it."""
    act = {"mode": "Act", "minAge": "0s"}
    for name in ("own", "steered"):
        delivery = "Binder" if name == "own" else "Extender"
        await scene.policy(name, selects={"podSelector": {}}, delivery=delivery, rescheduling=act)
    await scene.nodes("a", cpu="4")
    moved = await scene.replica(scheduler=scheduler)
    await scene.nodes("b", cpu="2")
    replaced = await count(scene.operator, "thalweg_moves_total", "replaced")
    await scene.create("large", "4", scheduler=scheduler, nodeSelector={ON: "a"})
    assert await scene.node_of("large") == "a"

    async def others() -> set[str]:
        return {each["metadata"]["name"] for each in await scene.pods()} - {"large"}

    await until(others, 30, lambda: "the replacement")
    (replacement,) = await others()
    assert replacement != moved["metadata"]["name"]
    assert await scene.node_of(replacement) == "b"
    assert await count(scene.operator, "thalweg_moves_total", "replaced") == replaced + 1


async def test_queue(scene: ClusterScenario) -> None:
    """Two owners get half of the room each; the limit of a third one holds, and its pod is told so."""
    for each in (queue("a"), queue("b"), queue("capped", limit={"cpu": "100m"})):
        await scene.api.create(each)
    for name in ("a", "b", "capped"):
        await scene.api.wait_for(f"{QUEUES}/{name}", lambda each: condition(each, "Accepted").get("status") == "True")
    names = [f"{team}-{at}" for at in range(4) for team in "ab"]
    own = {"scheduler": SCHEDULER_NAME}
    await scene.api.create_many([scene.pod(name, "1", labels={"team": name[0]}, **own) for name in names])
    await scene.reason_of(names[-1])
    await scene.nodes("n", cpu="4500m")
    for team in "ab":
        await scene.api.wait_for(
            f"{QUEUES}/{team}", lambda each: each["status"].get("pods") == {"placed": 2, "waiting": 2}, within=60
        )
    for number in range(2):
        await scene.create(f"capped-{number}", labels={"team": "capped"}, **own)
    await scene.node_of("capped-0")
    await scene.reason_of("capped-1", "The limit of FlowQueue capped leaves too little cpu for it.")


async def test_refused_policy(scene: ClusterScenario) -> None:
    """The API server refuses what the schema can tell; the operator says in the status what it cannot take."""
    with pytest.raises(ApiError, match=r"spec\.steering: Prefer needs delivery Extender") as caught:
        await scene.api.create(policy("wrong", steering="Prefer"))
    assert caught.value.status == 422
    made = await scene.policy("unknown", selects={"podSelector": {}}, cost={"model": "NoSuchModel"})
    refused = condition(made, "Accepted")
    assert refused["status"] == "False"
    assert "NoSuchModel" in refused["message"]
    await scene.nodes("a")
    await scene.create("placed-all-the-same", scheduler=SCHEDULER_NAME)
    assert await scene.node_of("placed-all-the-same") == "a"


async def test_restart(scene: ClusterScenario) -> None:
    """Stopped, it ends with code 0. Started again, it counts what runs and places what came meanwhile."""
    await scene.nodes("a", cpu="2")
    await scene.create("before", "1")
    await scene.node_of("before")
    assert await scene.operator.stop() == 0
    for name in ("first", "second"):
        await scene.create(name, "1", scheduler=SCHEDULER_NAME)
    await scene.operator.start()
    await scene.wait_settled()
    nodes = [(await scene.get(name))["spec"].get("nodeName", "") for name in ("first", "second")]
    assert sorted(nodes) == ["", "a"]


async def test_lease(scene: ClusterScenario, tmp_path: Path) -> None:
    """A second operator ends with one sentence that names the lease; the first one goes on."""
    async with running_operator(scene.operator.kubeconfig, tmp_path / "second.log", lease=LEASE, wait=False) as second:
        assert await second.ended(60) == 1
        assert f"holds the lease {LEASE}" in second.log
        assert "Traceback" not in second.log
    await scene.nodes("a")
    await scene.create("after", scheduler=SCHEDULER_NAME)
    assert await scene.node_of("after") == "a"


async def test_view(scene: ClusterScenario, port: int) -> None:
    """It says why a pod waits to an account that may list pods, and nothing to others."""
    await scene.nodes("a", cpu="1")
    await scene.create("large", "64", scheduler=SCHEDULER_NAME)
    await scene.reason_of("large", "Insufficient cpu")
    everybody = await account_that_lists(scene.api, "sees-all", cluster=ALL)
    nobody = await account_that_lists(scene.api, "sees-nothing")
    async with view_session() as http:
        await answered(Viewer(http, port, everybody), "overview", 200)
        status, why = await Viewer(http, port, everybody).ask("why", {"target": f"{scene.namespace}/large"})
        assert (status, why["kind"]) == (200, "NothingFits")
        assert (await Viewer(http, port, nobody).ask("pending"))[0] == 403
        assert (await Viewer(http, port, "no-token").ask("overview"))[0] == 401


async def test_uninstall(plane: tuple[ControlPlane, Api], operator: Operator) -> None:
    """It refuses while the operator runs. After that gates are opened, and admission and policies are gone."""
    control, api = plane
    await api.create(policy("all", delivery="Extender", waiting="Gate", selects={"podSelector": {}}))

    async def gated(name: str) -> bool:
        made = await api.create(pod(name, scheduler=STEERED_NAME))
        return bool(made["spec"].get("schedulingGates"))

    names = (f"gated-{number}" for number in range(1000))
    await until(lambda: gated(next(names)), 30, lambda: "a new pod to be gated")
    words = ("uninstall", "--kubeconfig", control.kubeconfig, "--yes", "-o", "json", "--policies", "--lease", LEASE)
    done = await asyncio.to_thread(thalweg, *words)
    assert done.returncode == 1
    assert "Stop the operator first" in done.stderr
    assert await operator.stop() == 0
    done = await asyncio.to_thread(thalweg, *words)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["problems"], answer["policiesDeleted"]) == ([], 1)
    assert not any(each["spec"].get("schedulingGates") for each in await api.list("/api/v1/pods"))
    assert await api.list(POLICIES) == []
    assert not await gated("after")
