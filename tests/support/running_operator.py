"""Fixtures of tests on a running operator. Import them into a conftest.py by name.

One operator a module; one namespace, and the safety checks at its end, a test.

A module says with ``PLANE`` which components it wants. With ``STEERED`` it says that kube-scheduler is to ask the
operator, by way of a ``DelayingProxy``, and what the policy says beside that: all pods that name the steered profile
are governed, and every reservation has ended when a test does. With ``GOVERNED_ONLY`` kube-scheduler asks about pods
with our mark only.

Modules that want the same share a control plane, one after the other: support/file_groups.py says which. A module whose
control plane is no use to others afterwards says so with ``BREAKS_PLANE``.

The operator runs as the account of rights/, and the API server's audit log is free of refusals at the module's end.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.cluster_scenario import POLICIES, QUEUES, ClusterScenario, install_crds, running_scenario
from support.controlplane import SharedPlane
from support.operator import Operator, free_address, running_operator
from support.rights import acting_account
from support.steering import DelayingProxy, no_reservations, scheduler_config
from thalweg_controlplane import Api, ControlPlane, Oracle

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME


@pytest.fixture(scope="session")
def addresses() -> tuple[str, str]:
    """Of the relay, and of the operator's extender. kube-scheduler is started with the first one."""
    return free_address(), free_address()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(request: pytest.FixtureRequest, addresses: tuple[str, str]) -> AsyncIterator[DelayingProxy | None]:
    """Between kube-scheduler and the operator."""
    if not hasattr(request.module, "STEERED"):
        yield None
        return
    address, to = addresses
    async with DelayingProxy(to, address) as relay:
        yield relay


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    shared_plane: SharedPlane, relay: DelayingProxy | None, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[ControlPlane, Api]]:
    bare = {"controller_manager": False, "scheduler": False, "kwok": False, "audit": True}
    options = {**bare, **getattr(request.module, "PLANE", {})}
    if relay is not None:
        options["scheduler_config"] = scheduler_config(relay, governed_only=hasattr(request.module, "GOVERNED_ONLY"))
    breaks_plane = getattr(request.module, "BREAKS_PLANE", False)
    if breaks_plane:
        await shared_plane.stop()
    failed_before = request.session.testsfailed
    plane = await shared_plane.take(**options)
    async with Api(plane.kubeconfig) as api:
        await install_crds(api)
        yield plane, api
        if breaks_plane or request.session.testsfailed > failed_before or await _is_littered(api):
            await shared_plane.stop()


async def _is_littered(api: Api) -> bool:
    """Whether a module left something behind that the next one would meet."""
    return any([await api.list(path) for path in ("/api/v1/pods", "/api/v1/nodes", POLICIES, QUEUES)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The operator's kubeconfig."""
    async with acting_account(*plane, tmp_path_factory.mktemp("account")) as kubeconfig:
        yield kubeconfig


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    account: Path,
    relay: DelayingProxy | None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    extender = ("--extender-listen", relay.to) if relay else ()
    if hasattr(request.module, "GOVERNED_ONLY"):
        extender += ("--ask-for", "Governed")
    async with running_operator(account, log, extender=extender) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="module")
async def scene(
    plane: tuple[ControlPlane, Api], operator: Operator, oracle: Oracle, request: pytest.FixtureRequest
) -> AsyncIterator[ClusterScenario]:
    words = f"{request.module.__name__.rpartition('.')[2]}-{request.node.name}".replace("test_", "")
    name = words.replace("_", "-").replace("[", "-").rstrip("]")[:60].rstrip("-").lower()
    accounts = getattr(request.module, "PLANE", {}).get("controller_manager", False)
    steered = getattr(request.module, "STEERED", None)
    scheduler = SCHEDULER_NAME if steered is None else STEERED_NAME
    async with running_scenario(plane[1], operator, name, oracle, accounts=accounts, scheduler=scheduler) as scene:
        if steered is not None:
            await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", **steered)
        yield scene
        if steered is not None:
            await no_reservations(scene)
