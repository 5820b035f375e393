"""Churn without an end: pods, gangs, nodes and policies come and go, and leaders are killed or told to end.

Between two spells of churn everything comes to rest: then each pod is bound or was told why not, gangs are whole or
absent, no pod waits that fits, and memory is measured. Nothing is ever bound twice, and no node is ever overcommitted.
"""

import asyncio
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.arrivals import create_all
from support.cluster_checks import (
    check_history,
    check_not_overcommitted,
    free_of,
    requests,
    room_for,
    unschedulable_message,
)
from support.cluster_scenario import POLICIES, ClusterScenario, policy
from support.gang_scenarios import GANG, members
from support.operator import Operator, until
from support.replicas import Replicas
from support.retries import insist
from support.steering import DelayingProxy
from thalweg_controlplane.client.objects import node
from thalweg_operator.planning.worker.process_limits import resident_memory

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

#: Nodes that stay, nodes that may be there beside them, pods that may be there at once, pods of a gang.
_STAYING, _PASSING, _MOST_PODS, _GANG_SIZE = 6, 4, 250, 4
_SCHEDULERS = (SCHEDULER_NAME, STEERED_NAME)


_COST_MODELS = ("CPUMemory", "LoadSpreading", "BinPacking")
#: Seconds of rest after which nothing that fits may wait.
_FITS_WITHIN = 90.0
#: Seconds whose samples do not count: caches fill meanwhile.
_WARM_UP = 120.0


@dataclass
class SteeringReplicas:
    """Replicas of which kube-scheduler always asks the leader.

    Attributes:
        addresses: where the extender of each listens.
    """

    replicas: Replicas
    relay: DelayingProxy
    addresses: list[str]

    async def follow(self, *others_than: Operator) -> Operator:
        """Waits for a leader that is none of these, and leads kube-scheduler there; the leader."""
        leader = await self.replicas.leader(*others_than)
        self.relay.to = self.addresses[self.replicas.operators.index(leader)]
        return leader

    def pids(self) -> list[int]:
        """The operators and their workers."""
        return [pid for each in self.replicas.operators for pid in (each.pid, *each.worker_pids())]


