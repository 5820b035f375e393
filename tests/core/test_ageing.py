"""Nobody starves: what waits long becomes dear to leave, and large pods no slower than small ones."""

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model import node, pod, snapshot

from flowcore.api import Interner, WirePod, to_pod
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.policies import BUILT_IN, GATE, Policy
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import run_round

BY_POD = Policy("by-pod", unscheduled=UnscheduledPrice(per=PricedBy.POD))


def _rounds_until_placed(waiting: Snapshot, large: str, *, interval: float, most: int) -> int | None:
    """Rounds in which the node empties and ten new small pods come; the one that places the large pod."""
    for number in range(1, most + 1):
        now = 1000.0 + number * interval
        new = [pod(f"small-{number}-{at}", 400, created=now - 1, policy="by-pod") for at in range(10)]
        result = run_round(replace(waiting, now=now, pending=(*waiting.pending, *new)), {"by-pod": BY_POD})
        if any(placement.pod.key == large for placement in result.placements):
            return number
    return None


def test_a_large_pod_is_not_passed_over_for_ever_by_new_small_ones() -> None:
    """Where pods count, ten new ones are dearer to leave than one that just came, and cheaper than one after hours."""
    cluster = snapshot([node("n", 4000)], [pod("large", 4000, created=1000.0, policy="by-pod")])
    placed = _rounds_until_placed(cluster, "default/large", interval=3600.0, most=12)
    assert placed is not None
    assert placed > 1


@pytest.mark.parametrize("policy", [BUILT_IN, BY_POD], ids=lambda each: each.name)
def test_a_pod_ages_by_its_size(policy: Policy) -> None:
    """After as long a wait the price of one large pod rose as much as those of the ten that would fill its place."""
    pods = [pod(name, cpu, created=1000.0, policy=policy.name) for name, cpu in (("large", 4000), ("small", 400))]
    cluster = snapshot([node("n", 4000)], pods)
    young, old = (prices(replace(cluster, now=now), {policy.name: policy}) for now in (1000.0, 2000.0))
    rise = {key: old[key] - young[key] for key in old}
    assert rise["default/large"] == 10 * rise["default/small"] > 0


NOW = 10.0**9
DAY = 86400.0
#: The API server's words, written at creation whatever gates there are: another one may be gone since.
AT_CREATION = "Scheduling is blocked due to non-empty scheduling gates"
CROSSING = Policy("crossing", unscheduled=UnscheduledPrice(aging_crosses_priorities=True))
POLICIES = {BUILT_IN.name: BUILT_IN, CROSSING.name: CROSSING, BY_POD.name: BY_POD}
#: By how much a pod of a tenth of a node ages in a second, beside the price of the smallest pod.
RATES = {BUILT_IN.name: 500, BY_POD.name: 5}


def prices(cluster: Snapshot, policies: dict[str, Policy]) -> dict[str, int]:
    """What leaving each pod costs."""
    demands = demands_of(cluster, Plan(cluster).load(), policies)
    return {pod.key: int(price) for each in demands for pod, price in zip(each.group.pods, each.prices, strict=True)}


def weights_of(cluster: Snapshot, policies: dict[str, Policy]) -> dict[str, float]:
    """How often each pod counts in its price."""
    demands = demands_of(cluster, Plan(cluster).load(), policies)
    return {pod.key: each.weight for each in demands for pod in each.group.pods}


@pytest.mark.parametrize(("age", "priority"), [(300.0, 1000), (3600.0, 10_000), (2 * DAY, 100_000), (400 * DAY, 1)])
def test_an_old_pod_does_not_come_before_one_of_a_higher_priority(age: float, priority: int) -> None:
    """One place: it goes to the higher priority, however long the other one waits; unless its policy says otherwise."""
    new = pod("new", 4000, created=NOW - 1, priority=priority)
    for policy, first in ((BUILT_IN, "new"), (CROSSING, "old")):
        old = pod("old", 4000, created=NOW - age, policy=policy.name)
        result = run_round(snapshot([node("n", 4000)], [old, new], now=NOW), POLICIES)
        assert [each.pod.key for each in result.placements] == [f"default/{first}"], policy.name


