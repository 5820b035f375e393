"""Statuses that the API server does not take cost few requests and keep no other status out."""

import asyncio
from typing import Any

import msgspec
from support import virtual_time
from thalweg_operator.api.outages import Outages
from thalweg_operator.delivery.status.condition_events import ConditionEvents
from thalweg_operator.delivery.status.due import FIGURES_EVERY, WrittenStatus, is_due
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.planning.reports.round_reports import RoundReport
from thalweg_operator.policies.store import PolicyRecord, PolicyStore

from flowcore.api.kinds import POLICY
from flowcore.cluster.cluster import Cluster


class Api:
    """Refuses writes to some policies."""

    def __init__(self) -> None:
        self.refuses: dict[str, Exception] = {}
        self.outages = Outages()
        self.asked: list[float] = []
        self.written: dict[str, Any] = {}

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.asked.append(asyncio.get_running_loop().time())
        status = msgspec.json.decode(options["body"])["status"]
        assert status["conditions"]
        name = path.split("/")[-2]
        if name in self.refuses:
            raise self.refuses[name]
        self.written[name] = status
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
        assert set(api.written) == {f"p{at:02}" for at in range(20)} - set(api.refuses)
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


def test_figures_are_written_every_few_seconds() -> None:
    """A round a second is no write a second. What a condition says is written at once; no figures are lost."""

    async def main() -> None:
        api, store, rounds = Api(), PolicyStore(), Nothing()
        store.offer("busy", "u", 1, {})
        status: Any = PolicyStatus(api, Cluster(), store, rounds, rounds)  # type: ignore[arg-type]
        task = asyncio.create_task(status.run())
        for number in range(60):
            rounds.reports["u"] = RoundReport(number, 1000.0 + number, 1, 0, 90, 0.0, certified=True)
            await asyncio.sleep(1)
        assert 60 / FIGURES_EVERY - 3 <= len(api.asked) <= 60 / FIGURES_EVERY + 1
        await asyncio.sleep(FIGURES_EVERY + 2)
        assert api.written["busy"]["lastRound"]["number"] == 59
        rounds.reports["u"] = RoundReport(60, 1060.0, 1, 0, 90, 0.0, certified=True)
        await asyncio.sleep(1.5)
        assert api.written["busy"]["lastRound"]["number"] == 60, "figures of a quiet cluster do not wait"
        before = len(api.asked)
        store.offer("busy", "u", 2, {"precedence": "no number"})
        await asyncio.sleep(1.5)
        assert len(api.asked) == before + 1
        assert api.written["busy"]["conditions"][0]["status"] == "False"
        task.cancel()

    virtual_time.run(main())


def test_what_is_written_at_once() -> None:
    """The first status, another generation and another condition; neither what is as it was, nor other words."""
    condition = {"type": "Ready", "status": "True", "reason": "InForce", "message": "1 of its pods"}
    status = {"observedGeneration": 1, "conditions": [condition], "pods": {"placed": 1}}
    written = WrittenStatus(status, 100.0)
    assert is_due(None, status, 100.0)
    assert not is_due(written, status, 1000.0)
    figures = {**status, "pods": {"placed": 2}}
    words = {**status, "conditions": [{**condition, "message": "2 of its pods"}]}
    for later in (figures, words):
        assert not is_due(written, later, 99.9 + FIGURES_EVERY)
        assert is_due(written, later, 100.0 + FIGURES_EVERY)
    for other in ({**status, "observedGeneration": 2}, {**status, "conditions": [{**condition, "status": "False"}]}):
        assert is_due(written, other, 100.0)


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
