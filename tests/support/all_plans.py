"""Every plan of a small cluster, to compare a plan or a bound with."""

from collections.abc import Iterator, Sequence
from itertools import product

from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan


def all_plans(demands: Sequence[Demand], start: Plan) -> Iterator[list[Commit]]:
    """Every way to place or leave each pod that fits together."""
    pods = [at for at, demand in enumerate(demands) for _ in range(demand.count)]
    for nodes in product((None, *range(len(start.free))), repeat=len(pods)):
        room = start.copy()
        commits = [Commit(at, to, 1) for at, to in zip(pods, nodes, strict=True) if to is not None]
        if all(room.place(demands[commit.demand], commit.node, 1) for commit in commits):
            yield commits
