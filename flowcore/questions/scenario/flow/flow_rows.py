"""A row of a drawn network as it is filled: an arc between two ends, with their names for people."""

from __future__ import annotations

from dataclasses import dataclass

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
