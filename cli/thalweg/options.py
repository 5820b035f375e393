"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

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
