"""The command ``thalweg up``."""

from __future__ import annotations

import click


@click.command()
@click.option("--nodes", default=5, show_default=True, type=click.IntRange(1, 5000), help="Number of simulated nodes.")
def up(nodes: int) -> None:
    """Start a local control plane with the operator.

    etcd, kube-apiserver, kube-scheduler and kube-controller-manager run on loopback. KWOK simulates the nodes. The
    first start builds them from source, which takes 6 to 15 minutes on two cores. Later starts take seconds. Ctrl-C
    stops everything.

    \b
    Examples:
      thalweg up
      thalweg up --nodes 50
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.up import run_up

    run_up(nodes)
