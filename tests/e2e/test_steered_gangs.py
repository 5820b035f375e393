"""Gangs on a real API server, bound by kube-scheduler: behind gates that the API server gives them, opened together."""

import pytest
from support import gang_scenarios as gang_scenes
from support.cluster_scenario import ClusterScenario
from support.steering import gates_in_effect

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED = {"gangs": {"timeout": f"{gang_scenes.TIMEOUT}s"}}


@pytest.mark.parametrize("scenario", gang_scenes.SCENARIOS, ids=lambda each: each.__name__)
async def test_gangs(scene: ClusterScenario, scenario: gang_scenes.Scenario) -> None:
    """See the scenarios."""
    await gates_in_effect(scene, gang_scenes.members(scene, "gated", 1)[0])
    await scenario(scene)


async def test_a_pod_group_that_kube_scheduler_does_not_know(scene: ClusterScenario) -> None:
    """kube-scheduler's own gang scheduling is off here: it tries each pod by itself, without a gate, and none alone."""
    await gates_in_effect(scene, gang_scenes.members(scene, "gated", 1)[0])
    await scene.api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": scene.namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        }
    )
    await scene.nodes("a", cpu="2")
    names = [f"train-{n}" for n in range(4)]
    group = {"schedulingGroup": {"podGroupName": "train"}}
    for name in names:
        made = await scene.create(name, "1", **group)
        assert "schedulingGates" not in made["spec"]
        await scene.wait_for_round(f"after-{name}")
    where = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await scene.pods()}
    assert not any(where[name] for name in names)
    await scene.nodes("b", cpu="2")
    await scene.nodes_of(*names)
