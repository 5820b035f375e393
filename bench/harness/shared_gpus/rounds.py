"""Pods that arrive in rounds: each where it costs the least, and again once the others of its round are placed."""

from __future__ import annotations

import numpy as np

from harness.shared_gpus.one_by_one import Cluster, Method, Placed, Placement, curve
from harness.shared_gpus.workload import Int64s, Workload


def place_in_rounds(workload: Workload, method: Method, arrivals: Int64s, size: int) -> Placed:
    """Places so many pods of the workload's list together, then the next ones. Nothing ends, nothing moves later.

    They are placed in the order of their arrival, for by size the large ones take the cpu that shares need. Then each
    leaves its node and takes the one where it costs the least now, and who had no room tries again.
    """
    cluster = Cluster(workload, method)
    came = np.zeros(len(arrivals), dtype=bool)
    for start in range(0, len(arrivals), size):
        placements: dict[int, Placement] = {}
        pods = range(start, min(start + size, len(arrivals)))
        for at in (*pods, *pods):
            if at in placements:
                cluster.remove(placements.pop(at))
            pod = arrivals[at]
            placement = cluster.place(int(workload.pods[pod]), int(workload.pod_memory[pod]))
            if placement is not None:
                placements[at] = placement
        came[list(placements)] = True
    return curve(workload, arrivals, came)
