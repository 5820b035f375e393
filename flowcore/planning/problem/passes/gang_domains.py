"""Gangs that must be in one topology domain: the nodes that their pods may use at all."""

from __future__ import annotations

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem
from flowcore.rules.reasons.kept_domains import nodes_of_domain


class RestrictToGangDomains(Pass):
    """Restricts demands to the domain of their gang, or to nodes that have the topology key if it has no domain yet."""

    def apply(self, problem: Problem) -> Problem:
        """Fewer allowed nodes for demands of such gangs; their numbers stay."""
        snapshot = problem.snapshot
        if not any(gang.topology_key for gang in snapshot.gangs.values()):
            return problem
        return problem.with_demands(tuple(_restrict(demand, snapshot) for demand in problem.demands))


def _restrict(demand: Demand, snapshot: Snapshot) -> Demand:
    # Pods of a gang with a topology key have demands of their own.
    for name in demand.group.pods[0].gangs:
        gang = snapshot.gangs.get(name)
        if gang is not None and gang.topology_key:
            has_domain = snapshot.table.column(gang.topology_key).codes >= 0
            demand = demand.restricted_to(nodes_of_domain(gang, snapshot.table) if gang.domain else has_domain)
    return demand
