"""Slowdowns by a regression over finished pods.

The logarithm of a pod's run time is taken as a sum: a part for its work, one for its machine, and one for each
neighbour. Only pods of the same work are compared with each other, so works may be of any length. Least squares give
each part with its standard error. What is not known well enough is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.model.cost_policy import CostPolicy
from flowcore.model.workload_kinds import NORMAL_SPEED, Interference, Machines

_Float64s = NDArray[np.float64]

#: A part is used if its standard error is no greater: the slowdown is known within some ten hundredths.
_MOST_ERROR = 0.05
#: Pods beyond the unknowns of the regression that there must be.
_LEAST_FREEDOM = 10
#: So that parts that no pod tells apart come out as unknown, and not as an error.
_RIDGE = 1e-6
#: Run times are known to some hundredths at best, however well they fit.
_LEAST_DEVIATION = 0.02
#: No slowdown is taken to be greater.
_MOST_SLOWDOWN = 100.0


class Observation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A finished pod of some kind.

    Attributes:
        beside: mean number of pods of each kind beside it.
        log_seconds: the logarithm of its run time.
        end: when it ended, seconds since the epoch; never later than it was learnt from.
    """

    work: str
    machine: str
    beside: tuple[float, ...]
    log_seconds: float
    end: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known of pods of one kind.

    Attributes:
        penalties: position of another kind -> by how many thousandths one such neighbour makes a pod slower.
        slowdowns: kind of machine -> slowdown in thousandths; the fastest known has 1000.
    """

    penalties: dict[int, int] = field(default_factory=dict)
    slowdowns: dict[str, int] = field(default_factory=dict)


def estimates(observations: Sequence[Observation], kinds: int) -> Estimates:
    """What finished pods of one kind tell, in hundredths; nothing where they are too few."""
    works: dict[str, int] = {}
    work_of = np.array([works.setdefault(observation.work, len(works)) for observation in observations], dtype=np.int64)
    machines, runs_on, counts = np.unique(
        [each.machine for each in observations], return_inverse=True, return_counts=True
    )
    freedom = len(observations) - len(works) - kinds - len(machines) + 1
    if freedom < _LEAST_FREEDOM:
        return Estimates()
    # Other machines are compared with the machine on which most pods ran.
    base = int(np.argmax(counts))
    others = np.delete(np.arange(len(machines)), base)
    beside = np.array([each.beside for each in observations])
    inputs = np.hstack((beside, runs_on[:, np.newaxis] == others))
    parts, errors = _least_squares(
        _within_works(inputs, work_of),
        _within_works(np.array([[observation.log_seconds] for observation in observations]), work_of),
        freedom,
    )
    known = errors <= _MOST_ERROR
    slower = {str(machines[base]): 1.0} | {
        str(machines[machine]): float(np.exp(parts[kinds + place]))
        for place, machine in enumerate(others)
        if known[kinds + place]
    }
    fastest = min(slower.values())
    return Estimates(
        penalties={kind: _rounded((float(np.exp(parts[kind])) - 1) * 1000) for kind in range(kinds) if known[kind]},
        slowdowns={machine: _rounded(slowdown / fastest * NORMAL_SPEED) for machine, slowdown in slower.items()}
        if len(slower) > 1
        else {},
    )


def _within_works(values: _Float64s, works: NDArray[np.int64]) -> _Float64s:
    """float64[P, K] less the means of each work."""
    count = np.bincount(works)[:, np.newaxis]
    sums = np.zeros((len(count), values.shape[1]))
    np.add.at(sums, works, values)
    within: _Float64s = values - (sums / count)[works]
    return within


def _least_squares(inputs: _Float64s, outcome: _Float64s, freedom: int) -> tuple[_Float64s, _Float64s]:
    """float64[K] parts and their standard errors, of float64[P, K] inputs and float64[P, 1] outcomes."""
    inverse = np.linalg.inv(inputs.T @ inputs + _RIDGE * np.eye(inputs.shape[1]))
    parts = (inverse @ inputs.T @ outcome)[:, 0]
    left = outcome[:, 0] - inputs @ parts
    deviation = max(float(np.sqrt(left @ left / freedom)), _LEAST_DEVIATION)
    return parts, deviation * np.sqrt(np.maximum(np.diag(inverse), 0.0))


def _rounded(thousandths: float) -> int:
    """To hundredths, none negative: so that a few more pods do not give another plan."""
    return 10 * round(min(max(thousandths, 0.0), _MOST_SLOWDOWN * NORMAL_SPEED) / 10)


def with_estimates(cost: CostPolicy, learnt: Sequence[Estimates]) -> CostPolicy:
    """The costs with what is learnt in place of what the policy states.

    Args:
        learnt: of each kind of the policy.
    """
    interference, machines = cost.interference, cost.machines
    if interference is not None:
        penalties = tuple(
            tuple(known.penalties.get(beside, stated) for beside, stated in enumerate(row))
            for row, known in zip(interference.penalties, learnt, strict=True)
        )
        interference = Interference(penalties)
    if machines is not None:
        slowdowns = {(kind, machine): slowdown for kind, machine, slowdown in machines.slowdowns}
        for kind, known in zip(cost.kinds, learnt, strict=True):
            slowdowns |= {(kind.name, machine): slowdown for machine, slowdown in known.slowdowns.items()}
        machines = Machines(machines.label, tuple((*key, value) for key, value in slowdowns.items()))
    return msgspec.structs.replace(cost, interference=interference, machines=machines)
