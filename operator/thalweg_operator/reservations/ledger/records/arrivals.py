"""In which order pods came to nodes: what a node costs one more pod is known until the next one comes."""

from __future__ import annotations

from bisect import bisect_right, insort
from operator import itemgetter

from flowcore.model.pods import PodClass
from flowcore.model.resources import non_zero_requests

_number = itemgetter(0)


class Arrivals:
    """Numbers the arrivals of pods on nodes, and the plans that are asked for.

    Attributes:
        last: the highest number so far.
        plan: the number of all that the plan in hand places. What came since it was asked for has a higher one.
    """

    def __init__(self) -> None:
        self.last = self.plan = 0
        #: Of the pods that came to each node their numbers, in this order, and what they take as costs count it.
        self._on: dict[str, list[tuple[int, int, int]]] = {}

    def begin_plan(self) -> None:
        """A plan is asked for: what comes from now on it does not know."""
        self.last += 1
        self.plan = self.last

    def add(self, node: str, pod_class: PodClass, *, planned: bool = False) -> None:
        """A pod came to a node, or is to come there.

        Args:
            planned: by the plan in hand, whose prices know of it.
        """
        if not planned:
            self.last += 1
        taken = non_zero_requests(pod_class.requests, pod_class.unrequested)
        insort(self._on.setdefault(node, []), (self.plan if planned else self.last, *taken), key=_number)

    def since(self, node: str, number: int) -> tuple[int, int] | None:
        """Milli-cores and bytes of memory of the pods that came to a node after this number; None: none came."""
        on_node = self._on.get(node, ())
        came = on_node[bisect_right(on_node, number, key=_number) :]
        return (sum(cpu for _, cpu, _ in came), sum(memory for *_, memory in came)) if came else None

    def __len__(self) -> int:
        """Nodes that are remembered."""
        return len(self._on)

    def forget_until(self, number: int | None) -> None:
        """Forgets arrivals with this number or a lower one; None: all."""
        if number is None:
            self._on = {}
        else:
            self._on = {
                node: came[bisect_right(came, number, key=_number) :]
                for node, came in self._on.items()
                if came[-1][0] > number
            }
