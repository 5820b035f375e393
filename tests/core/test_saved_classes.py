"""What classes use outlives its process: the text says the same again, is small enough, and is never trusted."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.usage_samples import UsageStore
from flowcore.cluster.usage_samples.saved_classes import VERSION, NewerUsage, from_text, to_text
from flowcore.model.errors import ModelError
from flowcore.model.usage import SavedClass, UsageClass, UsageSample

NOW = 1_800_000_000.0
DAY = 86_400.0
saved_classes = st.lists(
    st.builds(
        SavedClass,
        st.builds(UsageClass, st.sampled_from(("shop", "a")), st.just(("web",)), st.just((("cpu", 100),))),
        st.floats(NOW - 30 * DAY, NOW),
        st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2**40)), max_size=5).map(tuple),
    ),
    max_size=5,
).map(tuple)
SOUND = SavedClass(UsageClass("shop", ("web",)), NOW, ((100, 2**20),))


@given(saved_classes)
@settings(max_examples=examples(100))
def test_the_text_says_the_same_again(classes: tuple[SavedClass, ...]) -> None:
    """Where there is room for all of it."""
    assert from_text(to_text(classes, 10**6).decode(), NOW) == classes


@given(saved_classes, st.integers(0, 2_000))
@settings(max_examples=examples(100))
def test_the_oldest_is_left_out(classes: tuple[SavedClass, ...], limit: int) -> None:
    """The text keeps to its limit, and what is left of each namespace is newer than what is not."""
    text = to_text(classes, limit)
    assert len(text) <= max(limit, len(to_text((), 10**6)))
    kept = from_text(text.decode(), NOW)
    for namespace in ("shop", "a"):
        left, all_of_it = (
            sorted((each.newest for each in some if each.usage_class.namespace == namespace), reverse=True)
            for some in (kept, classes)
        )
        assert left == all_of_it[: len(left)]


def used(namespace: str, count: int, newest: float = NOW) -> tuple[SavedClass, ...]:
    """Classes of one namespace, last measured at one time."""
    samples = tuple((100 + number, 2**20 + number) for number in range(20))
    return tuple(SavedClass(UsageClass(namespace, (f"image-{n}",)), newest, samples) for n in range(count))


def test_no_namespace_has_it_all() -> None:
    """Each has an equal share, and what one does not need is the others'; nothing is left out that has room."""
    limit = 100_000
    text = to_text(used("large", 2_000) + used("small", 3, NOW - DAY) + used("other", 2_000), limit)
    kept = Counter(each.usage_class.namespace for each in from_text(text.decode(), NOW))
    assert kept["small"] == 3
    assert abs(kept["large"] - kept["other"]) <= 1
    assert limit - len(text) < 1_000


def test_what_is_too_old_is_not_taken_over() -> None:
    """A class that was last measured two months ago tells nothing of today."""
    text = to_text((msgspec.structs.replace(SOUND, newest=NOW - 60 * DAY), SOUND), 10**6).decode()
    assert from_text(text, NOW) == (SOUND,)


def test_a_later_format_is_told_apart() -> None:
    """Whatever else it says."""
    with pytest.raises(NewerUsage, match=f"version {VERSION + 1}"):
        from_text(f'{{"version": {VERSION + 1}, "classes": "elsewhere"}}', NOW)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": "1"}', "[" * 100_000, '{"version": 1, "classes": [{"newest": 1}]}']
)
def test_text_that_is_not_ours_is_refused(text: str) -> None:
    """All of it: there is nothing to tell what else it says."""
    with pytest.raises(ModelError):
        from_text(text, NOW)


@pytest.mark.parametrize("amounts", [(-1, 0), (0, 2**60)])
def test_a_sample_that_cannot_be_is_left_out(amounts: tuple[int, int]) -> None:
    """With its class, and with no other: anybody who may write the ConfigMap could have written it."""
    spoilt = msgspec.structs.replace(SOUND, amounts=(amounts,))
    assert from_text(to_text((spoilt, SOUND), 10**6).decode(), NOW) == (SOUND,)


def test_a_clock_that_was_ahead_voids_nothing() -> None:
    """The times of its writer count as now."""
    ahead = msgspec.structs.replace(SOUND, newest=NOW + DAY)
    assert from_text(to_text((ahead,), 10**6).decode(), NOW) == (SOUND,)


def test_what_classes_use_is_foreseen_as_before() -> None:
    """Of pods that run and of pods that are gone; a few of many samples say about the same."""
    last, new, web, job = UsageStore(20), UsageStore(20), UsageClass("shop", ("web",)), UsageClass("shop", ("job",))
    for turn in range(20):
        at = NOW + 60.0 * turn
        last.put_pods({f"web-{pod}": UsageSample(at, 30, 100 + pod, 2**30) for pod in range(10)}, lambda _: web)
        last.put_pods({"job-0": UsageSample(at, 30, 700, 2**20)}, lambda _: job)
    last.drop_pod("job-0")
    last.refresh()
    new.restore(last.saved_class(each) for each in last.classes)
    assert last.saved_class(web).newest == NOW + 60.0 * 19
    assert new.foreseen(job) == last.foreseen(job) == (700, 1_100_000)
    cpu, memory = last.foreseen(web) or (0, 0)
    assert new.foreseen(web) == (pytest.approx(cpu, rel=0.05), memory)
