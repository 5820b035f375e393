"""Statuses that the API server does not take cost few requests and keep no other status out."""

import asyncio
from typing import Any

import msgspec
from support import virtual_time
from thalweg_operator.api.outages import Outages
from thalweg_operator.delivery.status.condition_events import ConditionEvents
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.policies.store import PolicyRecord, PolicyStore

from flowcore.api.kinds import POLICY
from flowcore.cluster.cluster import Cluster


class Api:
    """Refuses writes to some policies."""

    def __init__(self) -> None:
        self.refuses: dict[str, Exception] = {}
        self.outages = Outages()
        self.asked: list[float] = []
        self.written: set[str] = set()

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.asked.append(asyncio.get_running_loop().time())
        assert msgspec.json.decode(options["body"])["status"]["conditions"]
        name = path.split("/")[-2]
        if name in self.refuses:
            raise self.refuses[name]
        self.written.add(name)
        return b"{}"


class Nothing:
    """Rounds and gates of which nothing is to be said."""

    def __init__(self) -> None:
        self.reports: dict[str, Any] = {}
        self.contradictions: dict[str, Any] = {}
        self.problems: dict[str, str] = {}


def test_one_status_that_is_refused_keeps_no_other_out() -> None:
    """It is tried last from then on, with growing pauses."""

    async def main() -> None:
        api, store, nothing = Api(), PolicyStore(), Nothing()
        for at in range(20):
            store.offer(f"p{at:02}", f"u{at}", 1, {})
        api.refuses = {"p00": Refused(500, "a webhook is down"), "p07": Refused(422, "no")}
        status: Any = PolicyStatus(api, Cluster(), store, nothing, nothing)  # type: ignore[arg-type]
        task = asyncio.create_task(status.run())
        await asyncio.sleep(30)
        assert api.written == {f"p{at:02}" for at in range(20)} - set(api.refuses)
        before = len(api.asked)
        await asyncio.sleep(300)
        assert len(api.asked) - before <= 30
        task.cancel()

    virtual_time.run(main())


def test_while_the_api_server_is_away_one_write_is_tried_at_a_time() -> None:
    """However many policies there are."""

    async def main() -> None:
        api, store, nothing = Api(), PolicyStore(), Nothing()
        for at in range(200):
            store.offer(f"p{at}", f"u{at}", 1, {})
        api.refuses = {f"p{at}": ConnectionLost("refused") for at in range(200)}
        status: Any = PolicyStatus(api, Cluster(), store, nothing, nothing)  # type: ignore[arg-type]
        task = asyncio.create_task(status.run())
        await asyncio.sleep(60)
        assert len(api.asked) <= 20
        api.refuses = {}
        await asyncio.sleep(40)
        assert len(api.written) == 200
        task.cancel()

    virtual_time.run(main())


def test_a_change_of_a_condition_is_an_event() -> None:
    """False is a warning, true again a normal Event. No change is no Event, nor is a true condition at first."""
    written: list[tuple[str, str, bool]] = []

    class Events:
        def write_about(self, subject: Any, reason: str, message: str, *, action: str, warning: bool) -> bool:
            written.append((subject.name, message, warning))
            return True

    events, record = ConditionEvents(Events(), POLICY), PolicyRecord("batch", "u", 1, None, 0, "")  # type: ignore[arg-type]
    good = {"conditions": [{"type": "Accepted", "status": "True", "reason": "Valid", "message": "Fine."}]}
    bad = {"conditions": [{"type": "Accepted", "status": "False", "reason": "Invalid", "message": "Not so."}]}
    events.status_written(record, None, good)
    assert written == []
    for before, after in ((good, bad), (bad, bad), (bad, good), (None, bad)):
        events.status_written(record, before, after)
    warning, normal = (
        ("batch", "Condition Accepted is False: Not so.", True),
        ("batch", "Condition Accepted is True: Fine.", False),
    )
    assert written == [warning, normal, warning]
