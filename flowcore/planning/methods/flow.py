"""Planning by min-cost flow: solve, commit what truly fits, solve again for the rest.

A slot counts pods, not resources: a node with three slots may be handed a big pod and two that no longer fit beside it
(camsas/firmament#71). So flows are a proposal. What each node truly has room for is committed, and
the rest goes into the next flow with the room that is left, until a flow brings next to nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.capped_greedy import cheapest_per_domain
from flowcore.planning.methods.constructive import FixedPart, completed
from flowcore.planning.methods.flow_commits import commit_flow
from flowcore.planning.methods.supplies import FlowSupply, supplies_of
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import potentials, solve
from flowcore.planning.solvers.slots import build_network, decode_flows, most_paid, slot_widths
from flowcore.rules.topology.domain_limits import UNLIMITED
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities
from flowcore.rules.topology.round_constraints.rising_price import RisingPrice

#: A flow that commits less than one in this many of its pods is the last: one-by-one finishes faster.
_WORTHWHILE = 50
_MOST_FLOWS = 12
#: How often missing arcs are priced for one flow, and by which share of the cost a flow must be cheaper than the last
#: for another pricing: many classes that want the same nodes would go on for long for next to nothing.
_MOST_PRICINGS, _LEAST_GAIN = 8, 1e-3
#: Arcs from classes to nodes that the first network of a flow has room for.
_FIRST_ARCS = 20_000
#: Arcs that a class starts with, and gets more of, at least.
_FEWEST = 16
#: Cost of an arc that is not there.
_NO_ARC = 2**60


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Commits of all flows in order, and what they took.

    Attributes:
        marginal_costs: int64[N], what one more pod on each node costs beyond a first one, by the potentials of the
            first flow.
    """

    commits: tuple[Commit, ...]
    solves: int
    arcs: int
    marginal_costs: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Proposal:
    """Arcs that a flow uses: place in the supplies, node and pods, int64[M] each; the network's size and cost."""

    supplies: Int64s
    nodes: Int64s
    pods: Int64s
    size: int
    cost: int
    marginal_costs: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class FlowSolution:
    """A candidate of min-cost flows; ``solves``, ``arcs`` and ``marginal_costs`` as in ``FlowPlan``."""

    candidate: Candidate
    solves: int
    arcs: int
    marginal_costs: Int64s


def solve_by_flow(problem: Problem, fixed: FixedPart, known: Candidate) -> Generator[None, None, FlowSolution]:
    """Min-cost flows beside what is fixed, completed with all that still fits; yields after each call of the solver.

    Args:
        known: another candidate: its arcs are good ones to begin with.
    """
    capacity = fixed.capacity.copy()
    plan = yield from plan_by_flow(problem.demands, capacity, known.commits)
    candidate = completed(problem, "flow", [*fixed.commits, *plan.commits], capacity)
    return FlowSolution(candidate, plan.solves, plan.arcs, plan.marginal_costs)


def plan_by_flow(demands: Sequence[Demand], capacity: Plan, known: Sequence[Commit]) -> Generator[None, None, FlowPlan]:
    """Commits into ``capacity`` what flows of least cost propose; yields after each call of the solver.

    Args:
        demands: those whose rules between pods are no capacities are passed over.
        known: another plan for the same demands: its arcs are good ones to begin with.
    """
    commits: list[Commit] = []
    remaining = [demand.count if demand.constraints.fits_flow else 0 for demand in demands]
    marginal_costs = np.zeros(len(capacity.free), dtype=np.int64)
    flows = solves = arcs = 0
    while flows < _MOST_FLOWS:
        supplies = supplies_of(demands, remaining, capacity)
        if not supplies:
            break
        proposal, calls = yield from _propose(supplies, capacity, known if not flows else ())
        solves += calls
        if proposal is None:
            break
        if not flows:
            marginal_costs = proposal.marginal_costs
        flows += 1
        arcs = max(arcs, proposal.size)
        placed = 0
        for commit in commit_flow(supplies, proposal.supplies, proposal.nodes, proposal.pods, capacity):
            commits.append(commit)
            remaining[commit.demand] -= commit.count
            placed += commit.count
        if placed * _WORTHWHILE < sum(supply.count for supply in supplies):
            break
    return FlowPlan(tuple(commits), solves, arcs, marginal_costs)


