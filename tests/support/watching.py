"""What the operator sees of a cluster, without what it does about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.operator import until
from thalweg_controlplane import ControlPlane
from thalweg_operator.connection import connect
from thalweg_operator.program import Operator
from thalweg_operator.settings import Settings
from thalweg_operator.state import ClusterState


@asynccontextmanager
async def watching(plane: ControlPlane) -> AsyncIterator[ClusterState]:
    """The operator's state, fed by all its reflectors, without the rest of it."""
    async with connect(plane.kubeconfig, 32) as connection:
        operator = Operator(Settings(kubeconfig=plane.kubeconfig), connection)
        tasks = [asyncio.create_task(each.run()) for each in operator._reflectors.values()]
        try:
            await until(lambda: operator.not_ready() == ["policies"], 30, lambda: str(operator.not_ready()))
            yield operator._state
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
