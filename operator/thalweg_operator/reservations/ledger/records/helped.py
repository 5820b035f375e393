"""What may have given a node to pods that were planned in vain: counted, so that others see whether anything did."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.model.volumes import StorageKey


@dataclass(slots=True)
class Helped:
    """Steps after which a round may place more of the pods that were planned in vain.

    Attributes:
        any_pod: number of steps that may help any pod.
        some: number of steps that gave up room on a node or came to meet rules between pods, and did nothing else.
        freed: nodes that gave up room, since the last call of ``take_freed``.
        rules_met: whether this step may meet a rule between pods that a waiting pod has.
        room_freed: nodes that gave up room in this step.
        stored: storage objects that came, changed or went, since the last call of ``take_stored``.
        storage_changed: whether one did in this step.
    """

    any_pod: int = 0
    some: int = 0
    freed: set[str] = field(default_factory=set)
    rules_met: bool = False
    room_freed: list[str] = field(default_factory=list)
    stored: set[StorageKey] = field(default_factory=set)
    storage_changed: bool = False

    @property
    def total(self) -> int:
        """Number of all these steps."""
        return self.any_pod + self.some

    def free(self, node: str, *, asks: bool = True) -> None:
        """Room came free on a node, or pods there keep others out no more.

        Args:
            asks: False: no round is asked for, the next one knows of it.
        """
        self.freed.add(node)
        if asks:
            self.room_freed.append(node)
        else:
            self.some += 1

    def end_step(self, *, any_pod: bool) -> bool:
        """Counts a step, and returns whether a round may place more after it.

        Args:
            any_pod: whether it did something beside what is noted here.
        """
        some = self.rules_met or bool(self.room_freed) or self.storage_changed
        self.rules_met, self.room_freed, self.storage_changed = False, [], False
        self.any_pod += any_pod
        self.some += some and not any_pod
        return some or any_pod

    def store(self, key: StorageKey) -> None:
        """A storage object came, changed or went."""
        self.stored.add(key)
        self.storage_changed = True

    def take_stored(self) -> frozenset[StorageKey]:
        """The storage objects that came, changed or went since the last call."""
        stored, self.stored = frozenset(self.stored), set()
        return stored

    def take_freed(self) -> frozenset[str]:
        """The nodes that gave up room since the last call."""
        freed, self.freed = frozenset(self.freed), set()
        return freed
