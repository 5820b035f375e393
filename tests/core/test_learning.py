"""What is learnt from finished pods: true slowdowns are found, and what is not known is not claimed."""

import random
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.learning import Estimates, Run, RunHistory, with_estimates
from flowcore.cluster.learning.estimates import Observation, estimates
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.selectors import LabelSelector
from flowcore.model.workload_kinds import Interference, Machines, WorkloadKind

WEB, NOISY = 0, 1


def finished(uid: str, node: str, kind: int, start: float, end: float, work: str = "", machine: str = "") -> Run:
    return Run(uid, node, kind, machine, work or uid, start, end, done=True)


def history_of(count: int, added: float, old: float, seed: int = 1) -> RunHistory:
    """Finished web pods of works of three lengths, half of them beside a noisy pod, half on old machines."""
    draw, history, runs = random.Random(seed), RunHistory(2), []
    for at in range(count):
        own = 1000.0 * (1 + at % 3) * draw.uniform(0.97, 1.03)
        beside, machine = draw.choice((0, 1)), draw.choice(("old", "new"))
        took = own * (1 + added) ** beside * (old if machine == "old" else 1)
        runs.append(finished(f"web{at}", f"n{at}", WEB, 0.0, took, f"work{at % 3}", machine))
        if beside:
            runs.append(Run(f"noisy{at}", f"n{at}", NOISY, machine, "noise", -50.0))
    history.update(runs, 10_000.0)
    return history


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from((0.0, 0.2, 0.6)), st.sampled_from((1.0, 1.3, 2.0)), st.integers(1, 99))
def test_true_slowdowns_are_found(added: float, old: float, seed: int) -> None:
    """Within a tenth, of one neighbour and of the slower machine, though the works differ in length by far more."""
    web, noisy = history_of(120, added, old, seed).estimates()
    assert web.penalties[NOISY] == pytest.approx(1000 * added, abs=100)
    assert web.slowdowns["new"] == pytest.approx(1000, abs=100)
    assert web.slowdowns["old"] == pytest.approx(1000 * old, abs=100)
    assert noisy == Estimates()


def test_too_few_pods_tell_nothing() -> None:
    """A handful of pods, or pods that all had the same neighbours and machine, change no cost."""
    assert history_of(8, 0.5, 2.0).estimates() == (Estimates(), Estimates())
    alike = [Observation("w", "new", (0.0, 1.0), 7.0 + at / 1000) for at in range(50)]
    assert estimates(alike, 2) == Estimates()


def test_works_are_compared_with_themselves_only() -> None:
    """Long works that run alone and short ones beside noise do not make noise look good."""
    alone = [Observation(f"long{at}", "m", (0.0, 0.0), 9.0) for at in range(40)]
    noise = [Observation(f"short{at}", "m", (0.0, 1.0), 3.0) for at in range(40)]
    assert not estimates([*alone, *noise], 2).penalties


def test_a_neighbour_counts_for_as_long_as_it_was_there() -> None:
    """Whether it ended before, runs on, or is gone when the pod is learnt from."""
    history = RunHistory(2)
    mine = Run("web", "n0", WEB, "", "work", 0.0)
    others = [
        finished("early", "n0", NOISY, -100.0, 25.0),
        Run("late", "n0", NOISY, "", "late", 75.0),
        Run("elsewhere", "n1", NOISY, "", "elsewhere", 0.0),
    ]
    gone = Run("gone", "n0", NOISY, "", "gone", 0.0)
    history.update([mine, *others, gone], 40.0)
    history.update([mine, *others], 50.0)  # one has been deleted since: it ended by now
    history.update([finished("web", "n0", WEB, 0.0, 100.0, "work"), *others], 120.0)
    observed = history.observations(WEB)
    assert [each.beside for each in observed] == [(0.0, pytest.approx(0.25 + 0.25 + 0.5))]


