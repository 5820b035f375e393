"""Devices that pods of a round take as they are placed, one pod after the other; copied before its first change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.nameless_claims import NamelessClaims, without_names
from flowcore.rules.devices.node_reach import ReachedNode, reached_node
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.filters.dynamic_resources import claimable_devices, taker_on


class DeviceRoom:
    """Devices of all nodes beside those that placed pods take.

    Attributes:
        takers: pods that were placed and take devices, in their order, each with what its claims get.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._devices: ClaimableDevices | None = None
        self._is_own = False
        #: int64[N], the number of the last change of each node's devices, 0: none; whether some concern other nodes.
        self._changed_at: Int64s = np.zeros(len(snapshot.table.nodes), dtype=np.int64)
        self._touches_all = False
        #: By what claims ask for, of each node: after which change it was asked, int64[N], and what it said, bool[N].
        #: No two rooms have changes of one number, so that all copies have the same answers.
        self._answers: dict[NamelessClaims, tuple[Int64s, Bools]] = {}
        self.takers: tuple[DeviceTaker, ...] = ()

    def shared(self) -> DeviceRoom:
        """The same room as it is now; each of both is copied before it changes."""
        self._is_own = False
        shared = DeviceRoom(self._snapshot)
        shared._devices, shared.takers = self._devices, self.takers
        shared._changed_at, shared._touches_all, shared._answers = self._changed_at, self._touches_all, self._answers
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
        if self._touches_all or devices.has_planned_claim(pod):
            asked = np.nonzero(counts)[0]
            counts[asked] = devices.fitting(pod, self._nodes(pod, nodes[asked]))
            return counts
        asked = np.nonzero((self._changed_at[nodes] > 0) & (counts > 0))[0]
        if len(asked):
            counts[asked] = self._fitting(pod, devices, nodes[asked])
        return counts

    def _fitting(self, pod: ClaimingPod, devices: ClaimableDevices, nodes: Int64s) -> Bools:
        """bool[M]: which of these nodes have devices for a pod; all of them changed, few since the last call."""
        claims = devices.claims_of(pod)
        if isinstance(claims, ClaimRejection):
            return np.zeros(len(nodes), dtype=np.bool_)
        alike = without_names(claims)
        if alike not in self._answers:
            self._answers[alike] = np.zeros_like(self._changed_at), np.zeros(len(self._changed_at), dtype=np.bool_)
        asked_at, fits = self._answers[alike]
        stale = nodes[asked_at[nodes] != self._changed_at[nodes]]
        fits[stale] = devices.fitting(pod, self._nodes(pod, stale))
        asked_at[stale] = self._changed_at[stale]
        fitting: Bools = fits[nodes]
        return fitting

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
            self._changed_at = self._changed_at.copy()
        touches_all = False
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
            (reached,), before = self._nodes(pod, [node]), self._devices.version
            if count > 0:
                taker = taker_on(pod, self._snapshot.table, node)
                self._devices.take(taker)
                claims = self._devices.planned_claims(pod) or ()
                self.takers = (*self.takers, msgspec.structs.replace(taker, claims=claims))
            elif count < 0:
                self._devices.release(pod)
                self.takers = tuple(each for each in self.takers if each.pod != pod)
            if self._devices.version != before:
                self._changed_at[node] = self._devices.version
            touches_all |= not self._devices.is_local(pod, reached)
        self._touches_all |= touches_all
        return touches_all

    def _nodes(self, pod: ClaimingPod, rows: Iterable[int]) -> Iterator[ReachedNode]:
        nodes, extended = self._snapshot.table.nodes, pod.extended_resources
        return (reached_node(nodes[row], extended) for row in rows)
