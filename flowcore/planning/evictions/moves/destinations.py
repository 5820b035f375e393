"""Where the replacements of pods that leave go: nodes that have room now, before anybody leaves.

So no move waits for another one: every destination is reserved before the first eviction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.costs import CostModel
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import AffinityMatch, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.fit_checks import is_plain
from flowcore.planning.evictions.moves.running_costs import RunningCosts
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import round_invariant_fits, run_filters, static_fits
from flowcore.rules.verdicts import VerdictCache

#: No node has so much room; nobody knows whether one has.
_NO_NODE, _NOT_KNOWN = -1, -2


@dataclass(slots=True, eq=False)
class _Replacements:
    """Replacements that ask for the same and may go to the same nodes.

    Attributes:
        usage: int64[R].
        plain: whether only resources decide where they fit.
        allowed: bool[N], nodes that may take them.
        usable: bool[N], those of them that have room now.
        count: how many these are.
        changes: of the state, when that was found out; below zero: never.
    """

    usage: Int64s
    plain: bool
    allowed: Bools
    usable: Bools
    count: int = 0
    changes: int = -1


class Destinations:
    """Finds nodes for replacements; it follows the state.

    After a decision only the nodes are looked at again whose room has changed.

    Attributes:
        costs: what nodes cost a pod whose policy moves for gain.
    """

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        cache: VerdictCache,
        gaining: Bools,
    ) -> None:
        """``gaining``: bool[V], residents that policies let go for gain."""
        self._state, self._policies, self._cache, self._gaining = state, policies, cache, gaining
        self.costs = RunningCosts(state, policies, models, gaining, self.allowed)
        self._services = state.before.pod_index.services
        #: Of each kind of pod: whether only resources decide, and bool[N] nodes that may take it.
        self._known: dict[tuple[PodClass, PodSignature], tuple[bool, Bools]] = {}
        #: Of a waiting pod's signature and another one: whether it wants no such pods near it.
        self._kept_off: dict[tuple[PodSignature, PodSignature], frozenset[str]] = {}
        #: By number of the kind of resident, and of the resident.
        self._replacements: dict[int, _Replacements] = {}
        self._of_resident: dict[int, _Replacements] = {}
        #: Whether a replacement from a node has a destination, where filters decide; and the changes before that.
        self._found: dict[tuple[int, int], bool] = {}
        self._found_after = 0
        total = np.maximum(state.before.allocatable.astype(np.float64).sum(axis=0), 1.0)
        self._share = 1.0 / total
        #: float64[N]: the room to spare on each node, in shares of all that there is; and the changes before that.
        self._spare, self._spare_after = np.zeros(len(state.free)), -1
        #: int64[S]: for each row of ``Residents.amounts`` a node with so much room now, or none; and the changes.
        self._node_with_room = np.full(len(state.residents.amounts), _NOT_KNOWN, dtype=np.int64)
        self._node_with_room_after = -1

    def may_fit(self, among: Bools) -> Bools:
        """bool[V]: those of some residents, bool[V], for whose replacement some node has the resources now."""
        state, residents, nodes = self._state, self._state.residents, self._node_with_room
        amounts, changed = residents.amounts, state.changed_since(self._node_with_room_after)
        self._node_with_room_after = state.changes
        asked = np.zeros(len(amounts), dtype=np.bool_)
        asked[residents.sizes[among]] = True
        fits = (nodes >= 0) & enough(state.free_now(np.maximum(nodes, 0)), amounts)
        lacking = np.nonzero(asked & ~fits)[0]
        if len(lacking):
            every, spare = np.arange(len(state.free)), self._room_to_spare()
            # Moves take the nodes with the least room to spare: the one with the most stays an answer for long.
            roomiest = int(spare.argmax())
            suffices = enough(state.free_now(roomiest), amounts[lacking])
            for size in lacking[~suffices].tolist():
                # Where no node had so much room, one has only if its room has changed.
                candidates = changed if nodes[size] == _NO_NODE else every
                fitting = candidates[enough(state.free_now(candidates), amounts[size])]
                nodes[size] = fitting[spare[fitting].argmax()] if len(fitting) else _NO_NODE
            nodes[lacking[suffices]] = roomiest
        # What is not asked for now is looked at anew when it is.
        nodes[~asked & (nodes == _NO_NODE)] = _NOT_KNOWN
        may_fit: Bools = among & (nodes >= 0)[residents.sizes]
        return may_fit

    def find(self, resident: int, among: Bools | None = None, costs: Int64s | None = None) -> int:
        """The node that takes a resident's replacement, with the least room to spare or the cheapest; -1: none.

        Args:
            among: bool[N], nodes that it may go to beside its own; None: all.
            costs: int64[N], of the nodes; None: room decides.
        """
        usable = self.usable(resident)
        nodes = np.nonzero(usable if among is None else usable & among)[0]
        if not len(nodes):
            return -1
        worth = self._room_to_spare()[nodes] if costs is None else costs[nodes]
        if self._replacements_of(resident).plain:
            return int(nodes[worth.argmin()])
        nodes = self.passing(resident, nodes[np.argsort(worth, kind="stable")])
        return int(nodes[0]) if len(nodes) else -1

    def has_any(self, resident: int) -> bool:
        """Whether some node takes the replacement of a resident."""
        alike, home = self._replacements_of(resident), int(self._state.residents.nodes[resident])
        if alike.plain:
            return alike.count > int(alike.usable[home])
        if self._found_after != self._state.changes:
            self._found.clear()
            self._found_after = self._state.changes
        key = id(alike), home
        if key not in self._found:
            self._found[key] = self.find(resident) >= 0
        return self._found[key]

    def usable(self, resident: int) -> Bools:
        """bool[N]: other nodes that may take a resident's replacement and have room for it now."""
        usable: Bools = self._replacements_of(resident).usable.copy()
        usable[self._state.residents.nodes[resident]] = False
        return usable

    def has_place(self, resident: int) -> bool:
        """Whether the next node of a pod that leaves takes it, as all of the plan is now; or it has none."""
        to = self._state.leaving[resident].to
        return to < 0 or len(self.passing(resident, np.array([to], dtype=np.int64))) > 0

    def passing(self, resident: int, nodes: Int64s) -> Int64s:
        """The nodes, of some usable ones, on which every filter lets a resident's replacement, in the same order."""
        state, (plain, _) = self._state, self.allowed(resident)
        if plain or not len(nodes):
            return nodes
        pod, signature = state.residents.pods[resident], self._signature(resident)
        # Before the others have left and come, and afterwards: they may be those that its affinity wants near.
        at_once = [arrival for arrival in state.arrivals if arrival.at_once]
        # A placement that is taken back is not there.
        without = [resident, *(each for each, leaving in state.leaving.items() if leaving.kind is None)]
        before = state.snapshot(without, leavers_stay=True, arrivals=at_once)
        fits = run_filters(pod.pod_class, before, signature).fits
        leaving = state.leaving.get(resident)
        relies_on_none = leaving is not None and leaving.kind is EvictionKind.MIGRATION and bool(leaving.for_pods)
        others_move = relies_on_none and any(
            mover.to >= 0 for number, mover in state.leaving.items() if number != resident
        )
        # Some of them may still wait for rules: the order of the plan says so once all of it is decided. And
        # replacements of others come when they like: somebody waits for the room of a pod that moves for it.
        if at_once or others_move:
            none_yet = state.snapshot(without, leavers_stay=True, arrivals=(), replaced=not relies_on_none)
            fits = fits & run_filters(pod.pod_class, none_yet, signature).fits
        if others_move:
            gone = state.snapshot([resident], arrivals=(), replaced=False)
            fits = fits & run_filters(pod.pod_class, gone, signature).fits
        if state.leaving.keys() - {resident} or len(at_once) < len(state.arrivals):
            fits = fits & run_filters(pod.pod_class, state.snapshot([resident]), signature).fits
        return nodes[fits[nodes]]

    def _signature(self, resident: int) -> PodSignature:
        pod = self._state.residents.pods[resident]
        policy = self._policies.get(pod.policy)
        signature = msgspec.structs.replace(pod.signature, deleting=False)
        return signature if policy is None else with_policy_constraints(signature, policy, self._services)

    def allowed(self, resident: int) -> tuple[bool, Bools]:
        """Whether only resources decide where a replacement fits; and bool[N], nodes that may take it."""
        pod, signature = self._state.residents.pods[resident], self._signature(resident)
        key = (pod.pod_class, signature)
        known = self._known.get(key)
        if known is None:
            snapshot = self._state.snapshot()
            # The rules of those that leave hold until they have left, and replacements come before.
            plain = all(is_plain(pod.pod_class, signature, each) for each in (self._state.before, snapshot))
            allowed = (
                round_invariant_fits(pod.pod_class, signature, snapshot, self._cache.run_filter)
                if plain
                else static_fits(pod.pod_class, signature, snapshot, self._cache.run_filter)
            )
            known = self._known[key] = plain, allowed & ~evicting_nodes(pod.pod_class, snapshot.table)
        plain, allowed = known
        return plain and not self._is_kept_off(signature), allowed

    def _is_kept_off(self, signature: PodSignature) -> bool:
        """Whether waiting pods that have come want no pods of a signature near them."""
        return any(count and self.keeps_off(ruled, signature) for ruled, count in self._state.ruled.items())

    def keeps_off(self, ruled: PodSignature, signature: PodSignature) -> frozenset[str]:
        """Topology keys in whose domains pods of a signature want no pods of another one."""
        if (ruled, signature) not in self._kept_off:
            namespaces = self._state.before.pod_index.namespaces
            terms = () if ruled.constraints is None else ruled.constraints.anti_affinity
            self._kept_off[ruled, signature] = frozenset(
                term.topology_key for term in terms if AffinityMatch((term,)).includes(signature, namespaces)
            )
        return self._kept_off[ruled, signature]

    def reserve(self, resident: int, *, is_move: bool, best: Bools | None = None) -> bool:
        """Reserves room for the replacement of a pod that leaves, and returns whether there was any.

        Who leaves for others takes the node with the least room to spare. Who leaves for its own sake goes to the
        cheapest node if its policy moves pods for gain: from another one it would leave again.

        Args:
            best: bool[N], nodes that it goes to rather than to others.
        """
        pod, limits = self._state.residents.pods[resident], self._state.limits
        if not limits.allows(pod.queue, limits.of_running(pod.usage)):
            return False
        alone = not self._state.leaving[resident].for_pods and bool(self._gaining[resident])
        costs = self.costs.of(resident) if alone else None
        node = -1 if best is None else self.find(resident, best, costs)
        node = self.find(resident, None, costs) if node < 0 else node
        if node >= 0:
            self._state.reserve_replacement(resident, node, is_move=is_move)
        return node >= 0

    # --- what follows the state ---

    def _replacements_of(self, resident: int) -> _Replacements:
        """What is known of replacements like a resident's, as of now."""
        state, alike = self._state, self._of_resident.get(resident)
        if alike is None:
            residents = state.residents
            key = int(residents.kinds[resident])
            if key not in self._replacements:
                plain, allowed = self.allowed(resident)
                self._replacements[key] = _Replacements(
                    residents.usage[resident], plain, allowed, np.zeros_like(allowed)
                )
            alike = self._of_resident[resident] = self._replacements[key]
        if alike.changes != state.changes:
            alike.plain, _ = self.allowed(resident)
            nodes = state.changed_since(alike.changes)
            room = np.minimum(state.free_now(nodes), state.free[nodes])
            usable = alike.allowed[nodes] & enough(room, alike.usage)
            alike.count += int(np.count_nonzero(usable)) - int(np.count_nonzero(alike.usable[nodes]))
            alike.usable[nodes] = usable
            alike.changes = state.changes
        return alike

    def _room_to_spare(self) -> NDArray[np.float64]:
        state = self._state
        if self._spare_after != state.changes:
            nodes = state.changed_since(self._spare_after)
            self._spare[nodes] = (state.free_now(nodes) * self._share).sum(axis=1)
            self._spare_after = state.changes
        return self._spare


def evicting_nodes(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes with a taint that would evict a pod again, now or later."""
    if not table.taint_sets:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    evicting = [seconds_before_eviction(pod_class.tolerations, taints) is not None for taints in table.taint_sets]
    return np.array(evicting, dtype=np.bool_)[table.taint_codes]


def enough(room: Int64s, usage: Int64s) -> Bools:
    """bool[N]: whether rooms, int64[N, R], have a usage, int64[R], or int64[N, R] one each."""
    return np.asarray(((room >= usage) | (usage == 0)).all(axis=1))
