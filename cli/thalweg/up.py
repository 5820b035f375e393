"""``thalweg up``: a real local control plane with this operator in it."""

from __future__ import annotations

import asyncio
import sys

import click
from thalweg_controlplane.errors import ControlPlaneError
from thalweg_controlplane.up import serve

from thalweg.crds import custom_resource_definitions


def run_up(nodes: int) -> None:
    """Serves until Ctrl-C; what fails is said in words, with exit code 1."""
    operator = [
        *(sys.executable, "-m", "thalweg", "run", "--kubeconfig", "{kubeconfig}"),
        *("--listen", "127.0.0.1:{port}", "--log-format", "text"),
    ]
    try:
        asyncio.run(
            serve(
                lambda line: click.echo(line, err=True),
                nodes=nodes,
                crds=custom_resource_definitions(),
                start_operator=operator,
            )
        )
    except ControlPlaneError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
