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
files = click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE",
                     help="Objects as JSON or YAML, as kubectl prints them. - is standard input. "
                          "May be given several times.")  # fmt: skip
output = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
                      help="Output format.")  # fmt: skip
watch = click.option("-w", "--watch", is_flag=True,
                     help="Print the answer again whenever it changes, until Ctrl-C. Needs a live "
                          "cluster.")  # fmt: skip
_SOURCE = (
    click.option("-f", "--filename", "files", multiple=True, metavar="FILE",
                 help="Ask a dump: objects as JSON or YAML, as kubectl prints them. - is standard input. May be given "
                      "several times. Default: ask the operator of a live cluster."),
    click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
                 help="Path of the kubeconfig. Default: as for kubectl."),
    context,
    click.option("-n", "--namespace", metavar="NAME", default="",
                 help="Namespace of names without one. Default: that of the context; `default` for a dump."),
    click.option("--service", type=NAMESPACED_NAME,
                 help="Service of the operator's view. Default: the one with the chart's labels."),
    click.option("--service-account", type=NAMESPACED_NAME,
                 help="Where the kubeconfig has a client certificate and no token: service account whose token the "
                      "operator is shown. Default: thalweg-viewer in the namespace of the Service."),
    click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="File of a token to show to the operator instead."),
)  # fmt: skip


def source(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that asks a dump or a live cluster; the command gets them as ``source``."""

    @wraps(command)
    def with_source(**arguments: Any) -> None:
        names = SourceOptions.__dataclass_fields__
        chosen = SourceOptions(**{name: arguments.pop(name) for name in names})
        live = [name for name in names if name not in ("files", "namespace") and getattr(chosen, name) is not None]
        if chosen.files and live:
            raise click.UsageError(f"-f asks a dump and --{live[0].replace('_', '-')} a live cluster: give one of them")
        if chosen.files and arguments.get("watch"):
            raise click.UsageError("--watch needs a live cluster: a dump does not change")
        command(source=chosen, **arguments)

    for option in reversed(_SOURCE):
        option(with_source)
    return with_source
