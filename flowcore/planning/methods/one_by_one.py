"""One pod after the other, each on the node that is the cheapest at its turn.

A placement changes what its own node costs, and nothing else. So the cost of every class on every node is a table, and
a placement makes one column of it anew. Several columns at once cost hardly more than one: pods that come next are
placed on the cheapest nodes beside those that are taken already, and then it is checked, for each in its turn, that no
taken node would have been cheaper. The first for which that fails is placed again after those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.potential import NodePotential
from flowcore.planning.methods.greedy import CandidateNodes, OwnCosts, greedy
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import WaitPrices
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domain_limits import Cap

#: Pods that are placed at once, at most.
_MOST_AT_ONCE = 32
#: Entries of the table that are read in a third of a second; how many a pod takes beside its own row, how many
#: each class takes in the columns that it makes anew; and a pod about which the table does not know everything takes
#: as long as this number of others.
_MOST_ENTRIES, _ENTRIES_OF_A_POD, _ENTRIES_OF_A_CLASS, _OTHERS = 150_000_000, 6_000, 25, 8
#: Entries of the table: 200 MB with the arcs.
_LARGEST_TABLE = 12_000_000
#: A request of nothing fits everywhere.
_FITS = np.iinfo(np.int64).min
#: Of a pod that finds no node.
_NOWHERE = -1


def place_one_by_one(
    cost_matrix: CostMatrix, order: Sequence[int], capacity: Plan, wait_prices: WaitPrices
) -> list[Commit]:
    """What ``greedy`` does with one pod of each demand in turn, in less time.

    Args:
        order: demand of each pod.
        wait_prices: see ``greedy``.
    """
    run = _Run(cost_matrix, order, capacity, wait_prices)
    position = 0
    while position < len(order):
        position = run.place_from(position)
    if not run.commits:
        return []
    placed = Counter(commit.demand for commit in run.commits)
    left = {demand: prices[placed[demand] :] for demand, prices in wait_prices.items()}
    return [*run.commits, *greedy(cost_matrix, run.retries().items(), capacity, wait_prices=left)]


def is_quick(problem: Problem) -> bool:
    """Whether all pods of a problem are placed one by one in a third of a second at most, and in little memory."""
    classes, nodes = len(problem.demands), len(problem.start.free)
    local = sum(demand.count for demand in problem.demands if _is_local(demand))
    others = sum(demand.count for demand in problem.demands) - local
    entries = (local + _OTHERS * others) * (_ENTRIES_OF_A_POD + nodes + _ENTRIES_OF_A_CLASS * classes)
    return entries <= _MOST_ENTRIES and classes * nodes <= _LARGEST_TABLE


def _is_local(demand: Demand) -> bool:
    """Whether a node's own state, and which domains are closed, say what a demand's pods cost there."""
    return demand.group.pod_class.fits_by_amounts and not demand.waits and demand.constraints.soft_constraints is None


class _Run:
    """The pods in turn.

    Attributes:
        commits: so far.
    """

    def __init__(self, cost_matrix: CostMatrix, order: Sequence[int], capacity: Plan, wait_prices: WaitPrices) -> None:
        self.commits: list[Commit] = []
        self._matrix, self._order, self._capacity, self._wait_prices = cost_matrix, order, capacity, wait_prices
        local = [index for index in dict.fromkeys(order) if _is_local(cost_matrix.demands[index])]
        self._table = _Table(cost_matrix, local, capacity)
        self._row_of = {index: row for row, index in enumerate(local)}
        self._others: dict[int, CandidateNodes] = {}
        self._own_costs: dict[int, OwnCosts] = {}
        #: Demands that found no node: what their rules read then; None: no placement opens one to them.
        self._stuck: dict[int, tuple[int, ...] | None] = {}
        #: Demands to which a later placement may open a node, in the order in which pods of theirs found none.
        self._failed: dict[int, None] = {}
        self._at_once = 2

    def place_from(self, position: int) -> int:
        """Places some pods from a position in the order on; the position of the next one."""
        proposal = _Proposal()
        while position < len(self._order) and len(proposal.nodes) < self._at_once:
            demand = self._order[position]
            if not self._is_stuck(demand):
                if not self._begin(proposal, demand):
                    break
                proposal.positions.append(position)
            position += 1
        if not proposal.nodes:
            if position < len(self._order) and not self._is_stuck(self._order[position]):
                self._place_by_itself(self._order[position])
                position += 1
            return position
        done = self._commit(proposal)
        self._at_once = min(_MOST_AT_ONCE, 2 * done)
        return position if done == len(proposal.nodes) else proposal.positions[done]

    def _begin(self, proposal: _Proposal, demand: int) -> bool:
        """Proposes a node for a demand's next pod, as if no node taken already were cheaper; False: it cannot."""
        row = self._row_of.get(demand)
        if row is None:
            return False
        constraints, counts = self._matrix.demands[demand].constraints, self._capacity.domain_counts
        allowed = None
        costs = self._table.costs[row]
        if constraints.constrained:
            read = constraints.kube_scheduler_reads
            if not proposal.raised.keys().isdisjoint(read) or counts.is_first_pod(constraints):
                return False
            allowed = counts.allowed(constraints)
            if allowed.all():
                allowed = None
            else:
                costs = np.where(allowed, costs, np.inf)
        node = int(costs.argmin())
        if node in proposal.taken:
            costs = costs.copy() if allowed is None else costs
            costs[list(proposal.taken)] = np.inf
            node = int(costs.argmin())
        cost = float(costs[node])
        if cost < np.inf and any(proposal.fills(cap, node, counts.of(cap.counter)) for cap in constraints.caps):
            return False
        proposal.add(demand, row, node if cost < np.inf else _NOWHERE, cost, allowed)
        if cost < np.inf:
            proposal.take(node, constraints.increments)
        return True

    def _commit(self, proposal: _Proposal) -> int:
        """Places the first pods, up to one for which another node is cheaper; how many, at least one."""
        nodes, rows = np.array(proposal.nodes, dtype=np.int64), np.array(proposal.rows, dtype=np.int64)
        placed = np.nonzero(nodes != _NOWHERE)[0]
        after = self._table.columns(nodes[placed], rows[placed])
        done = len(nodes) if len(nodes) == 1 else proposal.first_wrong(nodes, rows, placed, after)
        placed = placed[placed < done]
        for turn in range(done):
            demand, node = proposal.demands[turn], proposal.nodes[turn]
            if node == _NOWHERE:
                constraints = self._matrix.demands[demand].constraints
                reads = self._capacity.domain_counts.version(constraints.reads) if constraints.may_unblock else None
                self._stuck[demand] = reads
                if constraints.may_unblock:
                    self._failed[demand] = None
            else:
                self.commits.append(Commit(demand, node, 1))
        if len(placed):
            self._table.place(nodes[placed], rows[placed], after[: len(placed)])
        return done

    def _place_by_itself(self, demand: int) -> None:
        """A pod of a demand about which the table does not know everything."""
        if demand not in self._others:
            wait_prices = self._wait_prices.get(demand)
            self._others[demand] = CandidateNodes(
                self._matrix, demand, self._capacity, None, self._own_costs, wait_prices=wait_prices
            )
        placed, may_retry = self._others[demand].place(1)
        self.commits += placed
        if may_retry:
            self._failed[demand] = None
        if placed:
            self._table.refresh()

    def _is_stuck(self, demand: int) -> bool:
        if demand not in self._stuck:
            return False
        reads = self._stuck[demand]
        constraints = self._matrix.demands[demand].constraints
        if reads is None or reads == self._capacity.domain_counts.version(constraints.reads):
            return True
        del self._stuck[demand]
        return False

    def retries(self) -> dict[int, int]:
        """Number of unplaced pods of each demand to which a later placement may open a node."""
        waiting = Counter(self._order)
        waiting.subtract(commit.demand for commit in self.commits)
        return {demand: waiting[demand] for demand in self._failed}


