"""Gangs on a real API server, bound by us: whole or absent, the best set of them, and what comes late or is lost."""

import pytest
import pytest_asyncio
from support import gang_scenarios as gang_scenes
from support.cluster_scenario import ClusterScenario

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def gangs(scene: ClusterScenario) -> ClusterScenario:
    """A scene whose policy says how long a gang may be there in part."""
    selects = {"schedulerNames": [SCHEDULER_NAME], "podSelector": {}}
    await scene.policy("gangs", selects=selects, gangs={"timeout": f"{gang_scenes.TIMEOUT}s"})
    return scene


@pytest.mark.parametrize("scenario", gang_scenes.SCENARIOS, ids=lambda each: each.__name__)
async def test_gangs(gangs: ClusterScenario, scenario: gang_scenes.Scenario) -> None:
    """See the scenarios."""
    await scenario(gangs)
