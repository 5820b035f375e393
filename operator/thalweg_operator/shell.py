"""The shell around the pure step: it tells ``advance`` what happened, and has the effects carried out.

A replica that is not leader takes the same steps and carries nothing out: it has no handlers yet. Its writes are
answered as not wanted, so that the ledger does not wait for them. What is to be done is found anew when it leads
(``Synced``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import Bind, Effect, RequestRound, Write
from thalweg_operator.reservations.events import Answer, Event, WriteAnswered
from thalweg_operator.reservations.step import write_checks
from thalweg_operator.reservations.step.advance import advance
from thalweg_operator.reservations.step.state import State

#: Type of an effect -> what carries it out.
Handlers = Mapping[type[Effect], Callable[[Any], object]]
_WRITES = frozenset(get_args(Write))


class Shell:
    """Applies events to the state and hands effects to their handlers. One event loop owns it.

    Attributes:
        state, cluster, ledger: all may read them; ``apply`` alone changes them.
        failure: the error that a step ended with, None while there is none. The ledger may be half-changed then, so no
            further step is taken, and the operator ends.
        clock: seconds of a monotonic clock.
        observers: called with each event before its step.
    """

    def __init__(
        self,
        state: State,
        request_round: Callable[[RequestRound], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state, self.cluster, self.ledger, self.clock = state, state.cluster, state.ledger, clock
        self._request_round = request_round
        self._handlers: Handlers | None = None
        self.failure: Exception | None = None
        self.observers: list[Callable[[Event], None]] = []

    def lead(self, handlers: Handlers) -> None:
        """From now on effects are carried out by these."""
        self._handlers = handlers

    def apply(self, event: Event) -> None:
        """Takes the step of an event, and has its effects carried out in their order."""
        if self.failure is not None:
            return
        for observer in self.observers:
            observer(event)
        try:
            effects = advance(self.state, event, self.clock())
            if effects:
                self.carry_out(effects)
        except Exception as error:
            self.failure = error
            raise

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Has effects carried out in their order."""
        for effect in effects:
            if type(effect) is RequestRound:
                self._request_round(effect)
            elif self._handlers is not None:
                self._handlers[type(effect)](effect)
            elif type(effect) in _WRITES:
                self.apply(WriteAnswered(effect, Answer.UNWANTED))  # type: ignore[arg-type]

    # --- for those who write ---

    def is_wanted(self, write: Write) -> bool:
        """Whether a write is still wanted."""
        return write_checks.is_wanted(self.state, write, self.clock())

    def bind_problem(self, write: Bind, *, retry: bool, ends: bool) -> str:
        """Why a binding must not be written now; "": it may."""
        return write_checks.bind_problem(self.cluster, self.ledger, write, retry=retry, ends=ends)

    def pod_to_tell(self, key: str, uid: str) -> Pod | None:
        """The pod whose condition is still to be written; None: it is not."""
        return write_checks.pod_to_tell(self.cluster, self.ledger, key, uid)

    def shows(self, pod: Pod) -> bool:
        """Whether the watch shows a pod still."""
        known = self.cluster.pods.get(pod.key)
        return known is not None and known.uid == pod.uid

    def answered(self, write: Write, answer: Answer, reason: str = "") -> None:
        """A write was answered."""
        self.apply(WriteAnswered(write, answer, reason))
