"""`thalweg up`: runs a control plane with fake nodes and Thalweg until Ctrl-C."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias, cast

from thalweg_controlplane.building.build import MINOR_VERSION, Binaries, find_or_build
from thalweg_controlplane.building.cache import Report
from thalweg_controlplane.client.accounts import account_token, write_kubeconfig
from thalweg_controlplane.client.api import Api
from thalweg_controlplane.client.objects import object_path
from thalweg_controlplane.cluster import ControlPlane
from thalweg_controlplane.processes import Child

_CHECK_SECONDS: Final = 0.5

Welcome: TypeAlias = Callable[[ControlPlane, Api], Awaitable[Sequence[str]]]
"""Makes the lines that are printed after the kubeconfig."""


async def _nothing(_plane: ControlPlane, _api: Api) -> Sequence[str]:
    return ()


async def serve(
    report: Report,
    *,
    nodes: Sequence[Mapping[str, Any]],
    objects: Sequence[Mapping[str, Any]] = (),
    scheduler_config: str | None = None,
    start_operator: Sequence[str] | None = None,
    account: tuple[str, str] | None = None,
    welcome: Welcome = _nothing,
    minor_version: str = MINOR_VERSION,
) -> None:
    """Runs until SIGINT or SIGTERM, then stops everything in reverse order and returns.

    `nodes` are manifests. `objects` are applied in their order before the operator starts; CRDs are established.
    `scheduler_config` is as for ControlPlane and may name the operator as kube-scheduler's extender; either may be
    ready first. `start_operator` is the operator's command line, with `{kubeconfig}` replaced in every word: by that of
    the service account `account` (namespace and name), without one by the administrator's. `welcome` makes the lines
    that are printed after the kubeconfig. `minor_version` is that of Kubernetes. If the binaries are missing,
    `find_or_build` builds them first and blocks the loop.
    Raises BuildError, and ComponentFailed when a component or the operator exits.
    """
    with interruptible():
        binaries = find_or_build(report, minor_version)
    with _cancelled_by_signals():
        await _run(binaries, report, nodes, objects, scheduler_config, start_operator, account, welcome)
    report("stopped")


async def _run(
    binaries: Binaries,
    report: Report,
    nodes: Sequence[Mapping[str, Any]],
    objects: Sequence[Mapping[str, Any]],
    scheduler_config: str | None,
    start_operator: Sequence[str] | None,
    account: tuple[str, str] | None,
    welcome: Welcome,
) -> None:
    report("starting the control plane")
    async with ControlPlane(binaries, scheduler_config=scheduler_config) as plane:
        async with Api(plane.kubeconfig) as api:
            await _install(api, objects)
            await api.create_many(nodes)
            kubeconfig = plane.kubeconfig
            if account is not None:
                kubeconfig = plane.workdir / "operator-kubeconfig"
                write_kubeconfig(kubeconfig, plane.kubeconfig, await account_token(api, *account))
            lines = await welcome(plane, api)
        operator = _operator(start_operator, plane, kubeconfig) if start_operator else None
        try:
            if operator:
                operator.start()
            report(_print_welcome(plane, len(nodes), operator, lines))
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                plane.check()
                if operator:
                    operator.check()
        finally:
            report("stopping")
            if operator:
                await operator.stop()


async def _install(api: Api, objects: Sequence[Mapping[str, Any]]) -> None:
    for manifest in objects:
        await api.apply(manifest)
    for manifest in objects:
        if manifest["kind"] == "CustomResourceDefinition":
            await api.wait_for(object_path(manifest), _established)


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()  # null until the controller sets it
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _operator(command: Sequence[str], plane: ControlPlane, kubeconfig: Path) -> Child:
    argv = [word.replace("{kubeconfig}", str(kubeconfig)) for word in command]
    return Child("operator", argv, plane.workdir / "operator.log")


def _print_welcome(plane: ControlPlane, nodes: int, operator: Child | None, lines: Sequence[str]) -> str:
    return "\n".join(
        [
            f"Kubernetes runs at {plane.url} with {nodes:,} {'node' if nodes == 1 else 'nodes'}. Its kubeconfig:",
            f"  export KUBECONFIG={plane.kubeconfig}",
            *lines,
            *([f"The operator's log: {operator.log}"] if operator else []),
            "Ctrl-C stops it and removes everything.",
        ]
    )


@contextmanager
def _cancelled_by_signals() -> Iterator[None]:
    """SIGINT or SIGTERM cancels the task inside the block; the block then ends without an error."""
    loop, task = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())
    asked = False

    def ask() -> None:
        nonlocal asked
        if not asked:  # a second Ctrl-C must not interrupt the shutdown
            asked = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        yield
    except asyncio.CancelledError:
        if not asked:
            raise
        task.uncancel()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt, and SIGTERM SystemExit, so that a build removes what it began.

    In asyncio.run Ctrl-C only cancels a task, without effect on blocking work; SIGTERM ends the process on the spot.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _exit}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
