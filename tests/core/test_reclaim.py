"""Queues take back what they lent, by evictions within the rules."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from support.model import amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, PreemptionMode, PreemptionPolicy
from flowcore.model.queues import Queue, QueueState, QueueUsage, ReclaimMode
from flowcore.model.running_pods import EvictionKind, GangDisruption, RunningPod, RunningPods
from flowcore.planning.round import RoundResult, run_round

#: Seconds since the epoch, long after all pods began but those that say otherwise.
NOW = 100_000.0


def runs(
    queue: str, count: int, cpu: int = 1000, *, on: int = 0, priority: int = 0, **fields: object
) -> list[RunningPod]:
    """Running pods of a queue, four to a node, from node ``on`` on."""
    pod_class = PodClass(requests=amounts(cpu), priority=priority)
    return [
        RunningPod(
            f"default/{queue}-run-{at}",
            f"{queue}-run-{at}",
            f"n{on + at // 4}",
            pod_class,
            pod_class.requests,
            **({"started": 1000.0 + at, "queue": queue} | fields),  # type: ignore[arg-type]
        )
        for at in range(count)
    ]


def renamed(each: RunningPod, name: str, **fields: object) -> RunningPod:
    """The pod under another name."""
    known = {field: getattr(each, field) for field in RunningPod.__struct_fields__}
    return RunningPod(**(known | {"key": f"default/{name}", "uid": name} | fields))


def asks(queue: str, count: int, cpu: int = 1000, *, priority: int = 0) -> list[PendingPod]:
    """Waiting pods of a queue."""
    return [
        msgspec.structs.replace(pod(f"{queue}-{at}", cpu, created=NOW - 10 + at, priority=priority), queue=queue)
        for at in range(count)
    ]


def cluster(
    queues: Sequence[Queue],
    running: Sequence[RunningPod],
    pending: Sequence[PendingPod],
    *,
    nodes: int = 2,
    gangs: dict[str, GangDisruption] | None = None,
    budgets: dict[str, int] | None = None,
) -> Snapshot:
    """Nodes of four CPUs, with these pods on them."""
    usage: dict[str, list[int]] = {}
    for each in running:
        usage.setdefault(each.queue, []).append(dict(each.usage)["cpu"])
    state = QueueState(
        tuple(queues), {name: QueueUsage(amounts(sum(cpus), pods=len(cpus))) for name, cpus in usage.items() if name}
    )
    found = snapshot(
        [node(f"n{at}") for at in range(nodes)], pending, [(each.node, each.usage, ()) for each in running], now=NOW
    )
    return replace(found, queues=state, running=RunningPods(tuple(running), budgets or {}, gangs or {}))


def evicted(result: RoundResult) -> list[str]:
    """Names of the pods that leave, all of them to take a share back."""
    assert {each.kind for each in result.evictions} <= {EvictionKind.RECLAIM}
    return sorted(each.pod.uid for each in result.evictions)


A, B = Queue("a"), Queue("b")


def test_an_owner_takes_back_its_half_and_no_more() -> None:
    """Eight places lent to one owner: the other one comes with eight pods and gets four."""
    result = run_round(cluster([A, B], runs("a", 8), asks("b", 8)))
    assert len(evicted(result)) == 4
    assert sum(placement.pod.queue == "b" for placement in result.placements) == 4


def test_free_room_comes_before_evictions() -> None:
    """One place is free: one pod less leaves."""
    result = run_round(cluster([A, B], runs("a", 7), asks("b", 8)))
    assert len(evicted(result)) == 3
    assert len(result.placements) == 4


def test_the_youngest_leave() -> None:
    """Of pods that would all do, those that began last; pods of a higher priority stay."""
    running = [*runs("a", 4, priority=5), *(renamed(each, f"{each.uid}-low") for each in runs("a", 4, on=1))]
    assert evicted(run_round(cluster([A, B], running, asks("b", 2)))) == ["a-run-2-low", "a-run-3-low"]


def test_lower_priorities_are_preempted_whatever_the_shares_are() -> None:
    """Priority comes before shares: an owner above its share preempts pods of a lower priority."""
    result = run_round(cluster([A, B], [*runs("a", 7), *runs("b", 1, on=1)], asks("a", 1, priority=5)))
    assert [each.kind for each in result.evictions] == [EvictionKind.PREEMPTION]


@pytest.mark.parametrize(
    ("queues", "running", "pending"),
    [
        ([A, Queue("b", reclaim=ReclaimMode.NEVER)], runs("a", 8), asks("b", 8)),
        ([Queue("a", min_runtime=600), B], runs("a", 8, started=NOW - 599), asks("b", 8)),
        ([A, B], runs("a", 8, started=0.0), asks("b", 8)),
        ([Queue("a", guarantee=amounts(8000)), B], runs("a", 8), asks("b", 8)),
        ([Queue("a", weight=7), B], runs("a", 7), asks("b", 8, 2000)),
        ([A, B], runs("a", 8, priority=1), asks("b", 8)),
        ([A, B], runs("a", 8, unevictable_reason="it is a static pod"), asks("b", 8)),
        ([B], runs("", 8), asks("b", 8)),
        ([A, B], runs("a", 8), asks("", 8)),
        ([A, B], runs("a", 8), asks("a", 8)),
        ([A, B], runs("a", 8), asks("b", 8, 5000)),
    ],
    ids=[
        "its queue does not reclaim",
        "too young",
        "not started yet",
        "guaranteed",
        "one more is above the share",
        "higher priority",
        "unevictable",
        "victims of no queue",
        "waiting pods of no queue",
        "the same queue",
        "fits no node",
    ],
)
def test_who_is_never_evicted_for_a_share(
    queues: list[Queue], running: list[RunningPod], pending: list[PendingPod]
) -> None:
    """Nobody leaves."""
    assert not run_round(cluster(queues, running, pending)).evictions


def test_budgets_hold() -> None:
    """A PodDisruptionBudget lets two go: two go."""
    running = runs("a", 8, budgets=("default/web",))
    assert len(evicted(run_round(cluster([A, B], running, asks("b", 8), budgets={"default/web": 2})))) == 2


def test_a_policy_that_never_preempts_does_not_reclaim() -> None:
    """Its pods wait for what comes free."""
    never = Policy(BUILT_IN.name, preemption=PreemptionPolicy(PreemptionMode.NEVER))
    assert not run_round(cluster([A, B], runs("a", 8), asks("b", 8)), {never.name: never}).evictions


def test_a_gang_leaves_whole_or_not_at_all() -> None:
    """A gang of six that needs all its pods would leave its owner below its share: nobody leaves; one of four does."""
    for size, leave in ((6, 0), (4, 4)):
        running = [*runs("a", size, gang="g"), *runs("a", 8 - size, on=1)]
        running[size:] = [renamed(each, f"a-alone-{at}", node="n1", started=1.0, unevictable_reason="static")
                          for at, each in enumerate(running[size:])]  # fmt: skip
        gangs = {"g": GangDisruption("g", size, size)}
        assert len(evicted(run_round(cluster([A, B], running, asks("b", 4), gangs=gangs)))) == leave


def test_sisters_take_back_from_each_other_first() -> None:
    """The other branch has its share and keeps it; the sister that has more than hers gives."""
    queues = [Queue("x"), Queue("y"), Queue("x1", parent="x"), Queue("x2", parent="x")]
    result = run_round(cluster(queues, [*runs("x1", 4), *runs("y", 4, on=1)], [*asks("x2", 4), *asks("y", 4)]))
    assert [name[:3] for name in evicted(result)] == ["x1-", "x1-"]


def test_own_pods_of_a_parent_take_back_from_its_child() -> None:
    """Pods of a queue with children are one more child: they take their half of what it has, whoever else runs."""
    queues = [Queue("p"), Queue("c", parent="p"), Queue("x")]
    result = run_round(cluster(queues, [*runs("c", 4), *runs("x", 4, on=1)], asks("p", 4)))
    assert [name[:2] for name in evicted(result)] == ["c-", "c-"]


def test_own_pods_of_a_parent_keep_their_share_from_its_child() -> None:
    """The child takes what it lent from another queue, and not the only pod of its parent, however young it is."""
    queues = [Queue("p"), Queue("c", parent="p"), Queue("x")]
    others = [renamed(each, each.uid, node="n0" if at < 2 else "n1") for at, each in enumerate(runs("x", 6))]
    running = [*runs("p", 1, started=5000.0), *runs("c", 1), *others]
    assert [name[:2] for name in evicted(run_round(cluster(queues, running, asks("c", 3))))] == ["x-", "x-"]
