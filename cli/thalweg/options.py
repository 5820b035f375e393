"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import click

from thalweg.option_types import MOMENT, NAMESPACED_NAME
from thalweg.sources import completion
from thalweg.sources.source import SourceOptions

kubeconfig = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
                          help="Path of the kubeconfig. Default: the environment variable KUBECONFIG, else the pod's "
                               "service account.")  # fmt: skip
context = click.option("--context", metavar="NAME", shell_complete=completion.contexts,
                       help="Context of the kubeconfig. Default: its current context.")  # fmt: skip
GOVERNED: Final = "Governed"
ask_for = click.option("--ask-for", type=click.Choice(["All", GOVERNED]), default="All", show_default=True,
                       help="Pods that kube-scheduler asks the extender about. Governed: those with Thalweg's mark, "
                            "which the API server puts on new pods of policies with delivery Extender (Kubernetes "
                            "1.36). Give `thalweg run` and `thalweg scheduler-config` the same.")  # fmt: skip
output = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                      show_default=True, help="Output format.")  # fmt: skip
listed = click.option("-o", "--output", type=click.Choice(["table", "wide", "name", "json", "yaml"]), default="table",
                      show_default=True,
                      help="Output format. wide: all pods, as --pods. name: only names as `why` takes them, one a "
                           "line.")  # fmt: skip
nodes_listed = click.option("-o", "--output", type=click.Choice(["table", "wide", "name", "json", "yaml"]),
                            default="table", show_default=True,
                            help="Output format. wide: each node that takes more, and all names. name: only the nodes "
                                 "that take more pods, or without pods to count those that are worth nothing now, one "
                                 "a line.")  # fmt: skip
all_namespaces = click.option("-A", "--all-namespaces", is_flag=True,
                              help="List the pods of all namespaces.")  # fmt: skip
watch = click.option("-w", "--watch", is_flag=True,
                     help="Print the answer again whenever it changes, until Ctrl-C. Needs a live "
                          "cluster.")  # fmt: skip


now = click.option("--now", type=MOMENT,
                   help="When the dump was made, such as 2026-11-23T09:30:00Z: ages count up to then. Default: the "
                        "newest time that its objects name.")  # fmt: skip


_users_kubeconfig = click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path),
                                 help="Path of the kubeconfig. Default: as for kubectl.")  # fmt: skip
_CLUSTER = (_users_kubeconfig, context)
_OF_NAMES: Final = "Namespace of names without one. Default: that of the context; `default` for a dump."
_BEFORE_NAMESPACE = (
    click.option("-f", "--filename", "files", multiple=True, metavar="FILE",
                 help="Ask a dump: objects as JSON or YAML, as kubectl prints them, of the kinds that `thalweg dump` "
                      "writes. - is standard input. May be given several times. Default: ask a live cluster."),
    now,
    click.option("--direct", is_flag=True,
                 help="Plan here from what the API server lists, without the operator. Default where no operator has a "
                      "view. Needs the right to list nodes and pods."),
    _users_kubeconfig,
    context,
)  # fmt: skip
_AFTER_NAMESPACE = (
    click.option("--server", metavar="URL", default="",
                 help="URL of the operator's view, such as http://127.0.0.1:8444 where it runs by hand. Default: the "
                      "API server's proxy leads to its Service."),
    click.option("--server-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="File of the CA (PEM) that signed the certificate of --server. Default: the machine's CAs."),
    click.option("--service", type=NAMESPACED_NAME,
                 help="Service of the operator's view. Default: the one with the chart's labels in namespace "
                      "thalweg-system."),
    click.option("--service-account", type=NAMESPACED_NAME,
                 help="Service account in whose name the operator is asked, by a short-lived token for it alone. "
                      "Default: the one that you are, if it may make tokens of itself; else thalweg-viewer in the "
                      "namespace of the Service."),
    click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                 help="File of a token to show to the operator instead, for the audience thalweg-view."),
)  # fmt: skip


pods = click.option("--pods", is_flag=True, help="List all pods, not a line for each workload.")
#: Names of options about the operator's view.
OF_OPERATOR = ("server", "server_ca", "service", "service_account", "token_file")


def source(namespace: str = _OF_NAMES) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of a command that asks a dump or an operator; the command gets them as ``source``.

    Args:
        namespace: help of --namespace.
    """
    named = click.option("-n", "--namespace", metavar="NAME", default="", help=namespace,
                         shell_complete=completion.namespaces)  # fmt: skip
    return partial(_with_source, chosen_by=(*_BEFORE_NAMESPACE, named, *_AFTER_NAMESPACE))


def cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that reads a live cluster."""
    return _with_source(command, _CLUSTER)


def _with_source(
    command: Callable[..., None], chosen_by: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...]
) -> Callable[..., None]:
    @wraps(command)
    def with_source(**arguments: Any) -> None:
        chosen = take_source(arguments)
        if chosen.files and arguments.get("watch"):
            raise click.UsageError("--watch needs a live cluster: a dump does not change")
        command(source=chosen, **arguments)

    for option in reversed(chosen_by):
        option(with_source)
    return with_source


def take_source(arguments: dict[str, Any]) -> SourceOptions:
    """Takes the options of the source out of the arguments of a command.

    Raises:
        click.UsageError: they contradict each other.
    """
    names = SourceOptions.__dataclass_fields__
    chosen = SourceOptions(**{name: arguments.pop(name) for name in names if name in arguments})
    of_both = ("files", "namespace", "now")
    live = [name for name in names if name not in of_both and getattr(chosen, name)]
    if chosen.files and live:
        raise click.UsageError(f"-f asks a dump and --{live[0].replace('_', '-')} a live cluster: give one of them")
    if chosen.now is not None and not chosen.files:
        raise click.UsageError("--now is for a dump (-f FILE): a live cluster has the time of its clock")
    if chosen.direct:
        _no_operator(chosen, "--direct")
    if chosen.server and chosen.service:
        raise click.UsageError("--server and --service both say where the view is: give one of them")
    if chosen.server_ca and not chosen.server:
        raise click.UsageError("--server-ca is about --server: give both")
    return chosen


def planned_here(source: SourceOptions, option: str) -> SourceOptions:
    """The source of a command with an option that the operator does not answer: a dump, or the listed objects.

    Raises:
        click.UsageError: another option is about the operator.
    """
    if source.files:
        return source
    _no_operator(source, option)
    return replace(source, direct=True)


def _no_operator(source: SourceOptions, option: str) -> None:
    of_operator = [name for name in OF_OPERATOR if getattr(source, name)]
    if of_operator:
        raise click.UsageError(
            f"{option} asks no operator, and --{of_operator[0].replace('_', '-')} is for one: give one of them"
        )
