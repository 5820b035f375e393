"""Names of FlowQueues are for callers who may list FlowQueues."""

from pathlib import Path
from typing import Any

from support.view import Client, HeldSource, Two, small_scenario, viewed
from thalweg_view.callers.access import Caller


class LacksQueues(Two):
    """The second caller may list all but queues."""

    async def may_list(self, caller: Caller, kind: str) -> bool:
        return caller.name == "a" or kind != "queues"

    async def namespaces(self, _caller: Caller, _known: object) -> list[str] | None:
        return None


async def test_the_flow_by_queue(tmp_path: Path) -> None:
    """The same flow by class is not refused."""
    async with viewed(HeldSource(small_scenario(tmp_path), kind="dump"), LacksQueues()) as client:

        async def asked(token: str, path: str) -> tuple[int, Any]:
            status, body, _ = await Client(client.port, client.session, token).get(f"/api/v1/{path}")
            return status, body

        assert (await asked("a", "flow?of=queue"))[0] == 200
        assert (await asked("b", "flow"))[0] == 200
        status, body = await asked("b", "flow?of=queue")
        assert (status, body["error"]) == (403, "b may not list queues in the cluster, and flow shows them")
