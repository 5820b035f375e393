"""Turns the openb GPU cluster trace (Alibaba's cluster-trace-gpu-v2023) into Kubernetes objects.

    python bench/openb.py DATA_DIR -o openb.json
    thalweg plan -f openb.json

DATA_DIR holds `openb_node_list_all_node.csv` and `openb_pod_list_NAME.csv` (`--list NAME`).

- A node's GPUs are the extended resource `nvidia.com/gpu`, whole ones; its GPU model is the label `gpu-model`.
- A pod that asks for a share of one GPU (`num_gpu` 1, `gpu_milli` below 1000) asks for a whole one here: extended
  resources are whole numbers. So fewer pods fit than in the trace's own cluster, where several shared one.
- `gpu_spec` (`A|B`) is a required node affinity, `gpu-model In [A, B]`.
- All pods are pending, whatever became of them in the trace, and in the trace's order; creation times (seconds since
  its start) are kept in the annotation `openb/creation-time`.
- A node takes 110 pods. No pod asks for less than one core, so only its 39 nodes of 128 cores could ever hold more.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click
import msgspec
from thalweg_controlplane.client.objects import Manifest, node, pod

GPU = "nvidia.com/gpu"
MODEL = "gpu-model"
CREATED = "openb/creation-time"
LISTS = ("default", "gpuspec20", "gpuspec33", "multigpu20", "multigpu50", "gpushare40", "gpushare80", "cpu100")


def nodes_file(folder: Path) -> Path:
    """Where the trace's nodes are."""
    return folder / "openb_node_list_all_node.csv"


def pods_file(folder: Path, name: str) -> Path:
    """Where one of the trace's lists of pods is."""
    return folder / f"openb_pod_list_{name}.csv"


def read_nodes(path: Path) -> list[Manifest]:
    """The trace's nodes, Ready and empty."""
    return [
        node(
            row["sn"],
            cpu=f"{row['cpu_milli']}m",
            memory=f"{row['memory_mib']}Mi",
            labels={MODEL: row["model"]} if row["model"] else None,
            extended={GPU: row["gpu"]} if int(row["gpu"]) else None,
        )
        for row in _rows(path)
    ]


def read_pods(path: Path, scheduler: str = "thalweg") -> list[Manifest]:
    """The trace's pods, all pending, in its order."""
    return [_pod(row, scheduler) for row in _rows(path)]


def write_dump(path: Path, objects: list[Manifest]) -> None:
    """Writes a `kind: List`, as `kubectl get -o json` prints it."""
    dump = {"apiVersion": "v1", "kind": "List", "items": objects}
    path.write_bytes(msgspec.json.encode(dump) + b"\n")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _pod(row: dict[str, str], scheduler: str) -> Manifest:
    spec: dict[str, Any] = {}
    models = [model for model in row.get("gpu_spec", "").split("|") if model]
    if models:
        expression = {"key": MODEL, "operator": "In", "values": models}
        terms = [{"matchExpressions": [expression]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    created = row.get("creation_time")
    return pod(
        row["name"],
        cpu=f"{row['cpu_milli']}m",
        memory=f"{row['memory_mib']}Mi" if int(row["memory_mib"]) else None,
        scheduler=scheduler,
        annotations={CREATED: created} if created else None,
        extended={GPU: row["num_gpu"]} if int(row["num_gpu"]) else None,
        **spec,
    )


@click.command()
@click.argument("folder", metavar="DATA_DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "which", type=click.Choice(LISTS), default="default", show_default=True, help="Which pods.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("openb.json"),
              show_default=True, help="Where the dump goes.")  # fmt: skip
def main(folder: Path, which: str, output: Path) -> None:
    """Writes the trace as a dump that `thalweg plan -f` reads."""
    nodes, pods = read_nodes(nodes_file(folder)), read_pods(pods_file(folder, which))
    write_dump(output, [*nodes, *pods])
    click.echo(f"{len(nodes)} nodes and {len(pods)} pods in {output}", err=True)


if __name__ == "__main__":
    main()
