"""A pod takes the place of another on the real API server: eviction, its budgets, and then the binding, both ways."""

from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
ANYBODY = {"victims": "Governed"}
STEERED = {"replaces": ANYBODY}
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])


def instead_of(name: str) -> dict[str, dict[str, str]]:
    """Says whose place a pod is to take."""
    return {"annotations": {"scheduling.thalweg/replaces": name}}


async def runs(scene: ClusterScenario, name: str) -> dict[str, Any]:
    """Waits until a pod's kubelet says so; the pod."""
    found: dict[str, Any] = await scene.api.wait_for(
        scene.path(name), lambda each: each["status"].get("phase") == "Running"
    )
    return found


async def gone(scene: ClusterScenario, name: str) -> bool:
    """Whether there is no such pod."""
    return name not in {each["metadata"]["name"] for each in await scene.pods()}


async def figure_4(scene: ClusterScenario) -> None:
    """The old pod fills its node; then another node comes, as large and empty. These pods have no controller."""
    await scene.policy("own", selects={"podSelector": {}}, replaces=ANYBODY)
    await scene.nodes("m0", cpu="4")
    await scene.create("t0", "4", scheduler=SCHEDULER_NAME, labels={"app": "old"})
    await runs(scene, "t0")
    await scene.nodes("m1", cpu="4")


@BOTH
async def test_figures_4_and_5(scene: ClusterScenario, scheduler: str) -> None:
    """The new pod comes where the old one ran, once that one has left; a third one that waits longer is not let in."""
    await figure_4(scene)
    before = await count(scene.operator, "thalweg_evictions_total", "evicted")
    await scene.create("third", "4", scheduler=SCHEDULER_NAME, nodeSelector={"kubernetes.io/hostname": "m0"})
    await scene.reason_of("third", "Insufficient cpu")
    await scene.create("t1", "3", scheduler=scheduler, **instead_of("t0"))
    assert await scene.node_of("t1") == "m0"
    assert await gone(scene, "t0")
    await runs(scene, "t1")
    await scene.reason_of("third", "Insufficient cpu")
    assert await count(scene.operator, "thalweg_evictions_total", "evicted") == before + 1


@BOTH
async def test_a_budget_forbids_it_for_now(scene: ClusterScenario, scheduler: str) -> None:
    """The old pod stays and the new one is told in the API server's words; once it may, it goes on by itself."""
    await figure_4(scene)
    budget = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/old"
    await scene.api.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "old", "namespace": scene.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "old"}}},
        }
    )
    await scene.api.wait_for(budget, lambda each: each.get("status", {}).get("currentHealthy") == 1)
    await scene.create("t1", "4", scheduler=scheduler, **instead_of("t0"))
    said = "cannot be evicted now: Cannot evict pod as it would violate the pod's disruption budget."
    if scheduler == SCHEDULER_NAME:
        await scene.reason_of("t1", f"Waiting for {scene.namespace}/t0 to terminate", said)
    else:

        async def heard() -> bool:
            return any(said in event["message"] for event in await scene.events_of("t1"))

        await until(heard, 30, lambda: "our Event")
    assert not await gone(scene, "t0")
    await scene.api.patch(budget, {"spec": {"minAvailable": 0}})
    assert await scene.node_of("t1", within=60) == "m0"
    assert await gone(scene, "t0")


