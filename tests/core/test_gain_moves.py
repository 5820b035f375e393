"""Moves for gain: worth their price, legal, within their limits, and never to and fro."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import NOW, clusters, keeps_apart, node, running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.cost_policy import CostPolicy, DataLocality
from flowcore.model.data import DataPlace, DataSource, Level
from flowcore.model.default_spread import NO_SPREAD, SYSTEM_SPREAD, DefaultSpread
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod
from flowcore.model.policies import (
    BUILT_IN,
    DuringExecution,
    LastingRule,
    LostWork,
    Policy,
    ReschedulingMode,
    ReschedulingPolicy,
    ReschedulingReason,
)
from flowcore.model.running_pods import EvictionKind, RecentMove, RunningPod, RunningPods
from flowcore.model.usage import MAX_FUTURE
from flowcore.model.workload_kinds import Interference, Machines, WorkloadKind
from flowcore.planning.evictions.moves.move_prices import move_prices
from flowcore.planning.evictions.moves.running_costs import MOST_KINDS, MovableKind, RunningCosts
from flowcore.planning.problem.result import Eviction
from flowcore.planning.round import Round, RoundResult, run_round

HOSTNAME = "kubernetes.io/hostname"
_FREE = ReschedulingPolicy(
    mode=ReschedulingMode.ACT,
    min_age=0,
    reasons=(ReschedulingReason.GAIN,),
    min_gain=1,
    startup=0,
    lost_work=LostWork.IGNORE,
)


def gaining(model: str = "CPUMemory", **fields: Any) -> Policy:
    """The built-in policy with moves for gain that cost nothing; further words are fields of ReschedulingPolicy."""
    rescheduling = msgspec.structs.replace(_FREE, **fields)
    return msgspec.structs.replace(BUILT_IN, rescheduling=rescheduling, cost=CostPolicy(model))


def plan(drawn: Snapshot, policy: Policy) -> RoundResult:
    """The plan of a snapshot under one policy."""
    return run_round(drawn, {policy.name: policy})


def moved(result: RoundResult) -> dict[str, str]:
    """Where pods move to, by name."""
    return {each.pod.key.partition("/")[2]: each.to for each in result.evictions}


# --- what a move costs ---


def test_the_price_of_a_move() -> None:
    """Lost work and start-up, in seconds of waiting of what the pod holds; a pod that has not started lost nothing."""
    policy = gaining(lost_work=LostWork.COUNT, startup=30)
    ran = [100.0, 100.0, 0.0, 100.0]
    saved = [0.0, 900.0, 0.0, 0.0]
    pods = [job(started=start, checkpointed=checkpoint) for start, checkpoint in zip(ran, saved, strict=True)]
    rate = policy.unscheduled.per_waiting_second
    assert prices_of(pods, [1, 1, 1, 4], policy) == [930 * rate, 130 * rate, 30 * rate, 930 * rate * 4]
    assert prices_of(pods[:1], [1], gaining(lost_work=LostWork.IGNORE, startup=30)) == [30 * rate]


def test_a_replica_of_a_service_loses_its_start() -> None:
    """However long it has run; one that says when it saved its work loses what came after."""
    policy = gaining(lost_work=LostWork.COUNT, startup=30)
    pods = [job(finite=False, started=1.0, checkpointed=saved) for saved in (0.0, 900.0, 1_000.0 + 2 * MAX_FUTURE)]
    rate = policy.unscheduled.per_waiting_second
    assert prices_of(pods, [1, 1, 1], policy) == [30 * rate, 130 * rate, 30 * rate]
    policy = gaining(lost_work=LostWork.COUNT)
    service, batch = (crowded(policy, 2, finite=finite) for finite in (False, True))
    assert plan(service, policy).evictions
    assert not plan(batch, policy).evictions


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e12), st.integers(1, 10), st.integers(0, 86_400))
def test_a_checkpoint_only_lowers_the_price(
    started: float, checkpointed: float, now: float, size: int, startup: int
) -> None:
    """Of a job: whatever the annotation says, the price is at most that without it, and never negative."""
    policy = gaining(lost_work=LostWork.COUNT, startup=startup)
    pods = [job(started=started, checkpointed=saved) for saved in (checkpointed, 0.0)]
    said, silent = prices_of(pods, [size, size], policy, now)
    assert 0 <= said <= silent


def prices_of(pods: list[RunningPod], tenths: list[int], policy: Policy, now: float = 1_000.0) -> list[int]:
    """What a move of each costs; ``tenths``: of a node that each holds."""
    nodes = snapshot([node("n0", 10), node("n1", 10)], [], [], policy=policy, now=now)
    usage = np.array([nodes.vector((("cpu", each),)) for each in tenths])
    prices: list[int] = move_prices(pods, usage, {policy.name: policy}, nodes).tolist()
    return prices


def job(**fields: Any) -> RunningPod:
    """A pod that runs to an end, as rounds read it."""
    (pod,) = known([running("p", "n0", 1, finite=True)], gaining()).pods
    return msgspec.structs.replace(pod, **fields)


def known(pods: list[Pod], policy: Policy) -> RunningPods:
    """Running pods as rounds read them."""
    found = snapshot([node("n0"), node("n1"), node("n2")], pods, [], policy=policy).running
    assert found is not None
    return found


# --- who moves ---


def crowded(policy: Policy, pods: int = 3, **fields: Any) -> Snapshot:
    """All pods on one of three equal nodes."""
    return snapshot(
        [node(f"n{place}", 8) for place in range(3)],
        [running(f"p{number}", "n0", 2, **fields) for number in range(pods)],
        [],
        policy=policy,
    )


def test_a_pod_moves_to_an_emptier_node() -> None:
    """It says by how much that is cheaper, what the move costs, and for whom: nobody."""
    policy = gaining(startup=10)
    result = plan(crowded(policy, 2), policy)
    (move,) = result.evictions
    assert (move.kind, move.for_pods, move.to) == (EvictionKind.MIGRATION, (), "n1")
    price = 10 * policy.unscheduled.per_waiting_second * 2.5  # a quarter of a node
    assert move.gain >= price + policy.rescheduling.min_gain
    assert move.reason == f"it costs {move.gain:,} less on n1 than on n0, and its move costs {int(price):,}"


@pytest.mark.parametrize(("spread", "to"), [(SYSTEM_SPREAD, ["n1"]), (NO_SPREAD, [])])
def test_a_replica_moves_away_from_another_one(spread: DefaultSpread, to: list[str]) -> None:
    """To a node that is fuller: pods without constraints are spread by default when they move, too."""
    policy = msgspec.structs.replace(gaining(), cost=CostPolicy(default_spread=spread))
    replicas = [running(f"web-{number}", "n0", 1, spread_owner="web") for number in range(2)]
    nodes = [node("n0", cpu=100), node("n1", cpu=100)]
    drawn = snapshot(nodes, [*replicas, running("other", "n1", 10, owner="other")], [], policy=policy)
    assert [each.to for each in plan(drawn, policy).evictions] == to


def test_nothing_moves_unless_a_policy_names_gain() -> None:
    """The reasons of a policy that says nothing are those of before."""
    policy = gaining(reasons=ReschedulingPolicy().reasons)
    assert not plan(crowded(policy), policy).evictions
    assert ReschedulingReason.GAIN not in ReschedulingPolicy().reasons


@pytest.mark.parametrize(
    ("reason", "for_waiting", "for_rules"),
    [
        (ReschedulingReason.WAITING_PODS, True, False),
        (ReschedulingReason.BROKEN_RULES, False, True),
        (ReschedulingReason.GAIN, False, False),
    ],
)
def test_each_reason_moves_for_its_own(
    reason: ReschedulingReason,
    for_waiting: bool,  # noqa: FBT001
    for_rules: bool,  # noqa: FBT001
) -> None:
    """A pod that only a move makes room for waits otherwise, and a pod that breaks a rule stays otherwise."""
    policy = msgspec.structs.replace(gaining(reasons=(reason,)), during_execution=DuringExecution.EVICT)
    pods = [running("p", "n0", 2), running("q", "n1", 3, owner="", immovable_reason="stays")]
    nodes = [node("n0", 8), node("n1", 6)]
    result = plan(snapshot(nodes, pods, [waiting("large", 8)], policy=policy), policy)
    assert bool(result.placements) is for_waiting
    assert moved(result) == ({"p": "n1"} if for_waiting else {})
    pod = known(pods[:1], policy).pods[0]
    assert (pod.during_execution is DuringExecution.EVICT) is for_rules


@pytest.mark.parametrize("above", [0, 1])
def test_the_margin_is_exact(above: int) -> None:
    """A move is worth its price and the margin together, not one less."""
    policy = gaining(startup=10)
    (move,) = plan(crowded(policy, 2), policy).evictions
    price = int(10 * policy.unscheduled.per_waiting_second * 2.5)
    stricter = gaining(startup=10, min_gain=move.gain - price + above)
    assert len(plan(crowded(stricter, 2), stricter).evictions) == 1 - above


def test_lost_work_keeps_a_pod_and_a_checkpoint_lets_it_go() -> None:
    """What ran for long stays; what has just saved its work moves."""
    policy = gaining(lost_work=LostWork.COUNT)
    assert not plan(crowded(policy, 2, finite=True), policy).evictions
    assert plan(crowded(policy, 2, finite=True, checkpointed=NOW), policy).evictions
    soon = crowded(policy, 2, finite=True, checkpointed=NOW + MAX_FUTURE)
    assert plan(soon, policy).evictions, "clocks differ a little"
    ahead = crowded(policy, 2, finite=True, checkpointed=NOW + MAX_FUTURE + 1)
    assert not plan(ahead, policy).evictions, "a checkpoint in the future"
    assert plan(replace(ahead, now=NOW + 1), policy).evictions, "its time has come"


def test_a_pod_follows_its_data() -> None:
    """A node with the data is worth a move."""
    source = DataSource((DataPlace(Level.NODE, "n2"),), 40 * 2**30)
    cost = CostPolicy(data_locality=DataLocality())
    policy = msgspec.structs.replace(gaining(), cost=cost)
    pod = running("p", "n0", 2)
    pod = msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, data=(source,)))
    drawn = snapshot([node(f"n{place}", 8) for place in range(3)], [pod], [], policy=policy)
    assert moved(plan(drawn, policy)) == {"p": "n2"}


def test_a_faster_machine_and_a_quieter_neighbour() -> None:
    """Machines and interference count for running pods as for waiting ones."""
    kinds = (WorkloadKind("slow", selects("a")), WorkloadKind("loud", selects("b")))
    machines = Machines("zone", (("slow", "0", 2000), ("slow", "1", 1000), ("slow", "2", 2000)))
    cost = CostPolicy(kinds=kinds, machines=machines)
    policy = msgspec.structs.replace(gaining(), cost=cost)
    nodes = [node(f"n{place}", 8) for place in range(3)]
    drawn = snapshot(nodes, [running("p", "n0", 2, labels=(("app", "a"),))], [], policy=policy)
    assert moved(plan(drawn, policy)) == {"p": "n1"}
    noise = CostPolicy(kinds=kinds, interference=Interference(((0, 900), (0, 0))))
    policy = msgspec.structs.replace(gaining(), cost=noise)
    pods = [running("p", "n0", 2, labels=(("app", "a"),)), running("q", "n0", 1, owner="", labels=(("app", "b"),))]
    (move,) = plan(snapshot(nodes, pods, [], policy=policy), policy).evictions
    assert move.pod.key == "default/p"
    assert move.gain > 900


def test_nodes_are_emptied_by_bin_packing() -> None:
    """The model decides what is better: with BinPacking pods gather, and nodes come free."""
    policy = gaining("BinPacking")
    nodes = [node(f"n{place}", 8) for place in range(3)]
    pods = [running("a", "n0", 1), running("b", "n1", 3), running("c", "n2", 1)]
    assert moved(plan(snapshot(nodes, pods, [], policy=policy), policy)) == {"a": "n1", "c": "n1"}


# --- who stays ---


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": "", "immovable_reason": "no controller would replace it"},
        {"immovable_reason": "its annotation scheduling.thalweg/evictable says so"},
        {"gang": GangRef(GangKey(GangSource.THALWEG, "default", "g"), GangSpec(min_member=1))},
        {"constraints": InterPodConstraints(affinity=(AffinityTerm(HOSTNAME, selects("b"), ("default",)),))},
        {
            "labels": (("app", "a"),),
            "constraints": InterPodConstraints(spread=(SpreadConstraint(HOSTNAME, 1, selects("a")),)),
        },
        {"static": True},
    ],
)
def test_pods_that_never_move_for_gain(fields: dict[str, Any]) -> None:
    """Opt-outs, gangs, and pods whose rules fail elsewhere, or count how many there are on each node."""
    policy = gaining()
    assert plan(crowded(policy, 2), policy).evictions, "others do"
    beside = {"labels": (("app", "b"),), "owner": "", "immovable_reason": "stays"}
    pods = [running("p", "n0", 2, **fields), running("q", "n0", 4, **beside)]
    assert not plan(snapshot([node("n0", 8), node("n1", 8)], pods, [], policy=policy), policy).evictions


@pytest.mark.parametrize(
    ("key", "to"), [(HOSTNAME, {}), ("zone", {"p": "n2"}), ("", {"p": "n1"})], ids=["node", "zone", "no rule"]
)
@pytest.mark.parametrize("rule", ["affinity", "spread"])
def test_a_pod_that_rules_count_stays_in_their_domain(key: str, to: dict[str, str], rule: str) -> None:
    """A required rule of another pod, which may not move, counts it: the cheapest node is in another zone."""
    policy = gaining()
    near = InterPodConstraints(affinity=(AffinityTerm(key, selects("a"), ("default",)),))
    spread = InterPodConstraints(spread=(SpreadConstraint(key, 1, selects("a")),))
    constraints = (near if rule == "affinity" else spread) if key else None
    stays = {"labels": (("app", "b"),), "owner": "", "immovable_reason": "stays"}
    pods = [
        running("p", "n0", 2, labels=(("app", "a"),)),
        running("q", "n0", 4, constraints=constraints, **stays),
        running("r", "n2", 1, **stays),
    ]
    nodes = [
        msgspec.structs.replace(node(name, 8), labels=((HOSTNAME, name), ("zone", zone)))
        for name, zone in (("n0", "a"), ("n1", "b"), ("n2", "a"))
    ]
    drawn = snapshot(nodes, pods, [], policy=policy)
    result = plan(drawn, policy)
    check_evictions(drawn, result, {policy.name: policy})
    assert moved(result) == to


def test_a_pod_with_rules_moves_where_they_hold() -> None:
    """One that wants another pod in its zone goes to another node of the zone, not to the cheaper one elsewhere."""
    policy = gaining()
    near = InterPodConstraints(affinity=(AffinityTerm("zone", selects("b"), ("default",)),))
    stays = {"labels": (("app", "b"),), "owner": "", "immovable_reason": "stays"}
    pods = [running("p", "n0", 2, constraints=near), running("q", "n0", 4, **stays), running("r", "n2", 1, **stays)]
    nodes = [
        msgspec.structs.replace(node(name, 8), labels=((HOSTNAME, name), ("zone", zone)))
        for name, zone in (("n0", "a"), ("n1", "b"), ("n2", "a"))
    ]
    assert moved(plan(snapshot(nodes, pods, [], policy=policy), policy)) == {"p": "n2"}


def test_nobody_leaves_for_gain_a_node_that_others_leave_for_a_waiting_pod() -> None:
    """Beside that move one of them could have stayed."""
    policy = gaining()
    drawn = snapshot(
        [node("n0", 8), node("n1", 5)],
        [
            running("large", "n0", 4, owner=""),
            running("small", "n0", 1, owner=""),
            running("other", "n0", 1, priority=9),
            running("fixed", "n1", 4, priority=9, immovable_reason="stays"),
        ],
        [waiting("urgent", 7, priority=5)],
        policy=policy,
    )
    result = plan(drawn, policy)
    check_evictions(drawn, result, {policy.name: policy})
    assert set(moved(result)) == {"large", "small"}


def test_budgets_and_limits_hold() -> None:
    """No more leave than PodDisruptionBudgets and the policy's limits say."""
    policy = gaining()
    assert len(plan(crowded(policy), policy).evictions) == 2
    assert len(plan(crowded(gaining(per_round=1)), gaining(per_round=1)).evictions) == 1
    assert not plan(crowded(gaining(per_hour=0)), gaining(per_hour=0)).evictions
    nodes = [node(f"n{place}", 8) for place in range(3)]
    pods = [running(f"p{number}", "n0", 2, labels=(("app", "a"),)) for number in range(3)]
    budgets = [DisruptionBudget("default", "b", selects("a"), 1)]
    assert len(plan(snapshot(nodes, pods, [], budgets, policy), policy).evictions) == 1


