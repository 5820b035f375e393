"""Interfaces between the server and its caller. Only values cross them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from flowcore.model.advice import Advice, ExtenderPod
from thalweg_extender.answers import FilterOutcome

#: Called after each response. Arguments: verb, outcome, seconds from the end of the request's body to the response.
OnAnswer = Callable[[str, str, float], None]
#: Called for each request of a client with a certificate. Argument: when that expires, in seconds since the epoch.
OnClient = Callable[[float], None]
#: Called for each refused request or connection. Arguments: name of the refused part (a fixed set), client, problem.
OnRefused = Callable[[str, str, str], None]


class PlanView(Protocol):
    """Read access to the plan. Its methods must return at once: kube-scheduler schedules no other pod meanwhile.

    ``until_planned`` may take a moment.
    """

    def unavailable(self) -> str:
        """Why no verb can be answered now; "": it can.

        A reason gets status 503, which sends the pod into kube-scheduler's error back-off; to hold a pod, return
        Advice.
        """

    def planned_at_once(self, extender_pod: ExtenderPod, node_names: Sequence[str]) -> bool | asyncio.Future[None]:
        """Called for a request of filter, before its advice: whether that waits for nothing; else ``until_planned``.

        A future: it is worth another call when that ends.
        """

    async def until_planned(self, extender_pod: ExtenderPod, node_names: Sequence[str]) -> None:
        """Called for each request of filter, before its advice: a plan for the pod may be about to be made."""

    def advise(self, extender_pod: ExtenderPod, node_names: Sequence[str]) -> Advice:
        """Advice for a pod and its candidate nodes. The call changes no state: repeated, it returns the same."""

    def answered(
        self, extender_pod: ExtenderPod, advice: Advice, outcome: FilterOutcome, passed: Sequence[str]
    ) -> None:
        """Called before each response of filter is sent, with its advice, outcome and the nodes that pass."""
