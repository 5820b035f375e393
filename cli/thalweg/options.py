"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from thalweg.option_types import NAMESPACED_NAME
from thalweg.source import SourceOptions

kubeconfig = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
                          help="Path of the kubeconfig. Default: the environment variable KUBECONFIG, else the pod's "
                               "service account.")  # fmt: skip
context = click.option("--context", metavar="NAME",
                       help="Context of the kubeconfig. Default: its current context.")  # fmt: skip
output = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
                      help="Output format.")  # fmt: skip
watch = click.option("-w", "--watch", is_flag=True,
                     help="Print the answer again whenever it changes, until Ctrl-C. Needs a live "
                          "cluster.")  # fmt: skip


def _files(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("-f", "--filename", "files", multiple=True, metavar="FILE",
                        help="Ask a dump: objects as JSON or YAML, as kubectl prints them. - is standard input. May be "
                             f"given several times. Default: {default}.")  # fmt: skip


_users_kubeconfig = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
                                 help="Path of the kubeconfig. Default: as for kubectl.")  # fmt: skip
_OBJECTS = (_files("what the API server lists"), _users_kubeconfig, context)
_QUESTIONS = (
    _files("ask the operator of a live cluster"),
    _users_kubeconfig,
    context,
    click.option("-n", "--namespace", metavar="NAME", default="",
                 help="Namespace of names without one. Default: that of the context; `default` for a dump."),
    click.option("--service", type=NAMESPACED_NAME,
                 help="Service of the operator's view. Default: the one with the chart's labels in namespace "
                      "thalweg-system. It is shown your token."),
    click.option("--service-account", type=NAMESPACED_NAME,
                 help="Service account whose token the operator is shown. Default: the token of the kubeconfig; where "
                      "it has none, thalweg-viewer in the namespace of the Service."),
    click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="File of a token to show to the operator instead."),
)  # fmt: skip


pods = click.option("--pods", is_flag=True, help="List all pods, not a line for each workload.")


def source(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that asks a dump or an operator; the command gets them as ``source``."""
    return _with_source(command, _QUESTIONS)


def source_of_objects(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that reads a whole cluster, from files or from the API server."""
    return _with_source(command, _OBJECTS)


def _with_source(
    command: Callable[..., None], chosen_by: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...]
) -> Callable[..., None]:
    names = SourceOptions.__dataclass_fields__

    @wraps(command)
    def with_source(**arguments: Any) -> None:
        chosen = SourceOptions(**{name: arguments.pop(name) for name in names if name in arguments})
        live = [name for name in names if name not in ("files", "namespace") and getattr(chosen, name) is not None]
        if chosen.files and live:
            raise click.UsageError(f"-f asks a dump and --{live[0].replace('_', '-')} a live cluster: give one of them")
        if chosen.files and arguments.get("watch"):
            raise click.UsageError("--watch needs a live cluster: a dump does not change")
        command(source=chosen, **arguments)

    for option in reversed(chosen_by):
        option(with_source)
    return with_source
