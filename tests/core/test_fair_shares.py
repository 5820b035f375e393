"""What is due to each queue, and what follows for the pods that wait."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.levels import NOW as DUMPED
from support.levels import scenario_of as dumped
from support.model import GI, amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot, Victim
from flowcore.costs.shares.shares import Shares
from flowcore.model.gangs import Gang
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.resources import Amounts
from flowcore.planning.problem.result import RoundResult
from flowcore.planning.round import run_round
from flowcore.questions.scenario import plan_scenario


def shared(
    queues: Sequence[Queue],
    pending: Sequence[PendingPod],
    used: dict[str, Amounts] | None = None,
    *,
    nodes: int = 1,
    cpu: int = 4000,
    memory: int = 16 * GI,
) -> Snapshot:
    """Equal nodes and queues; ``used``: what pods of queues hold, on the first nodes that have room for it."""
    table = [node(f"n{at}", cpu, memory, pods=10_000) for at in range(nodes)]
    running = [(f"n{at % nodes}", each, ()) for at, each in enumerate((used or {}).values())]
    usage = {name: QueueUsage((*each, ("pods", 1))) for name, each in (used or {}).items()}
    return replace(snapshot(table, pending, running), queues=QueueState(tuple(queues), usage))


def waiting(queue: str, count: int, cpu: int = 100, memory: int = 0, **fields: float) -> list[PendingPod]:
    """Equal pods of a queue."""
    return [
        msgspec.structs.replace(
            pod(f"{queue}-{at}", cpu, memory, created=float(fields.get("created", 1.0)) + at), queue=queue
        )
        for at in range(count)
    ]


def placed(result: RoundResult) -> Counter[str]:
    """How many pods of each queue got a node."""
    return Counter(placement.pod.queue for placement in result.placements)


# --- what is due ---


def test_dominant_shares_are_equal_as_in_the_paper() -> None:
    """Ghodsi et al., section 4.1: 9 CPUs and 18 GB; tasks of 1 CPU and 4 GB get 3, those of 3 CPUs and 1 GB get 2."""
    queues = [Queue("a"), Queue("b")]
    pods = [*waiting("a", 20, 1000, 4 * GI), *waiting("b", 20, 3000, 1 * GI)]
    shares = Shares(shared(queues, pods, cpu=9000, memory=18 * GI))
    assert shares.fair["a"][:2] == pytest.approx([3000, 12 * GI])
    assert shares.fair["b"][:2] == pytest.approx([6000, 2 * GI])


def test_weights_guarantees_and_limits_bend_equal_shares() -> None:
    """Of ten CPUs: by weight 2:1; a guarantee comes first and counts; a limit leaves the rest to the others."""
    pods = [*waiting("a", 200), *waiting("b", 200)]
    for a, b, due in (
        (Queue("a", weight=3), Queue("b", weight=1), (7500, 2500)),
        (Queue("a", guarantee=amounts(8000)), Queue("b"), (8000, 2000)),
        (Queue("a", guarantee=amounts(2000)), Queue("b"), (5000, 5000)),
        (Queue("a", limit=amounts(1000)), Queue("b"), (1000, 9000)),
    ):
        fair = Shares(shared([a, b], pods, cpu=10_000)).fair
        assert (fair["a"][0], fair["b"][0]) == pytest.approx(due), (a, b)


def test_what_nobody_asks_for_is_lent() -> None:
    """A queue that asks for little is due that; the others share the rest equally."""
    pods = [*waiting("a", 10), *waiting("b", 200), *waiting("c", 200)]
    fair = Shares(shared([Queue("a"), Queue("b"), Queue("c")], pods, cpu=10_000)).fair
    assert [fair[name][0] for name in "abc"] == pytest.approx([1000, 4500, 4500])


def test_a_tree_shares_level_by_level() -> None:
    """Two departments get half each, however many teams they have; the idle team's part goes to its sister first."""
    queues = [Queue("x"), Queue("y"), Queue("x1", parent="x"), Queue("x2", parent="x"), Queue("y1", parent="y")]
    everybody = [*waiting("x1", 200), *waiting("x2", 200), *waiting("y1", 200)]
    fair = Shares(shared(queues, everybody, cpu=10_000)).fair
    assert [fair[name][0] for name in ("x", "y", "x1", "x2", "y1")] == pytest.approx([5000, 5000, 2500, 2500, 5000])
    fair = Shares(shared(queues, [*waiting("x1", 200), *waiting("y1", 200)], cpu=10_000)).fair
    assert [fair[name][0] for name in ("x1", "x2", "y1")] == pytest.approx([5000, 0, 5000])


