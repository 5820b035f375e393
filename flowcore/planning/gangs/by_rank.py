"""Which pod of a gang gets which of the nodes of a plan: neighbours in rank are near each other."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.gang_topology import job_and_rank
from flowcore.model.selectors import domain_value
from flowcore.planning.problem.problem import Problem


def by_rank(problem: Problem, number: int, order: Int64s, nodes: Sequence[int]) -> list[int]:
    """The pods of a demand, by their places in its group, for each of its placements in turn.

    Pods of a demand are interchangeable, so a plan is as good whichever of them gets a node. Those of a gang with a
    topology get them in the order of their ranks, from one end of the tree of domains to the other. Pods without a rank
    come last. Of other demands the pods stay in their order.

    Args:
        order: int64[P], places of the pods that may be placed, the first to go first.
        nodes: of each placement; not more than P.
    """
    pods, snapshot = problem.demands[number].group.pods, problem.snapshot
    places: list[int] = order[: len(nodes)].tolist()
    gangs = [snapshot.gangs[name] for name in pods[0].gangs if name in snapshot.gangs]
    levels = list(dict.fromkeys(level for gang in gangs for level in gang.levels))
    if not levels:
        return places
    labels = {node: snapshot.table.nodes[node].labels for node in set(nodes)}
    branches = {node: [domain_value(labels[node], level) or "" for level in levels] for node in labels}
    slots = sorted(range(len(nodes)), key=lambda slot: (branches[nodes[slot]], nodes[slot]))
    ranks = {place: job_and_rank(pods[place].signature.labels) for place in places}
    turns = sorted(places, key=lambda place: (ranks[place] is None, ranks[place] or (), pods[place].key))
    placed = [0] * len(nodes)
    for slot, place in zip(slots, turns, strict=True):
        placed[slot] = place
    return placed
