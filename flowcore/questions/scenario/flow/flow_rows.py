"""A row of a drawn network as it is filled: an arc between two ends, with their names for people."""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.costs.network_model import UNSCHEDULED, Arc, End
from flowcore.model.networks import UNSCHEDULED as UNSCHEDULED_NAME
from flowcore.questions.scenario.flow.flow_arcs import FlowArc


@dataclass(slots=True)
class FlowRow:
    """An arc between two ends.

    Attributes:
        maximum: None: any number.
        price: of the next unit; None: see ``FlowArc``.
        parts: the point whose pods pay a part of what nodes cost beside it; "": none.
        spread: how much more some pods pay than others.
    """

    name: str
    tail: str
    head: str
    from_pods: bool
    to_nodes: bool
    flow: int = 0
    minimum: int = 0
    maximum: int | None = 0
    gain: str = "1"
    price: int | None = None
    whole_or_none: bool = False
    parts: str = ""
    spread: int = 0

    @property
    def state(self) -> str:
        """As ``FlowArc`` says it."""
        if self.maximum is not None and self.flow >= self.maximum:
            return "full" if self.flow == self.maximum else "over"
        may_lack = self.whole_or_none and not self.flow
        return "short" if self.flow < self.minimum and not may_lack else ""

    @property
    def arc(self) -> FlowArc:
        """For people."""
        return FlowArc(
            self.tail,
            self.head,
            self.flow,
            self.minimum,
            self.maximum,
            self.gain,
            self.price,
            None if self.price is None else self.price + self.spread,
            self.state,
            1,
            int(self.state in ("full", "over")),
            self.whole_or_none,
            self.from_pods,
            self.to_nodes,
        )

    def add(self, arc: Arc, units: int) -> None:
        """Counts a part of the arc, with its limits."""
        most = None if arc.maximum is None else int(arc.maximum)
        self.flow, self.minimum = self.flow + units, self.minimum + int(arc.minimum)
        self.maximum = None if self.maximum is None or most is None else self.maximum + most
        self.gain, self.whole_or_none = str(arc.gain), self.whole_or_none or arc.whole_or_none
        if arc.maximum is None or units < arc.maximum:
            self.price = int(arc.cost) if self.price is None else min(self.price, int(arc.cost))


def end_name(end: End) -> str:
    """An end for people."""
    return end if isinstance(end, str) else UNSCHEDULED_NAME if end is UNSCHEDULED else end.name


def pods_name(selector: str, *, runs: bool = False) -> str:
    """Pods that a selector matches; "": all of the policy."""
    return f"{'running ' if runs else ''}pods{f' {selector}' if selector else ''}"
