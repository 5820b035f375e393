"""What the operator sees of a cluster, without what it does about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from thalweg_controlplane import ControlPlane
from thalweg_operator.api.client import connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.app import Operator
from thalweg_operator.settings import Settings


@asynccontextmanager
async def watched_cluster(plane: ControlPlane) -> AsyncIterator[DrivenLedger]:
    """The operator's state, fed by all its reflectors, without the rest of it."""
    async with connect(plane.kubeconfig, 32) as connection:
        settings = Settings(kubeconfig=plane.kubeconfig)
        operator = Operator(settings, connection, LeaderElector(connection, Fence(), settings.lease))
        tasks = [asyncio.create_task(each.run()) for each in operator._reflectors.values()]
        try:
            await until(lambda: unready(operator) == ["policies", "lease"], 30, lambda: str(operator.readiness()))
            yield DrivenLedger.of(operator._shell)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def unready(operator: Operator) -> list[str]:
    """Names of the checks of /readyz that fail."""
    return [name for name, problem in operator.readiness().items() if problem]