def test_a_guarantee_of_a_parent_is_shared_below_it() -> None:
    """Eight of ten CPUs are guaranteed to the parent: its two children get four each."""
    queues = [Queue("x", guarantee=amounts(8000)), Queue("y"), Queue("x1", parent="x"), Queue("x2", parent="x")]
    pods = [*waiting("x1", 200), *waiting("x2", 200), *waiting("y", 200)]
    fair = Shares(shared(queues, pods, cpu=10_000)).fair
    assert [fair[name][0] for name in ("x1", "x2", "y")] == pytest.approx([4000, 4000, 2000])


def test_a_guarantee_of_another_resource_gives_nothing() -> None:
    """A queue with guaranteed memory whose pods ask for CPU alone is like any other."""
    queues = [Queue("a", guarantee=amounts(0, 8 * GI)), Queue("b")]
    fair = Shares(shared(queues, [*waiting("a", 200), *waiting("b", 200)], cpu=10_000)).fair
    assert [fair[name][0] for name in "ab"] == pytest.approx([5000, 5000])


def test_pods_of_no_queue_are_not_shared_out() -> None:
    """Queues share what pods of no queue leave."""
    cluster = shared([Queue("a"), Queue("b")], [*waiting("a", 200), *waiting("b", 200)], cpu=10_000)
    used = cluster.used.copy()
    used[0, 0] = 4000
    fair = Shares(replace(cluster, used=used)).fair
    assert [fair[name][0] for name in "ab"] == pytest.approx([3000, 3000])


def test_what_fits_no_node_is_not_due() -> None:
    """A queue that asks for pods larger than every node does not lower the share of others."""
    cluster = shared([Queue("a"), Queue("b")], [*waiting("a", 5, 5000), *waiting("b", 200)], nodes=2)
    fair = Shares(cluster).fair
    assert [fair[name][0] for name in "ab"] == pytest.approx([0, 8000])


def test_a_resource_that_nobody_can_have_takes_nothing_away() -> None:
    """A pod of no queue holds the only gpu, or the gpu is gone: queues that ask for it, or held it, keep their CPUs."""
    for offered in (1, 0):
        pods = [*waiting("a", 200), *waiting("b", 200)]
        wants = msgspec.structs.replace(pod("gpu", 100, gpu=1), queue="a")
        table = [node("n0", 10_000, gpu=offered, pods=1000), node("n1", 0, gpu=0, pods=0)]
        running = [("n0", amounts(gpu=1), ())]
        cluster = snapshot(table, [*pods, wants], running)
        usage = {} if offered else {"a": QueueUsage(amounts(gpu=1))}
        shares = Shares(replace(cluster, queues=QueueState((Queue("a"), Queue("b")), usage)))
        assert [shares.fair[name][0] for name in "ab"] == pytest.approx([5000, 5000])
        assert shares.dominant(shares.used["a"]) == 0.0


_AMOUNTS = st.integers(0, 60)


def test_pods_on_nodes_that_offer_none_take_nothing_from_queues() -> None:
    """HAMi hands out the GPUs of its nodes, and its pods ask for more of them than there are."""
    nodes = [node("plain", gpu=8), node("hami")]
    running = [("hami", amounts(100, gpu=5), ()), ("plain", amounts(100, gpu=1), ())]
    state = QueueState((Queue("a"),), {})
    shares = Shares(replace(snapshot(nodes, [], running), queues=state))
    assert dict(zip(shares.resources, shares.capacity, strict=True))["nvidia.com/gpu"] == 7.0


