"""Several `thalweg run --replicated` on one lease: who leads, who stands by, and pods that come and go meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from support.cluster_scenario import ClusterScenario
from support.gang_scenarios import members
from support.operator import START_WITHIN, Operator, running_operator, until
from thalweg_controlplane import Api

NAME = "kube-system/thalweg-replicas"
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg-replicas"

#: As a holder leaves the lease that it releases.
RELEASED = {"holderIdentity": "", "leaseDurationSeconds": 1}


class Replicas:
    """See the module."""

    def __init__(self, api: Api, operators: Sequence[Operator]) -> None:
        self._api, self.operators = api, list(operators)

    async def leader(self, *others_than: Operator, within: float = START_WITHIN) -> Operator:
        """Waits until one of them leads, which is none of these."""
        found: list[Operator] = []

        async def leads() -> bool:
            nonlocal found
            candidates = [each for each in self.operators if each not in others_than and each.runs]
            found = [each for each in candidates if (await each.get("/readyz"))[0] == 200]
            return bool(found)

        await until(leads, within, lambda: "a leader")
        assert len(found) == 1, "two of them lead"
        return found[0]

    async def standby(self, within: float = START_WITHIN) -> Operator:
        """Waits until one stands by with a warm snapshot, beside one that leads."""
        leader = await self.leader(within=within)
        (other,) = [each for each in self.operators if each is not leader]
        await other.answers("/readyz?exclude=lease", 200, within)
        return other

    async def holder(self) -> str:
        """Who holds the lease."""
        lease: dict[str, Any] = await self._api.get(PATH)
        return str(lease["spec"].get("holderIdentity") or "")

    async def give_away(self) -> None:
        """Releases the lease in the name of its holder, which is dead: nobody need wait for its end."""
        await self._api.patch(PATH, {"spec": RELEASED})


@asynccontextmanager
async def running_replicas(
    api: Api,
    kubeconfigs: Sequence[Path],
    folder: Path,
    extenders: Sequence[Sequence[str]] = ((), ()),
    **env: str,
) -> AsyncIterator[Replicas]:
    """Replicas that are warm, the first of which leads; one for each kubeconfig, with these options --extender-*."""
    metadata = {"name": NAME.rpartition("/")[2], "namespace": "kube-system"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": RELEASED}
    await api.apply(lease)
    async with AsyncExitStack() as stack:
        replicas = Replicas(api, [])
        for number, (kubeconfig, extender) in enumerate(zip(kubeconfigs, extenders, strict=True)):
            replicas.operators.append(
                await stack.enter_async_context(
                    running_operator(
                        kubeconfig,
                        folder / f"replica-{number}.log",
                        lease=NAME,
                        wait=False,
                        extender=extender,
                        replicated=True,
                        environment=env,
                    )
                )
            )
            await until(replicas.holder, START_WITHIN, lambda: "a holder of the lease")
        await replicas.standby()
        yield replicas


@asynccontextmanager
async def pods_come_and_go(scene: ClusterScenario, most: int) -> AsyncIterator[None]:
    """Gangs of four and plain pods of 100m flow: about ``most`` pods are there, and the oldest make room for new ones.

    When the block ends no more come, all that are there are bound, and so no gang is there in part.
    """
    units: list[list[str]] = []
    numbers = count()
    stopping = asyncio.Event()

    async def come(pods: list[list[dict[str, Any]]]) -> None:
        await scene.api.create_many([pod for unit in pods for pod in unit])
        units.extend([pod["metadata"]["name"] for pod in unit] for unit in pods)

    def wave() -> list[list[dict[str, Any]]]:
        gang = members(scene, f"gang{next(numbers)}", 4, "100m")
        return [gang, *([scene.pod(f"plain{next(numbers)}", "100m")] for _ in range(3))]

    async def flow() -> None:
        while not stopping.is_set():
            while sum(map(len, units)) + 7 > most:
                for name in units.pop(0):
                    await scene.api.delete(scene.path(name), gracePeriodSeconds="0")
            await come(wave())
            await asyncio.sleep(0.3)

    while sum(map(len, units)) + 7 <= most:
        await come(wave())
    await scene.nodes_of(within=60)
    flowing = asyncio.create_task(flow())
    try:
        yield
    finally:
        stopping.set()  # a gang that is being created or deleted is so whole
        await flowing
    await scene.nodes_of(within=60)
