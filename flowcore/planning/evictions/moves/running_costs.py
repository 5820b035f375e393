"""Running pods that cost alike, and what each node costs one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.costs import CostModel
from flowcore.costs.data_locality import DataPrices
from flowcore.costs.model import Load, counted_amounts
from flowcore.costs.own_crowding import OwnCrowding
from flowcore.costs.pod_costs import PodCosts
from flowcore.costs.potential import mean_size
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.services import ServiceIndex
from flowcore.model.turns import begun_at, spread, turn_of
from flowcore.model.workload_kinds import penalty_match, with_kind
from flowcore.planning.evictions.moves.terminating_pods import TerminatingPods
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.verdicts import group

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


class RunningCosts:
    """What each node costs running pods that policies let go for gain, once the pods that end have gone.

    Attributes:
        terminating: the pods that end.
    """

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        gaining: Bools,
        allowed: Callable[[int], tuple[bool, Bools]],
    ) -> None:
        """It follows the state.

        Args:
            policies, models: by name.
            gaining: bool[V], the residents.
            allowed: gives bool[N], the nodes that may ever take a resident, after something else.
        """
        self._state, self._residents, self._policies, self._models = state, state.residents, policies, models
        self._gaining, self._allowed = gaining, allowed
        self.terminating = TerminatingPods.of(state.before, state.residents.running)

    @cached_property
    def _unit(self) -> tuple[float, ...]:
        """A pod of mean size among all of them, the unit of the potentials.

        It must not change with what waits just now, or pods would move to and fro with it.
        """
        every = _alike(self._residents, np.nonzero(self._gaining)[0])
        sizes = [counted_amounts(self._residents.pods[alike[0]].pod_class) for alike in every]
        load = Load.of(self.terminating.gone_from(self._state.before))
        return mean_size(sizes, [len(alike) for alike in every], [load])

    def of(self, resident: int, known: MovableKind | None = None) -> Int64s:
        """int64[N]: what each node costs a resident, once it has left; ``known``: its kind."""
        without = self.terminating.gone_from(self._state.snapshot([resident]))
        kind = known or self._kinds([np.array([resident])], without)[0]
        return kind.costs.one_more(without, Load.of(without))

    def kinds(self, movable: Int64s, snapshot: Snapshot) -> list[MovableKind]:
        """Kinds of some residents. Where there are too many, namespaces take turns, and the kinds of each do.

        Args:
            movable: numbers of the residents.
            snapshot: the cluster with all of them in it.
        """
        return self._kinds(_in_turn(_alike(self._residents, movable), self._residents, turn_of(snapshot.now)), snapshot)

    def _kinds(self, members: Sequence[Int64s], snapshot: Snapshot) -> list[MovableKind]:
        """Kinds of residents that are alike by class, signature, policy and usage."""
        residents, pending = self._residents, list[PendingPod]()
        for number, alike in enumerate(members):
            pod = residents.pods[alike[0]]
            signature = _compiled(pod.signature, self._policies[pod.policy], snapshot.pod_index.services)
            pending.append(PendingPod(str(number), "", pod.pod_class, pod.policy, signature=signature))
        data = DataPrices(snapshot)
        kinds = []
        for pod_group in group(pending, snapshot.pod_index):
            rows = np.concatenate([members[int(pod.key)] for pod in pod_group.pods])
            policy = self._policies[pod_group.policy]
            _, allowed = self._allowed(int(rows[0]))
            # As for pods that wait: nodes that have room, and those that these leave.
            room = count_fitting(snapshot.vector(pod_group.pod_class.requests), snapshot.free) > 0
            room[residents.nodes[rows]] = True
            size, model = counted_amounts(pod_group.pod_class), self._models[policy.cost.model]
            costs = PodCosts.of(pod_group, policy, size, allowed, allowed & room, model, self._unit, data)
            # A pod may have been resized.
            different, kind = np.unique(residents.usage[rows], axis=0, return_inverse=True)
            kinds += [MovableKind(rows[kind.ravel() == number], usage, costs) for number, usage in enumerate(different)]
        return kinds


def _in_turn(members: list[Int64s], residents: Residents, turn: int) -> list[Int64s]:
    """The kinds that a round looks at: one of each namespace, then the next one of each. Each turn begins elsewhere.

    Args:
        members: numbers of the residents of each.
        turn: below 2**32.
    """
    if len(members) <= MOST_KINDS:
        return members
    by_namespace: defaultdict[str, list[Int64s]] = defaultdict(list)
    # Whatever the order of the pods, the same have their turn.
    for alike in sorted(members, key=lambda alike: min(residents.pods[number].key for number in alike.tolist())):
        by_namespace[residents.pods[alike[0]].namespace].append(alike)
    # Of another number: else a namespace would always have the same of its kinds in its turn.
    begin = spread(turn)
    rows = [begun_at(own, begin) for own in begun_at(list(by_namespace.values()), turn)]
    mixed = (own[rank] for rank in range(max(map(len, rows))) for own in rows if rank < len(own))
    return list(islice(mixed, MOST_KINDS))


def _alike(residents: Residents, movable: Int64s) -> list[Int64s]:
    """Numbers of residents by class, signature, policy and usage, in the order of the first of each."""
    numbers: dict[tuple[object, ...], int] = {}
    number_of_kind = [
        numbers.setdefault((kind.pod_class, kind.signature, kind.policy, kind.usage), len(numbers))
        for kind in residents.kind_list
    ]
    # Small integers are sorted faster.
    keys = np.array(number_of_kind, dtype=np.min_scalar_type(len(numbers)))[residents.kinds[movable]]
    in_order = movable[np.argsort(keys, kind="stable")]
    alike = np.split(in_order, np.cumsum(np.bincount(keys))[:-1]) if len(movable) else []
    return sorted((each for each in alike if len(each)), key=lambda each: int(each[0]))


def _compiled(signature: PodSignature, policy: Policy, services: ServiceIndex) -> PodSignature:
    """The rules of a running pod as those of a waiting one of its policy."""
    cost, compiled = policy.cost, with_policy_constraints(signature, policy, services)
    if cost.interference is None and cost.machines is None:
        return compiled
    return with_kind(compiled, cost.kinds, cost.interference)
