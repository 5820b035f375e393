"""Regret: what an audit says a plan would do better, and whose placement closed the room for it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ClosingReason(StrEnum):
    """How a placement closed the room of pods that wait."""

    #: None did: the plan uses room that is free.
    OPEN_ROOM = "OpenRoom"
    #: The pod could run elsewhere: the plan moves it there.
    FRAGMENTATION = "Fragmentation"
    #: The pod has a lower priority than those that wait: in the plan it leaves for them.
    PRIORITY_INVERSION = "PriorityInversion"


class ClosedRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that wait though a plan runs them, and the placement that closed their room.

    Attributes:
        waiting: key of the pod that waits; of a gang the first of them by name.
        pods: how many they are: one, or those of a gang.
        pod: key of the pod whose placement closed the room; "": none did.
        scheduler: its scheduler, by name.
        node: where it runs.
        to: where the plan has it; "": it leaves for those that wait.
        placed: when it was placed, in seconds since the epoch: its start, or its creation while it has not started.
    """

    waiting: str
    pods: int
    reason: ClosingReason
    pod: str = ""
    scheduler: str = ""
    node: str = ""
    to: str = ""
    placed: float = 0.0

    @property
    def namespace(self) -> str:
        """Of the pod whose placement closed the room."""
        return self.pod.partition("/")[0]


class RegretFigure(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of one finding of an audit.

    Attributes:
        finding: its kind.
        resource: of stranded room; "": none.
        now: how many there are.
        at_least: by how many fewer there are in a plan.
        at_most: no plan does better.
    """

    finding: str
    resource: str
    now: int
    at_least: int
    at_most: int


class RegretRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What is kept of one audit.

    Attributes:
        time: of the cluster that was audited, in seconds since the epoch.
        figures: of its findings.
        open_pods: pods that wait though the plan runs them in room that is free.
        closed: rooms that placements closed, those that were closed last first. An operator keeps each once while its
            pods wait.
    """

    time: float
    figures: tuple[RegretFigure, ...]
    open_pods: int
    closed: tuple[ClosedRoom, ...]