class _Proposal:
    """Pods in turn, with the nodes that they chose without looking at those that the pods before them take."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.demands: list[int] = []
        self.rows: list[int] = []
        self.nodes: list[int] = []
        self.costs: list[float] = []
        self.allowed: list[Bools | None] = []
        self.taken: set[int] = set()
        #: By how many pods counters are raised in each domain.
        self.raised: dict[DomainCounter, Counter[int]] = {}

    def add(self, demand: int, row: int, node: int, cost: float, allowed: Bools | None) -> None:
        """Another pod."""
        self.demands.append(demand)
        self.rows.append(row)
        self.nodes.append(node)
        self.costs.append(cost)
        self.allowed.append(allowed)

    def take(self, node: int, increments: Iterable[DomainCounter]) -> None:
        """A pod that raises these counters is placed on a node."""
        self.taken.add(node)
        for counter in increments:
            if counter.counted_nodes[node]:
                self.raised.setdefault(counter, Counter())[int(counter.domains.codes[node])] += 1

    def fills(self, cap: Cap, node: int, counts: Int64s) -> bool:
        """Whether the pods here leave no room in a node's domain; ``counts``: int64[D + 1], without them."""
        domain = int(cap.counter.domains.codes[node])
        raised = self.raised[cap.counter][domain] if cap.counter in self.raised else 0
        return bool(raised) and not cap.allows(int(counts[domain]) + raised)

    def first_wrong(self, nodes: Int64s, rows: Int64s, placed: Int64s, after: Float64s) -> int:
        """The first pod to which a node that was taken before it would be cheaper; how many there are if none is.

        Args:
            nodes, rows: of all pods.
            placed: pods that found a node.
            after: float64[P, K], what those nodes cost each class after that.
        """
        taken, cost = nodes[placed], np.array(self.costs)
        beside = after[:, rows]
        for turn, allowed in enumerate(self.allowed):
            if allowed is not None:
                beside[~allowed[taken], turn] = np.inf
        cheaper = beside < cost
        # Of nodes that cost the same the first one.
        cheaper |= (beside == cost) & (taken[:, np.newaxis] < nodes)
        cheaper &= placed[:, np.newaxis] < np.arange(len(nodes))
        wrong = cheaper.any(axis=0)
        return int(wrong.argmax()) if wrong.any() else len(nodes)


