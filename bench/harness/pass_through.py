"""An extender without a plan: it holds steered pods and lets every node pass for the others. What any extender costs.

`python pass_through.py HOST:PORT`
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

from thalweg_extender import listening

from flowcore.model.advice import Advice, ExtenderPod
from flowcore.model.policies import STEERED_NAME


class NoPlan:
    def unavailable(self) -> str:
        return ""

    def planned_at_once(self, asked: ExtenderPod, names: Sequence[str]) -> bool:  # noqa: ARG002
        return True

    async def until_planned(self, asked: ExtenderPod, names: Sequence[str]) -> None:
        """No plan is made."""

    def advise(self, asked: ExtenderPod, names: Sequence[str]) -> Advice:  # noqa: ARG002 - the extender's protocol
        return Advice(managed=True, hold=True) if asked.scheduler_name == STEERED_NAME else Advice()

    def answered(self, asked: ExtenderPod, advice: Advice, outcome: str, passed: Sequence[str]) -> None:
        """Nothing to remember."""


async def _serve(host: str, port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with listening(host, port, NoPlan()):
        await ended.wait()


def main() -> None:
    """Serves until told to end."""
    host, _, port = sys.argv[1].rpartition(":")
    asyncio.run(_serve(host, int(port)))


if __name__ == "__main__":
    main()