async def test_the_old_one_stays_where_the_new_one_cannot_start(scene: ClusterScenario) -> None:
    """It does not fit, may not go to that node, or says nobody's name: it is told so, and nobody is evicted."""
    await figure_4(scene)
    before = await count(scene.operator, "thalweg_evictions_total")
    await scene.create("large", "5", scheduler=SCHEDULER_NAME, **instead_of("t0"))
    picky = {"kubernetes.io/hostname": "m1"}
    await scene.create("picky", scheduler=SCHEDULER_NAME, nodeSelector=picky, **instead_of("t0"))
    await scene.create("unreadable", scheduler=SCHEDULER_NAME, **instead_of("No Pod"))
    place = f"cannot replace {scene.namespace}/t0 on node m0"
    await scene.reason_of("large", f"{place}: Insufficient cpu")
    await scene.reason_of("picky", f"{place}: node(s) didn't match Pod's node affinity/selector")
    await scene.reason_of("unreadable", "its annotation scheduling.thalweg/replaces names no pod: 'No Pod'")
    # One that names a pod that never was is placed like any other.
    await scene.create("other", scheduler=SCHEDULER_NAME, **instead_of("never-was"))
    assert await scene.node_of("other") == "m1"
    assert not await gone(scene, "t0")
    assert await count(scene.operator, "thalweg_evictions_total") == before


@BOTH
async def test_a_restart_while_the_old_one_leaves(scene: ClusterScenario, scheduler: str) -> None:
    """It takes long to go, for somebody's finalizer: the new operator waits for it too, and then takes its place."""
    await scene.policy("own", selects={"podSelector": {}}, replaces=ANYBODY)
    await scene.nodes("m0", cpu="4")
    slow = scene.pod("t0", "4", scheduler=SCHEDULER_NAME)
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    await scene.api.create(slow)
    await runs(scene, "t0")
    await scene.nodes("m1", cpu="4")
    await scene.create("t1", "4", scheduler=scheduler, **instead_of("t0"))
    await scene.api.wait_for(scene.path("t0"), lambda each: "deletionTimestamp" in each["metadata"])
    await scene.operator.kill()
    await scene.operator.start()
    await scene.wait_for_round("later")
    assert "nodeName" not in (await scene.get("t1"))["spec"]
    await scene.api.patch(scene.path("t0"), {"metadata": {"finalizers": None}})
    assert await scene.node_of("t1") == "m0"


async def test_by_default_only_pods_of_the_same_controller(scene: ClusterScenario) -> None:
    """A bare pod that names another one waits with the reason and evicts nobody; once the policy allows it, it goes."""
    await figure_4(scene)
    before = await count(scene.operator, "thalweg_evictions_total")
    await scene.policy("own", selects={"podSelector": {}})
    await scene.create("t1", "4", scheduler=SCHEDULER_NAME, **instead_of("t0"))
    await scene.reason_of("t1", f"may not replace {scene.namespace}/t0", "not of the same controller")
    assert not await gone(scene, "t0")
    assert await count(scene.operator, "thalweg_evictions_total") == before
    await scene.policy("own", selects={"podSelector": {}}, replaces=ANYBODY)
    assert await scene.node_of("t1") == "m0"


async def test_a_gang_takes_the_places_of_two(scene: ClusterScenario) -> None:
    """Two of its pods name running ones, and the third needs a node: until it comes nobody leaves."""
    await scene.policy("own", selects={"podSelector": {}}, replaces=ANYBODY)
    await scene.nodes("m0", "m1", cpu="4")
    for name in ("t0", "t1"):
        await scene.create(name, "4", scheduler=SCHEDULER_NAME)
        await runs(scene, name)
    gang = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "3"}
    for name, old in (("g0", "t0"), ("g1", "t1"), ("g2", "")):
        replaces = instead_of(old)["annotations"] if old else {}
        await scene.create(name, "3", scheduler=SCHEDULER_NAME, annotations={**gang, **replaces})
    await scene.reason_of("g0", "2 pods of", "would take the places of running pods")
    assert not await gone(scene, "t0")
    assert not await gone(scene, "t1")
    await scene.nodes("m2", cpu="4")
    places = await scene.nodes_of("g0", "g1", "g2", within=60)
    olds = {"m0", "m1"}
    assert places["g2"] == "m2"
    assert {places["g0"], places["g1"]} == olds
    assert await gone(scene, "t0")
    assert await gone(scene, "t1")
