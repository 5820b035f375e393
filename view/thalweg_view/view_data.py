"""What an answer of the view reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowcore.questions.scenario import Scenario
from thalweg_view.rounds import RoundHistory


@dataclass(slots=True)
class SourceInfo:
    """Kind, name and version of a ``ViewSource``."""

    kind: str = "dump"
    name: str = ""
    version: str = ""


@dataclass(slots=True)
class ViewData:
    """The newest state and the last rounds.

    Attributes:
        generation: grows with each new state and each new round.
        state_after: number of the newest round when the state was read; 0: there was none.
    """

    scenario: Scenario = field(default_factory=Scenario)
    rounds: RoundHistory = field(default_factory=RoundHistory)
    source: SourceInfo = field(default_factory=SourceInfo)
    generation: int = 0
    state_after: int = 0
