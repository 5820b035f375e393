"""Gangs on a real API server, bound by us: whole or absent, the best set of them, and what comes late or is lost."""

import pytest
import pytest_asyncio
from support import gang_scenes
from support.scene import Scene

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def gangs(scene: Scene) -> Scene:
    """A scene whose policy says how long a gang may be there in part."""
    selects = {"schedulerNames": [SCHEDULER_NAME], "podSelector": {}}
    await scene.policy("gangs", selects=selects, gangs={"timeout": f"{gang_scenes.TIMEOUT}s"})
    return scene


@pytest.mark.parametrize("scenario", gang_scenes.SCENARIOS, ids=lambda each: each.__name__)
async def test_gangs(gangs: Scene, scenario: gang_scenes.Scenario) -> None:
    """See the scenarios."""
    await scenario(gangs)
