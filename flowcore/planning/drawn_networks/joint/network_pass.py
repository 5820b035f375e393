"""Pods of networks that are solved as a whole: decided before the rest of a round, by their network alone.

Networks have their turn by their dearest pods. A network sees what is free after the networks before it and after all
other pods that are dearer than its dearest one; other pods get what it leaves. Its plan is carried out as it is or not
at all: every placement passes ``Plan`` like those of all methods, and where rules between pods keep some out,
the network is solved again without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.costs.network_model import utilisation
from flowcore.costs.preferences import node_preference, taint_preference
from flowcore.model.networks import CostPart
from flowcore.model.policies import Policy
from flowcore.planning.drawn_networks.joint import (
    Graph,
    NetworkRefused,
    NetworkSolution,
    Supply,
    bound_of_network,
    solve_network,
)
from flowcore.planning.drawn_networks.joint.drawing import DrawnPods, draw, why_no_way
from flowcore.planning.drawn_networks.joint.network_classes import (
    NetworkClass,
    NetworkPods,
    network_pods,
    sentence,
    shares,
)
from flowcore.planning.methods.admission import Admission
from flowcore.planning.methods.constructive import fill
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.contradictions import Contradiction
from flowcore.planning.problem.demands.atomic_groups import pods as format_pods
from flowcore.planning.problem.passes import Pass, RestrictToGangDomains
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, SolvedNetwork, Unplaced
from flowcore.rules.reasons.codes import NETWORK_REFUSED, NETWORK_UNSCHEDULED
from flowcore.rules.reasons.reasons import Reason, reason_for
from flowcore.rules.topology.round_constraints.waves import waves_of

#: Arcs that all drawings of a round have together: they are drawn in about a second.
_MOST_DRAWN = 200_000
#: CP-SAT's deterministic time for all networks of a round, as often as each is solved: roughly seconds.
_SECONDS = 2.0
#: How often a network is solved again because rules between pods, which it does not know, keep some of its plan out.
_MAX_CUTS = 5


@dataclass(frozen=True, slots=True)
class _Commits:
    """The placements of one network.

    Attributes:
        entries: number of the class, position of the node, and pods; in an order that rules between pods allow.
        capacity: what is free after them, without what is kept for dearer pods.
        least: a cost that no plan of the network goes below, whatever others take.
    """

    solution: NetworkSolution
    entries: tuple[tuple[int, int, int], ...]
    capacity: Plan
    least: int


class SolveNetworks(Pass):
    """Decides all pods of policies whose network is solved as a whole."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._decided = NOTHING_DECIDED

    def apply(self, problem: Problem) -> Problem:
        """The other pods, in a cluster in which what the networks placed runs."""
        networks = {pod.policy for pod in problem.snapshot.pending} & problem.drawing
        if not networks:
            return problem
        turns = sorted(
            (-max(demand.dearest for demand in problem.demands if demand.policy.name == name), name)
            for name in networks
        )
        others = tuple(pod for pod in problem.snapshot.pending if pod.policy not in networks)
        prices = {
            pod.key: int(price) / demand.weight
            for demand in problem.demands
            if demand.policy.name not in networks
            for pod, price in zip(demand.group.pods, demand.prices, strict=True)
        }
        cluster = _Cluster(problem)
        for turn, name in turns:
            dearer = tuple(pod for pod in others if prices[pod.key] > -turn)
            capacity = cluster.without_room_for(dearer)
            problem.charge(())
            _PolicyNetwork(problem, problem.policies[name], cluster, self._seed, len(turns)).run(capacity)
            problem.charge([pod for pod in problem.snapshot.pending if pod.policy == name])
        # What networks take makes others pay more.
        before = None if len(networks) == 1 and not others else problem.snapshot
        notes = () if before is None else (BoundNote.NETWORKS,)
        self._decided = Decided(
            tuple(cluster.placements), tuple(cluster.unplaced), cluster.slack, before, notes, cluster.networks
        )
        refused = (*problem.contradictions, *cluster.contradictions)
        return problem.with_snapshot(replace(cluster.snapshot(), pending=others), refused)

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with these pods, and what they cost."""
        return candidate.with_decided(self._decided)


class _Cluster:
    """The cluster as networks fill it, and what became of their pods."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.capacity = problem.start.copy()
        self.placements: list[Placement] = []
        self.unplaced: list[Unplaced] = []
        self.contradictions: list[Contradiction] = []
        self.networks: dict[str, SolvedNetwork] = {}
        self.slack = 0

    def snapshot(self, capacity: Plan | None = None) -> Snapshot:
        """The snapshot with all placements running, and with nothing pending.

        Args:
            capacity: what is free; None: what the placements leave.
        """
        committed = [(placement.node, placement.pod.signature) for placement in self.placements]
        return (self.capacity if capacity is None else capacity).to_snapshot(committed)

    def without_room_for(self, pods: tuple[PendingPod, ...]) -> Plan:
        """The capacity without what these pods take if they are placed first."""
        left = self.capacity.copy()
        if not pods:
            return left
        problem = self._problem.with_snapshot(replace(self.snapshot(), pending=pods))
        problem = RestrictToGangDomains().apply(problem)
        first = Admission(problem).by_price() if problem.atomic_groups.all else fill(problem)
        return left.hold(first.demands, first.commits)