def test_a_pod_is_learnt_from_once_and_nodes_are_forgotten() -> None:
    """However often it is seen; after a restart it is learnt from again while it still exists."""
    pods = [finished(f"web{at}", "n0", WEB, at, at + 10.0) for at in range(5)]
    history = RunHistory(1)
    for now in (100.0, 200.0):
        history.update(pods, now)
    assert history.learnt_from == 5
    history.update([], 300.0)
    assert history.runs == 0
    assert history.learnt_from == 5
    again = RunHistory(1)
    again.update(pods, 400.0)
    assert again.observations(WEB) == history.observations(WEB)


times = st.integers(0, 30).map(float)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), times, times, st.booleans()), min_size=1, max_size=12))
def test_neighbours_are_counted_pair_by_pair(drawn: list[tuple[int, float, float, bool]]) -> None:
    """The mean number of neighbours is the sum over all other pods of the node of the part of the run they share."""
    now, runs = 40.0, []
    for at, (kind, start, took, done) in enumerate(drawn):
        runs.append(Run(str(at), "n0", kind, "", str(at), start, start + took if done else 0.0, done))
    history = RunHistory(3)
    history.update(runs, now)
    for kind in range(3):
        expected = {}
        for run in runs:
            if run.done and run.kind == kind and run.end > run.start:
                beside = [0.0] * 3
                for other in runs:
                    if other is not run:
                        shared = min(other.end or now, run.end) - max(other.start, run.start)
                        beside[other.kind] += max(shared, 0.0) / (run.end - run.start)
                expected[run.work] = beside
        found = {each.work: each.beside for each in history.observations(kind)}
        assert found == {work: pytest.approx(beside) for work, beside in expected.items()}


def lines_run(call: Any) -> int:
    """How many lines of Python a call runs."""
    count, before = 0, sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def jobs_of_one_node(count: int) -> list[Run]:
    return [finished(f"job{at}", "n0", WEB, at, at + 20.0) for at in range(count)]


def test_work_grows_with_the_finished_pods_of_a_node_not_with_their_square() -> None:
    """Twice the pods of one node take about twice the steps."""
    few, many = (lines_run(lambda n=n: RunHistory(1).update(jobs_of_one_node(n), 5_000.0)) for n in (300, 600))
    assert many < 2.5 * few


def test_the_newest_pods_are_learnt_from_first() -> None:
    """Of more new pods than are kept, in whatever order they come; the others are never learnt from."""
    runs = jobs_of_one_node(2_100)
    random.Random(1).shuffle(runs)
    history = RunHistory(1)
    for _ in range(2):
        history.update(runs, 5_000.0)
        assert [each.work for each in history.observations(WEB)] == [f"job{at}" for at in range(100, 2_100)]


def test_a_long_run_does_not_keep_every_neighbour_it_ever_had() -> None:
    """However many short pods come and go beside it, a limited number is kept of those that are gone."""
    history, service = RunHistory(2), Run("service", "n0", NOISY, "", "service", 0.0)
    for begin in range(0, 3_000, 500):
        short = [finished(f"job{at}", "n0", WEB, at, at + 1.0) for at in range(begin, begin + 500)]
        history.update([service, *short], begin + 600.0)
    history.update([service], 4_000.0)
    assert history.runs == 1_001


def test_what_is_learnt_takes_the_place_of_what_is_stated() -> None:
    """What is not known stays as stated; a part that the policy does not ask for is not added."""
    kinds = (WorkloadKind("web", LabelSelector()), WorkloadKind("noisy", LabelSelector()))
    cost = CostPolicy(
        kinds=kinds,
        interference=Interference(((1, 2), (3, 4))),
        machines=Machines("gen", (("web", "old", 1500), ("noisy", "old", 1200))),
    )
    learnt = (Estimates({NOISY: 700}, {"old": 1800, "new": 1000}), Estimates())
    found = with_estimates(cost, learnt)
    assert found.interference == Interference(((1, 700), (3, 4)))
    assert found.machines is not None
    assert set(found.machines.slowdowns) == {("web", "old", 1800), ("web", "new", 1000), ("noisy", "old", 1200)}
    assert with_estimates(CostPolicy(kinds=kinds, learn=True), learnt) == CostPolicy(kinds=kinds, learn=True)