@given(
    st.lists(
        st.tuples(
            _AMOUNTS, _AMOUNTS, st.integers(1, 4), st.integers(-1, 3), st.none() | _AMOUNTS, st.none() | _AMOUNTS
        ),
        min_size=1,
        max_size=6,
    )
)
def test_fair_shares_stay_within_capacity_demand_and_limits(
    drawn: list[tuple[int, int, int, int, int | None, int | None]],
) -> None:
    """Nobody is due more than it asks for or its limit; together never more than there is; nobody can use what is left.

    The last is Pareto efficiency: a queue that is due less than it asks for lacks a resource that is used up, or it or
    a queue above it is at a limit.
    """
    queues, pods = [], []
    for at, (cpu, memory, weight, parent, limit, guarantee) in enumerate(drawn):
        above = f"q{parent}" if 0 <= parent < at else ""
        bounds = [() if each is None else amounts(100 * each) for each in (limit, guarantee)]
        queues.append(Queue(f"q{at}", parent=above, weight=weight, limit=bounds[0], guarantee=bounds[1]))
        pods += waiting(f"q{at}", 1, 100 * cpu, memory * GI)
    shares = Shares(shared(queues, pods, cpu=6000, memory=60 * GI))
    total = sum(shares.fair[queue.name] for queue in queues if not queue.parent)
    small = 1e-6 * shares.capacity
    assert (total <= shares.capacity + small).all()
    used_up = total >= shares.capacity - small
    for at, queue in enumerate(queues):
        below = sum(shares.fair[name] for name in shares.tree.children(queue.name))
        own = shares.fair[queue.name] - below
        asked = shares.request(pods[at].pod_class.requests)
        assert (shares.fair[queue.name] <= shares.limit(queue.name) + small).all()
        assert (own <= asked + small).all()
        at_limit = [
            ((shares.fair[name] >= shares.limit(name) - small) & (asked > 0)).any()
            for name in shares.tree.path(queue.name)
        ]
        assert (own >= asked - small).all() or (used_up & (asked > 0)).any() or any(at_limit)


# --- the order of waiting pods ---


def test_two_equal_owners_end_within_one_pod_of_equal_shares() -> None:
    """Twice as many pods as there is room for, one owner's older by days: eleven places go six to five."""
    pods = [*waiting("a", 22), *(msgspec.structs.replace(each, created=10.0**6) for each in waiting("b", 22))]
    result = run_round(replace(shared([Queue("a"), Queue("b")], pods, cpu=1100), now=10.0**6))
    counts = placed(result)
    assert counts.total() == 11
    assert abs(counts["a"] - counts["b"]) <= 1


@pytest.mark.parametrize("name", ["shares-plain-1-286", "shares-guarantee-1-188"])
def test_queues_of_equal_pods_end_within_one_pod_of_what_is_due(name: str) -> None:
    """A large queue gets no pod too many, and one that is due less than a pod is not passed over."""
    planned = plan_scenario(dumped(f"by_name/{name}"), DUMPED)
    _check_within_one_pod(planned.before, planned.result)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=2, max_size=6), st.integers(3, 40))
def test_drawn_queues_end_within_one_pod_of_what_is_due(drawn: list[tuple[int, int]], room: int) -> None:
    """Weights and guarantees in pods; all queues have more pods than there is room for."""
    queues = [Queue(f"q{number}", weight=weight, guarantee=amounts(100 * guarantee) if guarantee else ())
              for number, (weight, guarantee) in enumerate(drawn)]  # fmt: skip
    pods = [pod for queue in queues for pod in waiting(queue.name, room)]
    cluster = shared(queues, pods, cpu=100 * room)
    _check_within_one_pod(cluster, run_round(cluster))


