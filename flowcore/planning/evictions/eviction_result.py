"""The result of a round in which pods leave: who comes where, who waits and why, and who leaves for whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flowcore.planning.evictions.moves.move_prices import leaving_prices
from flowcore.planning.evictions.order import ArrivalOrder, waited_for
from flowcore.planning.evictions.search.leavers import prices_beside
from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Eviction, Placement, RoundResult, Unplaced
from flowcore.rules.reasons.codes import ROOM_TAKEN


class EvictionResult:
    """Tells what a plan with evictions decides, for all pods of a round."""

    def __init__(
        self,
        problem: Problem,
        first: RoundResult,
        state: Plan,
        demand_of: Mapping[str, int],
        anew: Collection[str],
    ) -> None:
        """The plan and what it began with.

        Args:
            first: the result of the first part.
            state: the plan in the end.
            demand_of: number of the demand of each pending pod, by key.
            anew: keys of placements that come anew, since others that they may need are taken back.
        """
        self._problem, self._first, self._state = problem, first, state
        self._demand_of, self._anew, self._groups = demand_of, anew, problem.atomic_groups

    def result(self, groups: Mapping[str, Waiting], order: ArrivalOrder) -> RoundResult:
        """The first part's result, changed by the plan.

        Args:
            groups: by key of each waiting pod of a group, what waits with it.
            order: in which the pods of the plan come.
        """
        state, first = self._state, self._first
        if not state.arrivals and all(leaving.gain for leaving in state.leaving.values()):
            # The waiting pods have the plan of the first part.
            if not state.leaving:
                return first
            evictions = self._evictions({}, {})
            cost = first.cost + sum(each.cost for each in evictions)
            return replace(first, evictions=evictions, cost=cost, after=state.snapshot())
        arrived = state.arrived
        taken_back = [
            (state.residents.placement(resident), leaving.for_pods)
            for resident, leaving in state.leaving.items()
            if leaving.kind is None
        ]
        revoked = {placement.pod.key: for_pods for placement, for_pods in taken_back}
        kept = [each for each in first.placements if each.pod.key not in revoked]
        revoked_pods = tuple(
            self._unplaced_again(placement, revoked[placement.pod.key])
            for placement in first.placements
            if placement.pod.key in revoked and placement.pod.key not in arrived
        )
        unplaced = (*(each for each in first.unplaced if each.pod.key not in arrived), *revoked_pods)
        victims = waited_for(state, order)
        placements, unplaced, instead = _older_stay(
            self._placements(kept, groups, order, victims),
            unplaced,
            {placement.pod.key for placement, _ in taken_back if not placement.atomic_group},
            self._demand_of,
        )
        evictions = self._evictions(victims, instead)
        cost = sum(each.price for each in placements) + sum(each.price for each in unplaced)
        cost += sum(each.cost for each in evictions)
        return replace(
            first,
            placements=placements,
            unplaced=unplaced,
            evictions=evictions,
            cost=cost,
            lower_bound=min(first.lower_bound, cost),
            after=state.snapshot(),
        )

    def _placements(
        self,
        kept: Sequence[Placement],
        groups: Mapping[str, Waiting],
        order: ArrivalOrder,
        victims: Mapping[str, Sequence[int]],
    ) -> tuple[Placement, ...]:
        """All placements of the plan, each at what it adds to the cost."""
        names = [node.name for node in self._first.after.table.nodes]
        waited = {each.pod.key: each.price for each in self._first.unplaced}
        waited |= {each.pod.key: each.unscheduled_price for each in self._first.placements}
        groups_that_wait = {groups[key].group for key, leaving in victims.items() if leaving and key in groups}
        names_that_wait = {self._groups.all[group].name for group in groups_that_wait}
        more = []
        for arrival in (*order.at_once, *order.later):
            group = groups.get(arrival.pod.key)
            leaving = tuple(self._state.residents.pods[each].key for each in victims.get(arrival.pod.key, ()))
            name, optional = self._groups.all[group.group].name if group is not None else "", ""
            if group is None:
                # More of a gang than it needs; where the gang comes at once, it does not wait with those that leave.
                demand = self._demand_of[arrival.pod.key]
                optional = self._groups.name_of(self._problem.demands, demand, arrival.pod)
            if leaving and optional not in names_that_wait:
                optional = ""
            more.append(
                Placement(
                    arrival.pod,
                    names[arrival.node],
                    0,
                    atomic_group=name or optional,
                    optional=bool(optional),
                    victims=leaving,
                    unscheduled_price=waited[arrival.pod.key],
                )
            )
        index = self._first.after.table.index
        commits = [
            Commit(self._demand_of[each.pod.key], index[each.node], 1)
            for each in (*kept, *more)
            if each.pod.key in self._demand_of
        ]
        prices = iter(prices_beside(self._problem, self._state, commits))
        return tuple(
            replace(each, price=next(prices)) if each.pod.key in self._demand_of else each for each in (*kept, *more)
        )

    def _unplaced_again(self, placement: Placement, for_pods: Sequence[str]) -> Unplaced:
        """A placement that is taken back."""
        demand = self._problem.demands[self._demand_of[placement.pod.key]]
        price = int(demand.prices[demand.group.pods.index(placement.pod)])
        # The pod's author reads this, and may not know what runs in other namespaces.
        namespace = placement.pod.key.partition("/")[0]
        first = next((key for key in for_pods if key.partition("/")[0] == namespace), "a pod of another namespace")
        more = len(for_pods) - 1
        others = f"{first} and {more} other{'s' if more > 1 else ''}" if more else first
        text = f"Its room on {placement.node} goes to {others} of a higher priority."
        if placement.atomic_group:
            text = f"Room of its gang goes to {others} of a higher priority."
        if placement.pod.key in self._anew:
            text = f"Its rules close {placement.node}, as others give their room to {others} of a higher priority."
        return Unplaced(placement.pod, text, price, ROOM_TAKEN, more_nodes_help=True)

    def _left_for(self, resident: int, victims: Mapping[str, Sequence[int]]) -> Sequence[str]:
        """Keys of the pods that a resident leaves for: those that wait until it has left, and come at once no more.

        Args:
            victims: see ``waited_for``.
        """
        decided = self._state.leaving[resident].for_pods
        waiting = [key for key, others in victims.items() if resident in others]
        if decided:
            return [key for key in decided if key in waiting] or decided
        priorities = {arrival.pod.key: arrival.pod.pod_class.priority for arrival in self._state.arrivals}
        return [key for key in waiting if priorities[key] > self._state.residents.pods[resident].priority] or waiting

    def _evictions(self, victims: Mapping[str, Sequence[int]], instead: Mapping[str, str]) -> tuple[Eviction, ...]:
        """Who leaves; ``instead``: see ``_older_stay``."""
        state, names = self._state, [node.name for node in self._first.after.table.nodes]
        leavers = [resident for resident, leaving in state.leaving.items() if leaving.kind is not None]
        pods = [state.residents.pods[resident] for resident in leavers]
        usage = state.residents.usage[leavers]
        paid = leaving_prices(pods, usage, self._problem.policies, self._problem.snapshot).tolist()
        prices = dict(zip(leavers, paid, strict=True))
        return tuple(
            Eviction(
                state.residents.pods[resident],
                leaving.kind,
                tuple(dict.fromkeys(instead.get(key, key) for key in self._left_for(resident, victims))),
                names[leaving.to] if leaving.to >= 0 else "",
                leaving.reason,
                leaving.by_controller,
                leaving.gain,
                prices[resident],
            )
            for resident, leaving in state.leaving.items()
            if leaving.kind is not None
        )


def _older_stay(
    placements: Sequence[Placement],
    unplaced: Sequence[Unplaced],
    revoked: Collection[str],
    demand_of: Mapping[str, int],
) -> tuple[tuple[Placement, ...], tuple[Unplaced, ...], dict[str, str]]:
    """The same plan in which of equal pods those that are cheapest to leave wait: the youngest.

    And by key of each pod that is not placed any more that of the pod that is placed instead.

    Args:
        revoked: keys of the pods in no gang whose room goes to others.
    """
    kept, waiting = list(placements), list(unplaced)
    instead: dict[str, str] = {}
    by_demand: dict[int, list[int]] = {}
    for place, placement in enumerate(kept):
        if placement.pod.key in demand_of and not placement.atomic_group and placement.pod.victim is None:
            by_demand.setdefault(demand_of[placement.pod.key], []).append(place)
    for number, left in enumerate(waiting):
        equal = by_demand.get(demand_of[left.pod.key], []) if left.pod.key in revoked else []
        cheapest = min(equal, key=lambda place: kept[place].unscheduled_price, default=None)
        if cheapest is not None and kept[cheapest].unscheduled_price < left.price:
            younger = kept[cheapest]
            instead = {gone: left.pod.key if key == younger.pod.key else key for gone, key in instead.items()}
            instead[younger.pod.key] = left.pod.key
            kept[cheapest] = replace(younger, pod=left.pod, unscheduled_price=left.price)
            waiting[number] = replace(left, pod=younger.pod, price=younger.unscheduled_price)
    return tuple(kept), tuple(waiting), instead
