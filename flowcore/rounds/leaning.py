"""What pods of a round are to each other by preference: preferred affinity and anti-affinity, ScheduleAnyway.

A class is priced once, as its round begins, by the pods that run. As pods of the round are placed, what a class prefers
is priced again by the same formulas (costs/preferences.py), with those pods among the ones that run. So its pods are
placed one after the other, as kube-scheduler would have it; only the filling of classes does that. A plan's cost
does not count it: that cost has a bound, and is the same whichever way the plan was made.

Required affinity of pods of the round, which draws others with a weight of 1 in kube-scheduler, is left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.costs.pod_affinity import attraction
from flowcore.costs.preferences import by_attraction, by_crowding
from flowcore.costs.topology_spread import crowding
from flowcore.model.snapshot import Int64s, Snapshot
from flowcore.rounds.demands import Demand
from flowcore.rounds.topology import Counts, Leaning


class Leanings:
    """What one class prefers, as the round goes on."""

    def __init__(self, demand: Demand, leaning: Leaning, snapshot: Snapshot) -> None:
        group = demand.group
        self._leaning, self._allowed, self._weights = leaning, demand.allowed, demand.policy.weights
        table, neighbours = snapshot.table, snapshot.neighbours
        drawn = attraction(group.kind, neighbours, table) if leaning.drawn else None
        self._drawn: Int64s = np.zeros(len(table.nodes), dtype=np.int64) if drawn is None else drawn
        self._crowded = (
            crowding(group.pod_class, group.kind, neighbours, table, demand.allowed) if leaning.crowded else None
        )
        self._first = self._price(self._drawn, np.zeros(len(table.nodes)))

    def more(self, counts: Counts) -> Int64s:
        """int64[N]: what the pods of the round make each node dearer, below zero: cheaper."""
        drawn = self._drawn.copy()
        for counter, weight in self._leaning.drawn:
            drawn += weight * counts.came(counter)
        crowded = np.zeros(len(drawn))
        for counter, each in zip(self._leaning.crowded, self._crowded.weights if self._crowded else (), strict=True):
            crowded += each * counts.came(counter)
        more: Int64s = self._price(drawn, crowded) - self._first
        return more

    def _price(self, drawn: Int64s, more_crowded: Float64s) -> Int64s:
        price = np.zeros(len(drawn), dtype=np.int64)
        if not self._allowed.any():
            return price
        if self._leaning.drawn and self._weights.pod_affinity:
            price += self._weights.pod_affinity * by_attraction(drawn, self._allowed)
        if self._crowded is not None and self._weights.spread:
            crowded = replace(self._crowded, exact=self._crowded.exact + more_crowded)
            price += self._weights.spread * by_crowding(crowded, self._allowed)
        return price
