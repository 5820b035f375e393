"""Groups in a snapshot's terms: what they ask for, where they may ever go, what that costs and what waiting costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs import MODELS, unscheduled_prices
from flowcore.costs.claim_scores import NO_CLAIM_COSTS, ClaimCosts
from flowcore.costs.data_locality import priced_classes
from flowcore.costs.model import CostModel, Float64s, Load, counted_amounts
from flowcore.costs.potential import NodePotential, mean_size
from flowcore.costs.shares.shares import urgencies
from flowcore.costs.soft_constraints import SoftConstraintCosts
from flowcore.costs.unscheduled import price_growth
from flowcore.costs.wishes import idle_wishes, wish_nodes
from flowcore.model.networks import TWINS
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.resources import PODS
from flowcore.model.selectors import value_of
from flowcore.model.volumes import are_exclusive
from flowcore.planning.problem.demands.charging import Charge, not_charged
from flowcore.planning.problem.demands.equal_arrays import EqualArrays
from flowcore.planning.problem.demands.placement_prices import loads_of, price_group, price_placements
from flowcore.rules.filters import round_invariant_fits
from flowcore.rules.filters.registry import PORTS
from flowcore.rules.topology.round_constraints.build_constraints import topology_constraints_of
from flowcore.rules.topology.round_constraints.constraints import UNCONSTRAINED, TopologyConstraints
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.verdicts import Group, VerdictCache, group
from flowcore.rules.volumes import contends, decides_for_others


@dataclass(frozen=True, eq=False)
class Demand:
    """One group of a round.

    Attributes:
        requests: int64[R], what one pod asks for.
        size: float64[3], what one pod counts for in the cost model, in the columns of Load.taken.
        allowed: bool[N], nodes that pass every filter which the round itself cannot change.
        counts: int64[N], how many of its pods each node has room for as the round begins.
        compared: bool[N], those allowed as the arcs were priced, whatever its pods are kept to.
        passing: bool[N], those of them among which preferences are scaled: that pass every filter as the round begins;
            where none does, all of them.
        arc: int64[N], what a pod of the class pays on each node beside the increase of its potential; a constant.
        first_increase: int64[N], by how much a first pod increases the potential of each node.
        potential: of nodes for its pods and all that are priced alike.
        prices: int64[pods], what leaving each pod pending costs, falling: the first to go is the dearest to leave.
        level, worth: its level; int64[pods], what each pod counts for there. ``AssignLevels`` says both.
        weight: how often one pod counts in its price (costs/unscheduled.py). Prices over weights say who comes first.
        lift: what each of its prices has because of priorities, for what a pod counts (costs/unscheduled.py).
        dominant_share: how large one pod is: the largest share that it takes of what all nodes have of a resource.
        constraints: its part in the rules between pods.
        queue_rank: place in the queue: 0 for the demand whose first pod is dearest to leave for what it counts, then
            the largest.
        price_growth: by how much each of the prices rises in a second.
        claims: what its claims get, a part of ``arc`` that changes as pods of the round take devices and volumes.
        kept_to: bool[N], nodes that its pods are kept to by something else than the filters: the domain of their gang,
            what they may cost; None: nothing. Running pods that leave change nothing about it.
        is_priced: False where no node has room: then ``arc`` and ``first_increase`` are zeros and ``constraints`` none,
            since no plan reads them. Where pods of it get a node after all, ``with_costs`` gives them.
        is_held_back: limits of queues leave nothing for its pods before others leave: no node is allowed
            (``Snapshot.held_back``).
    """

    group: Group
    policy: Policy
    potential: NodePotential
    requests: Int64s
    size: Float64s
    allowed: Bools
    compared: Bools
    passing: Bools
    counts: Int64s
    arc: Int64s
    first_increase: Int64s
    prices: Int64s
    level: int
    worth: Int64s
    dominant_share: float
    constraints: TopologyConstraints
    queue_rank: int
    price_growth: float = 0.0
    weight: float = 1.0
    lift: float = 0.0
    is_priced: bool = True
    claims: ClaimCosts = NO_CLAIM_COSTS
    kept_to: Bools | None = None
    is_held_back: bool = False
    #: What ``soft_costs`` made last: every method asks.
    _soft_costs: dict[str, tuple[Snapshot, SoftConstraintCosts]] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        """Its pods."""
        return len(self.group.pods)

    @cached_property
    def first_cost(self) -> Int64s:
        """int64[N]: what a first pod pays on each node, if it fits."""
        return self.arc + self.first_increase

    @property
    def excludes_its_like(self) -> bool:
        """Whether a node takes one of its pods at most: host ports, claims of devices, unshared disks."""
        pod_class = self.group.pod_class
        return bool(pod_class.host_ports) or pod_class.devices is not None or are_exclusive(pod_class.volumes)

    @property
    def is_more_than_amounts(self) -> bool:
        """Whether its pods take more of a node than amounts: host ports, devices, disks, volumes that others want."""
        return bool(self.group.pod_class.host_ports) or self.takes_devices_or_volumes

    @property
    def takes_devices_or_volumes(self) -> bool:
        """Whether its pods take devices, unshared disks, or volumes that others want."""
        pod_class = self.group.pod_class
        return pod_class.devices is not None or are_exclusive(pod_class.volumes) or pod_class.contends_for_volumes

    @property
    def takes_resources_only(self) -> bool:
        """Whether its pods take resources of their nodes and nothing else: no rule, no host port, no NUMA zone."""
        return self.constraints.only_rises and self.group.pod_class.fits_by_amounts

    @property
    def is_placed_alone(self) -> bool:
        """Whether adding up amounts does not tell whether its pods fit a node beside others."""
        return not self.group.pod_class.fits_by_amounts or self.constraints.constrained

    @cached_property
    def counted(self) -> Int64s:
        """int64[4]: what one pod counts for, and 1 for the pod itself."""
        return np.append(self.size, 1.0).astype(np.int64)

    @property
    def waits(self) -> bool:
        """Whether its pods wait for as long as that costs less than every node that has room.

        So do pods of a network, of which some way may cost more than waiting.
        """
        rules = self.policy.network_rules
        return self.policy.unscheduled.wait_for_cheaper_node or (
            rules is not None and rules.dearest >= int(self.prices[-1])
        )

    @property
    def is_of_minimums(self) -> bool:
        """Whether the network of its policy has arcs that must have units: they may need each of its pods."""
        rules = self.policy.network_rules
        return rules is not None and rules.has_minimums

    def has_wish(self, snapshot: Snapshot) -> bool:
        """Whether there is room for a pod of it on the node that its pods wish for, as the round begins."""
        pod_class = self.group.pod_class
        return bool(pod_class.wish) and bool(self.counts[wish_nodes(pod_class, snapshot.table)].any())

    def could_be_held(self, snapshot: Snapshot) -> Bools:
        """bool[N]: nodes that would have room for one of its pods if they were empty."""
        asked = self.requests > 0
        fits: Bools = np.all(snapshot.allocatable[:, asked] >= self.requests[asked], axis=1)
        return fits

    def soft_costs(self, snapshot: Snapshot) -> SoftConstraintCosts | None:
        """What its preferences among the pods of the round cost; None: it has none."""
        preferences, group = self.constraints.soft_constraints, self.group
        if preferences is None:
            return None
        known = self._soft_costs.get("last")
        if known is None or known[0] is not snapshot:
            cost = self.policy.cost
            costs = SoftConstraintCosts(group.pod_class, group.signature, preferences, self.passing, cost, snapshot)
            known = self._soft_costs["last"] = snapshot, costs
        return known[1]

    @property
    def prices_in_priority(self) -> Int64s:
        """int64[pods], positive: the prices without what they have because of priorities."""
        return np.maximum(self.prices - int(self.weight * self.lift), 1)

    @property
    def dearest(self) -> float:
        """The price of its first pod for what it counts."""
        return int(self.prices[0]) / self.weight

    def prices_of_last(self, count: int) -> Int64s:
        """Prices of the ``count`` pods that are placed last."""
        return self.prices[len(self.prices) - count :]

    def restricted_to(self, nodes: Bools) -> Demand:
        """The demand on these nodes only, bool[N]."""
        kept_to = nodes if self.kept_to is None else self.kept_to & nodes
        return replace(self, allowed=self.allowed & nodes, counts=np.where(nodes, self.counts, 0), kept_to=kept_to)

    def with_leavers(self) -> Demand:
        """The demand where others may leave for its pods: limits of queues keep no node from it for good."""
        if not self.is_held_back:
            return self
        return replace(self, allowed=self.compared if self.kept_to is None else self.compared & self.kept_to)


def _counts(group: Group, allowed: Bools, snapshot: Snapshot, cache: VerdictCache) -> Int64s:
    counts = cache.counts(group.pod_class, snapshot) * allowed
    if group.pod_class.host_ports:
        counts = np.minimum(counts, 1)
        for rejection in cache.run_filter(PORTS, group.pod_class, group.signature, snapshot):
            counts[rejection.nodes] = 0
    if group.pod_class.devices is not None or are_exclusive(group.pod_class.volumes):
        counts = np.minimum(counts, 1)
    if group.pod_class.numa is not None and snapshot.numa is not None:
        counts = np.minimum(counts, snapshot.numa.counts(group.pod_class.numa))
    return counts


def _passing(allowed: Bools, counts: Int64s, rules: TopologyConstraints) -> Bools:
    passing = counts > 0
    if rules.constrained:
        passing &= DomainCounts().allowed(rules)
    return passing if passing.any() else allowed


def _without_idle_needs(classes: Mapping[PodClass, PodClass], snapshot: Snapshot) -> Mapping[PodClass, PodClass]:
    """Also without needs of NUMA zones, where no kubelet refuses pods for them."""
    if snapshot.numa is not None and snapshot.numa.any_single:
        return classes
    replaced = dict(classes)
    for pod_class in {pod.pod_class for pod in snapshot.pending}:
        if pod_class.numa is not None and not pod_class.numa.everywhere:
            replaced[pod_class] = msgspec.structs.replace(replaced.get(pod_class, pod_class), numa=None)
    return replaced


def _with_contention(classes: Mapping[PodClass, PodClass], snapshot: Snapshot) -> Mapping[PodClass, PodClass]:
    """Also saying which pods take volumes from each other."""
    replaced = dict(classes)
    for pod_class in {pod.pod_class for pod in snapshot.pending if pod.pod_class.volumes}:
        if contends(pod_class.volumes, snapshot.storage):
            replaced[pod_class] = msgspec.structs.replace(replaced.get(pod_class, pod_class), contends_for_volumes=True)
    return replaced


def node_totals(snapshot: Snapshot) -> tuple[Float64s, Int64s]:
    """float64[R], what all nodes have of each resource; int64[R], how many offer it. Room for pods is without end."""
    columns = snapshot.allocatable.T
    everything = np.maximum([column.sum(dtype=np.float64) for column in columns], 1.0)
    everything[snapshot.resources.index(PODS)] = np.inf  # a pod is a pod
    return everything, np.maximum([np.count_nonzero(column > 0) for column in columns], 1)


def _numbers(groups: Sequence[Group]) -> list[int]:
    """How many pods the groups have, twins counted once (drawn_networks/twins.py)."""
    if not any(value_of(each.signature.labels, TWINS) for each in groups):
        return [len(each.pods) for each in groups]
    known, numbers = set[str](), list[int]()
    for pod_group in groups:
        uids = {pod.uid for pod in pod_group.pods} - known
        known |= uids
        numbers.append(len(uids))
    return numbers


def demands_of(
    snapshot: Snapshot,
    load: Load,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel] = MODELS,
    cache: VerdictCache | None = None,
    charge: Charge = not_charged,
) -> tuple[Demand, ...]:
    """All pending pods of a snapshot as demands, in the order of their first pod.

    Args:
        load: of the snapshot, by what pods request.
        models: cost models by the names that policies give.
        cache: what is remembered of earlier rounds.
        charge: is called with the pods that the work was for.
    """
    cache = VerdictCache.of(snapshot) if cache is None else cache
    classes = _without_idle_needs(priced_classes(snapshot.pending, policies, snapshot), snapshot)
    classes = _with_contention(classes, snapshot)
    apart = {
        pod_class
        for pod_class, replacement in classes.items()
        if replacement.contends_for_volumes and decides_for_others(pod_class.volumes, snapshot.storage)
    }
    wishes, held_back = idle_wishes(snapshot), snapshot.held_back
    groups = group(snapshot.pending, snapshot.pod_index, classes, snapshot.gangs, apart, wishes, held_back)
    is_held_back = [pod_group.pods[0].key in held_back for pod_group in groups]
    sizes = [
        counted_amounts(group.pod_class, group.foreseen, policies[group.policy].cost.utilisation) for group in groups
    ]
    charge(())
    equal = EqualArrays()
    compared, allowed, counts = [], [], []
    for pod_group, is_held in zip(groups, is_held_back, strict=True):
        nodes = round_invariant_fits(pod_group.pod_class, pod_group.signature, snapshot, cache.run_filter)
        compared.append(equal.first(nodes))
        allowed.append(equal.first(np.zeros_like(nodes) if is_held else nodes))
        counts.append(equal.first(_counts(pod_group, allowed[-1], snapshot, cache)))
        charge(pod_group.pods)
    placeable = [bool(each.any()) for each in counts]
    # Pods that fit nowhere get no node in this round: no rule of theirs is read, and no node has a price for them.
    some = [index for index, fits in enumerate(placeable) if fits]
    costs = [policies[group.policy].cost for group in groups]
    loads = loads_of(costs, snapshot, load)
    counted = some or range(len(groups))
    unit = mean_size(
        [sizes[index] for index in counted], _numbers([groups[index] for index in counted]), loads.values()
    )
    rules = topology_constraints_of(
        [(groups[index].pod_class, groups[index].signature) for index in some],
        snapshot,
        lambda place: charge(groups[some[place]].pods),
    )
    constraints = dict(zip(some, rules, strict=True))
    passing = [
        _passing(compared[index], counts[index], constraints.get(index, UNCONSTRAINED)) for index in range(len(groups))
    ]
    placing = price_placements(
        [groups[index] for index in some],
        [sizes[index] for index in some],
        [allowed[index] for index in some],
        [passing[index] for index in some],
        rules,
        snapshot,
        loads,
        unit,
        policies,
        models,
        cache,
        charge,
    )
    arcs, increases = (dict(zip(some, each, strict=True)) for each in (placing.arcs, placing.first_increases))
    claims = dict(zip(some, placing.claims, strict=True))
    no_costs = np.zeros(len(snapshot.table.nodes), dtype=np.int64)
    potentials = [NodePotential.of(models[cost.model], cost, unit) for cost in costs]
    everything, offering = node_totals(snapshot)
    requests = [snapshot.vector(pod_group.pod_class.requests) for pod_group in groups]
    tenths = [10 * float((each * offering / everything).max()) for each in requests]
    holdable = [
        fits or bool((nodes & (snapshot.allocatable >= amounts).all(axis=1)).any())
        for fits, nodes, amounts in zip(placeable, compared, requests, strict=True)
    ]
    leaving = unscheduled_prices(
        groups, tenths, placeable, policies, snapshot.now, placing.dearest, urgencies(snapshot), holdable
    )
    prices, weights = leaving.prices, leaving.weights
    dominant_shares = [float((each / everything).max()) for each in requests]
    queue = sorted(
        range(len(groups)), key=lambda index: (-int(prices[index][0]) / weights[index], -dominant_shares[index], index)
    )
    queue_ranks = {index: turn for turn, index in enumerate(queue)}
    return tuple(
        Demand(
            group=group,
            policy=policies[group.policy],
            potential=potentials[index],
            requests=requests[index],
            size=sizes[index],
            allowed=allowed[index],
            compared=compared[index],
            passing=passing[index],
            counts=counts[index],
            arc=arcs.get(index, no_costs),
            first_increase=increases.get(index, no_costs),
            prices=prices[index] + _waiting_cost(group),
            level=0,
            worth=np.zeros_like(prices[index]),
            dominant_share=dominant_shares[index],
            constraints=constraints.get(index, UNCONSTRAINED),
            queue_rank=queue_ranks[index],
            price_growth=price_growth(policies[group.policy].unscheduled, tenths[index]),
            weight=weights[index],
            lift=leaving.lifts[index],
            is_priced=placeable[index],
            claims=claims.get(index, NO_CLAIM_COSTS),
            is_held_back=is_held_back[index],
        )
        for index, group in enumerate(groups)
    )


def _waiting_cost(group: Group) -> int:
    """What a pod of a group costs beside its price while it waits: its network's arc to that."""
    rules = group.signature.constraints
    return 0 if rules is None else rules.waiting_cost


def with_costs(
    demand: Demand, snapshot: Snapshot, load: Load, models: Mapping[str, CostModel], cache: VerdictCache
) -> Demand:
    """The demand with the costs of all nodes, also where none has room for it; the arguments as for ``demands_of``."""
    if demand.is_priced:
        return demand
    arc, increase, claims = price_group(
        demand.group, demand.size, demand.compared, demand.potential, snapshot, load, demand.policy, models, cache
    )
    return replace(demand, arc=arc, first_increase=increase, is_priced=True, claims=claims)
