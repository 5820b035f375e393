"""The options of ``thalweg run`` for measured usage."""

from __future__ import annotations

from collections.abc import Sequence

import click
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.prometheus import QUANTITIES
from yarl import URL

_QUERY = "--prometheus-query"


def usage_settings(interval: float, prometheus_url: str | None, queries: Sequence[str]) -> UsageSettings:
    """The settings that the options ask for.

    Raises:
        click.UsageError: options that do not go together, or a value that cannot be read.
    """
    by_name: dict[str, str] = {}
    for text in queries:
        name, _, expression = text.partition("=")
        if name not in QUANTITIES or not expression.strip():
            known = ", ".join(QUANTITIES)
            raise click.BadParameter(f'"{text}" is not NAME=PROMQL with one of the names {known}', param_hint=_QUERY)
        if name in by_name:
            raise click.BadParameter(f"{name} is given twice", param_hint=_QUERY)
        by_name[name] = expression
    if ("cpu" in by_name) != ("memory" in by_name):
        raise click.UsageError(f"{_QUERY}: give cpu and memory, or none of the two: a sample of a node has both")
    if (prometheus_url is None) != (not by_name):
        raise click.UsageError(f"--prometheus-url and {_QUERY} need each other")
    if prometheus_url is not None:
        try:
            url = URL(prometheus_url)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host:
            problem = f'"{prometheus_url}" is not a URL such as http://prometheus.monitoring:9090'
            raise click.BadParameter(problem, param_hint="--prometheus-url")
    return UsageSettings(interval, prometheus_url, by_name)
