"""Devices that pods of a round take as they are placed, one pod after the other; copied before its first change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, ResourceClaim
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.devices.claimable_devices import NOTHING, ClaimableDevices
from flowcore.rules.devices.nameless_claims import NamelessClaims, without_names
from flowcore.rules.devices.node_reach import ReachedNode, reached_node
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.filters.dynamic_resources import claimable_devices, taker_on

#: No change has this number.
_NEVER = -1


class DeviceRoom:
    """Devices of all nodes beside those that placed pods take.

    Attributes:
        takers: pods that were placed and take devices, in their order, each with what its claims get.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._devices: ClaimableDevices | None = None
        self._is_own = False
        #: int64[N], the number of the last change of each node's devices, 0: none; of the last change of all; whether
        #: some are of pools that other nodes reach. (Who shares a claim with a placed pod asks all nodes anyway.)
        self._changed_at: Int64s = np.zeros(len(snapshot.table.nodes), dtype=np.int64)
        self._last_change = 0
        self._touches_all = False
        #: By what claims ask for, of each node: after which change it was asked, and the score of what they get there,
        #: int64[N] twice. No two rooms have changes of one number, so that all copies have the same answers.
        self._answers: dict[NamelessClaims, tuple[Int64s, Int64s]] = {}
        self.takers: tuple[DeviceTaker, ...] = ()

    def shared(self) -> DeviceRoom:
        """The same room as it is now; each of both is copied before it changes."""
        self._is_own = False
        shared = DeviceRoom(self._snapshot)
        shared._devices, shared.takers = self._devices, self.takers
        shared._changed_at, shared._last_change = self._changed_at, self._last_change
        shared._touches_all, shared._answers = self._touches_all, self._answers
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
        claims = devices.claims_of(pod)
        if isinstance(claims, ClaimRejection):
            return np.zeros_like(counts)
        asked = np.nonzero(self._are_others(pod, devices, nodes) & (counts > 0))[0]
        if len(asked):
            counts[asked] = self._scores(pod, claims, devices, nodes[asked]) != NOTHING
        return counts

    def added_cost(self, demand: Demand, nodes: Int64s) -> Int64s | None:
        """int64[M]: how much dearer what a pod of a demand gets on nodes is than as the round began.

        None: there is no difference. Below zero: cheaper. That of nodes without devices has no meaning.
        """
        pod, costs, devices = demand.group.pod_class.devices, demand.claims.devices, self._devices
        if pod is None or costs is None or devices is None:
            return None
        claims, asked = devices.claims_of(pod), np.nonzero(self._are_others(pod, devices, nodes))[0]
        if isinstance(claims, ClaimRejection) or not len(asked):
            return None
        added = np.zeros(len(nodes), dtype=np.int64)
        scores = self._scores(pod, claims, devices, nodes[asked])
        added[asked] = costs.cost(scores) - costs.begun[nodes[asked]]
        return added

    def _are_others(self, pod: ClaimingPod, devices: ClaimableDevices, nodes: Int64s) -> Bools:
        """bool[M]: on which of these nodes a pod may get something else than as the round began."""
        if self._touches_all or devices.has_planned_claim(pod):
            return np.ones(len(nodes), dtype=np.bool_)
        others: Bools = self._changed_at[nodes] > 0
        return others

    def _scores(
        self, pod: ClaimingPod, claims: tuple[ResourceClaim, ...], devices: ClaimableDevices, nodes: Int64s
    ) -> Int64s:
        """int64[M]: the scores of what the claims of a pod get on these nodes; few of them changed since the last call.

        See ``ClaimableDevices.scores``.
        """
        # Where a change may concern all nodes, all are as new as the last change.
        changed_at = np.full_like(self._changed_at, self._last_change) if self._touches_all else self._changed_at
        alike = without_names(claims)
        if alike not in self._answers:
            self._answers[alike] = np.full_like(changed_at, _NEVER), np.full_like(changed_at, NOTHING)
        asked_at, scores = self._answers[alike]
        stale = nodes[asked_at[nodes] != changed_at[nodes]]
        scores[stale] = devices.scores(claims, self._nodes(pod, stale))
        asked_at[stale] = changed_at[stale]
        scored: Int64s = scores[nodes]
        return scored

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
                self._changed_at[node] = self._last_change = self._devices.version
            touches_all |= not self._devices.is_local(pod, reached)
            self._touches_all |= not self._devices.has_own_pools(reached)
        return touches_all

    def _nodes(self, pod: ClaimingPod, rows: Iterable[int]) -> Iterator[ReachedNode]:
        nodes, extended = self._snapshot.table.nodes, pod.extended_resources
        return (reached_node(nodes[row], extended) for row in rows)
