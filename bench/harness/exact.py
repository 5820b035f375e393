"""The fewest pods that any plan must leave out: CP-SAT over whole classes and nodes, sharing nothing with the engine.

Variables: pods of each class on each node. Constraints: each resource of each node, the pods that there are. Objective:
most pods placed. What it finds bounds the engine's plan from one side, what it proves from the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from flowcore.model.pods import PodClass
from harness.rechecks import Checker, Placed


@dataclass(frozen=True, slots=True)
class Exact:
    """What the solver found and proved.

    Attributes:
        placed: its plan.
        left: pods that its plan leaves out.
        fewest: pods that every plan leaves out.
    """

    placed: list[Placed]
    left: int
    fewest: int


def fewest_left(checker: Checker, hint: Iterable[Placed], seconds: float, workers: int) -> Exact:
    """Solves for at most so many seconds, starting from a plan that is known."""
    snapshot = checker.snapshot
    pods = Counter(pod.pod_class for pod in snapshot.pending)
    hinted = Counter((pod.pod_class, at) for pod, at in hint)
    free = checker.free()
    # Common divisors of each resource keep the numbers small.
    units = np.gcd.reduce(np.array([checker.wanted(each) for each in pods]), axis=0)
    units = np.maximum(units, 1)
    model = cp_model.CpModel()
    taken: dict[tuple[PodClass, int], cp_model.IntVar] = {}
    for asked, count in pods.items():
        wanted = checker.wanted(asked)
        used = wanted > 0
        for at in np.nonzero(checker.fits(asked, free))[0].tolist():
            most = min(count, int((free[at, used] // wanted[used]).min()))
            taken[asked, at] = model.new_int_var(0, most, "")
            model.add_hint(taken[asked, at], hinted[asked, at])
        model.add(sum(var for (other, _), var in taken.items() if other == asked) <= count)
    for at in range(len(free)):
        here = [(checker.wanted(asked) // units, var) for (asked, node), var in taken.items() if node == at]
        for column, room in enumerate((free[at] // units).tolist()):
            terms = [int(wanted[column]) * var for wanted, var in here if wanted[column]]
            if terms:
                model.add(sum(terms) <= room)
    model.maximize(sum(taken.values()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"CP-SAT: {solver.status_name(status)}")
    total = sum(pods.values())
    waiting = {asked: [pod for pod in snapshot.pending if pod.pod_class == asked] for asked in pods}
    placed = [(waiting[asked].pop(), at) for (asked, at), var in taken.items() for _ in range(int(solver.value(var)))]
    return Exact(placed, total - len(placed), total - int(np.floor(solver.best_objective_bound + 1e-6)))
