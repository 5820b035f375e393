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
