"""kube-scheduler with an extender, one that lets everything pass or ours, and kube-scheduler with others beside it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import Manifest, collection_path, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG
from thalweg_controlplane.processes import Child, until_ready
from thalweg_operator.constants import POLICIES_PATH

from flowcore.model.gang_spec import GANG
from flowcore.model.policies import STEERED_NAME
from harness.errors import BenchError
from harness.schedulers import (
    KUBE_SCHEDULER,
    KubeScheduler,
    Samples,
    Scheduler,
    Thalweg,
    free_address,
    listens,
)
from harness.usage import family
from harness.workload import MEASURED

PASS_THROUGH = "pass-through"  # noqa: S105 - no password
STEERED = "steered"
GATED = "gated"
HELD = "held"
FLOOR = "floor"
FIRST = "first"
BESIDE = "beside"
_START_SECONDS = 60.0


def configuration(address: str, profile: str, sample: int, *, second: bool = False) -> str:
    """What `thalweg scheduler-config` prints, for an extender at this address.

    Args:
        second: for a second kube-scheduler, which has that profile alone.
    """
    return str(
        SchedulerConfig(
            url=f"http://{address}/extender",
            kubeconfig="{kubeconfig}",
            scheduler_name=profile,
            node_sample=sample,
            qps=10000,
            leader_elect=False,
            second_scheduler=second,
        )
    )


async def steered_policy(api: Api, **spec: Any) -> None:
    """Makes the policy with which pods are steered in the benchmarks."""
    selects = {"schedulerNames": [STEERED_NAME], "podSelector": {}}
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "bench"},
    }
    await api.apply({**policy, "spec": {"selects": selects, "delivery": "Extender", **spec}})


async def forget_policy(api: Api) -> None:
    """Removes it; new pods are not gated any more."""
    await api.delete(f"{POLICIES_PATH}/bench")


class PassThrough(KubeScheduler):
    """kube-scheduler with an extender that lets every node pass; all nodes are scored, as such extenders want."""

    name = PASS_THROUGH
    pods_name = "extended"

    _sample = 100
    _script = "pass_through.py"

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._address = free_address()
        command = [sys.executable, str(Path(__file__).with_name(self._script)), self._address]
        self._child = Child(PASS_THROUGH, command, plane.workdir / "extender.log")

    async def start(self) -> None:
        self._child.start()
        await until_ready(self._child, lambda: listens(self._address), _START_SECONDS)
        self._plane.configure_scheduler(configuration(self._address, self.pods_name, self._sample))
        await super().start()

    def pids(self) -> list[int]:
        return [*super().pids(), *(family(self._child.pid) if self._child.pid is not None else [])]

    async def stop(self) -> None:
        await super().stop()
        await self._child.stop()


class Floor(PassThrough):
    """Configured as for Thalweg, with an extender that lets every node pass at once: what asking costs."""

    name = FLOOR
    _sample = 1


class First(PassThrough):
    """Configured as for Thalweg, with an extender that names the first node: what one answer costs at least."""

    name = FIRST
    _sample = 1
    _script = "first_node.py"


class Accompanied(KubeScheduler):
    """kube-scheduler as it is alone, with something beside it that decides nothing for its pods.

    Args:
        name: of the row.
        other: what runs beside it.
    """

    def __init__(self, plane: ControlPlane, name: str, other: Scheduler) -> None:
        super().__init__(plane)
        self.name, self._other = name, other

    async def start(self) -> None:
        self._plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
        await self._other.start()
        await super().start()

    async def warm(self) -> None:
        await self._other.warm()

    def pids(self) -> list[int]:
        return [*super().pids(), *self._other.pids()]

    def check(self) -> None:
        super().check()
        self._other.check()

    async def stop(self) -> None:
        await super().stop()
        await self._other.stop()


class Holding(PassThrough):
    """kube-scheduler with an extender that holds steered pods for good, as one does that waits for a whole gang."""

    name = HELD
    pods_name = STEERED_NAME
    _sample = 1


class Steered(KubeScheduler):
    """kube-scheduler steered by `thalweg run`; a policy with delivery Extender must be there.

    Args:
        name: steered, or gated where the policy says so.
        beforehand: how many pods wait already; kube-scheduler starts once all have their nomination.
    """

    pods_name = STEERED_NAME

    def __init__(self, plane: ControlPlane, name: str, beforehand: int, profile: Path | None = None) -> None:
        super().__init__(plane)
        self.name, self._beforehand = name, beforehand
        self.thalweg = Thalweg(plane, profile)

    async def start(self) -> None:
        self._plane.configure_scheduler(configuration(self.thalweg.extender, self.pods_name, 1))
        # First, or kube-scheduler would send the backlog into its error back-off, deaf to nominations.
        await self.thalweg.start()
        deadline = time.monotonic() + 120.0
        while self._beforehand and await self._nominated() < self._beforehand:
            self.thalweg.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{await self._nominated()} of {self._beforehand} pods were nominated")
            await asyncio.sleep(0.05)
        await super().start()

    async def _nominated(self) -> float:
        samples = await self.thalweg.metrics()
        return sum(value for name, value in samples.items() if name.startswith("thalweg_steering_writes_total done n"))

    async def warm(self) -> None:
        await self.thalweg.warm()
        # With the first pod that may be gated, the API server reads the schema of pods: once, for seconds of CPU time.
        member = pod("gated", namespace=MEASURED, scheduler=self.pods_name, annotations={GANG: "gang"})
        deadline = time.monotonic() + _START_SECONDS
        async with Api(self._plane.kubeconfig) as api:
            while not await self._is_gated(api, member):
                if time.monotonic() > deadline:
                    raise BenchError("the API server gates no pods of gangs")
                await asyncio.sleep(0.1)

    @staticmethod
    async def _is_gated(api: Api, manifest: Manifest) -> bool:
        answer = await api.request("POST", collection_path(manifest), manifest, params={"dryRun": "All"})
        return bool(answer["spec"].get("schedulingGates"))

    def pids(self) -> list[int]:
        return [*super().pids(), *self.thalweg.pids()]

    async def metrics(self) -> Samples:
        return {**await super().metrics(), **await self.thalweg.metrics()}

    def check(self) -> None:
        super().check()
        self.thalweg.check()

    async def stop(self) -> None:
        await super().stop()
        await self.thalweg.stop()


__all__ = [
    "BESIDE",
    "FIRST",
    "FLOOR",
    "GATED",
    "HELD",
    "KUBE_SCHEDULER",
    "PASS_THROUGH",
    "STEERED",
    "Accompanied",
    "First",
    "Floor",
    "Holding",
    "PassThrough",
    "Steered",
    "configuration",
    "forget_policy",
    "steered_policy",
]
