"""GPUs that others hand out in shares, HAMi and KAI-Scheduler: what is theirs is taken, and shares are not planned.

Sources: HAMi's protocol.md, pkg/device/nvidia (the node's annotation; the resources that ask for a share)
and its device plugin's Allocate, which serves only pods that HAMi's scheduler has placed; KAI-Scheduler
pkg/common/constants and pkg/binder/binding/resourcereservation (one pod asks for the GPU that others share).
"""

from __future__ import annotations

from typing import Final

from flowcore.model.resources import Amounts

GPU: Final = "nvidia.com/gpu"
#: The annotation of a node by which HAMi's device plugin lists the GPUs that it hands out.
HAMI_GPUS: Final = "hami.io/node-nvidia-register"
#: Resources by which a pod asks HAMi for a part of each of its GPUs. Nodes do not offer them.
_HAMI_SHARES: Final = frozenset(("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"))
#: Annotations by which a pod asks KAI-Scheduler for a share: a part of a GPU, or MiB of its memory.
KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
#: The label that tells which pods of KAI-Scheduler share one GPU, and where the pods are that hold these GPUs.
KAI_GROUP: Final = "runai-gpu-group"
KAI_RESERVATIONS: Final = "kai-resource-reservation"


def asks_hami(requests: Amounts) -> str:
    """Why a pod with these requests is not planned; "": it asks HAMi for nothing."""
    for name, _ in requests:
        if name in _HAMI_SHARES:
            return f"its resource {name} asks for a share of a GPU, which only HAMi's scheduler gives"
    return ""


def without_hami_gpus(allocatable: Amounts) -> Amounts:
    """What a node offers whose GPUs HAMi hands out: all but these.

    HAMi's device plugin offers each GPU several times over, and refuses pods that HAMi's scheduler has not placed.
    """
    return tuple((name, amount) for name, amount in allocatable if name != GPU and name not in _HAMI_SHARES)