def _propose(
    supplies: Sequence[FlowSupply], capacity: Plan, known: Sequence[Commit]
) -> Generator[None, None, tuple[_Proposal | None, int]]:
    """One flow of least cost through the slot network, None where the solver failed; and how often it was called.

    Only nodes that a flow of least cost may need are looked at. Of these, columns are generated: each class starts with
    arcs to its cheapest nodes, at least twice as many as it has pods; node potentials of the optimal flow then price
    all the arcs that are missing, those that would make it cheaper are added, and so on until none would or little is
    gained. That is the optimum of the full network or next to it, and the work follows the batch, not the cluster.
    """
    batch = sum(supply.count for supply in supplies)
    # A class pays what its own first pod adds; what others of the round add to that is taken as for the mean pod.
    all_arcs = [supply.demand.arc + capacity.next_increase(supply.demand) for supply in supplies]
    for arc, supply in zip(all_arcs, supplies, strict=True):
        np.putmask(arc, supply.fit_counts == 0, _NO_ARC)
    nodes = _near(supplies, all_arcs, batch, known)
    arcs = [arc[nodes] for arc in all_arcs]
    mean, limits = _mean_pod(supplies, capacity, nodes)
    limits = np.minimum(np.minimum(limits, batch), _room_of_nodes(supplies, capacity)[nodes])
    widths = slot_widths(int(limits.max()))
    deciding = _majority_demand(supplies)
    potential = deciding.potential
    load = capacity.load_at(nodes, potential)
    first_slot = potential.level_costs(load, mean, widths[:1])[:, 0]
    # Few classes get all arcs at once; with many, one small network more is cheaper than one large one.
    first = min(batch, _FIRST_ARCS // len(supplies))
    taken = [
        _cheapest_everywhere(arc, max(first, 2 * supply.count, _FEWEST), _at(supply.domains, nodes))
        for arc, supply in zip(arcs, supplies, strict=True)
    ]
    place = {supply.index: index for index, supply in enumerate(supplies)}
    for commit in known:
        if commit.demand in place:
            taken[place[commit.demand]][np.searchsorted(nodes, commit.node)] = True

    rising = _rising_of_nodes(supplies)

    def slot_costs(some: Int64s) -> Int64s:
        costs = potential.level_costs(load.at(some), mean[some], widths) - first_slot[some, np.newaxis]
        for price in rising:
            costs = costs + _risen(price, capacity.domain_counts.of(price.counter), nodes[some], widths)
        return costs

    pricings, cost, lowered = 0, 2**62, False
    while True:
        candidates = [np.nonzero(column)[0] for column in taken]
        domains = [_at(supply.domains, nodes) for supply in supplies]
        network = build_network(
            node_count=len(nodes),
            candidates=candidates,
            arc_costs=[arc[column] for arc, column in zip(arcs, candidates, strict=True)],
            arc_capacities=[
                np.minimum(supply.fit_counts[nodes[column]], batch)
                for supply, column in zip(supplies, candidates, strict=True)
            ],
            unscheduled=[supply.prices for supply in supplies],
            slots_of=slot_costs,
            slot_widths=widths,
            slot_limits=limits,
            domains=domains,
        )
        solution = solve(network)
        pricings += 1
        yield
        if solution.flows is None:
            return None, pricings
        distance = potentials(network, solution.flows)
        # A node that no class has an arc to yet still has all its slots.
        marginal_costs = np.zeros(len(nodes), dtype=np.int64)
        used = np.zeros(len(nodes), dtype=np.bool_)
        used[network.arc_node] = True
        if distance is not None:
            marginal_costs[used] = distance[len(supplies) : len(supplies) + len(nodes)][used]
        everywhere = np.zeros(len(capacity.free), dtype=np.int64)
        everywhere[nodes] = marginal_costs
        if distance is not None and not lowered:
            lowered = True
            cheapest = [
                supply.with_cheapest_minimum(arc, everywhere) for supply, arc in zip(supplies, all_arcs, strict=True)
            ]
            if any(cheaper is not supply for cheaper, supply in zip(cheapest, supplies, strict=True)):
                supplies = cheapest
                continue
        gain, cost = cost - solution.cost, solution.cost
        if (
            distance is None
            or pricings >= _MOST_PRICINGS
            or gain < _LEAST_GAIN * cost
            or not _add_columns(
                taken,
                arcs,
                marginal_costs,
                [
                    most_paid(network, solution.flows, distance, index, domain, len(nodes))
                    for index, domain in enumerate(domains)
                ],
                supplies,
            )
        ):
            places, used_nodes, placed = decode_flows(network, solution.flows)
            return _Proposal(
                places, nodes[used_nodes], placed, size=len(network.tails), cost=cost, marginal_costs=everywhere
            ), pricings


def _room_of_nodes(supplies: Sequence[FlowSupply], capacity: Plan) -> Int64s:
    """int64[N]: how many pods each node takes by limits of single nodes that count all of them together."""
    room = np.full(len(capacity.free), UNLIMITED, dtype=np.int64)
    for cap in supplies[0].demand.constraints.self_caps:
        counter, limits = cap.counter, {each.demand.constraints.limits.get(cap.counter) for each in supplies}
        if counter.domains.are_single_nodes and limits == {cap.max_per_domain}:
            room = np.minimum(room, capacity.domain_counts.cap_room(cap)[counter.domains.codes])
    return room


def _rising_of_nodes(supplies: Sequence[FlowSupply]) -> list[RisingPrice]:
    """Prices that rise with the pods of single nodes, and that all of them pay; where none are enough, none rises."""
    first = [each for each in supplies[0].demand.constraints.rising if each.rises]
    everybody = [set(each.demand.constraints.rising) for each in supplies]
    return [each for each in first if each.counter.domains.are_single_nodes and all(each in its for its in everybody)]


def _risen(price: RisingPrice, counts: Int64s, nodes: Int64s, widths: Int64s) -> Int64s:
    """int64[M, K]: by how much more pods cost on average in a row of slot levels than as the round begins."""
    codes = price.counter.domains.codes[nodes, np.newaxis]
    levels = price.beside_arcs(codes, counts[codes] + np.concatenate([[0], np.cumsum(widths)]))
    rises = np.diff(levels, axis=1) // widths
    return np.where(codes < price.counter.domains.count, rises, 0)


def _near(supplies: Sequence[FlowSupply], arcs: Sequence[Int64s], batch: int, known: Sequence[Commit]) -> Int64s:
    """Nodes that a flow of least cost needs, ascending.

    With a batch of D pods a class never needs more than its D cheapest nodes: the D - 1 others cannot occupy them all.
    A class with domains never needs more than the D cheapest of each, and of the nodes outside them.

    Args:
        arcs: of each supply int64[N], the cost of its arcs.
        known: of another plan; its nodes are among them.
    """
    near = np.zeros(len(arcs[0]), dtype=np.bool_)
    near[[commit.node for commit in known]] = True
    for supply, arc in zip(supplies, arcs, strict=True):
        if supply.domains is None:
            near |= _cheapest(arc, batch)
        else:
            near |= _cheapest_of_domains(arc, supply.domains, np.full(1 + len(supply.domains.capacities), batch))
    return np.nonzero(near)[0]


def _at(domains: DomainCapacities | None, nodes: Int64s) -> DomainCapacities | None:
    """The domains of these nodes."""
    if domains is None:
        return None
    return replace(domains, by_node=domains.by_node[nodes], domain_of=domains.domain_of[nodes])


def _cheapest(cost: Int64s, count: int) -> Bools:
    """bool[N]: the ``count`` usable nodes of least cost."""
    chosen = cost < _NO_ARC
    if int(chosen.sum()) > count:
        nodes = np.argpartition(cost, count - 1)[:count]
        chosen = np.zeros(len(cost), dtype=np.bool_)
        chosen[nodes] = True
    return chosen


def _cheapest_everywhere(cost: Int64s, count: int, domains: DomainCapacities | None) -> Bools:
    """``_cheapest``, and the cheapest nodes of each domain: those elsewhere cannot take all pods."""
    chosen = _cheapest(cost, count)
    if domains is not None and len(domains.capacities):
        chosen |= _cheapest_of_domains(cost, domains, np.append(0, domains.capacities))
    return chosen


def _cheapest_of_domains(cost: Int64s, domains: DomainCapacities, counts: Int64s) -> Bools:
    """bool[N]: the nodes of least cost; ``counts``, int64[1 + K]: outside all domains, then in each smallest one."""
    chosen = np.zeros(len(cost), dtype=np.bool_)
    usable = np.nonzero(cost < _NO_ARC)[0]
    domain = domains.domain_of[usable] + 1
    chosen[usable[cheapest_per_domain(cost[usable].astype(np.float64), domain, counts)]] = True
    return chosen


def _add_columns(
    taken: Sequence[Bools],
    arcs: Sequence[Int64s],
    marginal_costs: Int64s,
    most_paid: Sequence[Int64s],
    supplies: Sequence[FlowSupply],
) -> bool:
    """Marks the arcs that would make the flow cheaper; False where there are none.

    Args:
        marginal_costs: int64[N], what one more pod on each node costs beyond its arc.
        most_paid: of each supply int64[N], what an arc and what is behind it may cost.
    """
    grown = False
    for column, arc, most, supply in zip(taken, arcs, most_paid, supplies, strict=True):
        gain = np.where(column | (arc >= _NO_ARC), 0, np.minimum(arc + marginal_costs - most, 0))
        if gain.any():
            grown = True
            np.logical_or(column, _cheapest(np.where(gain < 0, gain, _NO_ARC), max(supply.count, _FEWEST)), out=column)
    return grown


def _mean_pod(supplies: Sequence[FlowSupply], capacity: Plan, nodes: Int64s) -> tuple[Float64s, Int64s]:
    """What a slot of each node stands for: the mean of the pods that may come to it.

    A class's pods count on a node in proportion to how few other nodes they have.

    Args:
        nodes: int64[M].

    Returns:
        float64[M, 3] what such a pod counts for; int64[M] how many of them the node has room for.
    """
    fits = np.array([supply.fit_counts[nodes] > 0 for supply in supplies], dtype=np.float64)  # [C, M]
    counts = np.array([np.count_nonzero(supply.fit_counts) for supply in supplies])
    pods = np.array([supply.count for supply in supplies], dtype=np.float64)
    share = fits * (pods / np.maximum(counts, 1))[:, np.newaxis]
    total = np.maximum(share.sum(axis=0), 1e-9)[:, np.newaxis]
    size = share.T @ np.array([supply.demand.size for supply in supplies]) / total
    requests = share.T @ np.array([supply.demand.requests for supply in supplies], dtype=np.float64) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        room_for = np.where(requests > 0, capacity.free[nodes] / requests, np.inf).min(axis=1)
    # A mean may be larger than what is free although some class fits: such a node still has one slot.
    limits = np.where(fits.any(axis=0), np.clip(np.nan_to_num(np.floor(room_for + 1e-9), posinf=0), 1, 2**31), 0)
    return np.rint(size), limits.astype(np.int64)


def _majority_demand(supplies: Sequence[FlowSupply]) -> Demand:
    """The demand whose cost model and weights price the slots: that of most pods, where several policies share them."""
    pods: dict[str, int] = {}
    for supply in supplies:
        pods[supply.demand.policy.name] = pods.get(supply.demand.policy.name, 0) + supply.count
    name = max(pods, key=lambda policy: (pods[policy], policy))
    return next(supply.demand for supply in supplies if supply.demand.policy.name == name)
