"""The cost of a plan counts who leaves and who moves for gain, and no plan with moves for gain beats its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.eviction_clusters import node, running, snapshot, waiting
from support.eviction_safety import check_evictions
from support.plans_with_leavers import priced_demands
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS, Load, NodePotential
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy, ReschedulingReason
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import Round, RoundResult, run_round

#: Every running pod is so large: the unit of the potentials in every cluster of a draw.
_CPU = 2


def gaining(cost: CostPolicy, **fields: int) -> Policy:
    """A policy that moves its pods for gain and for nothing else; further words are fields of ReschedulingPolicy."""
    moves = ReschedulingPolicy(ReschedulingMode.ACT, min_age=0, reasons=(ReschedulingReason.GAIN,))
    return msgspec.structs.replace(BUILT_IN, cost=cost, rescheduling=msgspec.structs.replace(moves, **fields))


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    weights = CostWeights(least_requested=draw(st.sampled_from((0, 1, 3))), balance=draw(st.sampled_from((0, 1, 5))))
    return gaining(
        CostPolicy(draw(st.sampled_from(sorted(MODELS))), weights),
        startup=draw(st.sampled_from((0, 0, 5, 30))),
        min_gain=draw(st.sampled_from((1, 50))),
        per_round=draw(st.sampled_from((1, 2, 100))),
    )


class _Judge:
    """Every plan of a cluster: who is placed where, and then every row of moves, each worth its price."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod], pending: Sequence[PendingPod], policy: Policy):
        self._nodes, self._pods, self._pending, self._policy = nodes, pods, pending, policy
        self._known: dict[tuple[object, ...], list[int]] = {}
        cluster = snapshot(nodes, pods, pending, policy=policy)
        self.names = [each.name for each in cluster.table.nodes]
        self._demands = priced_demands(cluster, {policy.name: policy})
        self._start = Plan(cluster)

    def price(self, pod: Pod) -> int:
        """Start-up of a pod that runs on, by its share of a mean node in tenths."""
        of_all = len(self._nodes) / sum(dict(each.allocatable)["cpu"] for each in self._nodes)
        size = max(1.0, 10 * (dict(pod.usage)["cpu"] * of_all))
        return int(self._policy.rescheduling.startup * (self._policy.unscheduled.per_waiting_second * size))

    def costs_of(self, moved: int, places: Sequence[str], placed: Sequence[tuple[PendingPod, str]]) -> list[int]:
        """What each node costs a running pod, as a round prices it if it waits beside all others."""
        others = [
            msgspec.structs.replace(pod, node_name=place)
            for number, (pod, place) in enumerate(zip(self._pods, places, strict=True))
            if number != moved
        ]
        key = (moved, *(other.node_name for other in others), *((pod.key, name) for pod, name in placed))
        if key not in self._known:
            others += [
                running(pod.key.partition("/")[2], name, dict(pod.pod_class.requests)["cpu"]) for pod, name in placed
            ]
            pod = self._pods[moved]
            comes = PendingPod(pod.key, pod.uid, pod.pod_class, self._policy.name, signature=pod.signature)
            cluster = snapshot(self._nodes, others, [comes], policy=self._policy)
            (demand,) = Round(cluster, {self._policy.name: self._policy})._problem.demands
            fits = demand.counts > 0
            costs = zip(demand.first_cost.tolist(), fits.tolist(), strict=True)
            self._known[key] = [cost if fit else 2**62 for cost, fit in costs]
        return self._known[key]

    def best(self, *, moves: bool) -> int:
        """What the cheapest plan costs; ``moves``: with moves for gain."""
        return min(self._costs(moves=moves))

    def _costs(self, *, moves: bool) -> Iterator[int]:
        objective = Objective(self._demands, self._start)
        homes = [pod.node_name for pod in self._pods]
        for commits in all_plans(self._demands, self._start):
            placed, counts = list[tuple[PendingPod, str]](), dict[int, int]()
            for commit in commits:
                number = counts.get(commit.demand, 0)
                placed.append((self._demands[commit.demand].group.pods[number], self.names[commit.node]))
                counts[commit.demand] = number + 1
            most = self._policy.rescheduling.per_round if moves else 0
            yield objective.total(commits) - self._most_gained(homes, placed, frozenset(), most)

    def _most_gained(
        self, places: list[str], placed: list[tuple[PendingPod, str]], gone: frozenset[int], most: int
    ) -> int:
        if not most:
            return 0
        best = 0
        for number in set(range(len(self._pods))) - gone:
            costs, home = self.costs_of(number, places, placed), self.names.index(places[number])
            for to, cost in enumerate(costs):
                worth = costs[home] - cost - self.price(self._pods[number])
                if to != home and worth >= self._policy.rescheduling.min_gain:
                    after = [*places[:number], self.names[to], *places[number + 1 :]]
                    best = max(best, worth + self._most_gained(after, placed, gone | {number}, most - 1))
        return best

    def cost_of(self, result: RoundResult) -> int:
        """What a plan costs: its moves come after its placements, in their order."""
        placed = [(each.pod, each.node) for each in result.placements]
        cost = sum(each.price for each in (*result.placements, *result.unplaced))
        places, keys = [pod.node_name for pod in self._pods], [pod.key for pod in self._pods]
        for move in result.evictions:
            number = keys.index(move.pod.key)
            costs = self.costs_of(number, places, placed)
            home, to = self.names.index(places[number]), self.names.index(move.to)
            cost += self.price(self._pods[number]) - (costs[home] - costs[to])
            places[number] = move.to
        return cost


