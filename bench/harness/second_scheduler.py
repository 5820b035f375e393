"""kube-scheduler as it is alone, beside Thalweg with a kube-scheduler of its own (the chart's mode SecondScheduler)."""

from __future__ import annotations

import ssl

import aiohttp
from thalweg_controlplane import ControlPlane
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG
from thalweg_controlplane.processes import Child, until_ready

from harness import plane
from harness.extended import Steered, configuration
from harness.schedulers import KUBE_SCHEDULER, KubeScheduler, Samples, free_address, read_samples
from harness.usage import child_named

SECOND = "second"
_START_SECONDS = 60.0


class Second(Steered):
    """The cluster's kube-scheduler asks nobody. Steered pods have the second one; both count as the scheduler.

    Args:
        control_plane: its kube-scheduler is the cluster's.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__(control_plane, SECOND, 0)
        self._address, self._config = free_address(), control_plane.workdir / "second-scheduler.yaml"
        port = self._address.rpartition(":")[2]
        flags = [f"--config={self._config}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        flags.append("--authorization-always-allow-paths=/readyz,/metrics")
        command = [plane.binaries().controlplane, KUBE_SCHEDULER, *flags]
        self._second = Child(SECOND, command, control_plane.workdir / "second-scheduler.log")

    async def start(self) -> None:
        text = configuration(self.thalweg.extender, self.pods_name, 1, second=True)
        self._config.write_text(text.replace("{kubeconfig}", str(self._plane.kubeconfig)))
        self._plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
        await self.thalweg.start()
        self._second.start()
        await until_ready(self._second, self._is_ready, _START_SECONDS)
        await KubeScheduler.start(self)

    async def _is_ready(self) -> bool:
        try:
            return bool(await self._second_samples())
        except aiohttp.ClientError:
            return False

    async def _second_samples(self) -> Samples:
        tls = ssl._create_unverified_context()  # noqa: S323, SLF001
        return await read_samples(f"https://{self._address}/metrics", tls)

    def kube_scheduler(self) -> list[int]:
        pid = child_named(KUBE_SCHEDULER, self._second.pid)
        return [pid] if pid is not None else []

    def pids(self) -> list[int]:
        second = [self._second.pid] if self._second.pid is not None else []
        return [*super().pids(), *second]

    async def metrics(self) -> Samples:
        own, second = await super().metrics(), await self._second_samples()
        pending = {name: value for name, value in second.items() if name.startswith("scheduler_pending_pods")}
        return own | {name: own.get(name, 0.0) + value for name, value in pending.items()}

    def check(self) -> None:
        super().check()
        self._second.check()

    async def stop(self) -> None:
        await super().stop()
        await self._second.stop()
