"""``thalweg run``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import click
import structlog
from aiohttp import web
from thalweg_extender import application
from thalweg_operator.errors import OperatorError
from thalweg_operator.program import Operator, run
from thalweg_operator.settings import Settings


def run_operator(
    kubeconfig: Path | None,
    context: str | None,
    listen: str,
    log_format: str,
    log_level: str,
    budget: float,
    records: Path | None,
    *,
    binds: bool,
) -> None:
    """Runs the operator until a signal ends it; a failure is one line and exit code 1."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f'"{listen}" is not HOST:PORT, such as 127.0.0.1:8080', param_hint="--listen")
    set_up_logging(log_format, log_level)
    kubeconfig, source = _source(kubeconfig)
    if kubeconfig is None and context is not None:
        raise click.UsageError("--context needs a kubeconfig: give --kubeconfig or set KUBECONFIG")
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        source=source,
        host=host.strip("[]") or "0.0.0.0",  # noqa: S104
        port=int(port),
        round_budget=budget,
        records=records,
    )
    try:
        asyncio.run(run(settings, lambda operator: {"/extender/": _extender(operator, binds=binds)}))
    except OperatorError as error:
        structlog.get_logger().error("cannot go on", problem=str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _source(kubeconfig: Path | None) -> tuple[Path | None, str]:
    """The kubeconfig to use, and what named it."""
    if kubeconfig is not None:
        return kubeconfig, f"--kubeconfig {kubeconfig}"
    named = os.environ.get("KUBECONFIG", "")
    if named:
        return Path(named), f"KUBECONFIG={named}"
    return None, "service account of the pod"


def _extender(operator: Operator, *, binds: bool) -> web.Application:
    """kube-scheduler's extender, beside the operator's own pages."""
    metrics = operator.metrics

    def on_answer(verb: str, outcome: str, seconds: float) -> None:
        metrics.extender_answers.labels(verb, outcome).inc()
        metrics.extender_seconds.labels(verb).observe(seconds)

    return application(operator.steering, bind=operator.binder.bind_for if binds else None, on_answer=on_answer)


def set_up_logging(log_format: str, log_level: str) -> None:
    """One line an event on standard error, ours and the libraries' alike."""
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: structlog.typing.Processor
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