_sizes = st.lists(st.sampled_from((4, 6, 9)), min_size=2, max_size=3)
_homes = st.lists(st.integers(0, 2), min_size=1, max_size=4)
_comers = st.lists(st.sampled_from((1, 2, 3)), max_size=2)


@settings(max_examples=examples(40), deadline=None)
@given(_sizes, _homes, _comers, _policies())
@example([4, 4], [0, 0], [], gaining(CostPolicy(), startup=0, min_gain=1))
@example([6, 6, 6], [0, 0, 0], [3], gaining(CostPolicy("BinPacking"), startup=0, min_gain=1))
def test_no_plan_with_moves_for_gain_beats_the_bound(
    sizes: list[int], homes: list[int], comers: list[int], policy: Policy
) -> None:
    """Against every plan of small clusters: all placements, and all rows of moves after each. And the cost is right."""
    nodes = [node(f"n{at}", cpu) for at, cpu in enumerate(sizes)]
    free, pods = list(sizes), list[Pod]()
    for number, home in enumerate(homes[: 4 - bool(comers)]):
        if free[home % len(sizes)] >= _CPU:
            free[home % len(sizes)] -= _CPU
            pods.append(running(f"r{number}", f"n{home % len(sizes)}", _CPU, owner=f"o{number}"))
    pending = [waiting(f"w{number}", cpu) for number, cpu in enumerate(comers)]
    result = run_round(snapshot(nodes, pods, pending, policy=policy), {policy.name: policy})
    judge = _Judge(nodes, pods, pending, policy)
    assert result.cost == judge.cost_of(result)
    best = judge.best(moves=bool(result.evictions))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best


def _round(policy: Policy, pods: Sequence[Pod], pending: Sequence[PendingPod] = ()) -> RoundResult:
    cluster: Snapshot = snapshot([node(f"n{at}", 8) for at in range(3)], pods, pending, policy=policy)
    return run_round(cluster, {policy.name: policy})


def test_a_plan_that_only_moves_costs_less_than_nothing() -> None:
    """It costs what the move costs less what it gains; the gap is a part of the larger of cost and bound."""
    policy = gaining(CostPolicy(), startup=10, min_gain=1)
    result = _round(policy, [running(f"p{number}", "n0", 2) for number in range(2)])
    (move,) = result.evictions
    assert move.price == 10 * policy.unscheduled.per_waiting_second * 2.5  # a quarter of a node
    assert result.cost == move.cost == move.price - move.gain < 0
    assert result.lower_bound <= result.cost
    assert 0 <= result.gap <= 1
    assert result.certified or BoundNote.GAINS in result.bound_notes


