"""Whatever breaks: what can run is bound within a stated time, once, and no gang is in part; memory is as before."""

import asyncio
from collections.abc import Callable

import pytest
import pytest_asyncio
from support.arrivals import some_bound
from support.binding_requests import check_bindings
from support.cluster_scenario import running_scenario
from support.fault_world import FaultWorld, Load, idle, memory_back, seconds_until
from support.faults import FAULTS, Fault
from thalweg_controlplane import Oracle

from flowcore.model.policies import STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

SINGLES = 80
#: What the processes may hold more than before all faults: freed memory does not all go back to the system.
ALLOWED, SLACK = 0.15, 16 << 20


async def run(world: FaultWorld, oracle: Oracle, name: str, fault: Fault | None) -> float:
    """Pods arrive, a fault strikes, and all that can run is bound; the seconds from its end until then."""
    asked_before = len(world.proxy.requests)
    async with running_scenario(world.api, world.operator, name, oracle) as scene:
        scene.watches_history.add(STEERED_NAME)
        selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
        await scene.policy("steered", selects=selects, delivery="Extender")
        load = Load(scene, SINGLES)
        await load.make_nodes()
        arriving = asyncio.create_task(load.arrive())
        await some_bound(scene, SINGLES // 5)
        if fault is None:
            load.continue_arriving()
        else:
            strike = asyncio.create_task(fault.strike(world, load))
            await asyncio.sleep(0)  # the strike begins
            load.continue_arriving()
            await strike
        seconds = await seconds_until(load.converged(60 if fault is None else fault.within))
        await arriving
        await load.check()
        asked = check_bindings(world.proxy.requests[asked_before:], world.operator.began)
        assert await load.bound_by_binder() <= asked
    await idle(world)
    return seconds


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def memory_before(world: FaultWorld, oracle: Oracle) -> int:
    """Bytes that the processes hold after the load was there once without any fault."""
    await run(world, oracle, "warm-up", None)
    return world.memory()


def _parameters() -> list[object]:
    slow = [pytest.mark.timeout(1800)]
    return [pytest.param(fault, id=fault.name, marks=slow if fault.slow else []) for fault in FAULTS]


@pytest.mark.parametrize("fault", _parameters())
async def test_survives(
    world: FaultWorld,
    memory_before: int,
    oracle: Oracle,
    fault: Fault,
    record_property: Callable[[str, object], None],
) -> None:
    """While pods and gangs arrive that fill the cluster exactly; every check of `check_invariants` holds afterwards."""
    name = "".join(letter if letter.isalnum() else "-" for letter in fault.name.lower())
    seconds = await run(world, oracle, name, fault)
    after = await memory_back(world, memory_before, ALLOWED, SLACK)
    record_property("fault", fault.name)
    record_property("seconds to converge", round(seconds, 2))
    record_property("MiB before", memory_before >> 20)
    record_property("MiB after", after >> 20)
