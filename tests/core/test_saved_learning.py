"""What was learnt outlives its process: the text says the same again, is small enough, and is never trusted."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.learning import Run, RunHistory
from flowcore.cluster.learning.estimates import Observation
from flowcore.cluster.learning.saved_learning import (
    VERSION,
    NewerLearning,
    SavedHistory,
    SavedLearning,
    from_text,
    kinds_digest,
    to_text,
)
from flowcore.cluster.usage_samples import UsageStore
from flowcore.model.errors import ModelError
from flowcore.model.selectors import LabelSelector
from flowcore.model.usage import SavedClass, UsageClass, UsageSample
from flowcore.model.workload_kinds import WorkloadKind

NOW = 1_800_000_000.0
DAY = 86_400.0
times = st.floats(NOW - 30 * DAY, NOW)
observations = st.builds(
    Observation,
    st.sampled_from(("ns/nightly", "u-1")),
    st.sampled_from(("", "old")),
    st.tuples(st.floats(0, 9), st.floats(0, 9)),
    st.floats(0, 12),
    times,
)
histories = st.builds(
    SavedHistory,
    st.sampled_from(("p", "q")),
    st.just("digest"),
    times,
    st.tuples(st.lists(observations, max_size=5).map(tuple), st.lists(observations, max_size=5).map(tuple)),
)
classes = st.builds(
    SavedClass,
    st.builds(UsageClass, st.sampled_from(("shop", "a")), st.just(("web",)), st.just((("cpu", 100),))),
    times,
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2**40)), max_size=5).map(tuple),
)
learnings = st.builds(
    SavedLearning,
    st.just(VERSION),
    st.lists(histories, max_size=2).map(tuple),
    st.lists(classes, max_size=5).map(tuple),
)


def ends(learning: SavedLearning) -> dict[object, list[float]]:
    """When each pod of a kind ended and each class of a namespace was last measured, the newest first."""
    times: dict[object, list[float]] = {}
    for number, history in enumerate(learning.histories):
        for kind, of_kind in enumerate(history.observations):
            times[number, kind] = [observation.end for observation in of_kind]
    for saved in learning.classes:
        times.setdefault(saved.usage_class.namespace, []).append(saved.newest)
    return {key: sorted(of_key, reverse=True) for key, of_key in times.items()}


@given(learnings)
@settings(max_examples=examples(100))
def test_the_text_says_the_same_again(learning: SavedLearning) -> None:
    """Where there is room for all of it."""
    assert from_text(to_text(learning, 10**6).decode(), NOW) == learning


@given(learnings, st.integers(0, 2_000))
@settings(max_examples=examples(100))
def test_the_oldest_is_left_out(learning: SavedLearning, limit: int) -> None:
    """The text keeps to its limit, and what is left of each kind and namespace is newer than what is not."""
    nothing = msgspec.structs.replace(
        learning,
        histories=tuple(msgspec.structs.replace(each, observations=((), ())) for each in learning.histories),
        classes=(),
    )
    text = to_text(learning, limit)
    assert len(text) <= max(limit, len(to_text(nothing, 10**6)))
    everything = ends(learning)
    for key, kept in ends(from_text(text.decode(), NOW)).items():
        assert kept == everything[key][: len(kept)]


def finished(count: int, work: str = "ns/nightly") -> tuple[Observation, ...]:
    """Pods of one work that ended one after the other, all of them more than a minute ago."""
    return tuple(Observation(work, "gen-a", (0.5,), 4.6, NOW - 60.0 - count + number) for number in range(count))


def used(namespace: str, count: int, newest: float = NOW) -> tuple[SavedClass, ...]:
    """Classes of one namespace, last measured at one time."""
    samples = tuple((100 + number, 2**20 + number) for number in range(20))
    return tuple(SavedClass(UsageClass(namespace, (f"image-{n}",)), newest, samples) for n in range(count))


def lengths(text: bytes) -> tuple[list[int], dict[str, int]]:
    """How many pods a text has of each policy, and how many classes of each namespace."""
    learning = from_text(text.decode(), NOW)
    pods = [sum(map(len, history.observations)) for history in learning.histories]
    return pods, Counter(saved.usage_class.namespace for saved in learning.classes)


def test_pods_and_classes_have_half_each() -> None:
    """Classes of pods that run are newer than any pod that is done; nothing is left out that has room."""
    learning = SavedLearning(histories=(SavedHistory("p", "k", NOW, (finished(40),)),), classes=used("tenant", 1_000))
    limit = 100_000
    text = to_text(learning, limit)
    (pods,), classes = lengths(text)
    assert pods == 40
    assert limit - len(text) < 1_000
    assert 0 < classes["tenant"] < 1_000


def test_no_policy_and_no_namespace_has_it_all() -> None:
    """Each has an equal share, and what one does not need is the others'."""
    histories = tuple(
        SavedHistory(name, "k", NOW, (finished(count),)) for name, count in (("a", 2_000), ("b", 2_000), ("c", 40))
    )
    classes = used("large", 2_000) + used("small", 3, NOW - DAY) + used("other", 2_000)
    (a, b, c), namespaces = lengths(to_text(SavedLearning(histories=histories, classes=classes), 100_000))
    assert (c, namespaces["small"]) == (40, 3)
    assert max(abs(a - b), abs(namespaces["large"] - namespaces["other"])) <= 1
    assert 40 < a < 2_000