def _check_within_one_pod(before: Snapshot, result: RoundResult) -> None:
    """Of a cluster whose pods are equal."""
    shares, counts = Shares(before), placed(result)
    size = shares.request(before.pending[0].pod_class.requests)
    asked = size > 0
    for name, due in shares.fair.items():
        held = shares.used[name][asked] / size[asked]
        came = sum(count for queue, count in counts.items() if name in shares.path(queue))
        assert abs(float(held.max()) + came - float((due[asked] / size[asked]).max())) <= 1 + 1e-6


@pytest.mark.parametrize("size", [1, 3, 8])
def test_small_pods_do_not_take_the_share_of_large_ones(size: int) -> None:
    """One owner's pods are several times as large; both get half, as far as whole nodes divide."""
    pods = [*waiting("a", 400, 100), *waiting("b", 400 // size, 100 * size)]
    result = run_round(shared([Queue("a"), Queue("b")], pods, nodes=10, cpu=1600))
    counts = placed(result)
    assert counts["a"] + size * counts["b"] == 160
    assert abs(counts["a"] - size * counts["b"]) <= 4 * size


def test_who_has_less_than_its_share_comes_first() -> None:
    """One owner holds three quarters; the free quarter goes to the other, however long the first one's pods wait."""
    pods = [*waiting("a", 20), *(msgspec.structs.replace(each, created=900_000.0) for each in waiting("b", 20))]
    cluster = shared([Queue("a"), Queue("b")], pods, {"a": amounts(3000)}, cpu=4000)
    assert placed(run_round(replace(cluster, now=10.0**6))) == {"b": 10}


def test_idle_shares_are_lent() -> None:
    """Where only one owner asks, it gets everything."""
    cluster = shared([Queue("a"), Queue("b")], waiting("a", 60), cpu=4000)
    assert placed(run_round(cluster)) == {"a": 40}


def test_a_higher_priority_still_comes_first() -> None:
    """Shares order pods of one priority: an owner beyond its share is first with its urgent pods."""
    urgent = [msgspec.structs.replace(each, pod_class=pod("x", 100, priority=10).pod_class) for each in waiting("a", 5)]
    cluster = shared([Queue("a"), Queue("b")], [*urgent, *waiting("b", 20)], {"a": amounts(3500)}, cpu=4000)
    assert placed(run_round(cluster)) == {"a": 5}


def test_without_queues_no_price_changes() -> None:
    """The same pods with and without the kind in the cluster: placements, prices, cost and bound are equal."""
    pods = [pod(f"p{at}", 300 + 100 * (at % 3), created=float(at), priority=at % 2) for at in range(60)]
    cluster = snapshot([node(f"n{at}", 2000) for at in range(4)], pods, now=1000.0)
    plain = run_round(cluster)
    for queues in (QueueState(), QueueState((Queue("nobody"),))):
        other = run_round(replace(cluster, queues=queues))
        assert (other.placements, other.unplaced) == (plain.placements, plain.unplaced)
        assert (other.cost, other.lower_bound) == (plain.cost, plain.lower_bound)


# --- limits ---


def test_a_limit_is_never_passed() -> None:
    """Room for forty, a limit for ten of which four run: six more come, the others say why they wait."""
    cluster = shared([Queue("a", limit=amounts(1000))], waiting("a", 20), {"a": amounts(400)}, cpu=4000)
    result = run_round(cluster)
    assert placed(result) == {"a": 6}
    assert {(each.code, each.more_nodes_help) for each in result.unplaced} == {("QueueLimit", False)}
    assert result.unplaced[0].reason == "The limit of FlowQueue a leaves too little cpu for it."


@pytest.mark.parametrize("created", [(1.0, 2.0), (1.0, 1.0)])
def test_what_a_limit_leaves_is_for_who_came_first(created: tuple[float, float]) -> None:
    """After a restart all wait since the same moment; of one second they are in the order in which they came."""
    first, second = (
        msgspec.structs.replace(pod(name, 100, created=time), queue="a", plannable_since=5.0)
        for name, time in zip("ba", created, strict=True)
    )
    result = run_round(shared([Queue("a", limit=amounts(100))], [first, second]))
    assert [each.pod.uid for each in result.placements] == ["b"]


def test_pods_that_are_leaving_count_for_the_limit() -> None:
    """A limit counts what its pods hold until they are gone."""
    cluster = shared([Queue("a", limit=amounts(1000))], waiting("a", 20), {"a": amounts(1000)}, cpu=4000)
    usage = QueueUsage(amounts(1000, pods=1), amounts(1000, pods=1))
    leaving = replace(cluster, queues=QueueState((Queue("a", limit=amounts(1000)),), {"a": usage}))
    assert not run_round(leaving).placements


def test_a_limit_above_counts_all_below_it() -> None:
    """Two children without limits stay within their parent's together."""
    queues = [Queue("x", limit=amounts(1000)), Queue("x1", parent="x"), Queue("x2", parent="x")]
    result = run_round(shared(queues, [*waiting("x1", 20), *waiting("x2", 20)], cpu=4000))
    assert placed(result).total() == 10


@pytest.mark.parametrize(
    ("guarantee", "counts"), [((), {"x1": 2, "x2": 2}), (amounts(300), {"x1": 1, "x2": 3})], ids=["shares", "guarantee"]
)
def test_what_a_limit_above_leaves_is_shared_as_room_is(guarantee: Amounts, counts: dict[str, int]) -> None:
    """Nodes have room for all: the older pods of one child leave the other what is due to it below the limit."""
    queues = [Queue("x", limit=amounts(400)), Queue("x1", parent="x"), Queue("x2", parent="x", guarantee=guarantee)]
    pods = [*waiting("x1", 4), *waiting("x2", 4, created=50.0)]
    assert placed(run_round(shared(queues, pods))) == counts
    without = [msgspec.structs.replace(queue, limit=()) for queue in queues]
    assert placed(run_round(shared(without, pods, cpu=400))) == counts


@pytest.mark.parametrize("limit", [(), amounts(400)], ids=["room", "limit"])
def test_pods_that_a_queue_with_children_has_itself_are_one_more_child(limit: Amounts) -> None:
    """They share what the queue has with its child, each half of it."""
    queues = [Queue("x", limit=limit), Queue("x1", parent="x")]
    pods = [*waiting("x", 4), *waiting("x1", 4, created=50.0)]
    assert placed(run_round(shared(queues, pods, cpu=4000 if limit else 400))) == {"x": 2, "x1": 2}


@pytest.mark.parametrize("why", ["no node", "no gang"])
def test_pods_that_wait_anyhow_take_no_share_of_a_limit(why: str) -> None:
    """The oldest pods of one child fit no node, or their gang is not there: its other pods get what is due to it."""
    queues = [Queue("x", limit=amounts(400)), Queue("x1", parent="x"), Queue("x2", parent="x")]
    nowhere = pod("x", 100, node_selector=(("no", "such"),)).pod_class
    lost = [
        msgspec.structs.replace(each, key=f"{each.key}-lost", pod_class=nowhere if why == "no node" else each.pod_class)
        for each in waiting("x2", 4)
    ]
    if why == "no gang":
        lost = [msgspec.structs.replace(each, gangs=("g",)) for each in lost]
    pods = [*waiting("x1", 4), *lost, *waiting("x2", 4, created=50.0)]
    gangs = {"g": Gang("g", 4, unschedulable_reason="It has no controller.")}
    assert placed(run_round(replace(shared(queues, pods), gangs=gangs))) == {"x1": 2, "x2": 2}


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=2, max_size=6), st.integers(3, 40))
def test_drawn_children_end_within_one_pod_of_what_is_due_below_a_limit(
    drawn: list[tuple[int, int]], limit: int
) -> None:
    """Weights and guarantees in pods; all children have more pods than the limit lets in, and nodes have more room."""
    queues = [Queue(f"q{number}", parent="x", weight=weight, guarantee=amounts(100 * guarantee) if guarantee else ())
              for number, (weight, guarantee) in enumerate(drawn)]  # fmt: skip
    pods = [pod for queue in queues for pod in waiting(queue.name, limit)]
    cluster = shared([Queue("x", limit=amounts(100 * limit)), *queues], pods, cpu=200 * limit)
    _check_within_one_pod(cluster, run_round(cluster))


