"""How good a plan is, in pods: how many it leaves, and how many every plan leaves."""

from __future__ import annotations

import msgspec


class LeftAtLeast(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan leaves, and what no plan can beat, plans that evict or move running pods among them.

    Attributes:
        waiting: pods of the round that the plan leaves.
        pods: no plan leaves fewer; 0: nothing is known.
        resource: the extended resource that these pods ask for most; "": none.
        asked: how much of it the pods ask for that the plan leaves.
        amount: pods that ask for less of it together are left by no plan; 0: nothing is known.
    """

    waiting: int
    pods: int
    resource: str = ""
    asked: int = 0
    amount: int = 0

    @property
    def sentence(self) -> str:
        """For people; "": nothing is known. "66 pods wait; no plan leaves fewer than 60"."""
        if not self.pods:
            return ""
        wait = "1 pod waits" if self.waiting == 1 else f"{self.waiting:,} pods wait"
        ask = f" ({self._asked}; no plan leaves fewer{_than(self.amount, self.asked)})" if self.amount else ""
        return f"{wait}; no plan leaves fewer{_than(self.pods, self.waiting)}{ask}"

    @property
    def sentence_of_all(self) -> str:
        """The same, beside pods of which only some are listed."""
        return f"in the whole cluster {self.sentence}" if self.sentence else ""

    @property
    def _asked(self) -> str:
        whom, unit = "it asks" if self.waiting == 1 else "they ask", self.resource
        if unit.endswith("/gpu"):
            unit = "GPU" if self.asked == 1 else "GPUs"
        return f"{whom} for {self.asked:,} {unit}"


def _than(least: int, left: int) -> str:
    """The end of "no plan leaves fewer"; "" where the plan leaves the least."""
    return "" if least == left else f" than {least:,}"
