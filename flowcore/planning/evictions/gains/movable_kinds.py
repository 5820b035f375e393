"""Running pods that cost alike, and what each node costs one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.costs import CostModel
from flowcore.costs.data_locality import DataPrices
from flowcore.costs.model import Load, counted_amounts
from flowcore.costs.network_model import NetworkModel
from flowcore.costs.own_crowding import OwnCrowding
from flowcore.costs.pod_costs import PodCosts
from flowcore.costs.potential import mean_size
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.services import ServiceIndex
from flowcore.model.turns import begun_at, spread, turn_of
from flowcore.model.workload_kinds import penalty_match, with_kind
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.problem.placements.residents import Residents
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.verdicts import group

_MovableKey = TypeVar("_MovableKey")

#: Kinds that a round looks at. Each costs two vectors over the nodes: half a millisecond of CPU time at 5,000 nodes.
MOST_KINDS = 256
#: What no node costs.
_DEAREST = 2**62
#: The gain of pods that no other node takes: no sum of gains and prices makes up for it.
_NO_GAIN = -(2**50)


@dataclass(frozen=True, eq=False)
class MovableKind:
    """Residents that cost the same on each node.

    Attributes:
        residents: int64[V'], their numbers.
        usage: int64[R], what one takes.
        costs: what nodes cost one more of them.
    """

    residents: Int64s
    usage: Int64s
    costs: PodCosts

    @property
    def policy(self) -> Policy:
        """That governs them."""
        return self.costs.policy

    @property
    def namespace(self) -> str:
        """That of all of them."""
        return self.costs.group.signature.namespace

    def one_more(self, snapshot: Snapshot) -> Int64s:
        """int64[N]: what one more costs on each node, by its policy's cost model."""
        return self.costs.one_more(snapshot, Load.of(snapshot))

    def apparent_gains(self, snapshot: Snapshot, load: Load, values: Int64s, usable: Bools) -> Int64s:
        """int64[N]: by how much the cheapest other node is cheaper for one that runs on each node; _NO_GAIN: none is.

        Exact, but for preferences between pods: preferred affinity counts the pod
        itself among the others, and spread takes the most crowded node to stay so.

        Args:
            load: of the snapshot, in which it runs.
            values: int64[N], of its potential with this load.
            usable: bool[N], nodes that have room for one more.
        """
        costs, potential = self.costs, self.costs.potential
        less, beside = load.less(costs.size), costs.beside_load(snapshot) + costs.written
        more = costs.model_arcs(load) + beside + potential.increase(load, costs.size, values)
        home = costs.model_arcs(less) + beside + values - potential.values(less) - self._beside_itself(snapshot)
        nodes = np.nonzero(usable & costs.allowed)[0]
        elsewhere = np.full(len(more), _DEAREST, dtype=np.int64)
        elsewhere[nodes] = more[nodes]
        crowding = self._own_crowding(snapshot)
        if crowding is not None:
            home, cheapest = home - crowding.at_home, crowding.cheapest_elsewhere(elsewhere, _DEAREST)
        else:
            best = int(elsewhere.argmin())
            cheapest = np.full(len(elsewhere), elsewhere[best], dtype=np.int64)
            elsewhere[best] = _DEAREST
            cheapest[best] = elsewhere.min()
        gains: Int64s = np.where(costs.allowed & (cheapest < _DEAREST), home - cheapest, _NO_GAIN)
        return gains

    def _own_crowding(self, snapshot: Snapshot) -> OwnCrowding | None:
        """What its spread counts of a pod itself; None: it has none."""
        costs, group = self.costs, self.costs.group
        if group.signature.constraints is None or not group.signature.constraints.soft_spread:
            return None
        weight = self.policy.cost.weights.spread
        return OwnCrowding.of(group.pod_class, group.signature, snapshot, costs.passing, weight)

    def _beside_itself(self, snapshot: Snapshot) -> int:
        """What interference says of two of these pods on a node, if it counts them."""
        signature = self.costs.group.signature
        constraints = signature.constraints
        penalties = () if constraints is None or self.policy.cost.interference is None else constraints.penalties
        return sum(
            penalty.suffered + penalty.inflicted
            for penalty in penalties
            if penalty_match(penalty).includes(signature, snapshot.pod_index.namespaces)
        )


def network_policies(policies: Mapping[str, Policy], models: Mapping[str, CostModel]) -> frozenset[str]:
    """Names of the policies whose cost model draws its own network: it does not price single pods."""
    return frozenset(name for name, policy in policies.items() if isinstance(models[policy.cost.model], NetworkModel))


def movable_kinds(
    residents: Residents,
    movable: Int64s,
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    destinations: Destinations,
) -> list[MovableKind]:
    """Kinds of some residents.

    A pod of mean size among all of them is the unit of the potentials: it must not change with what waits just now, or
    pods would move to and fro with it.

    Where there are more kinds than a round looks at, namespaces take turns, and the kinds of each do.

    Args:
        movable: numbers of the residents.
        snapshot: the cluster with all of them in it.
        policies, models: by name.
        destinations: knows the nodes that may ever take each.
    """
    every = _alike(residents, movable)
    unit = _unit(residents, every, snapshot)
    turn = turn_of(snapshot.now)
    members = _in_turn(every, every, residents, turn)
    kinds = _kinds(members, unit, residents, snapshot, policies, models, destinations)
    # Pods of one class may have been resized in many ways.
    return _in_turn(kinds, [kind.residents for kind in kinds], residents, spread(~turn))


def kind_of(
    resident: int,
    unit: tuple[float, ...],
    residents: Residents,
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    destinations: Destinations,
) -> MovableKind:
    """The kind of one resident; ``unit``: see ``unit_of``, the rest as above."""
    (kind,) = _kinds([np.array([resident])], unit, residents, snapshot, policies, models, destinations)
    return kind


def unit_of(residents: Residents, movable: Int64s, snapshot: Snapshot) -> tuple[float, ...]:
    """The unit of the potentials that ``movable_kinds`` has with the same residents."""
    return _unit(residents, _alike(residents, movable), snapshot)


def _unit(residents: Residents, every: Sequence[Int64s], snapshot: Snapshot) -> tuple[float, ...]:
    sizes = [counted_amounts(residents.pods[alike[0]].pod_class) for alike in every]
    return mean_size(sizes, [len(alike) for alike in every], [Load.of(snapshot)])


def _kinds(
    members: Sequence[Int64s],
    unit: tuple[float, ...],
    residents: Residents,
    snapshot: Snapshot,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    destinations: Destinations,
) -> list[MovableKind]:
    """Kinds of residents that are alike by class, signature and policy."""
    pending: list[PendingPod] = []
    for number, alike in enumerate(members):
        pod = residents.pods[alike[0]]
        signature = _compiled(pod.signature, policies[pod.policy], snapshot.pod_index.services)
        pending.append(PendingPod(str(number), "", pod.pod_class, pod.policy, signature=signature))
    groups = group(pending, snapshot.pod_index)
    sizes = [counted_amounts(each.pod_class) for each in groups]
    numbers = [np.concatenate([members[int(pod.key)] for pod in each.pods]) for each in groups]
    data = DataPrices(snapshot)
    kinds = []
    for pod_group, size, alike in zip(groups, sizes, numbers, strict=True):
        policy = policies[pod_group.policy]
        _, allowed = destinations.allowed(int(alike[0]))
        # As for pods that wait: nodes that have room, and those that these leave.
        room = count_fitting(snapshot.vector(pod_group.pod_class.requests), snapshot.free) > 0
        room[residents.nodes[alike]] = True
        costs = PodCosts.of(pod_group, policy, size, allowed, allowed & room, models[policy.cost.model], unit, data)
        for usage, rows in _by_usage(residents, alike):
            kinds.append(MovableKind(rows, usage, costs))
    return kinds


def _in_turn(kinds: list[_MovableKey], members: Sequence[Int64s], residents: Residents, turn: int) -> list[_MovableKey]:
    """The kinds that a round looks at: one of each namespace, then the next one of each. Each turn begins elsewhere.

    Args:
        members: numbers of the residents of each, all of one namespace.
        turn: below 2**32.
    """
    if len(kinds) <= MOST_KINDS:
        return kinds
    by_namespace: defaultdict[str, list[_MovableKey]] = defaultdict(list)
    # Whatever the order of the pods, the same have their turn.
    first = [min(residents.pods[number].key for number in alike.tolist()) for alike in members]
    for row in sorted(range(len(kinds)), key=first.__getitem__):
        by_namespace[residents.pods[members[row][0]].namespace].append(kinds[row])
    # Of another number: else a namespace would always have the same of its kinds in its turn.
    begin = spread(turn)
    rows = [begun_at(own, begin) for own in begun_at(list(by_namespace.values()), turn)]
    mixed = (own[rank] for rank in range(max(map(len, rows))) for own in rows if rank < len(own))
    return list(islice(mixed, MOST_KINDS))


def _alike(residents: Residents, movable: Int64s) -> list[Int64s]:
    """Numbers of residents by class, signature and policy, in the order of the first of each."""
    numbers: dict[tuple[PodClass, PodSignature, str], int] = {}
    number_of_kind = [
        numbers.setdefault((kind.pod_class, kind.signature, kind.policy), len(numbers)) for kind in residents.kind_list
    ]
    # Small integers are sorted faster.
    keys = np.array(number_of_kind, dtype=np.min_scalar_type(len(numbers)))[residents.kinds[movable]]
    counts = np.bincount(keys)
    in_order = movable[np.argsort(keys, kind="stable")]
    alike = np.split(in_order, np.cumsum(counts)[:-1]) if len(movable) else []
    return sorted((each for each in alike if len(each)), key=lambda each: int(each[0]))


def _compiled(signature: PodSignature, policy: Policy, services: ServiceIndex) -> PodSignature:
    """The rules of a running pod as those of a waiting one of its policy."""
    cost, compiled = policy.cost, with_policy_constraints(signature, policy, services)
    if cost.interference is None and cost.machines is None:
        return compiled
    return with_kind(compiled, cost.kinds, cost.interference)


def _by_usage(residents: Residents, rows: Int64s) -> list[tuple[Int64s, Int64s]]:
    """Rows by what they take: a pod may have been resized."""
    if (residents.sizes[rows] == residents.sizes[rows[0]]).all():
        return [(residents.usage[rows[0]], rows)]
    different, kind = np.unique(residents.usage[rows], axis=0, return_inverse=True)
    return [(each, rows[kind.ravel() == number]) for number, each in enumerate(different)]
