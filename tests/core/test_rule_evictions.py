"""Rounds that evict and replace running pods which break their own rules."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import selects
from support.governed_pods import ANYWHERE, BUDGET, cluster, in_zone, leaving, planned, policy, runs
from support.model import amounts
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.policies import BUILT_IN, Delivery, DuringExecution
from flowcore.model.running_pods import EvictionKind, RecentMove
from flowcore.planning.evictions.moves.lasting_rules import LastingRules

EVICT, REPLACE, IGNORE = DuringExecution.EVICT, DuringExecution.REPLACE, DuringExecution.IGNORE
TAINT = Taint("drain", "", "NoExecute")


def test_a_pod_is_replaced_where_its_rules_hold() -> None:
    """Its node is in another zone now: room is reserved in the zone that it names, though no pod waits."""
    nodes = [in_zone("n1", "b"), in_zone("n2", "b"), in_zone("n3", "a")]
    assert leaving(nodes, [runs("p", "n1")], policy(REPLACE)) == {"p": "n3"}


def test_without_another_node_replace_waits_and_evict_does_not() -> None:
    """That is the difference of the two."""
    nodes = [in_zone("n1", "b"), in_zone("n3", "a", 500)]
    assert leaving(nodes, [runs("p", "n1")], policy(REPLACE)) == {}
    assert leaving(nodes, [runs("p", "n1")], policy(EVICT)) == {"p": ""}


def test_ignore_is_the_default_and_the_annotation_wins() -> None:
    """A policy without the field changes nothing; a pod's own word counts before its policy's."""
    nodes = [in_zone("n1", "b"), in_zone("n3", "a")]
    assert leaving(nodes, [runs("p", "n1")], BUILT_IN) == {}
    assert leaving(nodes, [runs("p", "n1", during_execution=REPLACE)], BUILT_IN) == {"p": "n3"}
    assert leaving(nodes, [runs("p", "n1", during_execution=IGNORE)], policy(EVICT)) == {}


@pytest.mark.parametrize("word", [None, EVICT], ids=["policy", "annotation"])
def test_a_policy_that_observes_evicts_nobody(word: DuringExecution | None) -> None:
    """So nobody may count on the room either."""
    observes = msgspec.structs.replace(policy(EVICT), delivery=Delivery.OBSERVE)
    nodes = [in_zone("n1", "b"), in_zone("n3", "a")]
    assert leaving(nodes, [runs("p", "n1", during_execution=word)], observes) == {}


def test_who_is_never_moved_stays_beside_a_broken_rule() -> None:
    """Pods without a controller and the like, and pods of gangs."""
    nodes = [in_zone("n1", "b"), in_zone("n3", "a")]
    gang = GangRef(GangKey(GangSource.THALWEG, "default", "g"), GangSpec(min_member=1))
    pods = [runs("bare", "n1", immovable_reason="no controller would replace it"), runs("member", "n1", gang=gang)]
    assert leaving(nodes, pods, policy(EVICT)) == {}


def test_budgets_are_kept() -> None:
    """As many leave as the PodDisruptionBudget allows."""
    nodes, pods = [in_zone("n1", "b"), in_zone("n3", "a")], [runs("p", "n1"), runs("q", "n1")]
    for allowed in (0, 1, 2):
        budget = msgspec.structs.replace(BUDGET, allowed=allowed)
        assert len(leaving(nodes, pods, policy(REPLACE), budgets=(budget,))) == allowed


def test_limits_are_kept() -> None:
    """Rules leave within the limits of moves, whether there is another node or not."""
    nodes = [in_zone("n1", "b"), in_zone("n3", "a")]
    pods = [runs(name, "n1") for name in "pqr"]
    assert len(leaving(nodes, pods, policy(REPLACE, per_round=2))) == 2
    assert len(leaving(nodes[:1], pods, policy(EVICT, per_node=1))) == 1


def test_a_namespace_leaves_moves_of_the_hour_to_others() -> None:
    """One whose pods break their rules again and again has half of them at most; alone it has all."""
    nodes = [in_zone("n1", "b")]
    pods = [runs(f"p{at}", "n1", owner=f"web-{at}") for at in range(8)]
    other = msgspec.structs.replace(runs("q", "n1"), namespace="other")
    six = policy(EVICT, per_hour=6)
    assert len(leaving(nodes, pods, six)) == 6
    assert len(leaving(nodes, [*pods, other], six)) == 3 + 1

    def after(**had: int) -> dict[str, int]:
        """How many leave of each namespace after so many moves of each in this hour."""
        moves = tuple(RecentMove(six.name, "n9", name, "x", 10.0) for name, count in had.items() for _ in range(count))
        shown = cluster(nodes, [*pods, other], six)
        assert shown.running is not None
        shown = replace(shown, running=replace(shown.running, moves=moves))
        return Counter(each.pod.namespace for each in planned(shown, six).evictions)

    assert after(default=3) == {"other": 1}
    assert after(default=1) == {"default": 2, "other": 1}
    assert after(other=4) == {"default": 1}
    assert after(default=3, other=3) == {}


def test_a_replacement_before_a_taint_evicts() -> None:
    """The controller evicts, so no PodDisruptionBudget counts; the new node has no such taint."""
    tolerant = PodClass(requests=amounts(1000), tolerations=(Toleration("drain", "Exists", seconds=300),))
    nodes = [in_zone("n1", "a", taints=(TAINT,)), in_zone("n2", "a", taints=(TAINT,)), in_zone("n3", "a")]
    shown = cluster(nodes, [runs("p", "n1", tolerant)], policy(REPLACE), budgets=(BUDGET,))
    (eviction,) = planned(shown, policy(REPLACE)).evictions
    assert (eviction.to, eviction.by_controller) == ("n3", True)
    assert eviction.reason == "node n1 has a taint that evicts it after 300 s"
    assert leaving(nodes[:2], [runs("p", "n1", tolerant)], policy(REPLACE)) == {}


def test_the_room_of_a_pod_that_breaks_a_rule_serves_a_waiting_one() -> None:
    """The waiting pod comes when it has left, and nobody else leaves for it."""
    waiting = PendingPod("default/new", "uid-new", PodClass(requests=amounts(4000), priority=10), BUILT_IN.name)
    nodes = [in_zone("n1", "b"), in_zone("n3", "a", 2000)]
    pods = [runs("p", "n1"), runs("q", "n3", ANYWHERE)]
    result = planned(cluster(nodes, pods, policy(REPLACE), (waiting,)), policy(REPLACE))
    assert [(each.pod.key, each.kind, each.to) for each in result.evictions] == [("default/p", "Rule", "n3")]
    assert [(each.node, each.victims) for each in result.placements] == [("n1", ("default/p",))]


def test_pods_apart_again() -> None:
    """Two that exclude each other and share a zone: one goes to the other zone."""
    apart = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selects("web"), ("default",)),))
    pods = [
        runs(name, on, ANYWHERE, labels=(("app", "web"),), constraints=apart, started=at)
        for at, (name, on) in enumerate((("p", "n1"), ("q", "n2")), start=1)
    ]
    nodes = [in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b")]
    assert leaving(nodes, pods, policy(REPLACE)) == {"q": "n3"}


@st.composite
def drifted(draw: st.DrawFn) -> tuple[list[Node], list[Pod], tuple[DisruptionBudget, ...], tuple[PendingPod, ...]]:
    """A cluster whose labels and taints have changed under its pods."""
    nodes = [
        in_zone(
            f"n{at}",
            draw(st.sampled_from("aabc")),
            draw(st.sampled_from((1000, 2000, 4000))),
            taints=draw(st.sampled_from(((), (), (TAINT,)))),
        )
        for at in range(draw(st.integers(1, 5)))
    ]
    room = {each.name: dict(each.allocatable)["cpu"] for each in nodes}
    pods = []
    for at in range(draw(st.integers(1, 8))):
        app, other = draw(st.sampled_from("xy")), draw(st.sampled_from("xy"))
        term = (AffinityTerm("zone", selects(other), ("default",)),)
        on = draw(st.sampled_from(nodes)).name
        cpu = draw(st.sampled_from((500, 1000)))
        if room[on] < cpu:
            continue
        room[on] -= cpu
        pod_class = PodClass(
            requests=amounts(cpu),
            node_selector=draw(st.sampled_from(((), (), (("zone", "a"),)))),
            tolerations=draw(st.sampled_from(((), (Toleration("drain", "Exists", seconds=60),)))),
            priority=draw(st.sampled_from((0, 0, 5))),
        )
        pods.append(
            runs(
                f"p{at}",
                on,
                pod_class,
                labels=(("app", app),),
                constraints=draw(
                    st.sampled_from((None, InterPodConstraints(affinity=term), InterPodConstraints(anti_affinity=term)))
                ),
                started=float(at + 1),
                during_execution=draw(st.sampled_from((None, None, EVICT, IGNORE))),
            )
        )
    budgets = draw(st.sampled_from(((), (), (msgspec.structs.replace(BUDGET, selector=selects("x"), allowed=1),))))
    waiting = tuple(
        PendingPod(f"default/w{at}", f"w{at}", PodClass(requests=amounts(1000), priority=1), BUILT_IN.name)
        for at in range(draw(st.integers(0, 2)))
    )
    return nodes, pods, budgets, waiting


@given(drifted())
@settings(max_examples=examples(150))
def test_plans_for_drifted_clusters_can_be_carried_out(drawn: Any) -> None:
    """Filters, budgets and limits hold at each step; who is replaced breaks no rule on its new node."""
    nodes, pods, budgets, waiting = drawn
    governed_by = policy(REPLACE)
    result = planned(cluster(nodes, pods, governed_by, waiting, budgets), governed_by)
    moved = {each.pod.key: each.to for each in result.evictions if each.kind is EvictionKind.RULE}
    gone = {each.pod.key for each in result.evictions}
    after = [each for each in pods if each.key not in gone]
    after += [msgspec.structs.replace(each, node_name=moved[each.key]) for each in pods if moved.get(each.key)]
    for each in result.placements:
        after.append(runs(each.pod.key.partition("/")[2], each.node, each.pod.pod_class))
    then = cluster(nodes, after, governed_by)
    assert then.running is not None
    rules = LastingRules(then, then.running, {})
    assert not moved.keys() & {pod.key for pod in itertools.compress(rules.pods, rules.broken.tolist())}