class _Table:
    """What the next pod of each class costs on each node, infinite where there is no room.

    Attributes:
        costs: float64[K, N].
    """

    def __init__(self, cost_matrix: CostMatrix, demands: Sequence[int], capacity: Plan) -> None:
        """``demands``: numbers of the classes, K of them."""
        self._demands = [cost_matrix.demands[index] for index in demands]
        self._capacity = capacity
        shape = len(demands), len(capacity.free)
        self.costs = np.array([cost_matrix.first_pod_cost_of(index) for index in demands]).reshape(shape)
        self._usable = np.isfinite(self.costs)
        self._arcs = np.array([demand.arc for demand in self._demands], dtype=np.float64).reshape(shape)
        self._requests = np.array([demand.requests for demand in self._demands], dtype=np.int64)
        self._asked = np.where(self._requests > 0, self._requests, _FITS)
        self._counted = np.array([demand.counted for demand in self._demands], dtype=np.int64).reshape(-1, 4)
        #: Of classes that are priced alike: bool[K], and the sizes of their pods.
        self._alike: dict[NodePotential, tuple[Bools, Float64s]] = {}
        for potential in dict.fromkeys(demand.potential for demand in self._demands):
            alike = np.array([demand.potential == potential for demand in self._demands], dtype=np.bool_)
            self._alike[potential] = alike, self._counted[alike, :3].astype(np.float64)
        self._seen_changes = 0
        self.refresh()

    def refresh(self) -> None:
        """Makes the columns of nodes that changed anew."""
        nodes = self._capacity.changed_since(self._seen_changes)
        self._seen_changes = self._capacity.changes
        if len(nodes) and self._demands:
            self.costs[:, nodes] = self.columns(nodes).T

    def columns(self, nodes: Int64s, rows: Int64s | None = None) -> Float64s:
        """float64[len(nodes), K]: the columns of some nodes.

        Args:
            rows: int64[len(nodes)], the class of one more pod on each; None: nodes as they are.
        """
        free = self._capacity.free[nodes]
        if rows is not None:
            free = free - self._requests[rows]
        columns = np.empty((len(nodes), len(self._demands)))
        for potential, (alike, sizes) in self._alike.items():
            more = None if rows is None else np.where(alike[rows, np.newaxis], self._counted[rows], 0)
            columns[:, alike] = _increases(self._capacity.load_at(nodes, potential, more), potential, sizes)
        columns += self._arcs[:, nodes].T
        fits = (self._asked <= free[:, np.newaxis, :]).all(axis=2)
        columns[~(fits & self._usable[:, nodes].T)] = np.inf
        return columns

    def place(self, nodes: Int64s, rows: Int64s, columns: Float64s) -> None:
        """Commits a pod of a class to each of some nodes, which cost so much after that."""
        self._capacity.place_one_each([self._demands[row] for row in rows.tolist()], nodes)
        self._seen_changes = self._capacity.changes
        self.costs[:, nodes] = columns.T


def _increases(load: Load, potential: NodePotential, sizes: Float64s) -> Int64s:
    """int64[M, K]: what one more pod of each size, float64[K, 3], pays on each of M nodes."""
    taken = np.moveaxis(load.taken.T[:, :, np.newaxis] + sizes.T[:, np.newaxis, :], 0, -1)
    capacity, pods_allowed = load.capacity[:, np.newaxis], load.pods_allowed[:, np.newaxis]
    after = Load(load.table, capacity, taken, pods_allowed, load.pods[:, np.newaxis] + 1.0)
    return potential.values(after) - potential.values(load)[:, np.newaxis]
