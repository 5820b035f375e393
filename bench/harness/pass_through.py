"""An extender without a plan: it holds steered pods and lets every node pass for the others. What any extender costs.

`python pass_through.py HOST:PORT`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aiohttp import web
from thalweg_extender import application

from flowcore.model.guidance import Asked, Guidance
from flowcore.model.policies import STEERED_NAME


class NoPlan:
    def guidance(self, asked: Asked, names: Sequence[str]) -> Guidance | str:  # noqa: ARG002 - the extender's protocol
        return Guidance(managed=True, hold=True) if asked.scheduler_name == STEERED_NAME else Guidance()

    def answered(self, asked: Asked, outcome: str, passed: Sequence[str]) -> None:
        """Nothing to remember."""


async def _ready(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def main() -> None:
    """Serves until told to end."""
    host, _, port = sys.argv[1].rpartition(":")
    app = web.Application()
    app.router.add_get("/readyz", _ready)
    app.add_subapp("/extender/", application(NoPlan()))
    web.run_app(app, host=host, port=int(port), print=None, access_log=None, keepalive_timeout=120.0)


if __name__ == "__main__":
    main()
