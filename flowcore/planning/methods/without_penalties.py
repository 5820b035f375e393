"""A problem without what pods of the round cost beside each other: flows and linear programs then take all its pods.

No penalty is below zero, so no plan costs more there than in the problem itself, and its lower bounds hold for both.
Where room is short, other preferences are taken out too: what they prefer must not decide whether pods get a node. Pods
of the round may make a node cheaper for others by these, so then its lower bounds hold for that problem alone.
"""

from __future__ import annotations

from dataclasses import replace

from flowcore.planning.methods.constructive import completed
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import replay
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.constraints import UNCONSTRAINED, TopologyConstraints


class WithoutPenalties:
    """Takes penalties between pods of the round out of a problem. Rules, other preferences and running pods stay.

    Attributes:
        problem: the problem without them.
        keeps_bounds: whether no plan costs more there than in the problem with them.
    """

    def __init__(self, problem: Problem, *, comparisons: bool = False) -> None:
        """A problem with the same demands, in the same order, for the same capacity.

        Args:
            comparisons: whether to take all preferences among pods of the round out too.
        """
        self._problem = problem
        self.keeps_bounds = not (comparisons and any(map(self.any_compared, problem.demands)))
        read = {counter for demand in problem.demands for counter in _read(demand.constraints, comparisons=comparisons)}

        def without(constraints: TopologyConstraints) -> TopologyConstraints:
            soft = constraints.soft_constraints
            if soft is not None:
                soft = replace(soft, suffered=(), inflicted=()) if soft.compared and not comparisons else None
            increments = tuple(counter for counter in constraints.increments if counter in read)
            replaced = replace(constraints, soft_constraints=soft, increments=increments)
            return replaced if increments or replaced.sequential else UNCONSTRAINED

        demands = tuple(replace(demand, constraints=without(demand.constraints)) for demand in problem.demands)
        self.problem = problem.with_demands(demands, problem.atomic_groups, problem.must_place)

    @staticmethod
    def any_compared(demand: Demand) -> bool:
        """Whether pods of a demand prefer nodes by where other pods of the round go."""
        soft_constraints = demand.constraints.soft_constraints
        return soft_constraints is not None and bool(soft_constraints.compared)

    @staticmethod
    def any(problem: Problem) -> bool:
        """Whether pods of the round cost something beside each other."""
        soft_constraints = (demand.constraints.soft_constraints for demand in problem.demands)
        return any(soft is not None and soft.penalties for soft in soft_constraints)

    def remove(self, candidate: Candidate) -> Candidate:
        """A candidate of the problem with penalties, as one of the problem without them."""
        return _placed_again(self.problem, candidate)

    def restore(self, candidate: Candidate) -> Candidate:
        """A candidate of the problem without penalties, as one of the problem with them, at its true cost."""
        return _placed_again(self._problem, candidate)


def _read(constraints: TopologyConstraints, *, comparisons: bool) -> tuple[DomainCounter, ...]:
    """The counters that rules and the preferences that stay read."""
    soft = None if comparisons else constraints.soft_constraints
    return (*constraints.reads, *constraints.blocks, *(() if soft is None else soft.compared))


def _placed_again(problem: Problem, candidate: Candidate) -> Candidate:
    """The same placements in the same order: rules hold in the order in which pods were placed."""
    return completed(problem, candidate.method, *replay(problem, candidate.commits))
