"""``thalweg run``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import click
import structlog
from thalweg_extender import ExtenderError
from thalweg_operator.api.leadership.leader_election import LeaseName
from thalweg_operator.api.watches.catch_up import OwnPod
from thalweg_operator.app import Operator, run
from thalweg_operator.errors import OperatorError
from thalweg_operator.planning.worker.process_limits import LEAST_MEMORY
from thalweg_operator.settings import Settings, UsageSettings
from thalweg_view.errors import ViewError

from flowcore.model.amount_text import short_bytes
from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos, whole_from_nanos
from flowcore.model.selectors import is_dns_subdomain
from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.option_types import Address, NamespacedName
from thalweg.run.extender import ExtenderOptions, extender_endpoint, serve_extender
from thalweg.terminal.logs import set_up_logging
from thalweg.view.view_live import ViewOptions, serve_view, view_endpoint

#: Seconds between two audits of an operator that only observes, unless an option says otherwise.
AUDIT_INTERVAL: Final = 900.0


def run_operator(
    kubeconfig: Path | None,
    context: str | None,
    listen: Address,
    probe_listen: Address | None,
    log_format: str,
    log_level: str,
    budget: float,
    device_timeout: float,
    device_gates: Mapping[str, bool],
    records: Path | None,
    dump_directory: Path | None,
    worker_memory: str | None,
    lease: NamespacedName,
    extender: ExtenderOptions,
    view: ViewOptions,
    usage: UsageSettings,
    *,
    replicated: bool,
    observes: bool,
    marks: bool,
    audit_interval: float | None,
) -> None:
    """Runs the operator until a signal. A failure gives one log line and exit code 1.

    Args:
        audit_interval: seconds; None: by ``observes``.

    Raises:
        click.UsageError: the options contradict each other.
    """
    if observes and extender.listen is not None:
        raise click.UsageError(
            "--observe and --extender-listen contradict each other: the extender steers kube-scheduler"
        )
    if marks and extender.listen is None:
        raise click.UsageError("--ask-for Governed is about the extender: add --extender-listen")
    if observes and view.service is not None:
        raise click.UsageError(
            "--observe writes nothing but the Lease: leave out --view-endpoints, and give the view's Service a selector"
        )
    serve = _all_of(serve_extender(extender), serve_view(view))
    set_up_logging(log_format, log_level)
    kubeconfig, source = resolve_kubeconfig(kubeconfig, context)
    own_pod = _own_pod(os.environ)
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        source=source,
        host=listen.host or "0.0.0.0",  # noqa: S104
        port=listen.port,
        probes=probe_listen and (probe_listen.host or "0.0.0.0", probe_listen.port),  # noqa: S104
        lease=LeaseName(*lease),
        replicated=replicated,
        own_pod=own_pod,
        endpoints=tuple(
            endpoint
            for endpoint in (extender_endpoint(extender, os.environ), view_endpoint(view, os.environ, own_pod))
            if endpoint is not None
        ),
        round_budget=budget,
        device_timeout=device_timeout,
        device_gates=device_gates,
        records=records,
        dump_directory=dump_directory,
        worker_memory=None if worker_memory is None else _memory_limit(worker_memory, "--worker-memory"),
        usage=usage,
        observes=observes,
        marks=marks,
        audit_interval=(AUDIT_INTERVAL if observes else 0.0) if audit_interval is None else audit_interval,
    )
    try:
        asyncio.run(run(settings, serve))
    except (OperatorError, ExtenderError, ViewError) as error:
        structlog.get_logger().error("exiting", problem=str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _all_of(
    *companions: Callable[[Operator], AbstractAsyncContextManager[object]],
) -> Callable[[Operator], AbstractAsyncContextManager[object]]:
    """What serves all of these."""

    @asynccontextmanager
    async def serve(operator: Operator) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for companion in companions:
                await stack.enter_async_context(companion(operator))
            yield

    return serve


def _own_pod(environment: Mapping[str, str]) -> OwnPod | None:
    """The pod of the environment variables POD_NAMESPACE and POD_NAME; None without them."""
    namespace, name = environment.get("POD_NAMESPACE", ""), environment.get("POD_NAME", "")
    if not namespace and not name:
        return None
    for variable, text in (("POD_NAMESPACE", namespace), ("POD_NAME", name)):
        if not is_dns_subdomain(text):
            raise click.UsageError(
                f'the environment variable {variable}, "{text}", is not a name: POD_NAMESPACE and POD_NAME together '
                "name the pod that this process runs in"
            )
    return OwnPod(namespace, name)


def _memory_limit(text: str, option: str) -> int:
    """Bytes of an option for a process's memory.

    Raises:
        click.BadParameter: it is no quantity, or too little.
    """
    try:
        memory = whole_from_nanos(nanos(text))
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    if memory and memory < LEAST_MEMORY:
        problem = f'"{text}" is too little: give at least {short_bytes(LEAST_MEMORY)}, or 0 for no limit'
        raise click.BadParameter(problem, param_hint=option)
    return memory
