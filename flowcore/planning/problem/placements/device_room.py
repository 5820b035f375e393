"""Devices that pods of a round take as they are placed, one pod after the other; copied before its first change."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.resource_claims import DeviceTaker
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.filters.dynamic_resources import claimable_devices, taker_on


class DeviceRoom:
    """Devices of all nodes beside those that placed pods take.

    Attributes:
        takers: pods that were placed and take devices, in their order.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._devices: ClaimableDevices | None = None
        self._is_own = False
        #: Positions of nodes of whose devices something was taken; whether that may concern others.
        self._touched: frozenset[int] = frozenset()
        self._touches_all = False
        self.takers: tuple[DeviceTaker, ...] = ()

    def shared(self) -> DeviceRoom:
        """The same room as it is now; each of both is copied before it changes."""
        self._is_own = False
        shared = DeviceRoom(self._snapshot)
        shared._devices, shared.takers = self._devices, self.takers
        shared._touched, shared._touches_all = self._touched, self._touches_all
        return shared

    def limit(self, demand: Demand, counts: Int64s, nodes: Int64s) -> Int64s:
        """No more pods of a demand than get their devices, one at most; of these nodes, int64[M].

        Args:
            counts: int64[M], as other rules allow.
        """
        pod = demand.group.pod_class.devices
        if pod is None:
            return counts
        counts = np.minimum(counts, 1)
        devices = self._devices
        if devices is None:
            return counts
        everywhere = self._touches_all or devices.has_planned_claim(pod)
        asked = [
            place
            for place, node in enumerate(nodes.tolist())
            if (everywhere or node in self._touched) and counts[place]
        ]
        fits = devices.fitting(pod, (self._node(int(nodes[place])) for place in asked))
        counts[asked] = fits
        return counts

    def take(self, demand: Demand, nodes: Int64s, counts: Int64s) -> bool:
        """Pods of a demand come to these nodes, int64[M], or leave where a count is below zero.

        Returns:
            Whether other nodes may have other devices now.
        """
        pod = demand.group.pod_class.devices
        if pod is None:
            return False
        if not self._is_own or self._devices is None:
            devices = claimable_devices(self._snapshot) if self._devices is None else self._devices
            self._devices, self._is_own = devices.copy(), True
        touches_all = False
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
            reached = self._node(node)
            if count > 0:
                taker = taker_on(pod, self._snapshot.table, node)
                self._devices.take(taker)
                self.takers = (*self.takers, taker)
            elif count < 0:
                self._devices.release(pod)
                self.takers = tuple(each for each in self.takers if each.pod != pod)
            touches_all |= not self._devices.is_local(pod, reached)
        self._touched |= frozenset(nodes.tolist())
        self._touches_all |= touches_all
        return touches_all

    def _node(self, row: int) -> ReachedNode:
        node = self._snapshot.table.nodes[row]
        return ReachedNode(node.name, node.labels)
