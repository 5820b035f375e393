"""How many pods limits of queues keep out of every plan: never more than the best choice of pods leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.model import amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs.shares.kept_out import QueueLimits
from flowcore.model.pods import PodClass
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.problem.left_at_least import LeftOfLevel
from flowcore.planning.round import run_round

_PARENTS = {"a": "top", "b": "top", "c": ""}
_limits = st.fixed_dictionaries({name: st.sampled_from((None, 0, 1, 2, 3, 5)) for name in ("top", "a", "b", "c")})
#: Queue, cores and priority of waiting pods; queue, cores, and whether it may leave, of running ones.
_waiting = st.lists(
    st.tuples(st.sampled_from(("a", "b", "c", "")), st.integers(1, 3), st.sampled_from((0, 0, 5))),
    min_size=1, max_size=6,
)  # fmt: skip
_running = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.booleans()), max_size=3)


def _limited(
    limits: dict[str, int | None], waiting: list[tuple[str, int, int]], running: list[tuple[str, int, bool]]
) -> Snapshot:
    """A node with room for everybody, and two queues below one beside a third."""
    pods = []
    for number, (queue, cores, stays) in enumerate(running):
        pod_class = PodClass(requests=amounts(1000 * cores, 0))
        pods.append(
            RunningPod(f"default/r{number}", f"r{number}", "n", pod_class, pod_class.requests, started=1.0,
                       queue=queue, unevictable_reason="it is static" if stays else "")
        )  # fmt: skip
    pending = [
        msgspec.structs.replace(pod(f"p{number}", 1000 * cores, priority=priority), queue=queue)
        for number, (queue, cores, priority) in enumerate(waiting)
    ]
    held: Counter[str] = Counter()
    for queue, cores, _ in running:
        held[queue] += 1000 * cores
    queues = tuple(
        Queue(name, parent=_PARENTS.get(name, ""), limit=() if limit is None else (("cpu", 1000 * limit),))
        for name, limit in limits.items()
    )
    state = QueueState(queues, {name: QueueUsage((("cpu", cpu),)) for name, cpu in held.items()})
    cluster = snapshot([node("n", 100_000)], pending, [(each.node, each.usage, ()) for each in pods], now=1.0)
    return replace(cluster, queues=state, running=RunningPods(tuple(pods)))


def _all_left(cluster: Snapshot, limits: dict[str, int | None]) -> Iterator[list[PendingPod]]:
    """What each choice of pods leaves that keeps all limits, whoever of the running pods leaves."""
    assert cluster.running is not None
    for chosen in product((False, True), repeat=len(cluster.pending)):
        held: Counter[str] = Counter()
        come = [each for each, comes in zip(cluster.pending, chosen, strict=True) if comes]
        stay = [each for each in cluster.running.pods if each.unevictable_reason]
        for queue, requests in [(each.queue, each.usage) for each in stay] + [
            (each.queue, each.pod_class.requests) for each in come
        ]:
            for name in {queue, _PARENTS.get(queue, "")}:
                held[name] += dict(requests)["cpu"]
        asked = {name for each in come for name in (each.queue, _PARENTS.get(each.queue, ""))}
        if all(limit is None or held[name] <= 1000 * limit for name, limit in limits.items() if name in asked):
            yield [each for each, comes in zip(cluster.pending, chosen, strict=True) if not comes]


@settings(max_examples=examples(80), deadline=None)
@given(_limits, _waiting, _running)
# The limit of the queue above keeps more out than those below.
@example({"top": 1, "a": 5, "b": 5, "c": None}, [("a", 1, 0), ("b", 1, 5), ("b", 2, 0)], [])
# The smallest pods come, the room of one that leaves is theirs.
@example(
    {"top": None, "a": 2, "b": None, "c": 1}, [("a", 3, 0), ("a", 1, 0), ("a", 1, 5), ("c", 3, 5)], [("a", 1, False)]
)
def test_no_choice_of_pods_within_limits_leaves_fewer(
    limits: dict[str, int | None], waiting: list[tuple[str, int, int]], running: list[tuple[str, int, bool]]
) -> None:
    """Of all pods and of the higher priority. Where no queue is below another it is exact."""
    cluster = _limited(limits, waiting, running)
    outcomes = list(_all_left(cluster, limits))
    assert cluster.running is not None
    known = QueueLimits(cluster, [each for each in cluster.running.pods if not each.unevictable_reason])
    for lowest in (-(2**31), 5):
        fewest = min(sum(each.pod_class.priority >= lowest for each in left) for left in outcomes)
        kept = known.kept_out(lowest)
        assert kept.pods <= fewest
        if limits["top"] is None:
            assert kept.pods == fewest
    least = run_round(cluster).left_at_least
    if least is not None:
        assert least.pods <= min(len(left) for left in outcomes) <= least.waiting


def test_limits_are_in_what_every_plan_leaves() -> None:
    """A limit of two cores for four pods of one, and a node with room for them but not for a fifth, larger one."""
    waiting = [("a", 1, 5)] * 4 + [("", 200, 0)]
    cluster = _limited({"top": None, "a": 2, "b": None, "c": None}, waiting, [])
    least = run_round(cluster).left_at_least
    assert least is not None
    assert (least.waiting, least.pods) == (3, 3)
    assert least.levels == (LeftOfLevel(5, 2, 2), LeftOfLevel(0, 3, 3))
