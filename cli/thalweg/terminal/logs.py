"""Log lines of the commands that use an API server."""

from __future__ import annotations

import logging
import sys

import structlog

from thalweg.terminal.printable import printable, printable_lines, unguarded


def set_up_logging(log_format: str, log_level: str) -> None:
    """Logs one line per event to standard error, also for the log lines of libraries."""
    level = logging.getLevelNamesMapping()[log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: structlog.typing.Processor
    shared.append(structlog.processors.format_exc_info)
    if log_format == "json":
        render = structlog.processors.JSONRenderer()
    else:
        shared.append(_printable)
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(unguarded(sys.stderr))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)


def _printable(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A line per event; only the text of an exception has more. What is no text is shown as Python writes it."""
    return {
        key: value if not isinstance(value, str) else printable_lines(value) if key == "exception" else printable(value)
        for key, value in event.items()
    }
