"""An atomic group that waits for victims: nobody is evicted for it, and none of its pods comes, unless it is whole."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class WaitingGroup:
    """One atomic group that waits.

    Attributes:
        members: keys of its pods with a reservation that waits.
        required: keys of the pods that it needs.
        lost: how many of those have lost their reservation.
        deleting: how many victims of its pods are being deleted; a victim of two pods counts twice.
    """

    members: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    lost: int = 0
    deleting: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every required pod waits."""
        return self.lost == 0

    def add(self, key: str, *, optional: bool) -> None:
        """A pod has its reservation."""
        self.members.add(key)
        if not optional:
            self.required.add(key)

    def leave(self, key: str, *, confirmed: bool) -> None:
        """A pod waits no more: a round has confirmed its place, or its reservation ended."""
        self.members.discard(key)
        if confirmed:
            self.required.discard(key)
        elif key in self.required:
            self.lost += 1