def test_a_limit_on_pods_counts_pods() -> None:
    """The resource pods limits their number."""
    assert placed(run_round(shared([Queue("a", limit=amounts(pods=3))], waiting("a", 20)))) == {"a": 3}


def test_a_gang_that_would_pass_the_limit_waits_whole() -> None:
    """A gang of eight with room for six below the limit gets none; a gang of six beside it gets all."""
    eight = [msgspec.structs.replace(each, gangs=("eight",)) for each in waiting("a", 8)]
    six = [
        msgspec.structs.replace(each, key=f"{each.key}-six", gangs=("six",), created=50.0) for each in waiting("a", 6)
    ]
    cluster = shared([Queue("a", limit=amounts(600))], [*eight, *six], cpu=4000)
    result = run_round(replace(cluster, gangs={"eight": Gang("eight", 8), "six": Gang("six", 6)}))
    assert {placement.pod.key for placement in result.placements} == {each.key for each in six}
    assert {each.reason for each in result.unplaced} == {
        "The limit of FlowQueue a leaves too little cpu for the 8 pods that its gang needs."
    }


def test_a_gang_gets_beyond_its_need_what_the_limit_leaves() -> None:
    """Four of eight pods are needed and six are within the limit: six come."""
    pods = [msgspec.structs.replace(each, gangs=("g",)) for each in waiting("a", 8)]
    cluster = shared([Queue("a", limit=amounts(600))], pods, cpu=4000)
    assert placed(run_round(replace(cluster, gangs={"g": Gang("g", 4)}))) == {"a": 6}