def test_no_pod_goes_to_room_that_a_waiting_pod_may_use() -> None:
    """While a pod waits, its nodes are not filled for gain."""
    policy = gaining()
    pods = [running("p0", "n0", 2), running("p1", "n0", 2)]
    pods += [running(f"q{place}", f"n{place}", 1, owner="", immovable_reason="stays") for place in (1, 2)]
    drawn = snapshot([node(f"n{place}", 8) for place in range(3)], pods, [], policy=policy)
    assert plan(drawn, policy).evictions
    large = replace(drawn, pending=(waiting("large", 8),))
    result = plan(large, policy)
    assert result.unplaced
    assert not result.evictions
    on_n1 = msgspec.structs.replace(large.pending[0].pod_class, node_selector=((HOSTNAME, "n1"),))
    choosy = replace(large, pending=(msgspec.structs.replace(large.pending[0], pod_class=on_n1),))
    assert moved(plan(drawn, policy)) == {"p0": "n1"}
    assert moved(plan(choosy, policy)) == {"p0": "n2"}


def test_a_pod_that_no_node_can_ever_hold_keeps_none() -> None:
    """It waits for ever, and all moves for gain would wait with it."""
    policy = gaining()
    drawn = replace(crowded(policy, 2), pending=(waiting("huge", 9_000),))
    result = plan(drawn, policy)
    assert result.unplaced
    assert moved(result) == {"p0": "n1"}