def test_many_old_pods_do_not_come_before_one_of_a_higher_priority_by_their_age() -> None:
    """What they are worth without their age is less than the one pod; together they would fill its place."""
    old = [pod(f"old{at}", 400, created=NOW - 30 * DAY) for at in range(10)]
    new = pod("new", 4000, created=NOW - 1, priority=1_000_000)
    result = run_round(snapshot([node("n", 4000)], [*old, new], now=NOW))
    assert [each.pod.key for each in result.placements] == ["default/new"]


def test_an_old_gang_does_not_come_before_one_pod_of_a_higher_priority_by_its_age() -> None:
    """The age of all its pods together does not outweigh the priority."""
    gang = [msgspec.structs.replace(pod(f"g{at}", 2000, created=NOW - 30 * DAY), gangs=("g",)) for at in range(4)]
    new = pod("new", 4000, created=NOW - 1, priority=1_000_000)
    cluster = snapshot([node("n", 4000), node("m", 4000)], [*gang, new], now=NOW)
    result = run_round(replace(cluster, gangs={"g": Gang("g", 4)}))
    assert [each.pod.key for each in result.placements] == ["default/new"]


def test_ageing_goes_on_among_equals_while_a_higher_priority_waits() -> None:
    """The large pod comes before new small ones of its priority, where another of a higher one waits too."""
    small = [pod(f"small{at}", 400, created=NOW - 1) for at in range(10)]
    large = pod("large", 4000, created=NOW - DAY)
    urgent = pod("urgent", 4000, created=NOW - 1, priority=1_000_000)
    result = run_round(snapshot([node("n", 4000), node("m", 4000)], [*small, large, urgent], now=NOW))
    assert {each.pod.key for each in result.placements} == {"default/large", "default/urgent"}


def test_the_age_of_pods_that_fit_nowhere_lifts_nobody() -> None:
    """They take no room from anybody."""
    hopeless = pod("hopeless", 4000, created=NOW - 300 * DAY, node_selector=(("no", "such"),))
    urgent = pod("urgent", 400, created=NOW, priority=10)
    cluster = snapshot([node("n", 4000)], [hopeless, urgent], now=NOW)
    assert prices(cluster, POLICIES)["default/urgent"] == BUILT_IN.unscheduled.base + 100


@pytest.mark.parametrize("policy", RATES)
def test_hopeless_giants_and_many_priorities_do_not_end_ageing(policy: str) -> None:
    """A large gang that fits nowhere waits beside pods of sixty priorities: older pods still come before newer ones."""
    giants = [pod(f"g{at}", 10**9, created=NOW - DAY, policy=policy) for at in range(200)]
    giants = [msgspec.structs.replace(each, gangs=("g",)) for each in giants]
    tiers = [pod(f"t{at}", 400, created=NOW - 1, priority=1 + at, policy=policy) for at in range(60)]
    pair = [pod(name, 400, created=NOW - age, policy=policy) for name, age in (("older", DAY), ("newer", 1))]
    cluster = snapshot([node("n", 4000)], [*giants, *tiers, *pair], now=NOW)
    found = prices(replace(cluster, gangs={"g": Gang("g", 200)}), POLICIES)
    assert found["default/older"] - found["default/newer"] == RATES[policy] * (DAY - 1)


@pytest.mark.parametrize("policy", RATES)
def test_a_large_gang_below_several_priorities_does_not_end_ageing(policy: str) -> None:
    """Whole nodes for a thousand pods, and four priorities above them: age has room for days all the same."""
    gang = [pod(f"g{at}", 4000, created=NOW - DAY, policy=policy) for at in range(1000)]
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in gang]
    tiers = [pod(f"t{at}", 400, created=NOW - 60, priority=1 + at, policy=policy) for at in range(4)]
    pair = [pod(name, 400, created=NOW - age, policy=policy) for name, age in (("older", DAY), ("newer", 1))]
    cluster = snapshot([node("n", 4000)], [*gang, *tiers, *pair], now=NOW)
    found = prices(replace(cluster, gangs={"g": Gang("g", 1000)}), POLICIES)
    assert found["default/older"] - found["default/newer"] == RATES[policy] * (DAY - 1)


