"""The seeds' figures, drawn in YAML, on a real API server: Thalweg binds each pod where the text says."""

import pytest
from support.cluster_scenario import ClusterScenario
from support.drawn_networks import EXPECTED, check_figure

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", EXPECTED)
async def test_figures(scene: ClusterScenario, name: str) -> None:
    """All pods come at once; those that have no place wait with a reason."""
    await check_figure(scene, name)
