"""One control plane and one operator a module; one namespace, and the safety checks at its end, a test.

A module says with ``PLANE`` which components it wants. With ``STEERED`` it says that kube-scheduler is to ask the
operator, by way of a ``DelayingProxy``, and what the policy says beside that: all pods that name the steered profile
are governed, and every reservation has ended when a test does. A test that breaks things for good makes its own.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario, install_crds, running_scenario
from support.controlplane import binaries, oracle, running
from support.operator import Operator, free_address, running_operator
from support.operator_logs import pytest_runtest_makereport
from support.steering import DelayingProxy, no_reservations, scheduler_config
from thalweg_controlplane import Api, Binaries, ControlPlane, Oracle

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

__all__ = ["binaries", "oracle", "pytest_runtest_makereport"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(request: pytest.FixtureRequest) -> AsyncIterator[DelayingProxy | None]:
    """Between kube-scheduler and the operator, whose address must be known before either starts."""
    if not hasattr(request.module, "STEERED"):
        yield None
        return
    async with DelayingProxy(free_address()) as relay:
        yield relay


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    binaries: Binaries, relay: DelayingProxy | None, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[ControlPlane, Api]]:
    bare = {"controller_manager": False, "scheduler": False, "kwok": False}
    options = {**bare, **getattr(request.module, "PLANE", {})}
    if relay is not None:
        options["scheduler_config"] = scheduler_config(relay)
    async with running(binaries, **options) as (plane, api):
        await install_crds(api)
        yield plane, api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    plane: tuple[ControlPlane, Api], relay: DelayingProxy | None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    extender = ("--extender-listen", relay.to) if relay else ()
    async with running_operator(plane[0].kubeconfig, log, extender=extender) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="module")
async def scene(
    plane: tuple[ControlPlane, Api], operator: Operator, oracle: Oracle, request: pytest.FixtureRequest
) -> AsyncIterator[ClusterScenario]:
    name = (
        request.node.name.removeprefix("test_").replace("_", "-").replace("[", "-").rstrip("]")[:60].rstrip("-").lower()
    )
    accounts = getattr(request.module, "PLANE", {}).get("controller_manager", False)
    steered = getattr(request.module, "STEERED", None)
    scheduler = SCHEDULER_NAME if steered is None else STEERED_NAME
    async with running_scenario(plane[1], operator, name, oracle, accounts=accounts, scheduler=scheduler) as scene:
        if steered is not None:
            await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", **steered)
        yield scene
        if steered is not None:
            await no_reservations(scene)
