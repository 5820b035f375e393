"""Rounds of pods that claim a device beside rounds of pods that ask for an extended resource: CPU time.

    python bench/devices.py
    python bench/devices.py --nodes 50 --pods 20 -n 1             # does it work?

Every node has eight GPUs, half of them in use. The pods of both rounds ask for the same cores, and for one GPU each: by
a claim of a template, with a selector as of drivers' examples, or as ``nvidia.com/gpu``, which nodes offer, or which
the class backs. `first`: nothing is remembered
of the devices; `later`: a worker's next round, after a claim has changed. No cluster takes part.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from statistics import median

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.devices import DeviceClass, with_devices
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimingPod,
    ClaimRequest,
    DeviceRequest,
    ExtendedRequest,
    PodClaim,
    ResourceClaim,
)
from flowcore.model.resource_slices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceId,
    NodeReach,
    ResourceSlice,
)
from flowcore.model.resources import Amounts
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.round import RoundResult, run_round

DRIVER, GPU = "gpu.nvidia.com", "nvidia.com/gpu"
_GPUS, _IN_USE = 8, 4
_MEMORY = 80 * 2**30 * 10**9
#: As of the driver's examples.
_CLASS = DeviceClass(
    "gpu.nvidia.com", selectors=(f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'",)
)
_SELECTOR = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"
_CORES: Amounts = (("cpu", 4_000),)


@dataclass(frozen=True, slots=True)
class Row:
    """Rounds of one kind.

    Attributes:
        placed: pods that get a node.
        first, later: CPU seconds of a round, the median.
    """

    pods: str
    placed: int
    first: float
    later: float


def _device(node: int, number: int) -> Device:
    attributes = {
        "architecture": DeviceAttribute("string", "Hopper"),
        "brand": DeviceAttribute("string", "Nvidia"),
        "cudaComputeCapability": DeviceAttribute("version", "9.0.0"),
        "cudaDriverVersion": DeviceAttribute("version", "13.0.0"),
        "driverVersion": DeviceAttribute("version", "580.65.6"),
        "pcieBusID": DeviceAttribute("string", f"0000:{number:02x}:00.0"),
        "productName": DeviceAttribute("string", "NVIDIA H100 80GB HBM3"),
        "resource.kubernetes.io/pcieRoot": DeviceAttribute("string", f"pci0000:{number // 2:02x}"),
        "type": DeviceAttribute("string", "gpu"),
        "uuid": DeviceAttribute("string", f"GPU-{node:08x}-{number:04x}"),
    }
    return Device(f"gpu-{number}", tuple(sorted(attributes.items())), (("memory", DeviceCapacity(Decimal(_MEMORY))),))


def _slice(node: int) -> ResourceSlice:
    name = _node_name(node)
    devices = tuple(_device(node, number) for number in range(_GPUS))
    return ResourceSlice(f"{name}-gpu", DRIVER, name, 1, 1, NodeReach(name), devices=devices)


def _node_name(node: int) -> str:
    return f"n{node:05}"


def _claim(name: str, allocation: ClaimAllocation | None = None) -> ResourceClaim:
    requests = (ClaimRequest("gpu", DeviceRequest("gpu", _CLASS.name, (_SELECTOR,))),)
    return ResourceClaim("default", name, name, name, requests=requests, allocation=allocation)


def _in_use(node: int, number: int) -> ResourceClaim:
    name = _node_name(node)
    here = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (name,)),)),)
    device = AllocatedDevice("gpu", DeviceId(DRIVER, name, f"gpu-{number}"))
    return _claim(f"r{node}-{number}", ClaimAllocation((device,), here))


def objects(nodes: int, pods: int) -> DeviceObjects:
    """Slices of all nodes, claims of running pods and of waiting ones."""
    known = DeviceObjects()
    known.set_class(_CLASS.name, _CLASS)
    for node in range(nodes):
        made = _slice(node)
        known.set_slice(made.name, made)
        for number in range(_IN_USE):
            claim = _in_use(node, number)
            known.set_claim((claim.namespace, claim.name), claim)
    for number in range(pods):
        known.set_claim(("default", f"p{number}"), _claim(f"p{number}"))
    return known


def _pod(number: int, pod_class: PodClass) -> PendingPod:
    return PendingPod(f"default/p{number}", f"p{number}", pod_class, BUILT_IN.name, 0.0, PodSignature("default"))


def _claiming(number: int) -> PodClass:
    name = f"p{number}"
    return PodClass(_CORES, devices=ClaimingPod("default", name, name, (PodClaim("gpu", "", "t"),), (("gpu", name),)))


def _backed(number: int) -> PodClass:
    name = f"p{number}"
    asked = ExtendedRequest(GPU, (("container-0-request-1", 1),))
    pod = Pod("default", name, name, PodClass((*_CORES, (GPU, 1))), extended=(asked,))
    return with_devices(pod, {GPU: _CLASS.name}).pod_class


def snapshots(nodes: int, pods: int) -> dict[str, Snapshot]:
    """The same cluster and pods, with plain extended resources, with those that a class backs, and with claims."""
    plain: Amounts = (*_CORES, (GPU, 1))
    no_ports: tuple[HostPort, ...] = ()
    made = {}
    for title, offered, used in (("extended resource", ((GPU, _GPUS),), ((GPU, _IN_USE),)), ("claim", (), ())):
        table = NodeTable.of(
            Node(_node_name(node), allocatable=(("cpu", 64_000), ("memory", 2**38), *offered, ("pods", 110)))
            for node in range(nodes)
        )
        running = [(_node_name(node), (("cpu", 4_000 * (1 + node % _GPUS)), *used), no_ports) for node in range(nodes)]
        classes = (PodClass(plain) if offered else _claiming(number) for number in range(pods))
        pending = tuple(_pod(number, pod_class) for number, pod_class in enumerate(classes))
        made[title] = build_snapshot(generation=1, now=0.0, table=table, running=running, pending=pending)
    claims = replace(made["claim"], devices=objects(nodes, pods))
    backed = replace(claims, pending=tuple(_pod(number, _backed(number)) for number in range(pods)))
    return {"extended resource": made["extended resource"], "extended resource by devices": backed, "claim": claims}


def _measured(run: Callable[[], RoundResult]) -> tuple[float, RoundResult]:
    gc.collect()
    before = time.process_time()
    result = run()
    return time.process_time() - before, result


def _measure_once(snapshot: Snapshot, number: int) -> tuple[float, float, int]:
    """CPU seconds of a first and of a later round, and how many pods that places."""
    # A copy of the objects knows nothing of them.
    devices = DeviceObjects()
    devices.slices, devices.classes, devices.claims = (
        dict(known) for known in (snapshot.devices.slices, snapshot.devices.classes, snapshot.devices.claims)
    )
    begun = replace(snapshot, devices=devices)
    first, _ = _measured(lambda: run_round(begun))
    changed = next(iter(devices.claims.values()), None)
    if changed is not None:
        devices.set_claim((changed.namespace, changed.name), msgspec.structs.replace(changed, uid=f"{number}"))
    later, result = _measured(lambda: run_round(begun))
    return first, later, len(result.placements)


def measure(cases: Mapping[str, Snapshot], repeat: int) -> tuple[list[Row], dict[str, float]]:
    """Rounds of some snapshots, by turns; and how often the last costs what the first does, the medians."""
    runs = [{title: _measure_once(snapshot, number) for title, snapshot in cases.items()} for number in range(repeat)]
    rows = [
        Row(title, runs[0][title][2], *(median(run[title][part] for run in runs) for part in (0, 1))) for title in cases
    ]
    plain, *_, claims = cases
    ratio = {
        name: median(run[claims][part] / run[plain][part] for run in runs)
        for part, name in enumerate(("first", "later"))
    }
    return rows, ratio


@click.command()
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(min=1))
@click.option("--pods", default=1_000, show_default=True, type=click.IntRange(min=1))
@click.option("-n", "--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds of each kind.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(nodes: int, pods: int, repeat: int, output: str) -> None:
    """Measures rounds of pods that claim devices."""
    rows, ratio = measure(snapshots(nodes, pods), repeat)
    if output == "json":
        figures = {"conditions": conditions(), "rows": [asdict(row) for row in rows], "ratio": ratio}
        click.echo(msgspec.json.encode(figures))
        return
    table = Table(title=f"{pods} pods on {nodes} nodes")
    for column in ("pods ask by", "placed", "first: CPU s", "later: CPU s"):
        table.add_column(column, justify="left" if column == "pods ask by" else "right")
    for row in rows:
        table.add_row(row.pods, str(row.placed), f"{row.first:.3f}", f"{row.later:.3f}")
    table.add_row("claim / extended resource", "", f"{ratio['first']:.1f}", f"{ratio['later']:.1f}")
    console.print(table)
    print_conditions(conditions())


if __name__ == "__main__":
    main()
