"""What the operator sees of a cluster, without what it does about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.operator import until
from thalweg_controlplane import ControlPlane
from thalweg_operator.connection import connect
from thalweg_operator.fence import Fence
from thalweg_operator.lease import Elector
from thalweg_operator.program import Operator
from thalweg_operator.settings import Settings
from thalweg_operator.state import ClusterState


@asynccontextmanager
async def watching(plane: ControlPlane) -> AsyncIterator[ClusterState]:
    """The operator's state, fed by all its reflectors, without the rest of it."""
    async with connect(plane.kubeconfig, 32) as connection:
        settings = Settings(kubeconfig=plane.kubeconfig)
        operator = Operator(settings, connection, Elector(connection, Fence(), settings.lease))
        tasks = [asyncio.create_task(each.run()) for each in operator._reflectors.values()]
        try:
            await until(lambda: operator.not_ready() == ["policies", "lease"], 30, lambda: str(operator.not_ready()))
            yield operator._state
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
