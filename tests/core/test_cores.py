"""The tasks of a round run on several cores: the plan is the same, and no process is left."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.model import GI, node, pod, snapshot
from thalweg_operator.planning.worker.process_limits import resident_memory

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.policies import BUILT_IN
from flowcore.planning.methods import lns
from flowcore.planning.methods.constructive import fill, kube_scheduler_order, one_by_one
from flowcore.planning.methods.lns import SIDE_BY_SIDE, LargeNeighbourhoodSearch
from flowcore.planning.methods.side_by_side import built_side_by_side
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import Round
from flowcore.planning.round.portfolio import Portfolio
from flowcore.planning.solvers import IN_TURN, Executor
from thalweg_executor.available_cores import available_cores
from thalweg_executor.forked import ForkedExecutor

NODES, PODS, SIZES = 60, 400, 12


def crowded() -> Snapshot:
    """More pods than fit, of many sizes."""
    draw = random.Random(1)
    sizes = [(draw.randrange(300, 3000, 100), draw.randrange(1, 9) * GI) for _ in range(SIZES)]
    pods = [pod(f"p{at}", *draw.choice(sizes), created=float(at)) for at in range(PODS)]
    return snapshot([node(f"n{at}", draw.choice((4000, 8000)), 24 * GI) for at in range(NODES)], pods, now=PODS)


def problem() -> Problem:
    return Problem(crowded(), {BUILT_IN.name: BUILT_IN}, MODELS)


def searched(executor: Executor, steps: int, seed: int = 3) -> tuple[object, ...]:
    """The plan after so many neighbourhoods."""
    found = Portfolio(problem(), seed, executor=executor)
    found.offer(fill(problem()))
    for _ in found.run_lns(seed, steps):
        pass
    best = found.conclude()
    return best.method, best.cost, best.commits


def test_the_plan_does_not_depend_on_the_number_of_cores() -> None:
    """The same after as many steps, after few and after many; and the search does find something."""
    for steps in (2, 2 * SIDE_BY_SIDE):
        expected = searched(IN_TURN, steps)
        for cores in (1, 3):
            with ForkedExecutor(cores, worthwhile=0.0) as executor:
                assert searched(executor, steps) == expected
            assert executor.forked == (0 if cores == 1 else min(cores, steps))
    assert expected[0] == "neighbourhoods"


@pytest.mark.parametrize("seed", [0, 7])
def test_a_whole_round_does_not_depend_on_the_number_of_cores(seed: int) -> None:
    """After every step: plan, cost, bound and method; in one part, and in parts that take turns."""
    nodes, pods = [], []
    for pool, count, waiting in (("a", 12, 150), ("b", 8, 60)):
        labels = (("pool", pool),)
        nodes += [node(f"{pool}{at}", 8000, 24 * GI, labels=labels) for at in range(count)]
        pods += [
            pod(f"{pool}-{at}", 700 + 100 * (at % 7), 2 * GI, node_selector=labels, created=float(at))
            for at in range(waiting)
        ]
    for each in (crowded(), snapshot(nodes, pods, now=PODS)):
        found = []
        for cores in (1, 2, 3):
            with ForkedExecutor(cores, worthwhile=0.0) as executor:
                this, steps = Round(each, seed=seed, executor=executor), []
                while len(steps) < 14 and this.step():
                    result = this.result()
                    steps.append((result.placements, result.cost, result.lower_bound, result.method))
                assert (executor.forked > 0) == (cores > 1)
            found.append(steps)
        assert found[0] == found[1] == found[2]
        assert len(found[0]) == 14


def test_neighbourhoods_that_are_decided_side_by_side_have_no_node_in_common() -> None:
    """So what they gain adds up: after each one the cost is exactly what the search says."""
    stated = problem()
    first = fill(stated)
    search = LargeNeighbourhoodSearch(stated, first, 0, IN_TURN)
    most = 0
    for turn in range(12):
        assert search.improve(wider=turn % 3 == 2)
        nodes = np.concatenate([each.nodes for each in search._under_way])
        assert len(nodes) == len(np.unique(nodes))
        most = max(most, len(search._under_way))
        commits = search._commits()
        assert stated.objective.total(commits) == first.cost - search.gain
        assert len(search.candidate().commits) >= len(commits)
    assert search.gain > 0
    assert 1 < most < SIDE_BY_SIDE


def test_a_search_that_may_not_go_on_begins_nothing_more() -> None:
    """With one more step no neighbourhood beside two is drawn."""
    search = LargeNeighbourhoodSearch(problem(), fill(problem()), 0, IN_TURN)
    assert search.improve(more=1)
    assert len(search._under_way) == 1
    assert search.improve(more=0)
    assert not search._under_way


def test_candidates_built_side_by_side_are_those_of_one_core() -> None:
    """Placements, cost and what is left free; a candidate of a child is placed again here."""
    found = []
    for cores in (1, 2):
        stated = problem()
        builders = [partial(fill, stated), partial(one_by_one, stated, kube_scheduler_order(stated))]
        with ForkedExecutor(cores, worthwhile=0.0) as executor:
            found.append([each.candidate() for each in built_side_by_side(stated, builders, executor)])
            assert executor.forked == (2 if cores == 2 else 0)
    for one, other in zip(*found, strict=True):
        assert (one.method, one.cost, one.commits) == (other.method, other.cost, other.commits)
        assert (one.capacity.free == other.capacity.free).all()


def test_children_that_die_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends its child is run by the parent: the plan is the same."""
    expected, parent, decide = searched(IN_TURN, 9), os.getpid(), lns._decide

    def fatal(task: lns._Task) -> object:
        if os.getpid() != parent and task.seed % 5 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return decide(task)

    monkeypatch.setattr(lns, "_decide", fatal)
    with ForkedExecutor(3, worthwhile=0.0) as executor:
        assert searched(executor, 9) == expected


