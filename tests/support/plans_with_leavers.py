"""Every plan of a small cluster in which running pods leave or move too, and what it costs."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from support.all_plans import all_plans

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.shares.shares import Shares
from flowcore.model.policies import Policy
from flowcore.model.resources import non_zero_requests
from flowcore.model.running_pods import RunningPod
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.round import RoundResult


def priced_demands(cluster: Snapshot, policies: Mapping[str, Policy]) -> tuple[Demand, ...]:
    """The waiting pods, each with what every node costs."""
    problem = Problem(cluster, policies, MODELS)
    return tuple(priced(problem, demand) for demand in problem.demands)


def beside(cluster: Snapshot, leavers: Mapping[RunningPod, str]) -> Snapshot:
    """The cluster without some running pods, each of which is on another node then; "": on none."""
    used, assumed = cluster.used.copy(), cluster.non_zero_requested.copy()
    for pod, to in leavers.items():
        for sign, name in ((-1, pod.node), (1, to)):
            if name:
                row = cluster.table.index[name]
                used[row] += sign * cluster.vector(pod.usage)
                assumed[row] += sign * np.array(non_zero_requests(pod.usage, pod.pod_class.unrequested))
    return cluster.with_usage(used, assumed, cluster.ports, cluster.pod_index)


def costs_of_all_plans(
    cluster: Snapshot,
    policies: Mapping[str, Policy],
    leave: Collection[RunningPod],
    move: Collection[RunningPod],
    prices: Mapping[tuple[RunningPod, bool], int] | None = None,
    keeps: Callable[[Collection[RunningPod], Sequence[PendingPod]], bool] = lambda _leavers, _come: True,
) -> Iterator[int]:
    """The cost of each plan.

    Args:
        leave, move: running pods that may leave, and that may move.
        prices: of a pod that leaves, and that moves (True); None: those of the policies.
        keeps: whether a plan in which these leave and those come keeps the limits.
    """
    prices = leaving_prices_of(cluster, policies) if prices is None else prices
    demands, names = priced_demands(cluster, policies), [node.name for node in cluster.table.nodes]
    pods = list(dict.fromkeys([*leave, *move]))
    ways = [
        [None, *([""] if pod in leave else []), *((name for name in names if name != pod.node) if pod in move else ())]
        for pod in pods
    ]
    for chosen in product(*ways):
        staying = beside(cluster, {pod: to for pod, to in zip(pods, chosen, strict=True) if to is not None})
        moved_to = {cluster.table.index[to] for to in chosen if to}
        if any((staying.free[row] < 0).any() for row in moved_to):
            continue
        start = Plan(staying)
        extra = sum(prices.get((pod, bool(to)), 0) for pod, to in zip(pods, chosen, strict=True) if to is not None)
        for commits in all_plans(demands, start):
            come = [pod for number, count in _counts(commits) for pod in demands[number].group.pods[:count]]
            leavers = [pod for pod, to in zip(pods, chosen, strict=True) if to is not None]
            if _has_gangs_whole(demands, commits) and keeps(leavers, come):
                yield extra + Objective(demands, start).total(commits)


def _counts(commits: Sequence[Commit]) -> Iterable[tuple[int, int]]:
    """How many pods of each demand are placed."""
    return Counter(commit.demand for commit in commits).items()


def _has_gangs_whole(demands: Sequence[Demand], commits: Sequence[Commit]) -> bool:
    """Whether all pods of a demand are placed or none, if they are in a gang."""
    placed = Counter(commit.demand for commit in commits)
    return all(placed[place] in (0, demand.count) for place, demand in enumerate(demands) if demand.group.pods[0].gangs)


def cost_of(cluster: Snapshot, policies: Mapping[str, Policy], result: RoundResult) -> int:
    """What a plan costs: its placements beside what stays, all that waits, and who leaves."""
    demands = priced_demands(cluster, policies)
    number = {pod.key: place for place, demand in enumerate(demands) for pod in demand.group.pods}
    commits: Sequence[Commit] = [
        Commit(number[each.pod.key], cluster.table.index[each.node], 1) for each in result.placements
    ]
    start = Plan(beside(cluster, {each.pod: each.to for each in result.evictions}))
    prices = {
        pod.key: int(price) for demand in demands for pod, price in zip(demand.group.pods, demand.prices, strict=True)
    }
    leaving = leaving_prices_of(cluster, policies)
    return (
        Objective(demands, start).placed(commits)
        + sum(prices[each.pod.key] for each in result.unplaced)
        + sum(leaving[each.pod, bool(each.to)] for each in result.evictions)
    )


def leaving_prices_of(cluster: Snapshot, policies: Mapping[str, Policy]) -> dict[tuple[RunningPod, bool], int]:
    """What it costs that a running pod leaves, and that it moves: its start-up, by what it holds in tenths of a node.

    None of the pods runs to an end.
    """
    everything = cluster.allocatable.sum(axis=0)
    offering = (cluster.allocatable > 0).sum(axis=0)
    prices = dict[tuple[RunningPod, bool], int]()
    for pod in cluster.running.pods if cluster.running is not None else ():
        policy, usage = policies[pod.policy], cluster.vector(pod.usage)
        share = max(
            float(used * count / max(total, 1)) for used, count, total in zip(usage, offering, everything, strict=True)
        )
        rate = policy.unscheduled.per_waiting_second * max(1.0, 10 * share)
        prices[pod, False] = prices[pod, True] = int(policy.rescheduling.startup * rate)
    return prices


def keeps_shares(cluster: Snapshot, leavers: Collection[RunningPod], come: Collection[PendingPod]) -> bool:
    """Whether each queue had more than its fair share until the last of some pods left it, beside all that come."""
    shares = Shares(cluster)
    for queue in {pod.queue for pod in leavers}:
        members = [pod for pod in leavers if pod.queue == queue]
        held = shares.used[queue] + sum(shares.added_by(pod) for pod in come if pod.queue == queue)
        held = held - sum(shares.request(pod.usage) for pod in members)
        before_last = max(shares.dominant(held + shares.request(pod.usage)) for pod in members)
        if before_last <= shares.fair_share[queue]:
            return False
    return True
