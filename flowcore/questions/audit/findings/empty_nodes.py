"""Nodes that could be empty: fewer nodes hold all pods that run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.model.amount_text import counted
from flowcore.model.running_pods import RunningPod
from flowcore.planning.evictions.moves.move_prices import seconds_run
from flowcore.planning.round import run_round
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import CountedRoom, RoomPrices
from flowcore.questions.audit.finding import PARTS, AuditFinding, FindingKind, PriceBound, StepAction, WitnessStep
from flowcore.questions.audit.findings.consolidation import Consolidation, PodMove, in_legal_order
from flowcore.questions.audit.findings.fewest_nodes import FewestNodes, fewest_nodes
from flowcore.questions.audit.sentences import do, plan_words
from flowcore.questions.audit.witness import prices_of


def empty_nodes(cluster: AuditedCluster) -> tuple[AuditFinding, list[WitnessStep]]:
    """The finding and its witness.

    Pods of DaemonSets and static pods leave a node empty; pods that wait do not count.
    """
    pods_on = _pods_on_nodes(cluster)
    room, may_be_empty = _room(cluster, pods_on)
    fewest = fewest_nodes(room, may_be_empty)
    at_most, bound = _bound(room, may_be_empty, fewest)
    at_most -= len(room.names) - len(pods_on)
    steps = _witness(cluster, pods_on, fewest)
    after = _in_use_after(pods_on, steps)
    emptied, filled = len(pods_on) - len(after), len(after - pods_on.keys())
    sentence = "no node holds pods"
    if pods_on:
        outcome = plan_words(emptied, at_most, len(pods_on), steps, "empties")
        sentence = f"{counted(len(pods_on), 'node')} {do(len(pods_on), 'hold')} pods; {outcome}"
    if filled:
        sentence += f"; the plan empties {emptied + filled:,} and fills {counted(filled, 'empty node')}"
    finding = AuditFinding(
        kind=FindingKind.EMPTY_NODES,
        now=len(pods_on),
        at_least=emptied,
        at_most=at_most,
        sentence=sentence,
        plan=FindingKind.EMPTY_NODES if steps else "",
        bound=bound,
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


def _room(cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]]) -> tuple[CountedRoom, Bools]:
    """The room of the nodes, and bool[N], nodes without pods that stay."""
    room = CountedRoom.of(cluster.snapshot, (), cluster.movable)
    movable = {pod.key for pod in cluster.movable}
    never = {name for name, pods in pods_on.items() if not all(pod.key in movable for pod in pods)}
    return room, np.array([name not in never for name in room.names], dtype=np.bool_)


def _bound(room: CountedRoom, may_be_empty: Bools, fewest: FewestNodes | None) -> tuple[int, PriceBound]:
    """No plan has more empty nodes; the prices that show it."""
    nothing = RoomPrices.nothing(len(room.names))
    bounds = [(most_empty(room, nothing, may_be_empty), room.bound(nothing))]
    if fewest is not None:
        bounds.append((most_empty(room, fewest.prices, may_be_empty), room.bound(fewest.prices)))
    return min(bounds, key=lambda bound: bound[0])


def most_empty(room: CountedRoom, prices: RoomPrices, may_be_empty: Bools) -> int:
    """No plan has more empty nodes.

    A node is empty, which counts for one, or its room is given back at its price.

    Args:
        may_be_empty: bool[N], nodes without pods that stay.
    """
    total = room.net_price(prices)
    for worth, may in zip(room.worth_of_nodes(prices), may_be_empty.tolist(), strict=True):
        total += max(0, PARTS - worth) if may else 0
    return total // PARTS


# --- witness ---


def _witness(
    cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]], fewest: FewestNodes | None
) -> list[WitnessStep]:
    """Moves after which fewer nodes hold pods."""
    search, scarce = Consolidation(cluster, pods_on), [*_scarce(cluster, pods_on, fewest)]
    for others in (False, True):
        search.empty_all(others=others)
        for empty in scarce:
            search.fill(empty, others=others)
    steps = _confirmed(cluster, pods_on, search.moves())
    return steps if len(_in_use_after(pods_on, steps)) < len(pods_on) else []


def _in_use_after(pods_on: dict[str, list[RunningPod]], steps: list[WitnessStep]) -> set[str]:
    """Names of the nodes that hold pods once these moves are carried out."""
    to = {step.pod: step.node for step in steps}
    return {to.get(pod.key, name) for name, pods in pods_on.items() for pod in pods}


def _scarce(
    cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]], fewest: FewestNodes | None
) -> Iterator[list[int]]:
    """Positions of the empty nodes of each pool of which more would be in use, were pods not whole; the most first."""
    if fewest is None:
        return
    nodes, pools = cluster.snapshot.table.nodes, fewest.prices.pools.tolist()
    empty = defaultdict[int, list[int]](list)
    in_use = Counter[int]()
    for place, pool in enumerate(pools):
        if nodes[place].name in pods_on:
            in_use[pool] += 1
        elif pool >= 0:
            empty[pool].append(place)
    more = {pool: fewest.in_use[pool] - in_use[pool] for pool in empty}
    for pool in sorted(empty, key=lambda pool: (-more[pool], pool)):
        if more[pool] > 0:
            yield empty[pool]


def _confirmed(
    cluster: AuditedCluster, pods_on: dict[str, list[RunningPod]], moves: list[PodMove]
) -> list[WitnessStep]:
    """The steps of those moves that a round allows, too, as far as they empty nodes, in an order in which all fit."""
    begun = cluster.snapshot
    used = begun.used.copy()
    for move in moves:
        used[move.node] -= begun.vector(move.pod.usage)
    names = [node.name for node in begun.table.nodes]
    leaving = [(move.pod.node, move.pod.signature) for move in moves]
    snapshot = replace(
        begun,
        used=used,
        pending=tuple(_as_waiting(move.pod, names[move.target]) for move in moves),
        gangs={},
        running=None,
        pod_index=begun.pod_index.with_changes((), leaving),
    )
    result = run_round(snapshot, cluster.prepared.policies, cluster.models)
    placed = {placement.pod.key for placement in result.placements}
    moves, begins = [move for move in moves if move.pod.key in placed], {move.node for move in moves if move.empties}
    while True:
        moves = in_legal_order(moves, begun)
        kept = {move.pod.key for move in moves}
        emptied = {node for node in begins if all(pod.key in kept for pod in pods_on[names[node]])}
        if all(move.node in emptied for move in moves if move.empties):
            break
        moves = [move for move in moves if move.node in emptied or not move.empties]
    prices = prices_of([move.pod for move in moves], begun, cluster.prepared.policies)
    return [
        WitnessStep(
            StepAction.MOVE,
            move.pod.key,
            names[move.target],
            move.pod.node,
            price,
            int(seconds_run(move.pod, begun.now)),
        )
        for move, price in zip(moves, prices, strict=True)
    ]


def _as_waiting(pod: RunningPod, node: str) -> PendingPod:
    """Its replacement on a node, which counts for its queue already."""
    pod_class = msgspec.structs.replace(pod.pod_class, node_name=node)
    return PendingPod(pod.key, pod.uid, pod_class, pod.policy, pod.started, pod.signature, preempts=False)