class _Needed:
    """Which placements the groups of a network need, and which they do without."""

    def __init__(self, waiting: NetworkPods) -> None:
        self._group_of = {member: group for group in waiting.groups for member in group.members}
        self._placed = dict.fromkeys((group.name for group in waiting.groups), 0)

    def next_of(self, number: int) -> tuple[str, bool]:
        """The group of the next pod of a class that is placed, and whether the group does without it."""
        group = self._group_of.get(number)
        if group is None:
            return "", False
        self._placed[group.name] += 1
        # Where gangs share pods, one pod may be needed by any of them.
        return group.name, len(group.needs) == 1 and self._placed[group.name] > group.needs[0][1]


class _PolicyNetwork:
    """The network of one policy."""

    def __init__(self, problem: Problem, policy: Policy, cluster: _Cluster, seed: int, networks: int) -> None:
        """``networks``: how many share the time of the round."""
        self._problem, self._policy, self._cluster, self._seed = problem, policy, cluster, seed
        self._networks = networks
        self._named = f"the network of policy {policy.name}"
        assert policy.network is not None  # noqa: S101 - see Problem.drawing
        self._spec = policy.network

    def run(self, capacity: Plan) -> None:
        """Decides the policy's pods with this capacity."""
        waiting = network_pods(self._problem, self._policy.name, self._spec.pod_labels)
        self._cluster.unplaced += waiting.kept_out
        if not waiting.classes:
            return
        try:
            commits = self._solved(waiting, capacity)
        except NetworkRefused as error:
            clause = f"{self._named} is refused: {error}"
            self._cluster.contradictions.append(Contradiction(self._policy.name, clause, lambda _: True))
            for network_class in waiting.classes:
                demand = network_class.demand
                for pod, price in zip(demand.group.pods, demand.prices.tolist(), strict=True):
                    left = Unplaced(pod, sentence(clause), price, NETWORK_REFUSED, more_nodes_help=False)
                    self._cluster.unplaced.append(left)
            return
        self._adopt(waiting, commits)

    def _solved(self, waiting: NetworkPods, capacity: Plan) -> _Commits:
        if self._spec.refused:
            raise NetworkRefused(self._spec.refused)
        try:
            return self._solve(waiting, capacity)
        except NetworkRefused:
            raise
        except Exception as error:  # whatever network it is, other policies are served
            raise NetworkRefused(f"solving it raised {error!r}") from error

    def _drawn(self, waiting: NetworkPods, supplies: Sequence[Supply], seen: Snapshot, capacity: Plan) -> Graph:
        """The network of the round.

        Args:
            seen: the cluster in which pods run that networks before it placed.
            capacity: what is free for it.
        """
        taken = utilisation(capacity.load(self._policy.cost.utilisation))

        def part_of_cost(kind: int, part: CostPart) -> Int64s:
            cost, demand = self._policy.cost, waiting.classes[kind].demand
            match part:
                case CostPart.UTILISATION:
                    return taken
                case CostPart.PREFERENCES:
                    return node_preference(demand.group.pod_class, seen.table, demand.passing, cost)
                case CostPart.TAINTS:
                    return taint_preference(demand.group.pod_class, seen.table, demand.passing, cost)
                case CostPart.MODEL:
                    return demand.first_cost

        pods = DrawnPods(supplies, [each.labels for each in waiting.classes], waiting.groups, part_of_cost)
        return draw(self._spec, pods, seen, self._policy.selects, _MOST_DRAWN // self._networks)

    def _solve(self, waiting: NetworkPods, capacity: Plan) -> _Commits:
        classes, seconds = waiting.classes, _SECONDS / self._networks
        supplies = [each.supply(capacity) for each in classes]
        graph = self._drawn(waiting, supplies, self._cluster.snapshot(capacity), capacity)
        least: int | None = None
        for _ in range(_MAX_CUTS):
            solution = solve_network(graph, capacity.free, seconds=seconds, seed=self._seed)
            least = self._least(graph, waiting, solution, capacity) if least is None else least
            remaining = capacity.copy()
            entries, rejected = _place(classes, solution, remaining)
            if not rejected:
                return _Commits(solution, entries, remaining, least)
            graph = _without(graph, rejected, classes, entries, remaining)
        raise NetworkRefused("rules between its pods, which a network does not know, keep its placements out")

    def _least(self, graph: Graph, waiting: NetworkPods, solution: NetworkSolution, capacity: Plan) -> int:
        """A cost that no flow of the network goes below, with all room that there is before anybody is decided.

        Args:
            solution: with the room that the network got, ``capacity``.
        """
        start = self._problem.start
        # What rules between pods allow as the round begins, they may not later, or allow more.
        is_ruled = any(each.demand.constraints.constrained for each in waiting.classes)
        if not is_ruled and bool((start.free == capacity.free).all()):
            return solution.bound
        supplies = tuple(each.supply(start, alone=True) for each in waiting.classes)
        try:
            return min(solution.bound, bound_of_network(replace(graph, supplies=supplies), start.free))
        except NetworkRefused:
            return 0

    def _adopt(self, waiting: NetworkPods, commits: _Commits) -> None:
        cluster, table, solution = self._cluster, self._problem.snapshot.table, commits.solution
        cluster.networks[self._policy.name] = _solved_network(solution)
        classes, needed = waiting.classes, _Needed(waiting)
        orders = [iter(each.demand.group.pods) for each in classes]
        waves = waves_of(commits.entries, [each.demand.constraints for each in classes])
        parts = shares(solution.flow_cost, sum(count for *_, count in commits.entries))
        whole = self._named.removeprefix("the ") if _stands_as_one(solution.graph) else ""
        for number, node, count in commits.entries:
            cluster.capacity.place(classes[number].demand, node, count)
            for _ in range(count):
                chain, wave = next(waves)
                # The rest of the round does not count chains of networks.
                group, optional = needed.next_of(number)
                placement = Placement(
                    next(orders[number]),
                    table.nodes[node].name,
                    next(parts),
                    wave,
                    -chain,
                    atomic_group=whole or group,
                    optional=optional and not whole,
                )
                cluster.placements.append(placement)
        left = [
            (network_class, pod, int(price))
            for network_class, order, placed in zip(classes, orders, solution.placed_counts, strict=True)
            for pod, price in zip(order, network_class.demand.prices[placed:].tolist(), strict=True)
        ]
        # Where nothing is placed the cost of the arcs belongs to those that wait.
        extra = iter(()) if commits.entries else shares(solution.flow_cost, len(left))
        reasons = self._reasons(waiting, commits)
        for left_class, pod, price in left:
            reason = reasons[id(left_class)]
            cluster.unplaced.append(
                Unplaced(pod, reason.text, price + next(extra, 0), reason.code, reason.more_nodes_help)
            )
        cluster.slack += solution.cost - commits.least

    def _reasons(self, waiting: NetworkPods, commits: _Commits) -> dict[int, Reason]:
        """Why pods of each class wait: the filters, if no node takes another one; else the network leaves them out."""
        after, reasons = self._cluster.snapshot(commits.capacity), {}
        counts = commits.solution.placed_counts
        absent = {
            id(waiting.classes[member]): f"{group.name} needs {format_pods(group.size)} at once"
            for group in waiting.groups
            for member in group.members
            if not any(counts[number] for number in group.members)
        }
        graph, table = commits.solution.graph, self._problem.snapshot.table
        ends = np.nonzero(graph.nodes >= 0)[0].tolist()
        for place, (network_class, placed) in enumerate(zip(waiting.classes, counts, strict=True)):
            if placed == network_class.demand.count:
                continue
            reached = [int(graph.nodes[vertex]) for vertex in ends if graph.reached_by[vertex] >> place & 1]
            fits = bool(commits.capacity.max_pods(network_class.demand)[reached].any())
            if not fits and len(reached) < len(table.nodes):
                clause = f"{self._named} leads it to {len(reached)} nodes, and none of them has room for it"
                if not reached:
                    clause = f"{self._named} leads it nowhere: {why_no_way(self._spec, network_class.labels, table)}"
                text = sentence(clause)
                reasons[id(network_class)] = Reason(text, NETWORK_UNSCHEDULED, more_nodes_help=bool(reached))
                continue
            if fits:
                of = f"{placed} of the {network_class.demand.count} pods like this one"
                clause = f"{self._named} places {of}, and leaves this one pending"
                if id(network_class) in absent:
                    clause = f"{absent[id(network_class)]}, and {self._named} leaves them pending"
                text = sentence(clause)
                reasons[id(network_class)] = Reason(text, NETWORK_UNSCHEDULED, more_nodes_help=False)
            else:
                reasons[id(network_class)] = reason_for(
                    network_class.demand.group, before=self._problem.snapshot, after=after
                )
        return reasons


def _place(
    classes: Sequence[NetworkClass], solution: NetworkSolution, capacity: Plan
) -> tuple[tuple[tuple[int, int, int], ...], dict[tuple[int, int], int]]:
    """The placements in an order that rules between pods allow, and those that they allow in none: how many fit."""
    arcs = sorted(solution.placed.items())
    turns = capacity.place_by_turns([(classes[number].demand, node, count) for (number, node), count in arcs])
    rejected = dict(arcs)
    for place, taken in turns:
        rejected[arcs[place][0]] -= taken
    commits = tuple((*arcs[place][0], taken) for place, taken in turns)
    return commits, {key: solution.placed[key] - count for key, count in rejected.items() if count}


def _without(
    graph: Graph,
    rejected: dict[tuple[int, int], int],
    classes: Sequence[NetworkClass],
    entries: Sequence[tuple[int, int, int]],
    capacity: Plan,
) -> Graph:
    """The graph in which nodes take no more of the rejected pods than rules allow beside what was placed.

    Args:
        rejected: how many of some pods, by class and node, were placed where the solution has more.
        entries: what was placed: class, node and count.
        capacity: what is free beside that.
    """
    supplies = list(graph.supplies)
    for number in {number for number, _ in rejected}:
        demand, placed = classes[number].demand, np.zeros_like(supplies[number].fits)
        for placed_number, node, count in entries:
            placed[node] += count if placed_number == number else 0
        fits = supplies[number].fits.copy()
        if demand.constraints.constrained:
            fits = np.minimum(fits, placed + capacity.domain_counts.max_pods(demand.constraints))
        for (placed_number, node), taken in rejected.items():
            fits[node] = taken if placed_number == number else fits[node]
        supplies[number] = replace(supplies[number], fits=fits)
    return replace(graph, supplies=tuple(supplies))


def _solved_network(solution: NetworkSolution) -> SolvedNetwork:
    graph, flows = solution.graph, solution.graph.begun.copy()
    prices: dict[int, int] = {}
    for arc, units in zip(graph.arcs, solution.flows.tolist(), strict=True):
        if arc.drawn >= 0:
            flows[arc.drawn] += units
            if units < arc.maximum:
                prices[arc.drawn] = min(arc.cost, prices.get(arc.drawn, arc.cost))
    arcs = (
        replace(drawn, flow=flow, price=prices.get(number))
        for number, (drawn, flow) in enumerate(zip(graph.drawn, flows.tolist(), strict=True))
    )
    return SolvedNetwork(tuple(arcs), graph.lost)


def _stands_as_one(graph: Graph) -> bool:
    """Whether a part of the plan may be worth nothing: a minimum or a gain counts on all of it."""
    return bool((graph.minimums > 0).any()) or not graph.is_pure
