"""FlowQueue: what the API server refuses, who gets the room of a cluster that owners share, and what users see."""

from typing import Any

import pytest
from support.cluster_scenario import QUEUES, ClusterScenario, queue
from support.operator import until
from thalweg_controlplane import Api, ApiError, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")


def accepted(found: dict[str, Any]) -> tuple[str, str]:
    """Status and reason of the condition."""
    conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
    return (conditions["Accepted"]["status"], conditions["Accepted"]["reason"]) if conditions else ("", "")


REFUSED = {
    "below itself": ({"parent": "wrong"}, "spec.parent: a queue cannot be below itself"),
    "no weight": ({"weight": 0}, "greater than or equal to 1"),
    "no quantity": ({"limit": {"cpu": "many"}}, "should match"),
    "a negative guarantee": ({"guarantee": {"cpu": "-1"}}, "should match"),
    "an unknown mode": ({"reclaim": {"mode": "Always"}}, 'supported values: "Never", "LowerOrEqualPriority"'),
    "no duration": ({"reclaim": {"minRuntime": "soon"}}, "should match"),
}


@pytest.mark.parametrize("mistake", sorted(REFUSED))
async def test_refused(plane: tuple[ControlPlane, Api], mistake: str) -> None:
    """The API server refuses the mistake itself, in words that help."""
    _, api = plane
    spec, words = REFUSED[mistake]
    with pytest.raises(ApiError) as caught:
        await api.create(queue("wrong", **spec))
    assert caught.value.status == 422
    assert words in str(caught.value)


async def test_two_owners_share_and_a_limit_holds(plane: tuple[ControlPlane, Api], scene: ClusterScenario) -> None:
    """Twice as many pods as there is room for: each owner gets half. The status says so; a capped owner is told why."""
    _, api = plane
    for each in (
        queue("a"),
        queue("b"),
        queue("capped", limit={"cpu": "200m"}),
        queue("circle", parent="round"),
        queue("round", parent="circle"),
        queue("greedy", guarantee={"cpu": 1000}),
    ):
        await api.create(each)
    await api.wait_for(f"{QUEUES}/circle", lambda each: accepted(each) == ("False", "Circle"))
    await api.wait_for(f"{QUEUES}/a", lambda each: accepted(each) == ("True", "Valid"))
    names = [f"{team}-{at}" for at in range(8) for team in "ab"]
    await api.create_many([scene.pod(name, "1", labels={"team": name[0]}) for name in names])
    await scene.reason_of(names[-1])
    await scene.nodes("n", cpu="8500m")

    def shares(used: str, pending: int) -> Any:
        def seen(each: dict[str, Any]) -> bool:
            status = each.get("status", {})
            return status.get("used", {}).get("cpu") == used and status["pods"]["waiting"] == pending

        return seen

    for team in "ab":
        status = (await api.wait_for(f"{QUEUES}/{team}", shares("4", 4), within=60))["status"]
        assert status["pods"]["placed"] == 4
        assert status["shares"]["used"] == "47.1%"
    await api.wait_for(f"{QUEUES}/greedy", lambda each: accepted(each) == ("False", "GuaranteeAboveCluster"))
    for at in range(3):
        await scene.create(f"capped-{at}", labels={"team": "capped"})
    await scene.nodes_of("capped-0", "capped-1")
    await scene.reason_of("capped-2", "The limit of FlowQueue capped leaves too little cpu for it.")
    found = await scene.get("capped-2")
    (condition,) = (each for each in found["status"]["conditions"] if each["type"] == "PodScheduled")
    assert condition["reason"] == "QueueLimit"
    await api.delete(f"{QUEUES}/capped")
    await scene.node_of("capped-2")


async def test_an_owner_takes_back_what_it_lent(plane: tuple[ControlPlane, Api], scene: ClusterScenario) -> None:
    """One owner has all four places; the other one comes with four pods: two leave for two of them, and no more."""
    _, api = plane
    for team in "ab":
        await api.create(queue(team, reclaim={"minRuntime": "0s"}))
        await api.wait_for(f"{QUEUES}/{team}", lambda each: accepted(each) == ("True", "Valid"))
    await scene.nodes("n", cpu="4")
    await api.create_many([scene.pod(f"a-{at}", "1", labels={"team": "a"}) for at in range(4)])
    await scene.nodes_of(*(f"a-{at}" for at in range(4)))
    await api.create_many([scene.pod(f"b-{at}", "1", labels={"team": "b"}) for at in range(4)])
    leaving: list[str] = []

    async def leave() -> bool:
        nonlocal leaving
        leaving = [each["metadata"]["name"] for each in await scene.pods() if each["metadata"].get("deletionTimestamp")]
        return len(leaving) >= 2

    await until(leave, 60, lambda: f"two pods of a to leave, not {leaving}")
    assert {name[0] for name in leaving} == {"a"}
    await scene.delete(*leaving)  # the kubelet's part
    await api.wait_for(f"{QUEUES}/b", lambda each: each["status"]["pods"] == {"placed": 2, "waiting": 2}, within=60)
    await scene.wait_for_round("later")
    names = [each["metadata"]["name"] for each in await scene.pods() if not each["metadata"].get("deletionTimestamp")]
    assert sum(name.startswith("a-") for name in names) == 2
