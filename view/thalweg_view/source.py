"""Where a view has its data from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from flowcore.planning.plan_document import PlanDocument


class ViewSource(Protocol):
    """A running operator, a dump, or recorded rounds.

    Attributes:
        kind: "live", "dump" or "record".
        name: of the cluster's API server, of the file or of the folder.
        version: of Thalweg.
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def unavailable(self) -> str:
        """Why no question can be answered now, for example that another replica leads; "": they can."""

    def state(self) -> AsyncIterator[bytes]:
        """The saved state (flowcore/cluster/saved_state.py) in pieces of whole lines.

        A live source gives up the event loop between two pieces.
        """

    def on_round(self, listener: Callable[[PlanDocument], None]) -> None:
        """Has a function called with each round from now on, and with those that are known already."""
