"""What the rules between pods are for one group of a round: the counters that it raises and those that bind it.

A rule asks how many pods of some description run in a node's domain of a topology. Each distinct question is one
counter: pods per domain, begun with those that run already. A placement raises the counters of the descriptions that
its pod matches. It is allowed by the counters that its own rules and the anti-affinity of others read. These verdicts
equal those of ``filters.run_filters`` on a snapshot in which the round's placements run.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import Cap, remaining
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.round_constraints.rising_price import RisingPrice
from flowcore.rules.topology.spread import Spread


@dataclass(frozen=True, slots=True, eq=False)
class SoftConstraints:
    """What a group prefers of the pods of the round.

    Attributes:
        affinity_weights: counters of pods that it prefers near (weight above zero) or far, or that prefer it so.
        spread_counters: counters of its ScheduleAnyway constraints, in their order.
        suffered: counters of pods of a kind, each node a domain, and what a pod of the group costs for each of them.
        inflicted: counters of pods of the round that suffer from the group, and what each costs for a pod of it.
        rising: prices that rise with the pods in a domain; its own pods are counted.
    """

    affinity_weights: tuple[tuple[DomainCounter, int], ...] = ()
    spread_counters: tuple[DomainCounter, ...] = ()
    suffered: tuple[tuple[DomainCounter, int], ...] = ()
    inflicted: tuple[tuple[DomainCounter, int], ...] = ()
    rising: tuple[RisingPrice, ...] = ()

    @property
    def reads(self) -> tuple[DomainCounter, ...]:
        """All its counters."""
        return (*self.compared, *(counter for counter, _ in self.penalties), *(price.counter for price in self.rising))

    @property
    def only_rises(self) -> bool:
        """Whether it has nothing but prices that rise: what a pod pays as the round begins is the least."""
        return not self.compared and not self.penalties

    @property
    def penalties(self) -> tuple[tuple[DomainCounter, int], ...]:
        """Counters of pods on a node, and what a pod of the group that is placed there costs for each of them."""
        return (*self.suffered, *self.inflicted)

    @property
    def compared(self) -> tuple[DomainCounter, ...]:
        """Counters whose costs follow from a comparison of nodes: a pod changes what others cost elsewhere."""
        return (*(counter for counter, _ in self.affinity_weights), *self.spread_counters)


@dataclass(frozen=True, eq=False)
class TopologyConstraints:
    """The rules between pods as they concern one group of a round.

    Attributes:
        increments: counters that each of its placements raises, once each.
        anti_affinity: counters that must be zero in a node's domain.
        affinity: counters of its affinity terms, one per topology; each must be above zero in a node's domain.
        self_affinity: its affinity terms match the group itself: while no pod matches, its first pod may go anywhere.
        spreads: its DoNotSchedule constraints.
        caps: the limits of its policy's constraints.
        blocks: counters among ``increments`` that close domains to other groups.
        soft_constraints: what it prefers of pods of the round, None where that is nothing.
    """

    increments: tuple[DomainCounter, ...] = ()
    anti_affinity: tuple[DomainCounter, ...] = ()
    affinity: tuple[DomainCounter, ...] = ()
    self_affinity: bool = False
    spreads: tuple[Spread, ...] = ()
    caps: tuple[Cap, ...] = ()
    blocks: tuple[DomainCounter, ...] = ()
    soft_constraints: SoftConstraints | None = None

    def without_unused_soft_constraints(self, incremented: AbstractSet[DomainCounter]) -> TopologyConstraints:
        """The same without preferences that no placement of the round can change."""
        if self.soft_constraints is not None and incremented.isdisjoint(self.soft_constraints.reads):
            rest = replace(self, soft_constraints=None)
            return rest if rest.increments or rest.constrained else UNCONSTRAINED
        return self

    @cached_property
    def penalty_of_own_pods(self) -> int:
        """What each pod of the group that is placed adds to the cost of the group's next pod on the same node."""
        penalties = () if self.soft_constraints is None else self.soft_constraints.penalties
        return sum(cost for counter, cost in penalties if counter in self.increments)

    @cached_property
    def binds_nothing(self) -> bool:
        """Whether no rule of its own forbids it a node, and all that it prefers is to pay less where prices rise."""
        return not self.constrained and (self.soft_constraints is None or self.soft_constraints.only_rises)

    @property
    def only_rises(self) -> bool:
        """The same, and no rule of others counts it."""
        return self.only_limits and not self.caps

    @cached_property
    def only_limits(self) -> bool:
        """Whether its pods may come and go: caps and prices that rise are all it has, and no other rule counts it."""
        own = {*(cap.counter for cap in self.caps), *(price.counter for price in self.rising)}
        only_rises = self.soft_constraints is None or self.soft_constraints.only_rises
        return not self.kube_scheduler_reads and only_rises and own.issuperset(self.increments)

    @property
    def rising(self) -> tuple[RisingPrice, ...]:
        """Prices that rise with the pods in a domain."""
        return () if self.soft_constraints is None else self.soft_constraints.rising

    @cached_property
    def reads(self) -> tuple[DomainCounter, ...]:
        """All counters that allow it nodes or forbid them: anti-affinity, affinity, spreads, caps."""
        return (*self.kube_scheduler_reads, *(cap.counter for cap in self.caps))

    @cached_property
    def kube_scheduler_reads(self) -> tuple[DomainCounter, ...]:
        """The counters of rules that kube-scheduler knows; it knows no caps."""
        return (*self.anti_affinity, *self.affinity, *(spread.counter for spread in self.spreads))

    @cached_property
    def coarsest_self_blocking_domains(self) -> Domains | None:
        """The topology with the fewest domains in which each placement of the group may close a domain to the group.

        None: there is none. A cap that leaves a domain open for several pods is not among them (``self_caps``).
        """
        own = [counter for counter in self.anti_affinity if counter in self.increments]
        own += [cap.counter for cap in self.self_caps if cap.max_per_domain == 1]
        own += [spread.counter for spread in self.spreads if spread.counter in self.increments]
        return min((counter.domains for counter in own), key=lambda domains: domains.count, default=None)

    @cached_property
    def self_caps(self) -> tuple[Cap, ...]:
        """Caps that count the group's own pods."""
        return tuple(cap for cap in self.caps if cap.self_match)

    @cached_property
    def constrained(self) -> bool:
        """Whether placements may forbid it a node that has room."""
        return bool(self.anti_affinity or self.affinity or self.spreads or self.caps)

    @property
    def sequential(self) -> bool:
        """Whether placements may decide where its next pod goes, so that its pods are placed in turn."""
        return self.constrained or self.soft_constraints is not None

    @property
    def fits_flow(self) -> bool:
        """Whether programs place its pods: what its rules ask is, or nearly is, that domains have capacities."""
        return not self.affinity and (self.soft_constraints is None or self.soft_constraints.only_rises)

    @property
    def may_unblock(self) -> bool:
        """Whether placements may allow it a node that was forbidden."""
        return bool(self.affinity or self.spreads)

    @cached_property
    def limits(self) -> dict[DomainCounter, int]:
        """How many pods each counter may count, the group's own included, in a domain in which the group has pods.

        For rules that only forbid: anti-affinity and caps.
        """
        limits = {counter: int(counter in self.increments) for counter in self.anti_affinity}
        for cap in self.caps:
            limits[cap.counter] = min(cap.max_per_domain, limits.get(cap.counter, cap.max_per_domain))
        return limits

    def max_placeable(self, fit_counts: Int64s) -> int:
        """How many pods of the group its own placements leave a place, if no others were placed.

        Args:
            fit_counts: int64[N], how many each node has room for.
        """
        most = int(fit_counts.sum())
        for counter, limit in self.limits.items():
            if counter in self.increments:
                inside = counter.domains.totals(fit_counts)
                taken = np.minimum(inside, remaining(limit, counter.initial))
                taken[-1] = inside[-1]  # in no domain: nothing is counted
                most = min(most, int(taken.sum()))
        return most


#: Of groups that no rule concerns.
UNCONSTRAINED = TopologyConstraints()
