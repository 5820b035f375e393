"""The rounds that the view keeps: the last ones whole, more of them as rows of a timeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from flowcore.planning.plan_document import PlanDocument
from flowcore.planning.problem.bounds.bound_notes import sentence
from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.questions.scenario.context import UnknownName

#: Rounds that are kept as rows of the timeline, and those of them that are kept whole.
KEPT_ROWS: Final = 200
KEPT_WHOLE: Final = 20


class RoundRow(msgspec.Struct, rename="camel"):
    """A round in the timeline; see ``PlanDocument``.

    Attributes:
        placed, waiting: numbers of pods that get a node, and that get none, those that may not be planned among them.
        evicted: number of pods that leave.
        gap: part of the cost above the lower bound, 0..1; None: nothing is known of it.
        certified: whether no plan costs less.
        codes: how many pods stay pending, by the code of their reason.
        whole: whether the round can be looked at.
        left_at_least: what every plan leaves of the pods that were planned; None: the round left none.
        weak: what the lower bound does not count in full, as a clause; "": nothing.
    """

    number: int
    time: float
    seconds: float
    placed: int
    waiting: int
    evicted: int
    cost: int
    lower_bound: int
    gap: float | None
    certified: bool
    method: str
    codes: dict[str, int] = {}
    whole: bool = True
    left_at_least: LeftAtLeast | None = None
    weak: str = ""

    @classmethod
    def of(cls, plan: PlanDocument) -> RoundRow:
        """The row of a round."""
        return cls(
            plan.number,
            plan.time,
            plan.seconds,
            len(plan.placements),
            len(plan.unplaced) + len(plan.skipped),
            len(plan.evictions),
            plan.cost,
            plan.lower_bound,
            plan.gap if plan.lower_bound != 0 or plan.certified else None,
            plan.certified,
            plan.method,
            plan.waiting_by_code(),
            left_at_least=None if plan.gaps else plan.left_at_least,
            weak=sentence(plan.bound_notes),
        )


class RoundHistory:
    """The last rounds, the oldest first.

    Attributes:
        rows: the timeline.
    """

    def __init__(self) -> None:
        self.rows: deque[RoundRow] = deque(maxlen=KEPT_ROWS)
        self._whole: dict[int, PlanDocument] = {}

    def put(self, plan: PlanDocument) -> None:
        """Adds the newest round. One with the number of an earlier one begins anew: the operator was restarted."""
        if self.rows and plan.number <= self.rows[-1].number:
            self.rows.clear()
            self._whole.clear()
        self.rows.append(RoundRow.of(plan))
        self._whole[plan.number] = plan
        if len(self._whole) > KEPT_WHOLE:
            oldest = next(iter(self._whole))
            del self._whole[oldest]
            for row in self.rows:
                row.whole = row.number in self._whole

    def find(self, number: int = 0) -> PlanDocument | None:
        """A round by its number; 0: the newest, None if there is none yet.

        Raises:
            UnknownName: no round of that number is kept whole.
        """
        if not number:
            return next(reversed(self._whole.values()), None)
        document = self._whole.get(number)
        if document is None:
            kept = ", ".join(str(each) for each in self._whole) or "none"
            raise UnknownName("round", f"{number} is not kept; rounds that are: {kept}")
        return document

    def newest_whole(self) -> Iterator[PlanDocument]:
        """The rounds that can be looked at, the newest first."""
        return reversed(self._whole.values())

    def row(self, number: int) -> RoundRow | None:
        """A round in the timeline; None: it is not there any more."""
        return next((row for row in reversed(self.rows) if row.number == number), None)
