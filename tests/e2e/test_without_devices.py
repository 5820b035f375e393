"""A cluster without resource.k8s.io, and one whose operator may not read slices and claims: all else goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiohttp import web
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, running_operator
from support.proxy import Forward, proxied
from thalweg_controlplane import Api, ControlPlane

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = "/apis/resource.k8s.io/"
#: Most requests for what is not there in the seconds of a test: each kind is asked for again now and then.
MOST_REQUESTS = 15


@dataclass
class Hidden:
    """What the API server does not serve, and what was asked of it."""

    status: int
    paths: tuple[str, ...]
    asked: list[str] = field(default_factory=list)

    async def disturb(self, request: web.Request, forward: Forward) -> web.StreamResponse:
        if request.path.startswith(GROUP) and request.path.endswith(self.paths):
            self.asked.append(request.path)
            reason = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
            return web.json_response(reason | {"message": "hidden"}, status=self.status)
        return await forward(request)


CASES = {
    "absent": Hidden(404, ("deviceclasses", "resourceslices", "resourceclaims")),
    "refused": Hidden(403, ("resourceslices", "resourceclaims")),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def hidden(request: pytest.FixtureRequest) -> Hidden:
    return CASES[request.param]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    hidden: Hidden, plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    """One to which this is hidden."""
    async with proxied(*plane, tmp_path_factory.mktemp("proxy")) as proxy:
        proxy.disturbance = hidden.disturb
        log = tmp_path_factory.mktemp("operator") / "operator.log"
        async with running_operator(proxy.kubeconfig, log) as operator:
            yield operator


async def test_all_else_goes_on(scene: ClusterScenario, hidden: Hidden) -> None:
    """The operator is ready and binds; a pod with a claim is told what cannot be read; nobody asks all the time."""
    await scene.nodes("a", cpu="8")
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    await scene.create("claiming", "1", resourceClaims=claims, scheduler=SCHEDULER_NAME)
    started = time.monotonic()
    names = [f"p{number}" for number in range(20)]
    await scene.api.create_many([scene.pod(name, "100m", scheduler=SCHEDULER_NAME) for name in names])
    assert set((await scene.nodes_of(*names)).values()) == {"a"}
    await scene.reason_of("claiming", "resource claims")
    await asyncio.sleep(max(0.0, 5 - (time.monotonic() - started)))
    assert hidden.asked
    assert len(hidden.asked) <= MOST_REQUESTS, hidden.asked
