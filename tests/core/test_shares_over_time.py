"""Shares over many rounds: who is under its share gets there, nobody is evicted in a circle."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_safety import check_evictions
from support.model import GI, amounts
from support.profiles import examples
from support.shared_cluster import Job, SharedCluster

from flowcore.model.pods import PodClass
from flowcore.model.queues import Queue
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.round.round import DEFAULT_POLICIES

SECONDS = 30.0


def node_of(cpu: int) -> Amounts:
    """What a node offers."""
    return amounts(cpu, 16 * GI, pods=1000)


def steady(queue: str, count: int, cpu: int = 500) -> list[Job]:
    """Jobs that never end."""
    return [Job(f"{queue}{at}", queue, PodClass(requests=amounts(cpu)), 1e12) for at in range(count)]


def submit(cluster: SharedCluster, jobs: list[Job]) -> None:
    """All jobs wait from now on."""
    for job in jobs:
        cluster.submit(job)


@pytest.mark.parametrize("tenants", [2, 5])
def test_owners_that_come_one_after_the_other_end_within_one_pod_of_equal_shares(tenants: int) -> None:
    """Twice as many pods as there is room for: the first owner has everything until the others come."""
    queues = [Queue(f"q{at}") for at in range(tenants)]
    cluster, places = SharedCluster(queues, 3, node_of(3500)), 21
    for queue in queues:
        submit(cluster, steady(queue.name, -(-2 * places // tenants)))
        for _ in range(3):
            cluster.round()
            cluster.pass_time(queue.min_runtime + 1)
    used = [cluster.used(queue.name) // 500 for queue in queues]
    assert sum(used) == places
    assert max(used) - min(used) <= 1
    assert all(each.kind is EvictionKind.RECLAIM for _, each in cluster.evictions)


def test_what_is_lent_is_used_and_given_back_when_an_owner_leaves_and_comes_again() -> None:
    """While one owner has nothing to run the other has all; equal shares again after it is back."""
    cluster = SharedCluster([Queue("a"), Queue("b")], 2, node_of(4000))
    submit(cluster, [*steady("a", 16), *steady("b", 16)])
    cluster.round()
    assert (cluster.used("a"), cluster.used("b")) == (4000, 4000)
    for key in [key for key, (job, _, _) in cluster.running.items() if job.queue == "b"]:
        del cluster.running[key]
    cluster.waiting = {key: each for key, each in cluster.waiting.items() if each[0].queue == "a"}
    cluster.round()
    assert (cluster.used("a"), cluster.used("b")) == (8000, 0)
    submit(cluster, [Job(f"again{at}", "b", PodClass(requests=amounts(500)), 1e12) for at in range(16)])
    cluster.pass_time(301)
    cluster.round()
    assert (cluster.used("a"), cluster.used("b")) == (4000, 4000)


def random_job(draw: random.Random, number: int, queues: list[Queue], sizes: tuple[int, ...], mean_runs: float) -> Job:
    """A job of any queue."""
    pod_class = PodClass(requests=amounts(draw.choice(sizes)))
    return Job(f"j{number}", draw.choice(queues).name, pod_class, draw.expovariate(1 / mean_runs))


def random_arrivals(rounds: int, seed: int) -> SharedCluster:
    """Rounds in which bursts of jobs of all sizes come to queues in a tree, each with its own rules."""
    draw = random.Random(seed)
    queues = [
        Queue("x", guarantee=amounts(2000), min_runtime=120),
        Queue("y", weight=2, min_runtime=0),
        Queue("x1", parent="x", guarantee=amounts(1000), min_runtime=60),
        Queue("x2", parent="x", weight=3, min_runtime=300),
        Queue("z", limit=amounts(6000), min_runtime=60),
    ]
    owners = [each for each in queues if each.name != "x"]
    cluster, number, busy = SharedCluster(queues, 3, node_of(4000)), 0, owners
    for at in range(rounds):
        if at % 20 == 0:
            busy = draw.sample(owners, 2)
        for _ in range(draw.choice((0, 0, 1, 2))):
            number += 1
            if len(cluster.waiting) < 24:
                cluster.submit(random_job(draw, number, busy, (300, 500, 1000, 2500), 600.0))
        cluster.round()
        assert cluster.used("z") <= 6000, "a limit is passed"
        cluster.pass_time(SECONDS)
    return cluster


@pytest.mark.parametrize("rounds", [150, pytest.param(2_500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_random_arrivals_bring_no_circles(rounds: int) -> None:
    """No pod is evicted before its least runtime, nobody without more than its guarantee, and some are evicted.

    A replacement is a new pod: a job that is evicted again has run for its least runtime in between.
    """
    cluster = random_arrivals(rounds, seed=5)
    least = {queue.name: queue.min_runtime for queue in cluster.queues}
    last: dict[str, float] = {}
    assert len(cluster.evictions) > rounds // 100
    for when, eviction in cluster.evictions:
        assert eviction.kind is EvictionKind.RECLAIM
        assert when - eviction.pod.started >= least[eviction.pod.queue], eviction
        job = eviction.pod.key.rpartition(".")[0]
        assert when - last.get(job, float("-inf")) >= least[eviction.pod.queue], f"{job} is evicted again at once"
        last[job] = when
    assert not cluster.below_guarantee


_QUEUES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from((0, 1000, 2000))), min_size=2, max_size=4)
_JOBS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from((200, 500, 700, 1500, 3000))), max_size=24)


@settings(max_examples=examples(40))
@given(_QUEUES, st.lists(_JOBS, min_size=1, max_size=4))
def test_evictions_end_when_nobody_asks_for_more(
    drawn: list[tuple[int, int]], waves: list[list[tuple[int, int]]]
) -> None:
    """Without a least runtime, as the worst case: once no job comes or ends, a few rounds later nobody is evicted."""
    queues = [
        Queue(f"q{at}", weight=weight, guarantee=amounts(guarantee), min_runtime=0)
        for at, (weight, guarantee) in enumerate(drawn)
    ]
    cluster = SharedCluster(queues, 2, node_of(4000))
    for number, wave in enumerate(waves):
        for at, (owner, cpu) in enumerate(wave):
            queue = queues[owner % len(queues)].name
            cluster.submit(Job(f"w{number}.{at}", queue, PodClass(requests=amounts(cpu)), 1e12))
        before = cluster.snapshot()
        check_evictions(before, cluster.round(), DEFAULT_POLICIES)
        cluster.pass_time(SECONDS)
    for _ in range(12):
        known = len(cluster.evictions)
        cluster.round()
        cluster.pass_time(SECONDS)
        if len(cluster.evictions) == known:
            break
    quiet = len(cluster.evictions)
    for _ in range(3):
        cluster.round()
        cluster.pass_time(SECONDS)
    assert len(cluster.evictions) == quiet
