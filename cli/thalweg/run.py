"""``thalweg run``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import structlog
from thalweg_extender import ExtenderError
from thalweg_operator.api.catch_up import OwnPod
from thalweg_operator.api.leader_election import LeaseName
from thalweg_operator.app import run
from thalweg_operator.errors import OperatorError
from thalweg_operator.planning.worker.limits import LEAST_MEMORY, format_memory
from thalweg_operator.settings import Settings, UsageSettings

from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos, whole_from_nanos
from flowcore.model.selectors import is_dns_subdomain
from thalweg.extender import ExtenderOptions, extender_endpoint, serve_extender
from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.logs import set_up_logging
from thalweg.option_types import Address, NamespacedName


def run_operator(
    kubeconfig: Path | None,
    context: str | None,
    listen: Address,
    log_format: str,
    log_level: str,
    budget: float,
    records: Path | None,
    dump_directory: Path | None,
    worker_memory: str | None,
    lease: NamespacedName,
    extender: ExtenderOptions,
    usage: UsageSettings,
    *,
    replicated: bool,
) -> None:
    """Runs the operator until a signal. A failure gives one log line and exit code 1."""
    serve = serve_extender(extender)
    set_up_logging(log_format, log_level)
    kubeconfig, source = resolve_kubeconfig(kubeconfig, context)
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        source=source,
        host=listen.host or "0.0.0.0",  # noqa: S104
        port=listen.port,
        lease=LeaseName(*lease),
        replicated=replicated,
        own_pod=_own_pod(os.environ),
        endpoint=extender_endpoint(extender, os.environ),
        round_budget=budget,
        records=records,
        dump_directory=dump_directory,
        worker_memory=None if worker_memory is None else _memory(worker_memory),
        usage=usage,
    )
    try:
        asyncio.run(run(settings, serve))
    except (OperatorError, ExtenderError) as error:
        structlog.get_logger().error("exiting", problem=str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


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


def _memory(text: str) -> int:
    """Bytes of --worker-memory."""
    try:
        memory = whole_from_nanos(nanos(text))
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint="--worker-memory") from error
    if memory and memory < LEAST_MEMORY:
        problem = f'"{text}" is too little: give at least {format_memory(LEAST_MEMORY)}, or 0 for no limit'
        raise click.BadParameter(problem, param_hint="--worker-memory")
    return memory
