"""Nodes that could be empty: their pods fit on others that are in use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, PendingPod
from flowcore.model.nodes import Node
from flowcore.model.running_pods import RunningPod
from flowcore.planning.round import run_round
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import CountedRoom, RoomPrices
from flowcore.questions.audit.finding import PARTS, AuditFinding, FindingKind, StepAction, WitnessStep
from flowcore.questions.audit.sentences import counted, do, plan_words
from flowcore.questions.audit.witness import lost_seconds, prices_of
from flowcore.questions.scenario.alternatives.unneeded_nodes import most_together

_TO_BE_EMPTY = "it is to be empty"
#: Kinds of nodes with prices of their own, and ever fewer bits of their room, until there are no more kinds than that.
_MOST_POOLS, _LEADING_BITS = 96, (63, 6, 4, 3, 2, 1)
#: Plans that are made at most.
_MOST_PLANS = 24


def empty_nodes(cluster: AuditedCluster) -> tuple[AuditFinding, list[WitnessStep]]:
    """The finding and its witness.

    Pods of DaemonSets and static pods leave a node empty; pods that wait do not count.
    """
    pods_on = _pods_on_nodes(cluster)
    steps = _witness(cluster, pods_on)
    emptied = len({step.from_node for step in steps})
    at_most, prices, room = _bound(cluster, pods_on)
    sentence = "no node holds pods"
    if pods_on:
        outcome = plan_words(emptied, at_most, len(pods_on), steps, "empties")
        sentence = f"{counted(len(pods_on), 'node')} {do(len(pods_on), 'hold')} pods; {outcome}"
    finding = AuditFinding(
        kind=FindingKind.EMPTY_NODES,
        now=len(pods_on),
        at_least=emptied,
        at_most=at_most,
        sentence=sentence,
        plan=FindingKind.EMPTY_NODES if steps else "",
        bound=room.bound(prices),
        counted=sorted(pods_on),
    )
    return finding, steps


def _pods_on_nodes(cluster: AuditedCluster) -> dict[str, list[RunningPod]]:
    """The pods that keep each node from being empty, by its name."""
    pods, pods_on = cluster.scenario.cluster.pods, defaultdict[str, list[RunningPod]](list)
    for pod in cluster.running:
        if not (pods[pod.key].permanent or pods[pod.key].static):
            pods_on[pod.node].append(pod)
    return dict(pods_on)


# --- bound ---


def _bound(cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]]) -> tuple[int, RoomPrices, CountedRoom]:
    """No plan empties more of these nodes; the prices that show it, and the room.

    A node is empty, which counts for one, or its room is given back at its price.
    """
    room = CountedRoom.of(cluster.snapshot, (), cluster.movable)
    movable = {pod.key for pod in cluster.movable}
    never = {name for name, pods in pods_on.items() if not all(pod.key in movable for pod in pods)}
    may_be_empty = np.array([name not in never for name in room.names], dtype=np.bool_)
    empty_now = len(room.names) - len(pods_on)
    bounds = [(most_empty(room, prices, may_be_empty) - empty_now, prices) for prices in _prices(room)]
    at_most, prices = min(bounds, key=lambda bound: bound[0])
    return at_most, prices, room


def most_empty(room: CountedRoom, prices: RoomPrices, may_be_empty: Bools) -> int:
    """No plan has more empty nodes.

    Args:
        may_be_empty: bool[N], nodes without pods that stay.
    """
    total = room.net_price(prices)
    for worth, may in zip(room.worth_of_nodes(prices), may_be_empty.tolist(), strict=True):
        total += max(0, PARTS - worth) if may else 0
    return total // PARTS


def _prices(room: CountedRoom) -> Iterator[RoomPrices]:
    """Prices by which all room of a node is worth one: of each resource alone, and of all alike.

    Where nodes are alike that is the bound in fractions of packing vectors into bins.
    """
    yield RoomPrices.nothing(len(room.names))
    kinds, pools = _pools(room.room)
    resources = len(room.resources)
    shares = [*np.eye(resources, dtype=np.int64).tolist(), [1] * resources]
    for share in shares:
        parts = PARTS // sum(share)
        rows = [
            [parts * asked // amount if amount else 0 for asked, amount in zip(share, amounts, strict=True)]
            for amounts in kinds
        ]
        yield RoomPrices(pools, rows)


def _pools(room: Int64s) -> tuple[list[list[int]], Int64s]:
    """Kinds of nodes by their room, int64[N, R], and int64[N], the kind of each.

    Where there are many, nodes are alike whose room has the same leading bits; of a kind no node has more room.
    """
    for bits in _LEADING_BITS:
        rounded = np.array([[_rounded_up(amount, bits) for amount in amounts] for amounts in room.tolist()])
        kinds, pools = np.unique(rounded.reshape(room.shape), axis=0, return_inverse=True)
        if len(kinds) <= _MOST_POOLS:
            break
    return kinds.tolist(), pools.ravel().astype(np.int64)


def _rounded_up(amount: int, bits: int) -> int:
    """The next number that has no more than so many leading bits."""
    dropped = max(0, amount.bit_length() - bits)
    return -(-amount >> dropped) << dropped


# --- witness ---


def _witness(cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]]) -> list[WitnessStep]:
    """Moves that empty as many nodes together as plans were found for, those with the least to move first."""
    trials = _Trials(cluster, pods_on)
    nodes = _candidates(cluster, pods_on)
    _, steps = most_together(nodes, len(nodes), trials.moves, lambda: trials.plans < _MOST_PLANS)
    return steps or []


def _candidates(cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]]) -> list[str]:
    """Nodes whose pods may all move together with those of the nodes before, those with the least to move first.

    Pods with rules about other pods or host ports stay: they could not move one after the other in any order.
    """
    snapshot, running = cluster.snapshot, cluster.snapshot.running
    budgets = Counter[str]() if running is None else Counter(running.budgets)
    index = snapshot.table.index
    share = (snapshot.used / np.maximum(snapshot.allocatable, 1)).max(axis=1)
    chosen, moves = list[str](), 0
    for name in sorted(pods_on, key=lambda name: (len(pods_on[name]), share[index[name]], name)):
        pods = pods_on[name]
        asked = Counter(budget for pod in pods for budget in pod.budgets)
        if (
            moves + len(pods) <= cluster.most_moves
            and all(_moves_alone(pod) for pod in pods)
            and all(budgets[budget] >= count for budget, count in asked.items())
        ):
            chosen.append(name)
            budgets.subtract(asked)
            moves += len(pods)
    return chosen


def _moves_alone(pod: RunningPod) -> bool:
    bound = pod.immovable_reason or pod.unevictable_reason or pod.signature.constraints is not None
    return not (bound or pod.pod_class.host_ports or pod.pod_class.devices is not None)


class _Trials:
    """Plans in which the pods of some nodes go to others that are in use, all in the cluster as it is.

    Attributes:
        plans: how many were made.
    """

    def __init__(self, cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]]) -> None:
        self._cluster, self._pods_on = cluster, pods_on
        table = cluster.snapshot.table
        self._in_use = table.updated(_closed(table, table.index.keys() - pods_on.keys()))
        self.plans = 0

    def moves(self, names: Sequence[str]) -> list[WitnessStep] | None:
        """The moves that empty these nodes; None: the plan has no room for all of their pods."""
        self.plans += 1
        begun, leaving = self._cluster.snapshot, [pod for name in names for pod in self._pods_on[name]]
        snapshot = replace(
            begun,
            table=self._in_use.updated(_closed(self._in_use, names)),
            pending=tuple(map(_as_waiting, leaving)),
            gangs={},
            running=None,
            pod_index=begun.pod_index.with_changes((), [(pod.node, pod.signature) for pod in leaving]),
        )
        result = run_round(snapshot, self._cluster.prepared.learnt, self._cluster.models)
        to = {placement.pod.key: placement.node for placement in result.placements}
        if len(to) < len(leaving):
            return None
        prices = prices_of(leaving, begun, self._cluster.prepared.learnt)
        return [
            WitnessStep(StepAction.MOVE, pod.key, to[pod.key], pod.node, price, lost_seconds(pod, begun.now))
            for pod, price in zip(leaving, prices, strict=True)
        ]


def _closed(table: NodeTable, names: Iterable[str]) -> list[Node]:
    """These nodes as nodes that take no pod."""
    return [msgspec.structs.replace(table.nodes[table.index[name]], problem=_TO_BE_EMPTY) for name in names]


def _as_waiting(pod: RunningPod) -> PendingPod:
    """Its replacement, which counts for its queue already."""
    return PendingPod(pod.key, pod.uid, pod.pod_class, pod.policy, pod.started, pod.signature, preempts=False)