def test_a_pod_without_room_does_not_use_up_the_limit() -> None:
    """The oldest pod fits no node; pods that do get what the limit allows."""
    large = msgspec.structs.replace(
        pod("large", 900), queue="a", pod_class=pod("x", 900, node_selector=(("no", "such"),)).pod_class
    )
    cluster = shared([Queue("a", limit=amounts(1000))], [large, *waiting("a", 10)], cpu=4000)
    assert placed(run_round(cluster)) == {"a": 10}


def test_a_pod_is_not_held_back_by_its_own_reservation() -> None:
    """Room is held for a pod at the limit of its queue, and counted: the pod gets it, and it counts once."""
    held = Victim(node="n0", usage=amounts(1000), has_left=True)
    mine = [msgspec.structs.replace(each, victim=held) for each in waiting("a", 1, 1000)]
    queues = [Queue("a", limit=amounts(1000))]
    state = shared(queues, mine, {"a": amounts(1000)})
    result = run_round(state)
    assert placed(result) == {"a": 1}
    assert state.queues is not None
    assert result.after.queues == state.queues
    assert Shares(state).fair["a"][0] == 1000


def test_a_pod_that_takes_the_place_of_another_of_its_queue_adds_the_difference() -> None:
    """At the limit an equal pod comes for it, a larger one does not; nor does one for a pod of another queue."""
    for cpu, queue, count in ((1000, "a", 1), (1100, "a", 0), (1000, "b", 0)):
        victim = Victim("default/old", "n0", amounts(1000), queue=queue)
        mine = [msgspec.structs.replace(each, victim=victim) for each in waiting("a", 1, cpu)]
        queues = [Queue("a", limit=amounts(1000)), Queue("b")]
        result = run_round(shared(queues, mine, {"a": amounts(1000), "b": amounts(1000)}))
        assert placed(result)["a"] == count, (cpu, queue)


def test_a_pod_larger_than_every_node_does_not_use_up_the_limit() -> None:
    """Its priority is the highest, and it would take what the limit leaves: pods that nodes have room for come."""
    large = msgspec.structs.replace(pod("large", 6000, priority=5), queue="a")
    cluster = shared([Queue("a", limit=amounts(6000))], [large, *waiting("a", 4, 1000)], nodes=2)
    assert placed(run_round(cluster)) == {"a": 4}
