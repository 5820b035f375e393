"""A cluster at work while something breaks: pods and gangs of both deliveries that fill their nodes exactly.

The operator reaches the API server through an `ApiProxy`, and kube-scheduler reaches the operator's extender through a
`DelayingProxy`. The test itself talks to the API server directly.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.arrivals import create_all, no_reservations_left, some_bound
from support.cluster_checks import unschedulable_message
from support.cluster_scenario import ClusterScenario
from support.gang_scenarios import GANG, members
from support.operator import Operator, until
from support.proxy import ApiProxy
from support.steering import DelayingProxy
from thalweg_controlplane import Api, ControlPlane
from thalweg_operator.planning.worker.process_limits import resident_memory

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

_USE = "example.com/use"
_GANG_SIZE, _GANGS_THAT_FIT, _GANGS = 4, 2, 3
_DELIVERIES = {"binder": SCHEDULER_NAME, "steered": STEERED_NAME}


@dataclass(frozen=True)
class FaultyCluster:
    """A control plane; the operators' way to it, and kube-scheduler's way to their extender, lead through proxies."""

    plane: ControlPlane
    api: Api
    proxy: ApiProxy
    relay: DelayingProxy


@dataclass
class FaultWorld:
    """See the module.

    Attributes:
        relay: between kube-scheduler and the operator's extender.
    """

    plane: ControlPlane
    api: Api
    proxy: ApiProxy
    relay: DelayingProxy
    operator: Operator

    def memory(self) -> int:
        """Resident bytes of the operator and its worker."""
        return sum(map(resident_memory, (self.operator.pid, *self.operator.worker_pids())))


class Load:
    """Pods of one scene: single ones of 100m that fill their nodes, and three gangs of each delivery where two fit.

    The second half waits for `continue_arriving`: a fault that begins in between has pods to strike.

    Attributes:
        scene: where they are.
        fitting: how many pods of the scene can run.
    """

    def __init__(self, scene: ClusterScenario, singles: int) -> None:
        self.scene, self._singles = scene, singles
        self._continues = asyncio.Event()
        self.fitting = singles + _GANGS_THAT_FIT * _GANG_SIZE * len(_DELIVERIES)

    async def make_nodes(self) -> None:
        """Nodes for it, filled exactly by what fits."""
        count = 5
        cpu = f"{self._singles // count * 100}m"
        await self.scene.nodes(
            *(f"single-{at}" for at in range(count)), cpu=cpu, pods=self._singles, labels={_USE: "single"}
        )
        for delivery in _DELIVERIES:
            names = [f"{delivery}-{at}" for at in range(_GANGS_THAT_FIT)]
            await self.scene.nodes(*names, cpu=str(_GANG_SIZE), labels={_USE: delivery})

    async def arrive(self) -> None:
        """Creates the pods, singles and gangs mixed, whatever becomes of the API server meanwhile."""
        pods = list(self._pods())
        await create_all(self.scene, pods[: len(pods) // 2], 4)
        await self._continues.wait()
        await create_all(self.scene, pods[len(pods) // 2 :], 4)

    def continue_arriving(self) -> None:
        """Has the second half created too."""
        self._continues.set()

    def _pods(self) -> Iterator[dict[str, Any]]:
        gangs = [
            pod
            for number in range(_GANGS)
            for delivery, scheduler in _DELIVERIES.items()
            for pod in members(
                self.scene,
                f"{delivery}-{number}",
                _GANG_SIZE,
                scheduler=scheduler,
                nodeSelector={_USE: delivery},
            )
        ]
        every = self._singles // len(gangs)
        for number in range(self._singles):
            name, scheduler = list(_DELIVERIES.items())[number % 2]
            yield self.scene.pod(f"{name}-single-{number}", "100m", scheduler=scheduler, nodeSelector={_USE: "single"})
            if number % every == every - 1 and gangs:
                yield gangs.pop(0)
        yield from gangs

    async def converged(self, within: float) -> None:
        """Every pod that can run is bound, within so many seconds."""
        try:
            await some_bound(self.scene, self.fitting, within)
        except TimeoutError as error:
            pods = [each for each in await self.scene.pods() if not each["spec"].get("nodeName")]
            raise TimeoutError(f"{error}; of the others {Counter(map(unschedulable_message, pods))}") from None

    async def bound_by_binder(self) -> set[tuple[str, str]]:
        """UIDs and nodes of the pods that the binder has bound."""
        return {
            (each["metadata"]["uid"], each["spec"]["nodeName"])
            for each in await self.scene.pods()
            if each["spec"]["schedulerName"] == SCHEDULER_NAME and each["spec"].get("nodeName")
        }

    async def check(self) -> None:
        """Gangs are whole or absent, and nothing is in flight."""
        last: Counter[str] = Counter()
        wanted = dict.fromkeys(_DELIVERIES, [_GANG_SIZE] * _GANGS_THAT_FIT)

        async def whole() -> bool:
            nonlocal last
            last = Counter(
                each["metadata"]["annotations"][GANG]
                for each in await self.scene.pods()
                if each["spec"].get("nodeName") and GANG in each["metadata"].get("annotations", {})
            )
            return {d: [n for gang, n in last.items() if gang.startswith(d)] for d in _DELIVERIES} == wanted

        await until(whole, 90, lambda: f"gangs to be whole or absent; bound pods of each: {dict(last)}")
        await no_reservations_left(self.scene)


async def seconds_until(coroutine: Any) -> float:
    """How long it took."""
    began = time.monotonic()
    await coroutine
    return time.monotonic() - began


async def memory_back(world: FaultWorld, before: int, allowed: float, slack: int) -> int:
    """Waits until the operator and a worker hold what they held, but for a share and some bytes; what they hold."""
    now = 0

    def back() -> bool:
        nonlocal now
        now = world.memory()
        return bool(world.operator.worker_pids()) and now <= before * (1 + allowed) + slack

    await until(back, 30, lambda: f"memory to be back at {before >> 20} MiB: it is {now >> 20} MiB")
    return now


async def idle(world: FaultWorld) -> None:
    """Returns when the operator knows of no pod and no node, and a worker runs."""

    async def nothing() -> bool:
        now = await world.operator.metrics()
        return now["thalweg_pods"] == now["thalweg_nodes"] == 0 and bool(world.operator.worker_pids())

    await until(nothing, 60, lambda: "the operator to see that all is gone")
    await asyncio.sleep(0)