_PODS = st.lists(
    st.tuples(
        st.sampled_from((-(2**31), -5, 0, 1, 2, 1000, 10**9, 2**31 - 1)),
        st.sampled_from((100, 400, 4000)),
        st.floats(0.0, 4000 * DAY),
        st.sampled_from(("low", "high", "fast", "by-pod")),
        st.sampled_from(("", "a", "b")),
    ),
    min_size=2,
    max_size=12,
)


@given(_PODS)
def test_age_never_changes_the_order_of_priorities(drawn: list[tuple[int, int, float, str, str]]) -> None:
    """Whatever ages, sizes, gangs and policies: a lower priority gains nothing on a higher one by its age.

    Where sizes count, as far as each of them counts.
    """
    policies = {
        "by-pod": BY_POD,
        "low": Policy("low"),
        "high": Policy("high", unscheduled=UnscheduledPrice(base=10**7, per_priority=1)),
        "fast": Policy("fast", unscheduled=UnscheduledPrice(base=0, per_waiting_second=10**6)),
    }
    pending: list[PendingPod] = []
    for at, (priority, cpu, age, policy, gang) in enumerate(drawn):
        made = pod(f"p{at}", cpu, created=NOW - age, policy=policy, priority=priority)
        pending.append(msgspec.structs.replace(made, gangs=(gang,)) if gang else made)
    gangs = {name: Gang(name, 1) for name in ("a", "b")}
    cluster = replace(snapshot([node("n", 4000)], pending, now=NOW), gangs=gangs)
    found, weights = prices(cluster, policies), weights_of(cluster, policies)
    still = {
        name: msgspec.structs.replace(each, unscheduled=msgspec.structs.replace(each.unscheduled, per_waiting_second=0))
        for name, each in policies.items()
    }
    before = prices(cluster, still)
    assert all(0 < price < 2**45 for price in found.values())
    for low in pending:
        for high in pending:
            if low.pod_class.priority < high.pod_class.priority:
                gained = [
                    math.ceil(round(found[key] / weights[key], 6)) - math.ceil(round(before[key] / weights[key], 6))
                    for key in (low.key, high.key)
                ]
                assert gained[0] <= gained[1]


def test_nobody_ages_behind_a_gate() -> None:
    """Age counts from when the pod could first be planned, not from its creation."""
    gated = msgspec.structs.replace(pod("gated", 4000, created=NOW - 2 * DAY), plannable_since=NOW - 1)
    honest = pod("honest", 4000, created=NOW - 60)
    result = run_round(snapshot([node("n", 4000)], [gated, honest], now=NOW))
    assert [each.pod.key for each in result.placements] == ["default/honest"]


@pytest.mark.parametrize(
    ("condition", "gates", "tried"),
    [
        ({"reason": "Unschedulable"}, [], 1_767_225_600.0),
        ({"reason": "SchedulingGated"}, [GATE], 1_767_225_600.0),
        ({"reason": "SchedulingGated", "message": AT_CREATION}, [GATE], 0.0),
        ({"reason": "SchedulingGated"}, ["theirs"], 0.0),
        ({"reason": "SchedulingGated"}, [], 0.0),
        ({"reason": "Unschedulable", "status": "True"}, [], 0.0),
        (None, [], 0.0),
    ],
)
def test_since_when_a_pod_waits_by_what_is_written_on_it(
    condition: dict[str, str] | None, gates: list[str], tried: float
) -> None:
    """The PodScheduled condition, where somebody tried to place it or our own gate alone holds it."""
    written = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    manifest = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {"schedulingGates": [{"name": name} for name in gates]},
        "status": {"conditions": [] if condition is None else [written | condition]},
    }
    assert to_pod(msgspec.convert(manifest, WirePod), Interner()).unschedulable_since == tried