@dataclass
class Soak:
    """One churning cluster.

    Attributes:
        counts: how often each thing was done.
        memory: (seconds since the beginning, resident bytes of all processes) at each rest.
    """

    replicas: SteeringReplicas
    scene: ClusterScenario
    seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw, self._number, self._passing = random.Random(self.seed), 0, list[str]()
        self.began = time.monotonic()
        #: Pods that were created and not deleted, by gang; a single pod is a gang of its own.
        self._there: dict[str, list[str]] = {}

    async def begin(self) -> None:
        """The nodes that stay."""
        await self.scene.nodes(*(f"staying-{at}" for at in range(_STAYING)), cpu="5")

    async def churn(self, seconds: float, *, end_leader: bool) -> None:
        """Things come and go for so long; in the middle of it the leader ends, if it is to."""
        end = time.monotonic() + seconds
        taking_over = asyncio.create_task(self._end_leader(seconds / 2)) if end_leader else None
        moves = (
            *(self._pods_come, self._pods_come, self._gang_comes, self._pods_go),
            *(self._node_comes, self._node_goes, self._policy_changes),
        )
        while time.monotonic() < end:
            await self._draw.choice(moves)()
            await asyncio.sleep(self._draw.uniform(0, 0.2))
        if taking_over is not None:
            await taking_over

    async def rest(self) -> int:
        """Waits until all is settled, and checks it; how many pods run."""
        await self._collect_garbage()
        await self.scene.wait_settled()
        partial_gangs: dict[str, int] = {}

        async def whole() -> bool:
            nonlocal partial_gangs
            gangs = Counter[str]()
            for each in await self.scene.pods():
                gangs[each["metadata"].get("annotations", {}).get(GANG, "")] += bool(each["spec"].get("nodeName"))
            partial_gangs = {gang: bound for gang, bound in gangs.items() if gang and bound not in (0, _GANG_SIZE)}
            return not partial_gangs

        await until(whole, 60, lambda: f"gangs to be whole or absent: {partial_gangs}")
        await self._nothing_fits()
        nodes, pods = await self.scene.api.list("/api/v1/nodes"), await self.scene.pods()
        check_not_overcommitted(nodes, pods)
        check_history(self.scene.history, nodes)
        at = time.monotonic() - self.began
        self.memory.append((at, sum(map(resident_memory, self.replicas.pids()))))
        return sum(bool(each["spec"].get("nodeName")) for each in pods)

    async def _nothing_fits(self) -> None:
        """Waits until no waiting pod, and no gang as a whole, has room. Room that is held for a gang is none."""
        fitting: list[str] = []

        async def none() -> bool:
            nonlocal fitting
            nodes, pods = await self.scene.api.list("/api/v1/nodes"), await self.scene.pods()
            free = free_of(nodes, pods)
            waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
            for each in pods:
                if not each["spec"].get("nodeName") and "is held for" not in unschedulable_message(each):
                    name = each["metadata"]["name"]
                    waiting[each["metadata"].get("annotations", {}).get(GANG, name)].append(requests(each))
            fitting = [name for name, wanted in waiting.items() if room_for(free, wanted[0]) >= len(wanted)]
            return not fitting

        await until(none, _FITS_WITHIN, lambda: f"waiting pods and gangs that fit to be bound: {fitting[:5]}")

    def growth(self) -> float:
        """Bytes an hour: the slope of the memory of all processes at rest, after the warm-up.

        A leader that was ended is replaced by a process that grows for a minute, so single processes have no slope.
        """
        settled = [(at, held) for at, held in self.memory if at >= _WARM_UP]
        if len(settled) < 2:
            return 0.0
        return 3600 * statistics.linear_regression(*zip(*settled, strict=True)).slope

    def progress(self, running: int) -> str:
        """A line about what was done so far."""
        held = sum(map(resident_memory, self.replicas.pids()))
        seconds = int(time.monotonic() - self.began)
        done = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        return f"{seconds // 60:3}:{seconds % 60:02}  {running} pods run, {held >> 20} MiB of all processes; {done}"

    # --- what comes and goes ---

    def _name(self, kind: str) -> str:
        self._number += 1
        self.counts[kind] += 1
        return f"{kind.replace(' ', '-')}-{self._number}"

    async def _pods_come(self) -> None:
        room = _MOST_PODS - sum(map(len, self._there.values()))
        names = [self._name("pods") for _ in range(min(room, self._draw.randint(1, 20)))]
        self._there.update({name: [name] for name in names})
        scheduler, cpu = self._draw.choice(_SCHEDULERS), self._draw.choice(("100m", "200m", "500m"))
        await create_all(self.scene, [self.scene.pod(name, cpu, scheduler=scheduler) for name in names])

    async def _gang_comes(self) -> None:
        if sum(map(len, self._there.values())) + _GANG_SIZE > _MOST_PODS:
            return
        pods = members(self.scene, gang := self._name("gangs"), _GANG_SIZE, scheduler=self._draw.choice(_SCHEDULERS))
        self._there[gang] = [each["metadata"]["name"] for each in pods]
        await create_all(self.scene, pods)

    async def _pods_go(self) -> None:
        gangs = list(self._there)
        await self._delete(self._draw.sample(gangs, min(len(gangs), self._draw.randint(1, 20))))

    async def _node_comes(self) -> None:
        if len(self._passing) < _PASSING:
            self._passing.append(name := self._name("nodes"))
            await insist(lambda: self.scene.api.create(node(name, cpu="4")))

    async def _node_goes(self) -> None:
        if self._passing:
            name = self._passing.pop(0)
            await insist(lambda: self.scene.api.delete(f"/api/v1/nodes/{name}"))
            await self._collect_garbage()

    async def _policy_changes(self) -> None:
        selects = {"schedulerNames": [SCHEDULER_NAME], "podSelector": {}}
        if self._draw.random() < 0.3:
            await insist(lambda: self.scene.api.delete(f"{POLICIES}/changing"))
        else:
            cost = {"model": self._draw.choice(_COST_MODELS)}
            await insist(lambda: self.scene.api.apply(policy("changing", selects=selects, cost=cost)))
        self.counts["changes of a policy"] += 1

    async def _end_leader(self, after: float) -> None:
        await asyncio.sleep(after)
        leader = await self.replicas.follow()
        await (leader.stop() if self.counts["leaders ended"] % 2 else leader.kill())
        self.counts["leaders ended"] += 1
        await self.replicas.follow(leader)
        leader.begin()
        await self.replicas.replicas.standby()

    async def _collect_garbage(self) -> None:
        """Deletes pods of nodes that are gone, as the pod garbage collector does, and the gangs that they belong to."""
        nodes = {each["metadata"]["name"] for each in await self.scene.api.list("/api/v1/nodes")}
        lost = {
            each["metadata"].get("annotations", {}).get(GANG, each["metadata"]["name"])
            for each in await self.scene.pods()
            if each["spec"].get("nodeName") and each["spec"]["nodeName"] not in nodes
        }
        await self._delete(sorted(lost & self._there.keys()))

    async def _delete(self, gangs: list[str]) -> None:
        for name in [name for gang in gangs for name in self._there.pop(gang)]:
            path = self.scene.path(name)
            await insist(lambda path=path: self.scene.api.delete(path, gracePeriodSeconds="0"))
