"""How far a pod is with what it needs before its binding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Progress(Enum):
    """How far a pod is with one kind of its claims."""

    PENDING = "pending"
    READY = "ready"
    #: It does not get what was planned.
    FAILED = "failed"
    #: The same, and on other nodes it may: no volume is provisioned for this node.
    NODE_REFUSED = "node-refused"
    #: The same, since others took it meanwhile.
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class ClaimsState:
    """How far a pod is with one kind of its claims, by what the watch shows.

    Attributes:
        message: what the pod is told, a sentence; "": nothing.
        is_written: whether the watch shows what was written for them.
    """

    progress: Progress
    message: str = ""
    is_written: bool = True


#: It has no such claims, or they have all that they need.
READY = ClaimsState(Progress.READY)
