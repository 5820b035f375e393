"""What fails again and again is logged in few lines."""

from structlog.testing import capture_logs
from thalweg_operator.api.outages import Outages


def test_one_line_when_it_begins_one_each_half_minute_and_one_when_it_is_over() -> None:
    """A hundred tries in a minute and a half."""
    now = 0.0
    outages = Outages(lambda: now)
    with capture_logs() as logs:
        outages.recovered("API server")
        for _ in range(100):
            outages.failed("API server", "connection lost", "refused")
            now += 0.9
        outages.recovered("API server")
        outages.recovered("API server")
    assert [(each["event"], each.get("failures")) for each in logs] == [
        ("failing", 1),
        ("failing", 34),
        ("failing", 34),
        ("recovered", None),
    ]


def test_each_cause_has_a_line() -> None:
    """Another status of the same kind is news, and so is another kind."""
    outages = Outages(lambda: 0.0)
    with capture_logs() as logs:
        for _ in range(9):
            outages.failed("pods", "403", "forbidden")
            outages.failed("pods", "500", "etcd")
            outages.failed("nodes", "403", "forbidden")
    assert [(each["what"], each["cause"], each["log_level"]) for each in logs] == [
        ("pods", "403", "error"),
        ("pods", "500", "warning"),
        ("nodes", "403", "error"),
    ]


def test_what_comes_and_goes_is_logged_no_more_often() -> None:
    """A failure and a success by turns, ten times a second for a minute."""
    now = 0.0
    outages = Outages(lambda: now)
    with capture_logs() as logs:
        for _ in range(600):
            outages.failed("pods", "500", "etcd")
            outages.recovered("pods")
            now += 0.1
    assert len(logs) == 4


def test_what_passes_within_seconds_is_not_logged() -> None:
    """A 429 while the API server starts to serve a new kind; one that stays is logged."""
    now = 0.0
    outages = Outages(lambda: now)
    with capture_logs() as logs:
        for _ in range(4):
            outages.failed("policies", "429", "storage is (re)initializing", transient=True)
            now += 1.0
        outages.recovered("policies")
        now += 60.0
        assert logs == []
        for _ in range(7):
            outages.failed("policies", "429", "storage is (re)initializing", transient=True)
            now += 1.0
    assert [each["failures"] for each in logs] == [10]
