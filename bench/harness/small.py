"""Small instances, to be compared with what CP-SAT proves: 130 pods of 12 classes on 12 nodes.

Ratios of cpu to memory differ, of pods and of nodes; three nodes and two classes have GPUs, three classes a node
selector. The load is that of the scarcest resource; the others are a little less loaded. All pods
wait equally long, so that leaving any of them costs the same.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import Amounts
from harness.instances import GPU

PODS, _CLASSES, _NODES = 130, 12, 12
_GI = 1024**3
_MILLI = (500, 1000, 1500, 2000, 3000, 4000, 6000, 8000)
_GIB = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def make_small(load: float, seed: int) -> Snapshot:
    """The same pods at every load; only the nodes' size differs."""
    draw = np.random.default_rng([seed, 650])
    asked = np.column_stack(
        [
            draw.choice(_MILLI, _CLASSES),
            draw.choice(_GIB, _CLASSES) * 1024,
            np.where(np.arange(_CLASSES) < 2, draw.integers(1, 3, _CLASSES), 0),
        ]
    ).astype(np.int64)
    zones = [("zone", draw.choice(("a", "b"))) if at % 4 == 3 else None for at in range(_CLASSES)]
    of = draw.choice(_CLASSES, PODS, p=draw.dirichlet(np.full(_CLASSES, 3.0)))
    total = asked[of].sum(axis=0)
    slack = np.array([1.0, draw.uniform(1.0, 1.1), draw.uniform(1.1, 1.5)])[[*draw.permutation(2).tolist(), 2]]
    shape = np.column_stack(
        [draw.uniform(0.5, 1.5, _NODES), draw.uniform(0.5, 1.5, _NODES), np.arange(_NODES) % 4 == 0]
    )
    capacity = shape / shape.sum(axis=0) * total * slack / load
    nodes = [
        Node(
            f"n{at}",
            labels=(("zone", "ab"[at % 2]),),
            allocatable=(*_amounts(round(cpu / 100) * 100, round(memory / 256) * 256, round(gpus)), ("pods", 110)),
        )
        for at, (cpu, memory, gpus) in enumerate(capacity.tolist())
    ]
    classes = [
        PodClass(requests=_amounts(*row), node_selector=(zone,) if zone else ())
        for row, zone in zip(asked.tolist(), zones, strict=True)
    ]
    pending = tuple(PendingPod(f"small/p{i:02}", "", classes[at], BUILT_IN.name) for i, at in enumerate(of.tolist()))
    return build_snapshot(generation=1, now=0.0, table=NodeTable.of(nodes), running=(), pending=pending)


def _amounts(cpu: int, memory: int, gpus: int) -> Amounts:
    return tuple((name, amount) for name, amount in (("cpu", cpu), ("memory", memory * 1024**2), (GPU, gpus)) if amount)
