"""Running pods are moved on the real API server, so that a large one fits: a Deployment makes the replacements."""

from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
ACT = {"mode": "Act", "minAge": "0s"}
STEERED = {"rescheduling": ACT}
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])
ON = "kubernetes.io/hostname"


async def fragmented(scene: ClusterScenario, scheduler: str, rescheduling: dict[str, str]) -> dict[str, Any]:
    """A ReplicaSet's pod runs on a. It may go to b, which is half full, and to c, which is empty; its pod.

    No round would send it to b by itself: c has more room.
    """
    await scene.policy("own", selects={"podSelector": {}}, rescheduling=rescheduling)
    await scene.nodes("a", cpu="4")
    found = await scene.replica(scheduler=scheduler)
    await scene.nodes("b", "c", cpu="4")
    await scene.create("filler", "2", scheduler=scheduler, nodeSelector={ON: "b"})
    await scene.node_of("filler")
    return found


async def large_pod(scene: ClusterScenario, scheduler: str) -> None:
    """It needs all of a."""
    await scene.create("large", "4", scheduler=scheduler, nodeSelector={ON: "a"})


@BOTH
async def test_a_pod_is_moved(scene: ClusterScenario, scheduler: str) -> None:
    """It is evicted, its replacement takes the room that was reserved on b, and the large pod comes to a."""
    moved = await fragmented(scene, scheduler, ACT)
    replaced = await count(scene.operator, "thalweg_moves_total", "replaced")
    await large_pod(scene, scheduler)
    assert await scene.node_of("large") == "a"
    names = [each["metadata"]["name"] for each in await scene.pods()]
    assert moved["metadata"]["name"] not in names
    (replacement,) = set(names) - {"large", "filler"}
    assert await scene.node_of(replacement) == "b"
    assert await count(scene.operator, "thalweg_moves_total", "replaced") == replaced + 1


async def test_a_move_is_proposed(scene: ClusterScenario) -> None:
    """The policy's status says what would be moved, for whom and where to; nothing is done."""
    moved = await fragmented(scene, SCHEDULER_NAME, {**ACT, "mode": "Propose"})
    await large_pod(scene, SCHEDULER_NAME)
    found = await scene.policy_seen("own", 1, lambda each: each["status"].get("rescheduling", {}).get("count") == 1)
    assert found["status"]["rescheduling"]["proposals"] == [
        {
            "pod": f"{scene.namespace}/{moved['metadata']['name']}",
            "node": "a",
            "to": "b",
            "for": [f"{scene.namespace}/large"],
            "kind": "Migration",
        }
    ]
    await scene.reason_of("large", "Insufficient cpu")
    assert not scene.history.deleted
    await scene.policy("own", selects={"podSelector": {}}, rescheduling=ACT)
    assert await scene.node_of("large") == "a"
    assert (
        "rescheduling"
        not in (await scene.policy_seen("own", 2, lambda each: "rescheduling" not in each["status"]))["status"]
    )


GAIN = {"minAge": "0s", "reasons": ["Gain"], "minGain": 1, "price": {"startup": "1s", "lostWork": "Ignore"}}


async def crowd(scene: ClusterScenario, scheduler: str, mode: str) -> dict[str, Any]:
    """A ReplicaSet's pod runs on a beside another pod, and then there is b, which is empty; the ReplicaSet's pod."""
    delivery = {"delivery": "Extender", "precedence": 1} if scheduler == STEERED_NAME else {}
    await scene.policy("own", selects={"podSelector": {}}, rescheduling={**GAIN, "mode": mode}, **delivery)
    await scene.nodes("a", cpu="6")
    crowded = await scene.replica(scheduler=scheduler)
    await scene.create("filler", "2", scheduler=scheduler)
    assert await scene.node_of("filler") == "a"
    await scene.nodes("b", cpu="6")
    return crowded


@BOTH
async def test_a_pod_moves_for_gain(scene: ClusterScenario, scheduler: str) -> None:
    """Nobody waits. Its replacement takes the room that was reserved on b, and nothing moves after that."""
    replaced = await count(scene.operator, "thalweg_moves_total", "replaced")
    moved = await crowd(scene, scheduler, "Act")

    async def is_replaced() -> bool:
        return await count(scene.operator, "thalweg_moves_total", "replaced") == replaced + 1

    await until(is_replaced, 90, lambda: "the replacement of the moved pod")
    names = {each["metadata"]["name"] for each in await scene.pods()} - {moved["metadata"]["name"], "filler"}
    (replacement,) = names
    assert await scene.node_of(replacement) == "b"
    await scene.nodes("c", cpu="1")  # another round
    await scene.create("small", "100m", scheduler=scheduler)
    await scene.node_of("small")
    assert {each["metadata"]["name"] for each in await scene.pods()} == {replacement, "filler", "small"}


async def test_a_move_for_gain_is_proposed(scene: ClusterScenario) -> None:
    """The policy's status says where the pod would go and what it would gain; nobody is evicted."""
    moved = await crowd(scene, SCHEDULER_NAME, "Propose")
    seen = await scene.policy_seen("own", 1, lambda each: each["status"].get("rescheduling", {}).get("count") == 1)
    (proposal,) = seen["status"]["rescheduling"]["proposals"]
    assert proposal.pop("gain") > 0
    key = f"{scene.namespace}/{moved['metadata']['name']}"
    assert proposal == {"pod": key, "node": "a", "to": "b", "kind": "Migration"}
    assert not scene.history.deleted
