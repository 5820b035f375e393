"""Every plan of a small cluster with rules between pods that some order leads to, whoever leaves or moves meanwhile."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from support.plans_with_leavers import beside, leaving_prices_of, priced_demands

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.model.running_pods import RunningPod
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import run_filters

#: Who has left so far, by key, and where to ("": no other node); and pods by demand and node.
_State = tuple[frozenset[tuple[str, str]], frozenset[tuple[tuple[int, int], int]]]


def without_leavers(cluster: Snapshot, leavers: Mapping[RunningPod, str]) -> Snapshot:
    """``beside``, where rules between pods see who has left, and where they are then."""
    changed = beside(cluster, leavers)
    pod_index = changed.pod_index.with_changes(
        [(to, pod.signature) for pod, to in leavers.items() if to], [(pod.node, pod.signature) for pod in leavers]
    )
    return changed.with_usage(changed.used, changed.non_zero_requested, changed.ports, pod_index)


def _with_placements(snapshot: Snapshot, demands: Sequence[Demand], placed: Mapping[tuple[int, int], int]) -> Snapshot:
    used, assumed = snapshot.used.copy(), snapshot.non_zero_requested.copy()
    come = []
    for (number, node), count in placed.items():
        group = demands[number].group
        used[node] += demands[number].requests * count
        assumed[node] += np.array(group.pod_class.non_zero_requests) * count
        come += [(snapshot.table.nodes[node].name, group.signature)] * count
    return snapshot.with_usage(used, assumed, snapshot.ports, snapshot.pod_index.with_changes(come))


def costs_of_reachable_plans(
    cluster: Snapshot,
    policies: Mapping[str, Policy],
    leave: Collection[RunningPod],
    move: Collection[RunningPod],
    may_leave: Callable[[Collection[RunningPod]], bool] = lambda _: True,
) -> Iterator[int]:
    """The cost of each plan: pods come one by one where every filter passes, before or after others have left.

    Args:
        leave, move: running pods that may leave, and that may move.
        may_leave: whether some may do so together.
    """
    demands, names = priced_demands(cluster, policies), [node.name for node in cluster.table.nodes]
    pods = {pod.key: pod for pod in (*leave, *move)}
    ways = {
        key: [*([""] if pod in leave else []), *((name for name in names if name != pod.node) if pod in move else ())]
        for key, pod in pods.items()
    }
    prices = leaving_prices_of(cluster, policies)
    first: _State = (frozenset(), frozenset())
    seen, waiting = {first}, [first]
    while waiting:
        left, placed = waiting.pop()
        leavers = {pods[key]: to for key, to in left}
        staying = without_leavers(cluster, leavers)
        counts = dict(placed)
        commits = [Commit(number, node, count) for (number, node), count in sorted(counts.items())]
        leaving = sum(prices[pod, bool(to)] for pod, to in leavers.items())
        yield Objective(demands, Plan(staying)).total(commits) + leaving
        after = _with_placements(staying, demands, counts)
        further: list[_State] = []
        for number, demand in enumerate(demands):
            if sum(count for (of, _), count in counts.items() if of == number) < demand.count:
                fits = run_filters(demand.group.pod_class, after, demand.group.signature).fits
                for node in np.nonzero(fits)[0].tolist():
                    more = counts | {(number, node): counts.get((number, node), 0) + 1}
                    further.append((left, frozenset(more.items())))
        for key, targets in ways.items():
            if pods[key] in leavers or not may_leave([*leavers, pods[key]]):
                continue
            for to in targets:
                row = cluster.table.index.get(to, -1)
                if row < 0 or bool((after.free[row] >= after.vector(pods[key].usage)).all()):
                    further.append((left | {(key, to)}, placed))
        for state in further:
            if state not in seen:
                seen.add(state)
                waiting.append(state)
