"""The seeds' figures, drawn in YAML, on a real API server: kube-scheduler binds each pod where the text says."""

import pytest
from support.cluster_scenario import ClusterScenario
from support.drawn_networks import EXPECTED, check_figure

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}


@pytest.mark.parametrize("name", EXPECTED)
async def test_figures(scene: ClusterScenario, name: str) -> None:
    """See the binder's test."""
    await check_figure(scene, name, delivery="Extender")
