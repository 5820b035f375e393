"""In which order pods came to nodes: what a node costs one more pod is known until the next one comes."""

from __future__ import annotations


class Arrivals:
    """Numbers the arrivals of pods on nodes, and the plans that are asked for.

    Attributes:
        last: the highest number so far.
        plan: the number of all that the plan in hand places. What came since it was asked for has a higher one.
    """

    def __init__(self) -> None:
        self.last = self.plan = 0
        self._on: dict[str, int] = {}

    def begin_plan(self) -> None:
        """A plan is asked for: what comes from now on it does not know."""
        self.last += 1
        self.plan = self.last

    def add(self, node: str, *, planned: bool = False) -> None:
        """A pod came to a node, or is to come there.

        Args:
            planned: by the plan in hand, whose prices know of it.
        """
        if planned:
            self._on[node] = max(self.plan, self._on.get(node, 0))
        else:
            self.last += 1
            self._on[node] = self.last

    def any_since(self, node: str, number: int) -> bool:
        """Whether a pod came to a node after this number."""
        return self._on.get(node, 0) > number

    def __len__(self) -> int:
        """Nodes that are remembered."""
        return len(self._on)

    def forget_until(self, number: int | None) -> None:
        """Forgets arrivals with this number or a lower one; None: all."""
        self._on = {} if number is None else {node: last for node, last in self._on.items() if last > number}
