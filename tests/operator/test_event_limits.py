"""One object gets few Events, whoever changes it how often; others are not affected."""

from hypothesis import given
from hypothesis import strategies as st
from thalweg_operator.api.writes.events import BURST, MAX_OBJECTS, REFILL_SECONDS, EventLimits


@given(st.lists(st.tuples(st.floats(0, 2000), st.sampled_from(["a", "b"])), max_size=200))
def test_no_more_than_a_burst_and_one_for_each_refill(steps: list[tuple[float, str]]) -> None:
    """In any time, an object gets at most the burst and one for each refill; the first burst is never refused."""
    now = 0.0
    limits = EventLimits(lambda: now)
    allowed: dict[str, list[float]] = {"a": [], "b": []}
    asked = {"a": 0, "b": 0}
    for pause, uid in steps:
        now += pause
        asked[uid] += 1
        if limits.allows(uid):
            allowed[uid].append(now)
        else:
            assert asked[uid] > BURST
    for times in allowed.values():
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= BURST + (times[last] - start) / REFILL_SECONDS + 1e-6


def test_memory_is_bounded() -> None:
    """The object without an Event for the longest time is forgotten, others keep their counts."""
    limits = EventLimits(lambda: 0.0)
    for _ in range(BURST):
        assert limits.allows("kept")
    for number in range(MAX_OBJECTS - 1):
        limits.allows(str(number))
    assert not limits.allows("kept")
    limits.allows("one more")
    assert len(limits._buckets) == MAX_OBJECTS
    assert "0" not in limits._buckets