@pytest.mark.parametrize("why", ["a budget", "a filter"])
def test_no_tenant_uses_up_all_looks(why: str) -> None:
    """Pods of one tenant on 130 nodes want to move and cannot: a pod of another tenant is counted at all the same."""
    policy = gaining(min_gain=100)

    def only(pod: Pod, tenant: str, **fields: Any) -> Pod:
        pod_class = msgspec.structs.replace(pod.pod_class, node_selector=(("tenant", tenant),))
        return msgspec.structs.replace(pod, pod_class=pod_class, namespace=tenant, **fields)

    nodes = [node(f"{tenant}{number}", 8) for tenant, count in (("t", 131), ("u", 2)) for number in range(count)]
    nodes = [
        msgspec.structs.replace(each, labels=tuple(sorted([*each.labels, ("tenant", each.name[0])]))) for each in nodes
    ]
    apart = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, selects("b"), ("t",)),))
    kept: dict[str, Any] = {"labels": (("app", "a"),)} if why == "a budget" else {"constraints": apart}
    pods = [only(running(f"t{place}", f"t{place // 2}", 4, **kept), "t") for place in range(260)]
    pods.append(only(running("b", "t130", 1, owner="", labels=(("app", "b"),), immovable_reason="stays"), "t"))
    pods += [only(running(f"u{place}", "u0", 2), "u") for place in range(3)]
    budgets = [DisruptionBudget("t", "b", selects("a"), 0)]
    assert moved(plan(snapshot(nodes, pods, [], budgets, policy), policy)) == {"u0": "u1"}


