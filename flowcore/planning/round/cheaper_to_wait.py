"""Why a pod or a gang waits although nodes have room for it: waiting costs less than each of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from flowcore.planning.methods.admission_run import AdmissionRun
from flowcore.planning.methods.domain_tries import DomainTries
from flowcore.planning.problem.demands.atomic_groups import pods
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import may_wait
from flowcore.rules.reasons.codes import CHEAPER_TO_WAIT
from flowcore.rules.reasons.reasons import Reason

#: Digits of numbers in messages: prices rise all the time, and a new message is a write for each pod.
_DIGITS = 2


class CheaperToWait:
    """What the pods that a candidate leaves pending would cost on nodes that have room.

    Attributes:
        put_off: groups that were asked about and for which domains were left untried.
    """

    def __init__(self, problem: Problem, candidate: Candidate) -> None:
        """A candidate whose capacity is without held capacity."""
        self._problem, self._candidate, self.put_off = problem, candidate, set[int]()
        #: Of demands that were asked about: the cheapest node with room and what a pod costs there; None: none has.
        self._cheapest: dict[int, tuple[str, int] | None] = {}

    def of_pod(self, number: int, place: int) -> Reason | None:
        """The reason for a pod of a demand; None: it waits for another reason."""
        demand = self._problem.demands[number]
        if not demand.waits:
            return None
        if number not in self._cheapest:
            self._cheapest[number] = self._find_cheapest(number)
        cheapest, price = self._cheapest[number], int(demand.prices[place])
        if cheapest is None or cheapest[1] < price:
            return None
        node, cost = cheapest
        text = (
            f"Waiting costs {rounded_down(price)}, and {node}, the cheapest node with room for it, "
            f"{rounded_up(cost)}. It waits for a cheaper node."
        )
        return Reason(
            text, CHEAPER_TO_WAIT, more_nodes_help=False, settles_in=_seconds(cost - price, demand.price_growth)
        )

    def of_group(self, number: int) -> Reason | None:
        """The reason for the pods of a group that is not admitted; None: it waits for another reason."""
        if not may_wait(self._problem, number):
            return None
        run = AdmissionRun(self._problem, self._candidate, self._tries)
        cost = run.cost_to_place(number)
        self.put_off |= run.put_off
        group = self._problem.atomic_groups.all[number]
        price = group.unscheduled_cost
        if cost is None or cost < price:
            return None
        text = (
            f"{group.name} needs {pods(group.size)} at once. Waiting costs {rounded_down(price)}, "
            f"and the cheapest nodes with room for them {rounded_up(cost)}. It waits for cheaper nodes."
        )
        growth = sum(self._problem.demands[demand].price_growth * count for demand, count in group.required.items())
        return Reason(text, CHEAPER_TO_WAIT, more_nodes_help=False, settles_in=_seconds(cost - price, growth))

    @cached_property
    def _tries(self) -> DomainTries:
        return DomainTries.for_all(self._problem)

    def _find_cheapest(self, number: int) -> tuple[str, int] | None:
        demand, capacity = self._candidate.demands[number], self._candidate.capacity
        nodes = np.nonzero(capacity.max_pods(demand))[0]
        if not len(nodes):
            return None
        cost = demand.arc + capacity.next_increase(demand)
        soft = demand.soft_costs(self._problem.snapshot)
        if soft is not None:
            cost = cost + soft.added_cost(capacity.domain_counts)
        best = int(nodes[cost[nodes].argmin()])
        return self._problem.snapshot.table.nodes[best].name, int(cost[best])


def rounded_down(amount: int) -> int:
    """With few digits, never more than it is."""
    return amount // _unit(amount) * _unit(amount)


def rounded_up(amount: int) -> int:
    """With few digits, never less than it is."""
    return -(-amount // _unit(amount)) * _unit(amount)


def _unit(amount: int) -> int:
    return int("1" + "0" * max(0, len(str(amount)) - _DIGITS))


def _seconds(short: int, growth: float) -> float:
    # One unit more than as dear; prices are rounded down.
    return (short + 2) / growth if growth > 0 else 0.0