def test_a_kind_with_many_pods_leaves_the_monthly_ones() -> None:
    """Of two kinds of one policy."""
    often, monthly = finished(2_000), tuple(msgspec.structs.replace(each, end=NOW - 20 * DAY) for each in finished(10))
    learning = SavedLearning(histories=(SavedHistory("p", "k", NOW, tuple(
        tuple(msgspec.structs.replace(each, beside=(0.0, 0.0)) for each in pods) for pods in (often, monthly)
    )),))  # fmt: skip
    ((kept_often, kept_monthly),) = (
        map(len, history.observations) for history in from_text(to_text(learning, 20_000).decode(), NOW).histories
    )
    assert kept_monthly == 10
    assert 10 < kept_often < 2_000


def test_what_is_too_old_is_not_taken_over() -> None:
    """A pod of two months ago tells nothing of today."""
    old, new = (Observation("w", "m", (0.0,), 1.0, NOW - age * DAY) for age in (60, 1))
    learning = SavedLearning(histories=(SavedHistory("p", "k", NOW - DAY, ((old, new),)),))
    assert from_text(to_text(learning, 10**6).decode(), NOW).histories[0].observations == ((new,),)


def test_a_later_format_is_told_apart() -> None:
    """Whatever else it says."""
    with pytest.raises(NewerLearning, match=f"version {VERSION + 1}"):
        from_text(f'{{"version": {VERSION + 1}, "histories": "elsewhere"}}', NOW)


SOUND = Observation("w", "m", (0.0,), 1.0, NOW)
SOUND_CLASS = SavedClass(UsageClass("shop", ("web",)), NOW, ((100, 2**20),))


def one_policy(*pods: Observation, until: float = NOW) -> SavedLearning:
    """A policy with one kind of pods."""
    return SavedLearning(histories=(SavedHistory("p", "k", until, (pods,)),))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": "1"}', "[" * 100_000, '{"version": 1, "histories": [{"policy": 1}]}'],
)
def test_text_that_is_not_ours_is_refused(text: str) -> None:
    """All of it: there is nothing to tell what else it says."""
    with pytest.raises(ModelError):
        from_text(text, NOW)


@pytest.mark.parametrize(
    "changes",
    [{"beside": (0.0, 1.0)}, {"beside": (-1.0,)}, {"beside": (1e300,)}, {"log_seconds": 1e300}],
    ids=str,
)
def test_a_pod_that_cannot_be_is_left_out(changes: dict[str, Any]) -> None:
    """Anybody who may write the ConfigMap could have written it: no number of it makes a plan fail."""
    text = to_text(one_policy(msgspec.structs.replace(SOUND, **changes), SOUND), 10**6).decode()
    assert from_text(text, NOW) == one_policy(SOUND)


@pytest.mark.parametrize("amounts", [(-1, 0), (0, 2**60)])
def test_a_sample_that_cannot_be_is_left_out(amounts: tuple[int, int]) -> None:
    """With its class, and with no other."""
    spoilt = msgspec.structs.replace(SOUND_CLASS, amounts=(amounts,))
    text = to_text(SavedLearning(classes=(spoilt, SOUND_CLASS)), 10**6).decode()
    assert from_text(text, NOW).classes == (SOUND_CLASS,)


def test_a_clock_that_was_ahead_voids_nothing() -> None:
    """Of the writer, or of a node: the times count as now, and pods that end from now on are learnt from."""
    ahead = msgspec.structs.replace(one_policy(msgspec.structs.replace(SOUND, end=NOW + DAY), until=NOW + DAY),
        classes=(msgspec.structs.replace(SOUND_CLASS, newest=NOW + DAY),))  # fmt: skip
    text = to_text(ahead, 10**6).decode()
    assert from_text(text, NOW) == msgspec.structs.replace(one_policy(SOUND), classes=(SOUND_CLASS,))


def test_other_kinds_have_another_digest() -> None:
    """So what was learnt of them is not taken for what is asked now."""
    web, batch = (WorkloadKind(name, LabelSelector()) for name in ("web", "batch"))
    digests = [kinds_digest([web, batch], "gen"), kinds_digest([batch, web], "gen"), kinds_digest([web, batch], "")]
    assert len({*digests, kinds_digest([web, batch], "gen")}) == 3


def jobs(first: int, count: int) -> list[Run]:
    """Pods of one Job on nodes of two kinds, that ended one after the other."""
    return [
        Run(f"u{number}", f"n{number % 4}", 0, "old" if number % 2 else "new", "job",
            NOW + number * 100.0, NOW + number * 100.0 + (60.0 if number % 2 else 50.0), done=True)
        for number in range(first, first + count)
    ]  # fmt: skip


def test_no_pod_ends_later_than_it_was_learnt_from() -> None:
    """The clock of its node is ahead, and its run time is right all the same."""
    history = RunHistory(1)
    history.update([Run("u", "n", 0, "m", "job", NOW + DAY, NOW + DAY + 60.0, done=True)], NOW)
    (observation,) = history.observations(0)
    assert (observation.end, round(math.exp(observation.log_seconds))) == (NOW, 60)


@pytest.mark.parametrize("read", ["before its first look", "after it"])
def test_a_new_leader_goes_on_where_the_last_one_was(read: str) -> None:
    """Also if it has looked by itself before it could read: pods that still exist are not learnt from twice."""
    last, new = RunHistory(1), RunHistory(1)
    last.update(jobs(0, 30), NOW + 3_000.0)
    assert last.learnt_at == NOW + 3_000.0
    last.update(jobs(20, 10), NOW + 3_500.0)
    assert last.learnt_at == NOW + 3_000.0
    if read == "after it":
        new.update(jobs(20, 20), NOW + 4_000.0)
    new.restore(last.all_observations(), last.learnt_at)
    for history in (last, new):
        history.update(jobs(20, 20), NOW + 4_000.0)
    assert new.all_observations() == last.all_observations()
    assert new.learnt_from == 40
    assert new.estimates() == last.estimates()
    assert new.estimates()[0].slowdowns == {"new": 1000, "old": 1200}


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
