"""Where the replacements of pods that leave go: nodes that have room now, before anybody leaves.

So no move waits for another one, and a plan has no cycles: every destination is reserved before the first eviction.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.planning.evictions.fit_checks import is_plain
from flowcore.planning.evictions.state import EvictionState
from flowcore.rules.filters import round_invariant_fits, run_filters, static_fits
from flowcore.rules.verdicts import VerdictCache


class Destinations:
    """Finds nodes for replacements; it follows the state."""

    def __init__(self, state: EvictionState, policies: Mapping[str, Policy], cache: VerdictCache) -> None:
        self._state, self._policies, self._cache = state, policies, cache
        #: Of each kind of pod: whether only resources decide, and bool[N] nodes that may take it.
        self._known: dict[tuple[PodClass, PodSignature], tuple[bool, Bools]] = {}
        total = np.maximum(state.snapshot().allocatable.astype(np.float64).sum(axis=0), 1.0)
        self._share = 1.0 / total

    def may_fit(self) -> Bools:
        """bool[V]: residents for whose replacement some node has the resources now."""
        usage, free = self._state.residents.usage, self._state.free_now
        rows, kind = np.unique(usage, axis=0, return_inverse=True)
        fits = [bool(np.all((free >= row) | (row == 0), axis=1).any()) for row in rows]
        fitting: Bools = np.array(fits, dtype=np.bool_)[kind.ravel()]
        return fitting

    def kind(self, resident: int) -> tuple[object, ...]:
        """Equal for residents on one node whose replacements may go to the same nodes."""
        residents = self._state.residents
        pod = residents.pods[resident]
        return (
            int(residents.nodes[resident]),
            residents.usage[resident].tobytes(),
            pod.pod_class,
            pod.signature,
            pod.policy,
        )

    def find(self, resident: int, avoid: Bools | None = None, costs: Int64s | None = None) -> int:
        """The node that takes a resident's replacement, with the least room to spare or the cheapest; -1: none.

        Args:
            avoid: bool[N], nodes that it must not go to beside its own; None: none.
            costs: int64[N], of the nodes; None: room decides.
        """
        nodes = np.nonzero(self.usable(resident, avoid))[0]
        worth = (self._state.free_now[nodes] * self._share).sum(axis=1) if costs is None else costs[nodes]
        nodes = self.passing(resident, nodes[np.argsort(worth, kind="stable")])
        return int(nodes[0]) if len(nodes) else -1

    def usable(self, resident: int, avoid: Bools | None = None) -> Bools:
        """bool[N]: other nodes that may take a resident's replacement and have room for it now; ``avoid``: as above."""
        state = self._state
        usage, free = state.residents.usage[resident], state.free_now
        asked = usage > 0
        _, allowed = self.allowed(resident)
        enough = (free[:, asked] >= usage[asked]).all(axis=1) & (state.free[:, asked] >= usage[asked]).all(axis=1)
        usable: Bools = allowed & enough if avoid is None else allowed & enough & ~avoid
        usable[state.residents.nodes[resident]] = False
        return usable

    def passing(self, resident: int, nodes: Int64s) -> Int64s:
        """Those of some usable nodes that every filter lets a resident's replacement in, in the same order."""
        state, (plain, _) = self._state, self.allowed(resident)
        if plain or not len(nodes):
            return nodes
        pod, signature = state.residents.pods[resident], self._signature(resident)
        # Before the others have left, and afterwards: they may be those that its affinity wants near.
        before, afterwards = (state.snapshot([resident], leavers_stay=stay) for stay in (True, False))
        fits = run_filters(pod.pod_class, before, signature).fits
        if state.leaving.keys() - {resident}:
            fits = fits & run_filters(pod.pod_class, afterwards, signature).fits
        return nodes[fits[nodes]]

    def _signature(self, resident: int) -> PodSignature:
        pod = self._state.residents.pods[resident]
        policy = self._policies.get(pod.policy)
        signature = msgspec.structs.replace(pod.signature, deleting=False)
        return signature if policy is None else with_policy_constraints(signature, policy)

    def allowed(self, resident: int) -> tuple[bool, Bools]:
        """Whether only resources decide where a replacement fits; and bool[N], nodes that may take it."""
        pod, signature = self._state.residents.pods[resident], self._signature(resident)
        key = (pod.pod_class, signature)
        known = self._known.get(key)
        if known is None:
            snapshot = self._state.snapshot()
            plain = is_plain(pod.pod_class, signature, snapshot)
            allowed = (
                round_invariant_fits(pod.pod_class, signature, snapshot)
                if plain
                else static_fits(pod.pod_class, signature, snapshot, self._cache.run_filter)
            )
            known = self._known[key] = plain, allowed
        return known

    def reserve(self, resident: int, *, is_move: bool) -> bool:
        """Reserves room for the replacement of a pod that leaves, and returns whether there was any."""
        node = self.find(resident)
        if node >= 0:
            self._state.reserve_replacement(resident, node, is_move=is_move)
        return node >= 0


class KnownPlaces:
    """Whether residents have a destination, remembered for those that are alike while nothing is decided."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self._known: dict[tuple[object, ...], bool] = {}

    def has_any(self, resident: int) -> bool:
        """Whether some node takes the replacement of a resident."""
        key = self._destinations.kind(resident)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._destinations.find(resident) >= 0
        return known
