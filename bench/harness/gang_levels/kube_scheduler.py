"""What kube-scheduler 1.37 does with its gates on, written anew: not the program, which would take days for a day.

Source: schedule_one_podgroup.go and the plugins TopologyPlacementGenerator, PodGroupPodsCount and NodeResourcesFit of
Kubernetes 1.37.2, with the gates GenericWorkload and TopologyAwareWorkloadScheduling and the default profile.

* A gang without a topology: pod by pod, each to the host with the most free GPUs, as LeastAllocated has it where
  cores and memory go with the GPUs. All hosts are scored: beyond a hundred the program scores a part of them.
* A gang with a topology is tried so in every domain; of the domains that hold all of it the one that is fullest then
  (NodeResourcesFit scores placements by MostAllocated). Among equals chance decides, here with a fixed seed.
* A PodGroup has one topology and no slices. Gangs that do not fit are passed by later ones, and tried again.
"""

from __future__ import annotations

import heapq

import numpy as np

from harness.gang_levels.arrivals import ArrivingGang, Need
from harness.gang_levels.cluster import Hosts, Int64s, Places


class KubeSchedulerRule:
    """The rule, with its own chance."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, hosts: Hosts, gang: ArrivingGang) -> Places | None:
        """Where the gang goes; None: nowhere."""
        if gang.need is Need.NONE:
            return self._spread(hosts.free, np.arange(len(hosts.free)), gang.pods)
        width = hosts.shape.hosts * (1 if gang.need is Need.RACK else hosts.shape.racks)
        free = hosts.free.reshape(-1, width).sum(axis=1)
        enough = np.nonzero(free >= gang.pods)[0]
        if not len(enough):
            return None
        domain = int(enough[np.lexsort((self._random.random(len(enough)), free[enough]))[0]])
        return self._spread(hosts.free, np.arange(domain * width, (domain + 1) * width), gang.pods)

    def _spread(self, free: Int64s, hosts: Int64s, pods: int) -> Places | None:
        if int(free[hosts].sum()) < pods:
            return None
        chance = self._random.random(len(hosts)).tolist()
        left = [(-int(free[host]), luck, host) for host, luck in zip(hosts.tolist(), chance, strict=True)]
        heapq.heapify(left)
        places: dict[int, int] = {}
        for _ in range(pods):
            most, luck, host = left[0]
            places[host] = places.get(host, 0) + 1
            heapq.heapreplace(left, (most + 1, luck, host))
        return places
