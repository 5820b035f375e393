"""What a test needs to see kube-scheduler steered: its configuration, a way to it that can be made slow, and counts."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from support.cluster_scenario import ClusterScenario
from support.operator import Operator, until
from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.certificates import Authority
from thalweg_controlplane.client.objects import collection_path

#: A profile of kube-scheduler's that some policies of the tests leave to our own binder.
SHARED_NAME = "shared"
#: A price of waiting (`spec.unscheduled`) by which no answer has a node before a plan.
ONLY_BY_PLANS = {"perWaitingSecond": 6}


class DelayingProxy:
    """Carries bytes between kube-scheduler and the operator; it can be told to take its time.

    Attributes:
        address: where kube-scheduler connects to; without a port in the arguments, a free one.
        to: where the operator is to listen.
        delay: seconds that each answer is kept for.
        tls: what it shows the operator, and trusts; None: the operator listens on plain HTTP.
        asked: called with what kube-scheduler sends, before that is carried on.
    """

    def __init__(self, to: str, address: str = "127.0.0.1:0") -> None:
        self.to, self.address, self.delay = to, address, 0.0
        self.tls: ssl.SSLContext | None = None
        self.asked: Callable[[bytes], None] = lambda _part: None
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._serve, host, int(port))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            host, _, port = self.to.rpartition(":")
            back, there = await asyncio.open_connection(host, int(port), ssl=self.tls)
            ways = [
                asyncio.ensure_future(self._carry(reader, there)),
                asyncio.ensure_future(self._carry(back, writer, answers=True)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except OSError:
            pass  # nobody listens there now: kube-scheduler finds a connection that is closed
        finally:
            self._carrying.discard(task)
            for each in (writer, there):
                if each is not None:
                    each.close()

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while part := await source.read(2**20):
                if not answers:
                    self.asked(part)
                elif self.delay:
                    await asyncio.sleep(self.delay)
                to.write(part)
                await to.drain()


@dataclass(frozen=True)
class MutualTls:
    """Certificates of an extender that others reach.

    Attributes:
        options: of ``thalweg run``.
        caller: shows kube-scheduler's certificate, and trusts the extender's.
    """

    options: tuple[str, ...]
    caller: ssl.SSLContext


def mutual_tls(folder: Path) -> MutualTls:
    """New certificates, for 127.0.0.1."""
    authority = Authority(folder, "ca")
    server, client = authority.server("server", "127.0.0.1"), authority.client("client")
    caller = ssl.create_default_context(cafile=authority.certificate)
    caller.load_cert_chain(client.certificate, client.key)
    options = (
        *("--extender-cert", str(server.certificate), "--extender-key", str(server.key)),
        *("--extender-client-ca", str(authority.certificate)),
    )
    return MutualTls(options, caller)


def scheduler_config(relay: DelayingProxy, *, ignorable: bool = False, governed_only: bool = False) -> str:
    """What `thalweg scheduler-config` prints, with one profile more."""
    config = SchedulerConfig(
        url=f"http://{relay.address}/extender",
        kubeconfig="{kubeconfig}",
        ignorable=ignorable,
        governed_only=governed_only,
        qps=10000,
        leader_elect=False,
    )
    return str(config).replace("profiles:\n", f"profiles:\n  - schedulerName: {SHARED_NAME}\n")


async def gates_in_effect(scene: ClusterScenario, pod: dict[str, Any]) -> None:
    """Returns once the API server gives a pod like this one our gate: a moment after the policy is there."""

    async def gated() -> bool:
        made = await scene.api.request("POST", collection_path(pod), pod, params={"dryRun": "All"})
        return bool(made["spec"].get("schedulingGates"))

    await until(gated, 30, lambda: "new pods to be gated")


async def count(operator: Operator, name: str, *labels: str) -> float:
    """The sum of the samples of this name that have these values among their labels."""
    samples = (await operator.metrics()).items()
    return sum(value for words, value in samples if words.split()[0] == name and set(labels) <= set(words.split()[1:]))


async def filters(scene: ClusterScenario) -> float:
    """How often filter was answered so far."""
    return await count(scene.operator, "thalweg_extender_answers_total", "filter")


async def no_extender_calls(scene: ClusterScenario) -> None:
    """Returns once filter was not asked for a second and a half."""
    last = -1.0

    async def still() -> bool:
        nonlocal last
        before, last = last, await filters(scene)
        if before == last:
            return True
        await asyncio.sleep(1.5)
        return False

    await until(still, 30, lambda: f"no more questions; {last:g} so far")


@contextmanager
def no_plans(scene: ClusterScenario) -> Iterator[Callable[[], bool]]:
    """Rounds wait while the block runs: pods that come find no plan.

    Yields:
        Says whether they still do: the operator replaces a worker that makes no plan for 5 s.
    """
    (worker,) = scene.operator.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        yield lambda: worker in scene.operator.worker_pids()
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)


@asynccontextmanager
async def nobody_binds(plane: tuple[ControlPlane, Api]) -> AsyncIterator[None]:
    """kube-scheduler is away while the block runs."""
    await plane[0].kill("kube-scheduler")
    try:
        yield
    finally:
        await plane[0].start("kube-scheduler")


async def no_reservations(scene: ClusterScenario) -> None:
    """Returns once every reservation has ended."""

    async def none() -> bool:
        return (await scene.operator.metrics())["thalweg_reservations"] == 0

    await until(none, 30, lambda: "all reservations to end")


async def nominated(scene: ClusterScenario, name: str, node: str = "") -> dict[str, Any]:
    """Waits until a pod is nominated for a node, or for any; the pod."""
    found: dict[str, Any] = await scene.api.wait_for(
        scene.path(name),
        lambda each: (
            (each["status"].get("nominatedNodeName") or "") == node if node else each["status"].get("nominatedNodeName")
        ),
    )
    return found


async def nominate(api: Api, path: str, node: str | None) -> None:
    """As somebody else would, or takes a nomination away."""
    await api.patch(path + "/status", {"status": {"nominatedNodeName": node}})


async def pods_go_where_the_plan_says(scene: ClusterScenario) -> None:
    """kube-scheduler asks the extender about each of 30 pods, and binds all of them where the plan says."""
    await scene.nodes("a", "b", "c", cpu="3")
    asked, bound = await filters(scene), await count(scene.operator, "thalweg_steered_total", "bound")
    names = [f"p{number}" for number in range(30)]
    await scene.api.create_many([scene.pod(name, "300m") for name in names])
    await scene.nodes_of(*names)
    assert await filters(scene) >= asked + len(names)
    assert await count(scene.operator, "thalweg_steered_total", "bound") == bound + len(names)
    assert await count(scene.operator, "thalweg_steered_total", "elsewhere") == 0
