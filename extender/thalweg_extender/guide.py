"""What the server asks, and who is told of its answers. Only values go across."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from flowcore.model.guidance import Asked, Guidance
from thalweg_extender.answers import Outcome

#: Binds a pod, given its namespace, name and UID, to a node; answers "" or what is wrong.
Bind = Callable[[str, str, str, str], Awaitable[str]]
#: Told of each answer: verb, what became of it, and seconds from the whole body read to the answer made.
OnAnswer = Callable[[str, str, float], None]
#: Told of each thing refused: which part of it (a word of ours), whose it was, and what is wrong in a sentence.
OnRefused = Callable[[str, str, str], None]


class Guide(Protocol):
    """Who knows the plan. Its methods must return at once: kube-scheduler takes no other pod meanwhile."""

    def guidance(self, asked: Asked, names: Sequence[str]) -> Guidance | str:
        """What the plan says about a pod that may go to these nodes; or why nothing can be said at all now.

        Such a reason is answered with 503. It sends the pod into kube-scheduler's error back-off: hold with Guidance.
        """

    def answered(self, asked: Asked, outcome: Outcome, passed: Sequence[str]) -> None:
        """Told of each answer of filter before it is sent: what it said, and which nodes passed."""