@pytest.mark.parametrize("step", [1.0, 10.0])
def test_kinds_take_turns(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round looks at so many kinds and no more, at those of another namespace in each, and in the end at all."""
    kinds_seen: list[MovableKind] = []
    look = RunningCosts.kinds

    def counted(costs: RunningCosts, *args: Any) -> Any:
        kinds_seen[:] = look(costs, *args)
        return kinds_seen

    monkeypatch.setattr(RunningCosts, "kinds", counted)
    policy = gaining()
    many = [running(f"p{number}", "n0", 1000 + number) for number in range(2 * MOST_KINDS)]
    other = msgspec.structs.replace(running("other", "n0", 1), namespace="other")
    drawn = snapshot([node("n0", 10**7), node("n1", 1)], [*many, other], [], policy=policy)
    seen: set[int] = set()
    for number in range(20):
        kinds_seen.clear()
        plan(replace(drawn, now=NOW + number * step), policy)
        assert len(kinds_seen) == MOST_KINDS
        assert "other" in {kind.namespace for kind in kinds_seen}
        seen.update(int(kind.residents[0]) for kind in kinds_seen)
    assert len(seen) == len(many) + 1


def test_every_filter_judges_the_other_node() -> None:
    """The cheapest node has what the pod keeps away from, and the next one uses its port: it goes to the third."""
    policy = gaining()
    ports = (HostPort(ANY_ADDRESS, "TCP", 80),)
    stays = {"owner": "", "immovable_reason": "stays"}
    nodes = [node(f"n{place}", cpu) for place, cpu in enumerate((8, 16, 12, 8))]
    pods = [
        running("p", "n0", 2, host_ports=ports, constraints=keeps_apart("b")),
        running("q", "n0", 4, **stays),
        running("r", "n1", 1, labels=(("app", "b"),), **stays),
        running("s", "n2", 1, host_ports=ports, **stays),
    ]
    assert moved(plan(snapshot(nodes, pods, [], policy=policy), policy)) == {"p": "n3"}
    free = [msgspec.structs.replace(pods[0], constraints=None), *pods[1:]]
    assert moved(plan(snapshot(nodes, free, [], policy=policy), policy)) == {"p": "n1"}


def test_none_goes_back_within_an_hour() -> None:
    """A node that a pod of the controller was moved from is no destination."""
    policy = gaining()
    drawn = crowded(policy, 2)
    assert moved(plan(drawn, policy)) == {"p0": "n1"}
    assert drawn.running is not None
    recent = RecentMove(policy.name, "n1", "default", "web", 10.0)
    assert moved(plan(replace(drawn, running=replace(drawn.running, moves=(recent,))), policy)) == {"p0": "n2"}


@pytest.mark.parametrize(
    ("started", "leave"), [(0.0, False), (NOW - 599, False), (NOW - 600, True)], ids=["not yet", "young", "old enough"]
)
def test_age_counts_from_the_start(started: float, leave: bool) -> None:  # noqa: FBT001
    """A pod that waited long and was just bound has not run: minAge holds for it."""
    policy = gaining(min_age=600)
    assert bool(plan(crowded(policy, 2, started=started, created=NOW - 9_000), policy).evictions) is leave


@pytest.mark.parametrize(("model", "pods", "ends_on"), [("CPUMemory", 2, "n0"), ("BinPacking", 1, "n1")])
def test_pods_that_end_move_nobody(model: str, pods: int, ends_on: str) -> None:
    """Neither away from a node that comes free, nor to one that comes free; both are worth it while they stay."""
    policy = gaining(model, min_gain=100)
    nodes = [node(f"n{place}", 8) for place in range(3)]
    staying = [running(f"p{number}", "n0", 1) for number in range(pods)]
    for deleting in (True, False):
        others = [running(f"d{number}", ends_on, 2, owner="d", deleting=deleting) for number in range(2)]
        result = plan(snapshot(nodes, [*staying, *others], [], policy=policy), policy)
        assert bool(result.evictions) is not deleting


@pytest.mark.parametrize("gains", [True, False])
def test_a_pod_that_leaves_for_a_rule_leaves_once(gains: bool) -> None:  # noqa: FBT001
    """Where its policy moves pods for gain it goes to the cheapest node at once; else to that with the least room."""
    reasons = tuple(ReschedulingReason) if gains else ReschedulingPolicy().reasons
    policy = msgspec.structs.replace(
        gaining(reasons=reasons, min_gain=100),
        during_execution=DuringExecution.REPLACE,
        lasting_rules=(LastingRule.TAINTS,),
    )
    tainted = msgspec.structs.replace(node("n0", 8), taints=(Taint("dedicated", "gpu", "NoSchedule"),))
    nodes = [tainted, node("n1", 8), node("n2", 8)]
    pods = [running("p", "n0", 2), running("q", "n1", 5, owner="", immovable_reason="stays")]
    (eviction,) = plan(snapshot(nodes, pods, [], policy=policy), policy).evictions
    assert (eviction.kind, eviction.to) == (EvictionKind.RULE, "n2" if gains else "n1")
    pods[0] = msgspec.structs.replace(pods[0], node_name=eviction.to)
    assert not plan(snapshot(nodes, pods, [], policy=policy), policy).evictions


def test_a_policy_that_proposes_evicts_nobody() -> None:
    """The moves are proposals."""
    policy = gaining(mode=ReschedulingMode.PROPOSE)
    result = plan(crowded(policy, 2), policy)
    assert not result.evictions
    (proposal,) = result.proposals
    acting = gaining()
    assert proposal.gain == plan(crowded(acting, 2), acting).evictions[0].gain


# --- properties ---

_models = st.sampled_from(["CPUMemory", "LoadSpreading", "BinPacking"])


@given(clusters(gaining()))
@settings(max_examples=examples(80))
def test_moves_for_gain_are_legal(drawn: Snapshot) -> None:
    """Filters, budgets, gangs and limits hold, also beside evictions for waiting pods; the pods' plan is the same.

    Each move makes it cheaper, and no bound is above it.
    """
    policy = gaining(reasons=tuple(ReschedulingReason), per_node=2)
    policies = {policy.name: policy}
    result = run_round(drawn, policies)
    check_evictions(drawn, result, policies)
    without = gaining(reasons=(ReschedulingReason.WAITING_PODS, ReschedulingReason.BROKEN_RULES), per_node=2)
    before = run_round(drawn, {policy.name: without})
    assert _places(result) == _places(before)
    assert result.unplaced == before.unplaced
    assert result.cost == before.cost + sum(each.cost for each in result.evictions if each.gain)
    assert all(each.cost <= -policy.rescheduling.min_gain for each in result.evictions if each.gain)
    assert result.lower_bound <= min(before.lower_bound, result.cost)


def _places(result: RoundResult) -> dict[str, str]:
    return {each.pod.key: each.node for each in result.placements}


@st.composite
def scattered(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    """Pods of one size, some with rules about each other, on nodes of many sizes."""
    nodes = [node(f"n{place}", draw(st.integers(2, 12))) for place in range(draw(st.integers(2, 5)))]
    pods: list[Pod] = []
    for each in nodes:
        lonely: set[str] = set()
        for _ in range(draw(st.integers(0, dict(each.allocatable)["cpu"] // 2))):
            app, alone = draw(st.sampled_from(["a", "b"])), draw(st.integers(0, 3)) == 0
            here = {dict(pod.labels)["app"] for pod in pods if pod.node_name == each.name}
            if app in lonely or (alone and app in here):
                continue
            lonely |= {app} if alone else set()
            pods.append(
                running(
                    f"p{len(pods)}",
                    each.name,
                    2,
                    labels=(("app", app),),
                    constraints=keeps_apart(app) if alone else None,
                )
            )
    return nodes, pods


@given(scattered(), _models, st.integers(0, 400))
@settings(max_examples=examples(60))
def test_the_gain_is_the_difference_of_what_the_plan_costs(
    drawn: tuple[list[Node], list[Pod]], model: str, penalty: int
) -> None:
    """Each pod waits in a cluster where those before it have moved: a round prices its node and the other one."""
    nodes, pods = drawn
    kinds = (WorkloadKind("a", selects("a")), WorkloadKind("b", selects("b")))
    noise = Interference(((penalty, 0), (2 * penalty, penalty)))
    policy = gaining()
    policy = msgspec.structs.replace(policy, cost=CostPolicy(model, kinds=kinds, interference=noise))
    result = plan(snapshot(nodes, pods, [], policy=policy), policy)
    by_key = {pod.key: pod for pod in pods}
    for move in result.evictions:
        pod = by_key.pop(move.pod.key)
        pending = PendingPod(pod.key, pod.uid, pod.pod_class, policy.name, signature=pod.signature)
        this = Round(snapshot(nodes, list(by_key.values()), [pending], policy=policy), {policy.name: policy})
        (demand,) = this._problem.demands
        index = this._problem.snapshot.table.index
        costs = demand.first_cost
        assert move.gain == costs[index[move.pod.node]] - costs[index[move.to]]
        assert move.gain >= policy.rescheduling.min_gain
        by_key[pod.key] = msgspec.structs.replace(pod, node_name=move.to)


@given(scattered(), _models, st.integers(1, 200))
@settings(max_examples=examples(60))
def test_never_to_and_fro(drawn: tuple[list[Node], list[Pod]], model: str, min_gain: int) -> None:
    """Moves are carried out round by round, each pod by a new one: they end, and no pod moves twice."""
    nodes, pods = drawn
    policy = gaining(model, min_gain=min_gain)
    by_key = {pod.key: pod for pod in pods}
    moves: Counter[str] = Counter()
    for _ in range(2 * len(pods) + 2):
        result = plan(snapshot(nodes, list(by_key.values()), [], policy=policy), policy)
        if not result.evictions:
            break
        for move in result.evictions:
            moves[move.pod.key] += 1
            by_key[move.pod.key] = _replaced(by_key[move.pod.key], move)
    else:
        pytest.fail(f"moves do not end: {moves}")
    assert max(moves.values(), default=0) <= 1


@given(scattered(), _models, st.randoms(use_true_random=False))
@settings(max_examples=examples(40))
def test_who_moves_does_not_depend_on_the_order_of_pods(
    drawn: tuple[list[Node], list[Pod]], model: str, random: Random
) -> None:
    """The same pods move to the same nodes for the same gains."""
    nodes, pods = drawn
    policy = gaining(model)
    plans = [
        sorted((move.pod.key, move.to, move.gain, move.reason) for move in plan(each, policy).evictions)
        for each in (
            snapshot(nodes, in_order, [], policy=policy) for in_order in (pods, random.sample(pods, len(pods)))
        )
    ]
    assert plans[0] == plans[1]


def _replaced(pod: Pod, move: Eviction) -> Pod:
    return msgspec.structs.replace(pod, node_name=move.to, uid=f"{pod.uid}'", started=NOW)