def test_results_come_in_the_order_of_the_tasks() -> None:
    """Also when a later task ends first; and what is put after the children have gone is run here."""
    with ForkedExecutor(2, worthwhile=0.0) as executor:
        tasks = executor.start(lambda task: (task, sum(range(task)), os.getpid()))
        for task in (10**6, 1, 2, 3):
            tasks.put(task)
        results = [tasks.take() for _ in range(4)]
        assert [(task, total) for task, total, _ in results] == [(n, sum(range(n))) for n in (10**6, 1, 2, 3)]
        assert os.getpid() not in {pid for *_, pid in results}
        tasks.put(4)
        tasks.put(5)
    assert [tasks.take()[::2] for _ in range(2)] == [(4, os.getpid()), (5, os.getpid())]


def test_one_task_alone_needs_no_child() -> None:
    """It runs here, at once."""
    with ForkedExecutor(4, worthwhile=0.0) as executor:
        tasks = executor.start(lambda task: (task, os.getpid()))
        tasks.put("only")
        assert tasks.take() == ("only", os.getpid())
        assert executor.forked == 0


def test_a_short_round_gets_no_children() -> None:
    """Tasks are run here until the process has worked for as long as said, then by children."""
    for worthwhile, here in ((3600.0, {True}), (1e-9, {False})):
        with ForkedExecutor(2, worthwhile) as executor:
            tasks = executor.start(lambda _: os.getpid())
            for number in range(4):
                tasks.put(number)
            assert {tasks.take() == os.getpid() for _ in range(4)} == here


def test_methods_at_the_same_time_share_the_cores() -> None:
    """The tasks of a second one are run here as long as the first has all children, and by children after that."""
    with ForkedExecutor(2, worthwhile=0.0) as executor:
        first, second = (executor.start(lambda _: os.getpid()) for _ in range(2))
        for tasks in (first, second):
            for number in range(4):
                tasks.put(number)
        assert first.take() != os.getpid()
        assert second.take() == os.getpid()
        first.close()
        assert second.take() != os.getpid()


def test_a_task_that_fails_fails_here() -> None:
    """With the error that it has: nothing of it is lost on the way."""

    def divide(task: int) -> float:
        return 1 / task

    with ForkedExecutor(2, worthwhile=0.0) as executor:
        tasks = executor.start(divide)
        for task in (1, 0, 2):
            tasks.put(task)
        assert tasks.take() == 1.0
        with pytest.raises(ZeroDivisionError):
            tasks.take()
        assert tasks.take() == 0.5


#: Forks children, and says who they are.
PARENT = """
import os, time
from thalweg_executor.forked import ForkedExecutor
with ForkedExecutor(3, worthwhile=0.0) as executor:
    tasks = executor.start(lambda task: os.getpid() if task < 3 else time.sleep(600))
    for task in range(6):
        tasks.put(task)
    print(*(tasks.take() for _ in range(3)), flush=True)
    tasks.take()
"""


def test_children_end_with_their_parent() -> None:
    """Even if nobody tells them: the worker process may be killed at any time, and its children hold its output."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        children = set(map(int, parent.stdout.readline().split()))
        assert children
        assert resident_memory(parent.pid) > _resident(parent.pid)
        parent.kill()
        assert parent.stdout.read() == ""  # the end of the pipe: nobody has it any more
    parent.wait()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_children_share_what_their_parent_may_still_use() -> None:
    """The data limit of a child is its share; without a limit it has none."""

    def limit_of(_: int) -> int:
        return resource.getrlimit(resource.RLIMIT_DATA)[0]

    def run(limit: int) -> list[int]:
        def limited(task: int) -> list[int]:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            with ForkedExecutor(4, worthwhile=0.0) as executor:
                tasks = executor.start(limit_of)
                for each in range(4):
                    tasks.put(each)
                return [tasks.take() for _ in range(4)]

        return in_child(limited)

    assert set(run(resource.RLIM_INFINITY)) == {resource.RLIM_INFINITY}
    shared = run(8 * 2**30)
    assert max(shared) < 4 * 2**30
    assert min(shared) > 2 * 2**30


def in_child(work: Callable[[int], list[int]]) -> list[int]:
    """What a child answers: limits of this process cannot be raised again."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, " ".join(map(str, work(0))).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        found = [int(word) for word in answers.read().split()]
    os.waitpid(pid, 0)
    return found


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({}, 4),
    ],
)
def test_cores_of_the_container(
    files: dict[str, str], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU limit counts, in whole cores and at least one; and never more than four, or than we may run on."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for machine in (1, 2, 16):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=machine: set(range(cores)))
        assert available_cores(tmp_path) == min(machine, most)
