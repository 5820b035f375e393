"""One row of the engine's table: what was planned, by which method, how well, and what it took."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Fields that do not apply stay None and are left out of the JSON.

    Attributes:
        part: sizes, networks, growth, classes, quality or openb.
        load: as asked for; the instance modules say how it is defined.
        scarcest, asked, pressure: the resource that most is asked of; what running and waiting pods ask for over what
            there is of it; what waiting pods ask for over what is free (in the JSON only).
        fewest: pods that any plan at all must leave out, as the engine proves it, or CP-SAT (quality).
        gpus, stranded: allocated, and free ones that no waiting pod can use (openb).
        cpu_seconds: of the round alone, all its threads together.
        again_seconds: the same of the same round once more, with what it looked up of the nodes still there.
        goal: what is to be reached, in words.
        reached: whether it was.
        peak_mib: highest resident size of the process that held the snapshot and planned it.
        cost: by the engine's own prices, those of pods left out included.
        gap: (cost - the engine's lower bound) / cost.
        safe: "yes", or what is wrong with the plan.
    """

    part: str
    case: str
    method: str
    load: float | None = None
    scarcest: str = ""
    asked: float | None = None
    pressure: float | None = None
    placed: int | None = None
    left: int | None = None
    fewest: int | None = None
    gpus: int | None = None
    stranded: int | None = None
    cpu_seconds: float | None = None
    again_seconds: float | None = None
    goal: str = ""
    reached: bool | None = None
    peak_mib: float | None = None
    solves: int | None = None
    cost: int | None = None
    gap: float | None = None
    certified: bool | None = None
    safe: str | None = None
    note: str = ""
