"""Records of pods whose replacement has a place, moved or preempted, and of gangs that are partially placed."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.victim_record import VictimRecord

#: Departures that count for the limits of moves, and that need a place for the replacement.
MOVES = frozenset({Departure.MIGRATION, Departure.RULE})


@dataclass(slots=True)
class Move:
    """A pod that leaves its node, and the place of its replacement; times are seconds of the monotonic clock.

    Attributes:
        victim: the pod, as it was planned.
        policy: the one that governed it then.
        left: when the pod was first seen to leave; None: it stays until now.
        gone: whether the pod was seen to be gone.
        waits_since: since when a replacement is waited for; from the pod's end, once it is gone.
        by_controller: another controller evicts the pod.
        replacement: key and uid of the pod that has taken the place; None: none has.
    """

    victim: Pod
    policy: Policy
    departure: Departure
    left: float | None = None
    gone: bool = False
    waits_since: float = 0.0
    by_controller: bool = False
    replacement: tuple[str, str] | None = None


@dataclass(slots=True)
class Moves:
    """Moves under way, and those of the last hour.

    Attributes:
        awaited: places that wait for a replacement, by key of their reservation.
        by_owner: these keys by uid of the controller that makes the replacement, the oldest first.
        without_place: pods that are to leave, and whose replacement has no place, by key.
        past: moves whose pod has left, by the same key, the oldest first.
    """

    awaited: dict[str, Move] = field(default_factory=dict)
    by_owner: dict[str, list[str]] = field(default_factory=dict)
    without_place: dict[str, VictimRecord] = field(default_factory=dict)
    past: dict[str, Move] = field(default_factory=dict)

    def add(self, key: str, move: Move) -> None:
        """A place waits for a replacement."""
        self.awaited[key] = move
        self.by_owner.setdefault(move.victim.owner, []).append(key)

    def discard(self, key: str) -> None:
        """A place waits no more, if it waited."""
        move = self.awaited.pop(key, None)
        if move is None:
            return
        keys = self.by_owner[move.victim.owner]
        keys.remove(key)
        if not keys:
            del self.by_owner[move.victim.owner]

    def left(self, key: str, now: float) -> None:
        """A pod was seen to leave: from now on its move counts for an hour."""
        move = self.awaited[key]
        if move.left is None:
            move.left = move.waits_since = now
            if move.departure in MOVES:
                self.past[key] = move

    def forget_before(self, time: float) -> None:
        """Moves that began before that time count no more."""
        for key in [key for key, move in self.past.items() if move.left is not None and move.left < time]:
            del self.past[key]


@dataclass(slots=True)
class PartialSince:
    """What is known of a gang that is partially placed.

    Attributes:
        since: time since when fewer of its pods than it needs have a node.
        stuck_since: time since when what it lacks is not on its way either; None while it is.
        asked: UIDs of its pods whose eviction was asked for, for that.
    """

    since: float
    stuck_since: float | None = None
    asked: set[str] = field(default_factory=set)
