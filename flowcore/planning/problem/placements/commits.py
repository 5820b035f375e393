"""A commit: a number of pods of one group that go to one node, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """``count`` pods of demand number ``demand`` to node number ``node``."""

    demand: int
    node: int
    count: int


def pods_by_node(commits: Iterable[Commit]) -> dict[int, dict[int, int]]:
    """For each demand that commits place, how many of its pods on each node."""
    placed: dict[int, dict[int, int]] = {}
    for commit in commits:
        pods = placed.setdefault(commit.demand, {})
        pods[commit.node] = pods.get(commit.node, 0) + commit.count
    return placed
