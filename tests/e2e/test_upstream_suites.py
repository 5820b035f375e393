"""Kubernetes' own tests of scheduling: none fails that kube-scheduler alone passes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.tools import built
from support.upstream.building import E2E, INTEGRATION, find_or_build_suites
from support.upstream.clusters import Placing
from support.upstream.playing import missed, play
from thalweg_controlplane import Binaries

#: Has control planes of its own.
BREAKS_PLANE = True
#: They wait for minutes, whoever schedules: `python tests/play_upstream.py` plays them.
LONG = "there exists conflict between pods with same hostPort"


@pytest.fixture(scope="module")
def suites(request: pytest.FixtureRequest) -> Mapping[str, Path]:
    return built("tests of Kubernetes", request.config, find_or_build_suites)


@pytest.mark.parametrize("names", [[E2E], list(INTEGRATION)], ids=["e2e", "integration"])
@pytest.mark.parametrize("placing", [Placing.BINDER, Placing.STEERED])
async def test_what_kube_scheduler_passes_passes(
    placing: Placing, names: list[str], binaries: Binaries, suites: Mapping[str, Path], tmp_path: Path
) -> None:
    """With our binder, and with kube-scheduler that we steer."""
    chosen = {name: suites[name] for name in names}
    results = await play(placing, binaries, chosen, tmp_path, without=LONG)
    assert missed(results, chosen, without=LONG) == {}
