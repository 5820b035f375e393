"""Why pods stay pending after a round, in words for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import PodSignature
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.methods.admission import fit_counts
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup, pods
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.domain_shortage import domain_shortage, shortage_where_it_runs
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import pods_by_node
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import RoundResult
from flowcore.planning.round.cheaper_to_wait import CheaperToWait
from flowcore.rules.filters import inter_pod_affinity, node_resources_fit, run_filters
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.idle_claims import claims_to_free
from flowcore.rules.reasons.awaited_pods import awaited_pods
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, GANG_WITHOUT_ROOM, NETWORK_UNSCHEDULED, ROOM_HELD
from flowcore.rules.reasons.kept_domains import domain_without_room, fits_as_a_whole, nodes_of_domain
from flowcore.rules.reasons.more_nodes import more_nodes_help
from flowcore.rules.reasons.preemption import why_not_preempting
from flowcore.rules.reasons.reasons import Reason, no_domain, reason_for
from flowcore.rules.topology.round_constraints.rising_price import Minimum

#: Kinds of pods that wait for others to run beside, and of those others in a namespace: all are compared with all.
_MOST_AWAITED: Final = 200


class UnplacedReasons:
    """Reasons for the pods that a candidate leaves pending."""

    def __init__(self, problem: Problem, candidate: Candidate, after: Snapshot, after_with_held: Snapshot) -> None:
        """A candidate whose capacity is without held capacity: no other pod gets that.

        Args:
            after: the snapshot after the round; ``after_with_held``: the same with held capacity taken.
        """
        self._problem, self._candidate = problem, candidate
        self._after, self._after_with_held = after, after_with_held
        self._cheaper_to_wait = CheaperToWait(problem, candidate)
        self._group_reasons: dict[int, Reason] = {}

    def of(self, number: int, places: Sequence[int]) -> Iterator[tuple[int, Reason]]:
        """The reason for each of these pods of a demand."""
        group_of = self._problem.atomic_groups.group_of[number]
        reason: Reason | None = None
        for place in places:
            group = int(group_of[place])
            if group >= 0 and self._is_because_of_group(number, group):
                yield place, self._group_reason(group)
            elif (waits := self._cheaper_to_wait.of_pod(number, place)) is not None:
                yield place, waits
            else:
                reason = reason or self._with_freed_claims(number, self._pod_reason(number, place))
                yield place, reason
        self._problem.charge(self._problem.demands[number].group.pods)

    def _is_because_of_group(self, number: int, group: int) -> bool:
        if self._candidate.admitted[group]:
            return False
        unschedulable_reason = self._problem.atomic_groups.all[group].unschedulable_reason
        return bool(unschedulable_reason) or bool(self._problem.demands[number].counts.any())

    def _with_freed_claims(self, number: int, reason: Reason) -> Reason:
        """The reason of a pod, and which claims are freed for it: each pod with claims is a demand of its own."""
        problem, group = self._problem, self._problem.demands[number].group
        if group.pod_class.devices is None:
            return reason
        among = np.ones(len(problem.snapshot.table.nodes), dtype=np.bool_)
        for gang in (problem.snapshot.gangs[name] for name in group.pods[0].gangs if name in problem.snapshot.gangs):
            if gang.topology_key and gang.domain:
                among &= nodes_of_domain(gang, problem.snapshot.table)
        run_filter = problem.cache.run_filter
        freed = claims_to_free(group.pod_class, group.signature, self._after_with_held, among, run_filter)
        if freed is None:
            return reason
        return reason._replace(text=f"{reason.text} {freed.sentence}", more_nodes_help=False, frees=freed.claims)

    # --- pods by themselves ---

    def _pod_reason(self, number: int, place: int) -> Reason:
        problem, candidate = self._problem, self._candidate
        group, run_filter = problem.demands[number].group, problem.cache.run_filter
        gangs = [problem.snapshot.gangs[name] for name in group.pods[0].gangs if name in problem.snapshot.gangs]
        for gang in gangs:
            if nowhere := no_domain(gang, problem.snapshot.table):
                return Reason(f"{_sentence(nowhere)}.", GANG_INCOMPLETE, more_nodes_help=False)
        if any(gang.topology_key for gang in gangs):
            return self._domain_reason(gangs, number)
        asks = (each.rule for each in problem.demands[number].constraints.rising if isinstance(each, Minimum))
        rule = next((each for each in asks if each.or_none), None)
        if rule is not None and run_filters(group.pod_class, self._after, group.signature, run_filter).fits.any():
            text = f"{_sentence(rule.arc)} takes {rule.min_pods} pods or none, and fewer wait or have room there."
            return Reason(text, NETWORK_UNSCHEDULED, more_nodes_help=False)
        held = candidate.held
        if held is not None and run_filters(group.pod_class, self._after, group.signature, run_filter).fits.any():
            name = _as_told_to(group.pods, problem.atomic_groups.all[held.group].name)
            reason = reason_for(group, before=self._after_with_held, after=self._after_with_held, runner=run_filter)
            return Reason(
                f"{reason.text} Room is held for {name}, which has waited for a long time.",
                ROOM_HELD,
                more_nodes_help=True,
            )
        before = problem.snapshot if problem.demands[number].is_priced else None
        winners = partial(self._winners, number, int(problem.demands[number].prices[place]))
        return reason_for(group, before=before, after=self._after_with_held, runner=run_filter, winners=winners)

    def _winners(self, number: int, price: int, nodes: Bools) -> str:
        """Which pods of the plan got the room of some nodes.

        Args:
            price: of leaving the dearest of the pods of the demand that wait.
            nodes: bool[N], those that had room for one of them.
        """
        placed, homes = self._commits
        on_them = nodes[homes]
        demands = np.nonzero(np.bincount(placed[on_them] if on_them.any() else placed))[0]
        others = demands[self._priorities[demands] <= self._priorities[number]]
        if not len(others):
            return "pods of a higher priority"
        # A demand came before another one of its priority since others nominated its pods.
        if self._has_wish[others[self._priorities[others] == self._priorities[number]]].any():
            return "pods that are nominated for their nodes"
        cheapest = self._least_prices[others].min()
        if cheapest < price:
            return "pods that cost more to leave together, or less on their nodes"
        if len(others) < len(demands):
            return "pods of a higher priority, or with a higher cost of waiting"
        if cheapest > price:
            return "pods with a higher cost of waiting"
        return "pods with the same or a higher cost of waiting"

    @cached_property
    def _has_wish(self) -> Bools:
        """bool[C]: demands that have room on the node that others nominated their pods for."""
        problem = self._problem
        return np.array([demand.has_wish(problem.snapshot) for demand in problem.demands], dtype=np.bool_)

    @cached_property
    def _commits(self) -> tuple[Int64s, Int64s]:
        """int64[M] each: demand and node of every commit."""
        pairs = [(commit.demand, commit.node) for commit in self._candidate.commits]
        demands, nodes = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return demands, nodes

    @cached_property
    def _priorities(self) -> Int64s:
        """int64[C]: of each demand."""
        return np.array([demand.group.pod_class.priority for demand in self._problem.demands], dtype=np.int64)

    @cached_property
    def _least_prices(self) -> Int64s:
        """int64[C]: what it costs to leave the cheapest of the pods of each demand that are placed."""
        least = np.full(len(self._problem.demands), 2**62, dtype=np.int64)
        for number, by_node in pods_by_node(self._candidate.commits).items():
            order = self._problem.atomic_groups.placement_order(number, self._candidate.admitted)
            least[number] = self._problem.demands[number].prices[order[: sum(by_node.values())]].min()
        return least

    def _domain_reason(self, gangs: Sequence[Gang], number: int) -> Reason:
        """Why a pod finds no node in the domains of its gangs."""
        table = self._problem.snapshot.table
        full = None
        if any(gang.domain for gang in gangs):
            full = domain_without_room(gangs, self._nodes_with_room(number), table)
        asking = [gang for gang in gangs if gang.topology_key]
        gang = full or min(asking, key=lambda gang: bool(gang.domain))
        if gang.domain:
            text = f"{gang.name} keeps to {gang.topology_key} {gang.domain}, where no node has room for it."
            text += self._fits_as_a_whole(gang, number)
            return Reason(text, GANG_WITHOUT_ROOM, self._more_nodes_help({number: 1}))
        demand, column = self._problem.demands[number], table.column(gang.topology_key)
        chosen = set(column.codes[self._candidate.demands[number].allowed].tolist())
        if len(chosen) == 1 and demand.counts.any():
            domain = column.values[chosen.pop()]
            text = f"{gang.name} is planned for {gang.topology_key} {domain}, where no further node has room for it."
            return Reason(text, GANG_WITHOUT_ROOM, self._more_nodes_help({number: 1}))
        group, run_filter = demand.group, self._problem.cache.run_filter
        if not run_filters(group.pod_class, self._problem.snapshot, group.signature, run_filter).fits.any():
            # The domain does not matter if the pod fits no node at all.
            return reason_for(group, before=None, after=self._after_with_held, runner=run_filter)
        return Reason(
            f"{gang.name} keeps to one domain of {gang.topology_key}, and no node of any domain has room for it.",
            GANG_WITHOUT_ROOM,
            self._more_nodes_help({number: 1}),
        )

    def _nodes_with_room(self, number: int) -> Bools:
        """bool[N]: nodes that would take a pod of a demand after the plan, whatever domain its gang keeps to."""
        group, run_filter = self._problem.demands[number].group, self._problem.cache.run_filter
        return run_filters(group.pod_class, self._after_with_held, group.signature, run_filter).fits

    def _fits_as_a_whole(self, gang: Gang, number: int) -> str:
        """A sentence, with a blank before it, about another domain that has room for a whole gang; "": not known.

        Args:
            number: a demand of its pods.
        """
        problem, demand = self._problem, self._problem.demands[number]
        if gang.name in self._sliced or demand.is_placed_alone:
            return ""
        gangs = [problem.snapshot.gangs[name] for name in demand.group.pods[0].gangs if name in problem.snapshot.gangs]
        free = count_fitting(demand.requests, self._after_with_held.free)
        fits = np.where(self._nodes_with_room(number), free, 0)
        told = fits_as_a_whole(gang, gangs, self._waiting_of[gang.name], fits, problem.snapshot.table)
        return f" {told}" if told else ""

    @cached_property
    def _sliced(self) -> frozenset[str]:
        """Names of gangs that have slices."""
        return frozenset(gang.slice_of for gang in self._problem.snapshot.gangs.values())

    @cached_property
    def _waiting_of(self) -> Counter[str]:
        """How many pods of each gang the round has to place."""
        return Counter(name for pod in self._problem.snapshot.pending for name in pod.gangs)

    def _more_nodes_help(self, counts: Mapping[int, int]) -> bool:
        """Whether other nodes may take these numbers of pods of the demands."""
        return all(
            more_nodes_help(
                group.pod_class,
                group.signature,
                self._after,
                run_filters(group.pod_class, self._after, group.signature, self._problem.cache.run_filter),
                count,
            )
            for number, count in counts.items()
            for group in [self._problem.demands[number].group]
        )

    # --- atomic groups ---

    @cached_property
    def _fit_counts(self) -> dict[int, int]:
        return fit_counts(self._problem, self._candidate)

    def _group_reason(self, number: int) -> Reason:
        if number not in self._group_reasons:
            self._group_reasons[number] = self._find_group_reason(number)
        return self._group_reasons[number]

    def _find_group_reason(self, number: int) -> Reason:
        group = self._problem.atomic_groups.all[number]
        if group.unschedulable_reason:
            return Reason(f"{_sentence(group.unschedulable_reason)}.", GANG_INCOMPLETE, more_nodes_help=False)
        if (waits := self._cheaper_to_wait.of_group(number)) is not None:
            return waits
        return Reason(self._group_shortage(number, group), GANG_WITHOUT_ROOM, self._more_nodes_help(group.required))

    def _group_shortage(self, number: int, group: AtomicGroup) -> str:
        needs = f"{group.name} needs {pods(group.size)} at once"
        if begun := shortage_where_it_runs(self._problem, group, self._candidate.capacity):
            gang, where = begun
            members = group.members[group.gangs.index(gang)]
            return f"{needs}: {where}.{self._fits_as_a_whole(gang, next(iter(members)))}"
        put_off = number in self._candidate.put_off | self._cheaper_to_wait.put_off
        shortage = domain_shortage(self._problem, group, self._candidate.capacity, put_off=put_off)
        if shortage:
            return f"{needs}{shortage}."
        held = self._candidate.held
        if held is not None and held.group == number:
            count = sum(commit.count for commit in held.commits)
            return f"{needs}, and room for {count} pods is held for it."
        if len({self._problem.demands[demand].group.pod_class for demand in group.required}) > 1:
            # Which of them have room together is not known: they were tried in one order.
            return f"{needs}, and the plan finds no room for all of them beside what is placed."
        return f"{needs}, and there is room for {self._fit_counts.get(number, 0)} beside what is placed."


def with_causes_beside_room(problem: Problem, result: RoundResult) -> RoundResult:
    """The result, with what keeps pods waiting while others are placed in the reasons of these.

    Of a pod for which nobody may leave it says why, if somebody leaves for a pod of a lower priority. Of a pod that
    must run beside others it says so, if these wait as well.

    Args:
        problem: what the first part of the round solved, after all passes.
        result: with evictions.
    """
    preemptor = _lowest_preemptor(result)
    if preemptor is None and all(each.code != inter_pod_affinity.NAME for each in result.unplaced):
        return result
    demand_of = {pod.key: number for number, demand in enumerate(problem.demands) for pod in demand.group.pods}
    waiting = dict.fromkeys(demand_of[each.pod.key] for each in result.unplaced if each.pod.key in demand_of)
    by_namespace: dict[str, list[PodSignature]] = {}
    for number in waiting:
        signature = problem.demands[number].group.signature
        by_namespace.setdefault(signature.namespace, []).append(signature)
    awaited: dict[int, str] = {}
    room = _room_with_leavers(problem.snapshot)
    unplaced = []
    for left in result.unplaced:
        cause, number = "", demand_of.get(left.pod.key, -1)
        if number >= 0 and left.code == inter_pod_affinity.NAME:
            if number not in awaited and len(awaited) < _MOST_AWAITED:
                signature = problem.demands[number].group.signature
                # The author of a pod may not know what waits in other namespaces.
                others = by_namespace[signature.namespace][:_MOST_AWAITED]
                awaited[number] = awaited_pods(signature, result.after, others)
            cause = awaited.get(number, "")
        elif number >= 0 and left.code == node_resources_fit.NAME and preemptor is not None:
            cause = _why_none_for_it(problem, problem.demands[number], left.pod, preemptor, room)
        unplaced.append(replace(left, reason=f"{left.reason} {cause}") if cause else left)
    return replace(result, unplaced=tuple(unplaced))


def _lowest_preemptor(result: RoundResult) -> int | None:
    """The lowest priority of the pods for which others leave as they have a lower one; None: nobody does."""
    priorities = {each.pod.key: each.pod.pod_class.priority for each in result.placements}
    return min(
        (
            priorities[key]
            for eviction in result.evictions
            if eviction.kind is EvictionKind.PREEMPTION
            for key in eviction.for_pods
            if key in priorities
        ),
        default=None,
    )


def _why_none_for_it(problem: Problem, demand: Demand, pod: PendingPod, preemptor: int, room: Int64s | None) -> str:
    """A sentence about a pod for which nobody may leave; "": some may, or nobody leaves for a lower priority.

    Args:
        preemptor: the lowest priority for which somebody leaves.
        room: see ``_room_with_leavers``.
    """
    # Under Observe nobody leaves for a pod, whatever it says.
    if pod.pod_class.priority <= preemptor or not demand.policy.delivery.acts:
        return ""
    why = why_not_preempting(pod, demand.policy, problem.snapshot.now)
    if not why or (room is not None and bool((demand.allowed & (count_fitting(demand.requests, room) > 0)).any())):
        return ""
    return f"Running pods leave for pods of a lower priority, and none for this one: {why}."


def _room_with_leavers(snapshot: Snapshot) -> Int64s | None:
    """int64[N, R]: what is free once pods that end have left, for pods that wait for these; None: no pod ends."""
    if snapshot.running is None or not snapshot.running.terminating:
        return None
    room = snapshot.free.copy()
    for held in snapshot.running.terminating:
        if held.node in snapshot.table.index:
            room[snapshot.table.index[held.node]] += snapshot.vector(held.usage)
    return room


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _as_told_to(pods: Sequence[PendingPod], name: str) -> str:
    """The name of an atomic group, for the authors of pods: they may not know what there is in other namespaces."""
    namespaces = {pod.key.partition("/")[0] for pod in pods}
    others = "/" in name and not all(f" {namespace}/" in name for namespace in namespaces)
    return "a gang of another namespace" if others else name