def test_nobody_moves_at_no_cost() -> None:
    """A plan in which nobody leaves is certified among such plans, as before."""
    result = _round(gaining(CostPolicy(), startup=30), [running("p", "n0", 2)])
    assert (result.cost, result.lower_bound, result.evictions) == (0, 0, ())


@pytest.mark.parametrize("lost", [0, 30])
def test_who_leaves_for_others_pays_by_its_policy(lost: int) -> None:
    """The victim of an urgent pod costs its start-up, and the bound of such plans counts that too."""
    policy = msgspec.structs.replace(BUILT_IN, rescheduling=ReschedulingPolicy(startup=lost))
    pods = [running(f"p{at}", f"n{at}", 8) for at in range(3)]
    result = _round(policy, pods, [waiting("urgent", 8, priority=5)])
    (victim,) = result.evictions
    assert victim.price == lost * policy.unscheduled.per_waiting_second * 10
    assert result.cost == sum(each.price for each in result.placements) + victim.price
    assert result.lower_bound > 0


def test_who_leaves_is_free_where_no_policy_governs_it() -> None:
    """Nobody said what its start is worth."""
    pods = [running(f"p{at}", f"n{at}", 8) for at in range(3)]
    policies = {BUILT_IN.name: BUILT_IN}
    other = msgspec.structs.replace(BUILT_IN, name="none of these")
    cluster = snapshot([node(f"n{at}", 8) for at in range(3)], pods, [waiting("urgent", 8, priority=5)], policy=other)
    result = run_round(cluster, policies)
    assert [each.price for each in result.evictions] == [0]


def _many(nodes: int, policy: Policy) -> Snapshot:
    """Half of the nodes are nearly full, the others empty."""
    pods = [running(f"p{at}-{each}", f"n{at}", 1, owner=f"o{at}") for at in range(nodes // 2) for each in range(8)]
    return snapshot([node(f"n{at}", 9) for at in range(nodes)], pods, [], policy=policy)


def _nodes_cost(cluster: Snapshot, policy: Policy) -> int:
    """The potential of all nodes, for pods of one size."""
    load = Load.of(cluster)
    size = load.taken[0] / load.pods[0]
    return int(NodePotential.of(MODELS[policy.cost.model], policy.cost, tuple(size.tolist())).values(load).sum())


@pytest.mark.parametrize("model", ["CPUMemory", "LoadSpreading"])
def test_many_pods_move_in_a_round(model: str) -> None:
    """The nodes are even afterwards, the gains add up to what they cost less, and the bound is near."""
    most = 10_000
    limits = dict.fromkeys(("per_round", "per_hour", "per_node", "per_namespace", "per_owner"), most)
    policy = gaining(CostPolicy(model), startup=0, min_gain=1, **limits)
    cluster = _many(100, policy)
    result = run_round(cluster, {policy.name: policy})
    check_evictions(cluster, result, {policy.name: policy})
    assert len(result.evictions) == 200
    after = Counter(pod.node for pod in cluster.running.pods) if cluster.running is not None else Counter[str]()
    for move in result.evictions:
        after.update({move.pod.node: -1, move.to: 1})
    assert set(after.values()) == {4}
    assert sum(each.gain for each in result.evictions) == _nodes_cost(cluster, policy) - _nodes_cost(
        result.after, policy
    )
    assert result.lower_bound >= 1.1 * result.cost


def test_limits_hold_where_many_pods_move() -> None:
    """No more leave a node, and none beyond the round's limit: those that gain most come first."""
    policy = gaining(CostPolicy(), startup=0, min_gain=1, per_round=30, per_node=2, per_owner=100, per_namespace=100)
    cluster = _many(40, policy)
    result = run_round(cluster, {policy.name: policy})
    check_evictions(cluster, result, {policy.name: policy})
    assert len(result.evictions) == 30
    assert max(Counter(each.pod.node for each in result.evictions).values()) <= 2
