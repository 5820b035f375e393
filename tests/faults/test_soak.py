"""Churn, for half a minute in the slow tier and for as long as `--soak-minutes` says: safe throughout, memory flat.

`python -m pytest -n 0 -s tests/faults/test_soak.py --soak-minutes 30` shows a line of progress after each spell.
"""

import sys
import time
from collections.abc import Callable

import pytest
from support.binding_requests import check_bindings
from support.cluster_scenario import running_scenario
from support.fault_world import FaultyCluster
from support.soak import Soak, SteeringReplicas
from thalweg_controlplane import Oracle

from flowcore.model.policies import STEERED_NAME

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(0)]

#: Seconds of churn between two rests, and how often the leader ends: in every so many spells.
SPELL, ENDS_EVERY = 10.0, 6
#: How much more all processes may hold an hour later; measured where the soak is long enough for a slope.
MOST_GROWTH, LONG = 24 << 20, 600


async def test_soak(
    cluster: FaultyCluster,
    replicas: SteeringReplicas,
    oracle: Oracle,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    """Pods, gangs, nodes, policies and leaders come and go, and between the spells everything is right."""
    seconds = 60 * request.config.getoption("--soak-minutes")
    async with running_scenario(cluster.api, replicas.replicas.operators[0], "soak", oracle) as scene:
        scene.watches_history.add(STEERED_NAME)
        selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
        await scene.policy("steered", selects=selects, delivery="Extender")
        soak = Soak(replicas, scene)
        await soak.begin()
        spell = 0
        while time.monotonic() - soak.began < seconds:
            await soak.churn(min(SPELL, seconds / 3), end_leader=spell % ENDS_EVERY == 1)
            running = await soak.rest()
            check_bindings(cluster.proxy.requests, max(each.began for each in replicas.replicas.operators))
            sys.stdout.write(soak.progress(running) + "\n")
            sys.stdout.flush()
            spell += 1
    record_property("growth, MiB an hour", round(soak.growth() / 2**20, 1))
    if seconds >= LONG:
        assert soak.growth() < MOST_GROWTH, soak.memory
