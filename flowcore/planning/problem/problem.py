"""What a round solves: pods and atomic groups of pods that compete for the free capacity of the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs import BinPacking, CostModel
from flowcore.costs.model import Load
from flowcore.model.policies import Policy
from flowcore.planning.problem.bounds.bound_notes import BoundNote, notes_of
from flowcore.planning.problem.contradictions import Contradiction
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup, AtomicGroups, atomic_groups_of
from flowcore.planning.problem.demands.charging import Charge, not_charged
from flowcore.planning.problem.demands.demands import Demand, demands_of, with_costs
from flowcore.planning.problem.objective import Objective, unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate, HeldCapacity
from flowcore.planning.problem.placements.decisions import Commit, placed_counts
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.saying import Say, unguarded
from flowcore.rules.topology.domains import Domains
from flowcore.rules.verdicts import VerdictCache

_PACKING = BinPacking()


class Problem:
    """The pending pods of a snapshot under their policies.

    Demands, atomic groups and free capacity follow from the snapshot and are computed when first asked for. A problem
    does not change: passes make another one of it.

    Attributes:
        snapshot, policies, models: as given to the round.
        contradictions: policies that rule some of their own pods out.
        must_place: how many pods of each demand every candidate must place, whatever that costs.
        held: capacity that is kept out of the problem for an atomic group.
        by_levels: whether plans are compared level by level before the sum of their costs (problem/levels.py).
        charge: is called with the pods that the work was for.
        without: names of methods that do not run (``methods.table``): what is a method worth?
        say: computes each part of what is said of the plan.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        cache: VerdictCache | None = None,
        contradictions: tuple[Contradiction, ...] = (),
        charge: Charge = not_charged,
        without: frozenset[str] = frozenset(),
        say: Say = unguarded,
    ) -> None:
        """Takes the arguments of ``run_round``; ``cache`` and ``contradictions``: None and () to compute them."""
        self.charge, self.without, self.say = charge, without, say
        self.snapshot, self.policies, self.models, self._given_cache = snapshot, policies, models, cache
        self.contradictions = contradictions
        self.held: HeldCapacity | None = None
        self.by_levels = False
        self._packing: dict[int, Int64s] = {}
        self._domains: dict[str, Domains] = {}

    # --- other problems that passes make of this one ---

    def with_snapshot(self, snapshot: Snapshot, contradictions: tuple[Contradiction, ...] | None = None) -> Problem:
        """The same policies for another snapshot; ``contradictions`` None: those known already."""
        known = self.contradictions if contradictions is None else contradictions
        return Problem(
            snapshot, self.policies, self.models, self._given_cache, known, self.charge, self.without, self.say
        )

    def with_policies(self, policies: Mapping[str, Policy], models: Mapping[str, CostModel]) -> Problem:
        """The same pods under other policies and cost models, of which there are some more."""
        return Problem(
            self.snapshot,
            {**self.policies, **policies},
            {**self.models, **models},
            self._given_cache,
            self.contradictions,
            self.charge,
            self.without,
            self.say,
        )

    def with_demands(
        self, demands: tuple[Demand, ...], atomic_groups: AtomicGroups | None = None, must_place: tuple[int, ...] = ()
    ) -> Problem:
        """Other demands for the same capacity; ``atomic_groups`` None: those that the snapshot has."""
        problem = self.with_snapshot(self.snapshot)
        problem.cache, problem.start, problem.demands = self.cache, self.start, demands
        problem.by_levels = self.by_levels
        if atomic_groups is not None:
            problem.atomic_groups = atomic_groups
        if must_place:
            problem.must_place = must_place
        return problem

    def with_atomic_groups(self, groups: tuple[AtomicGroup, ...]) -> Problem:
        """The same pods in groups of other properties."""
        problem = copy(self)
        problem.atomic_groups = AtomicGroups(groups, self.atomic_groups.group_of, self.atomic_groups.needed)
        return problem

    def with_members(self, chosen: Mapping[int, Sequence[tuple[int, int]]]) -> Problem:
        """The same pods in the same groups, some of which need other ones of them (``AtomicGroups.made_up_of``)."""
        problem = copy(self)
        problem.__dict__.pop("required", None)
        problem.atomic_groups = self.atomic_groups.made_up_of(chosen, self.demands)
        return problem

    def with_held(self, held: HeldCapacity) -> Problem:
        """Some capacity kept out; costs and bounds stay those of the problem without that."""
        problem = self.with_demands(self.demands, self.atomic_groups)
        problem.start, problem.load, problem.unreserved_cost_matrix = (
            self.start.copy().hold(self.demands, held.commits),
            self.load,
            self.cost_matrix,
        )
        problem.held = held
        return problem

    # --- what follows from the snapshot ---

    @cached_property
    def cache(self) -> VerdictCache:
        """What is remembered of the filters' verdicts."""
        return VerdictCache.of(self.snapshot) if self._given_cache is None else self._given_cache

    @cached_property
    def start(self) -> Plan:
        """The capacity that is free as the round begins. Not to be changed."""
        return Plan(self.snapshot)

    @cached_property
    def load(self) -> Load:
        """How full the nodes are as the round begins, by what pods request."""
        return self.start.load()

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """C demands: the pending pods by group."""
        return demands_of(self.snapshot, self.load, self.policies, self.models, self.cache, self.charge)

    @cached_property
    def atomic_groups(self) -> AtomicGroups:
        """U groups of pods that are placed together or not at all."""
        return atomic_groups_of(self.snapshot, self.demands)

    @cached_property
    def must_place(self) -> tuple[int, ...]:
        """Pods of each demand that must be placed: none, unless a pass says so."""
        return (0,) * len(self.demands)

    @cached_property
    def objective(self) -> Objective:
        """What plans cost."""
        return Objective(self.demands, self.start)

    @cached_property
    def cost_matrix(self) -> CostMatrix:
        """Each demand's count and cost on each node as the round begins."""
        return CostMatrix(self.demands, self.start)

    @cached_property
    def unreserved_cost_matrix(self) -> CostMatrix:
        """The cost matrix without held capacity; lower bounds hold for that."""
        return self.cost_matrix

    def bound_notes(self, *, relaxed: bool, decided: Sequence[BoundNote]) -> tuple[BoundNote, ...]:
        """What a bound of plans without evictions does not count in full.

        Args:
            relaxed: whether the problem was solved in fractions, which gives prices of room; flows give those of pods
                that all count for the same.
            decided: see ``notes_of``.
        """
        alone = not relaxed and any((demand.counted != self.demands[0].counted).any() for demand in self.demands)
        rules = [demand.constraints for demand in self.demands]
        return notes_of(rules, alone=alone, gangs=bool(self.atomic_groups.all), decided=decided)

    @cached_property
    def required(self) -> Int64s:
        """int64[U, C]: how many pods of each demand an atomic group needs."""
        counts = np.zeros((len(self.atomic_groups.all), len(self.demands)), dtype=np.int64)
        for group, atomic_group in enumerate(self.atomic_groups.all):
            for demand, count in atomic_group.required.items():
                counts[group, demand] = count
        return counts

    @cached_property
    def unschedulable(self) -> Bools:
        """bool[U]: groups that cannot be placed, however much capacity there is."""
        return np.array([bool(group.unschedulable_reason) for group in self.atomic_groups.all], dtype=np.bool_)

    # --- order and kind of the demands ---

    @cached_property
    def queue(self) -> list[int]:
        """Demands by queue rank."""
        return sorted(range(len(self.demands)), key=lambda demand: self.demands[demand].queue_rank)

    @cached_property
    def by_size(self) -> list[int]:
        """Demands by dominant share, the largest first: large pods need first choice."""
        demands = self.demands
        return sorted(
            range(len(demands)), key=lambda index: (-demands[index].dominant_share, demands[index].queue_rank)
        )

    @cached_property
    def not_packable(self) -> Bools:
        """bool[C]: demands with constraints between pods, or more than amounts: counting these does not place them."""
        return np.array(
            [each.constraints.constrained or each.is_more_than_amounts for each in self.demands],
            dtype=np.bool_,
        )

    @cached_property
    def immovable(self) -> Bools:
        """bool[C]: demands whose pods stay where they are while an integer program decides the rest.

        Those with devices or volumes, with constraints that do more than limit the pods of a domain, or whose pods
        others must be near.
        """
        wanted = {counter for demand in self.demands for counter in demand.constraints.affinity}
        stays = [
            demand.takes_devices_or_volumes
            or not demand.constraints.fits_flow
            or not wanted.isdisjoint(demand.constraints.increments)
            for demand in self.demands
        ]
        return self.not_packable & np.array(stays, dtype=np.bool_)

    def domains(self, key: str) -> Domains:
        """The domains of a topology key."""
        domains = self._domains.get(key)
        if domains is None:
            domains = self._domains[key] = Domains.of(key, self.snapshot.table)
        return domains

    def packing(self, index: int) -> Int64s:
        """int64[M]: the nodes that a demand fits on, the fullest first."""
        nodes_in_order = self._packing.get(index)
        if nodes_in_order is None:
            demand = self.demands[index]
            load = self.start.load(demand.potential.utilisation)
            arc = _PACKING.arc_costs(demand.group.pod_class, demand.size, load, demand.policy.cost.weights)
            nodes = np.nonzero(demand.counts)[0]
            nodes_in_order = self._packing[index] = nodes[np.argsort(arc[nodes], kind="stable")]
        return nodes_in_order

    def runs(self, method: str) -> bool:
        """Whether a method takes part (``methods.table``)."""
        return method not in self.without

    # --- candidates ---

    def cost(self, commits: Sequence[Commit], admitted: Bools) -> int:
        """Cost of a plan: the prices of its placements and of all pods that it leaves, and what minimums lack."""
        placed = placed_counts(commits, len(self.demands))
        pending = sum(
            int(demand.prices.sum())
            - int(demand.prices[self.atomic_groups.placement_order(index, admitted)[:count]].sum())
            for index, (demand, count) in enumerate(zip(self.demands, placed, strict=True))
        )
        return self.objective.placed(commits) + self.objective.shortage(commits) + pending

    def candidate(
        self, method: str, commits: Sequence[Commit], capacity: Plan, admitted: Bools | None = None
    ) -> Candidate:
        """A plan with its cost.

        Args:
            capacity: what the plan leaves free.
            admitted: bool[U], groups that are placed; None: none.
        """
        chosen = np.zeros(len(self.atomic_groups.all), dtype=np.bool_) if admitted is None else admitted
        cost = self.cost(commits, chosen)
        return Candidate(method, chosen, self.demands, tuple(commits), capacity, cost)

    def missing_pods(self, commits: Sequence[Commit]) -> list[int]:
        """How many pods of each demand a candidate must place beyond these."""
        counts = zip(self.must_place, self.demands, unplaced_counts(commits, self.demands), strict=True)
        return [max(0, must_place - demand.count + unplaced) for must_place, demand, unplaced in counts]

    def nothing_placed(self) -> Candidate:
        """The plan that leaves every pod pending."""
        return self.candidate("nothing", (), self.start.copy())


def priced(problem: Problem, demand: Demand) -> Demand:
    """A demand of a problem with what each node costs, also if none has room for it as the round begins."""
    return with_costs(demand, problem.snapshot, problem.load, problem.models, problem.cache)
