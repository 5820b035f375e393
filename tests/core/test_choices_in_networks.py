"""Networks in which pods have a choice of ways: refused with a sentence, or planned beside all other pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support import eviction_clusters as clusters
from support.eviction_safety import check_evictions
from support.model import amounts, node, pod, snapshot
from support.network_policies import EVERYBODY, drawing, with_choice
from support.safety import check_capacity, check_complete, check_costs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot, Victim
from flowcore.model.backfill_history import BackfillHistory, BackfillRecord
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.drawn_networks import twins
from flowcore.planning.round import Round, RoundResult, run_round

ANYWHERE = with_choice([{"to": "Nodes", "cost": 1}])
POLICIES = {"net": drawing("net", ANYWHERE), "other": Policy("other")}
WEB = PodSignature("default", (("app", "web"),))


def governed(count: int, policy: str = "net", *, cpu: int = 1000, name: str = "", **fields: Any) -> list[PendingPod]:
    return [pod(f"{name or policy}{at}", cpu, policy=policy, **{"kind": WEB, **fields}) for at in range(count)]


def planned(state: Snapshot, network: Mapping[str, Any]) -> RoundResult:
    result = run_round(state, {"net": drawing("net", network)})
    for check in (check_complete, check_capacity):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    return result


# -- what is refused ---------------------------------------------------------------------------------------------------

ONE_PLACE = {"to": "n0", "maximum": 1}
REFUSED = [
    (with_choice([{"to": "Nodes"}], minimum=3), "arcs[0] to all needs 3 more pods for all that it leads to, and 2 may"),
    (with_choice([ONE_PLACE], minimum=2), "arcs[0] to all needs at least 2 pods, and gets 1"),
    (
        with_choice([ONE_PLACE, {"to": "pair", "gain": 2}], {"name": "pair", "arcs": [{"to": "n0"}]}, minimum=2),
        "a unit on arcs[0] is 1 pods on one way and 2 on another",
    ),
    (with_choice([{"to": "n9", "minimum": 1}]), "all.arcs[0] needs 1 unit for all that it leads to, and no way passes"),
    (with_choice([{"to": "Nodes", "maximum": at} for at in range(20)]), "more than 16 ways"),
    (
        with_choice([{"to": "Nodes"}, {"to": "Unscheduled"}], minimum=1),
        "arcs[0] has a minimum, and leads to Unscheduled too",
    ),
    (with_choice([{"to": "n0", "cost": {"of": "Model"}}, {"to": "n1"}]), "costs Model once on some ways, and on this"),
]


@pytest.mark.parametrize(("network", "problem"), REFUSED)
def test_what_no_flow_can_meet_is_refused_with_a_sentence(network: Mapping[str, Any], problem: str) -> None:
    """It names the arc; pods of others are planned."""
    state = snapshot([node("n0"), node("n1")], [*governed(2), *governed(1, "other")])
    result = run_round(state, {**POLICIES, "net": drawing("net", network)})
    assert [each.pod.policy for each in result.placements] == ["other"]
    (contradiction,) = result.contradictions
    assert contradiction.sentence.startswith("the network of policy net is refused: ")
    assert problem in contradiction.sentence
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}


# -- beside other pods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("priority", "first"), [(10, {"other": 2}), (-10, {"net": 2})])
def test_networks_have_their_turn_by_price(priority: int, first: dict[str, int]) -> None:
    """Room for dearer pods of others is kept, whatever the network would pay; cheaper ones get what it leaves."""
    waiting = [*governed(2), *governed(2, "other", priority=priority)]
    result = run_round(snapshot([node("n", 2000)], waiting), POLICIES)
    assert Counter(each.pod.policy for each in result.placements) == first
    assert {each.code for each in result.unplaced} == {"NodeResourcesFit"}
    assert not result.certified


def test_a_gang_that_cannot_run_keeps_no_room_from_a_network() -> None:
    """Dearer pods of a gang that is too large for the cluster wait, and the network's pods take the node."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in governed(3, "other", priority=10)]
    state = snapshot([node("n", 2000)], [*governed(2), *gang])
    result = run_round(replace(state, gangs={"g": Gang("g", 3)}), POLICIES)
    assert Counter(each.pod.policy for each in result.placements) == {"net": 2}


def test_a_node_that_is_overcommitted_in_what_nobody_asks_for() -> None:
    """Pods of different sizes that ask for no GPU, on a node with more GPUs in use than it has."""
    sizes = [each for cpu in (700, 900, 1100) for each in governed(1, cpu=cpu, name=str(cpu))]
    state = snapshot([node("n0", 2000, gpu=1)], sizes, [("n0", amounts(500, gpu=2), ())])
    assert (state.free < 0).any()
    assert len(planned(state, ANYWHERE).placements) == 1


def test_pods_that_a_network_leaves_out_though_nodes_have_room() -> None:
    """The reason names the arc."""
    result = planned(snapshot([node("n")], governed(3)), with_choice([{"to": "n", "maximum": 1}]))
    told = "1 node(s) are full by all.arcs[0] to n of the network of policy net (at most 1 per node)"
    assert all(told in each.reason for each in result.unplaced)
    assert {each.code for each in result.unplaced} == {"PolicyConstraints"}


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (with_choice([{"to": "n7", "gain": 2}]), "there is no node n7, to which its arc leads"),
        (
            with_choice(
                [{"to": "row"}], {"name": "row", "over": {"nodeLabel": "row"}, "arcs": [{"to": "Nodes", "gain": 2}]}
            ),
            "no node has the label row, which aggregator row is over",
        ),
        (
            with_choice([{"to": "lost", "gain": 2}], {"name": "lost", "arcs": [{"to": "Unscheduled"}]}),
            "no arc begins at it that leads to a node",
        ),
    ],
)
def test_pods_that_a_network_leads_nowhere_are_told_why(network: Mapping[str, Any], told: str) -> None:
    """As those of networks that are rules."""
    state = snapshot([node("n", labels=((HOSTNAME, "n"),))], governed(2))
    (reason,) = {each.reason for each in planned(state, network).unplaced}
    assert f"the network of policy net, which leads it nowhere: {told}" in reason


@pytest.mark.parametrize(("key", "expected"), [(HOSTNAME, 7), ("zone", 3)])
def test_rules_between_pods_hold_in_a_network_that_does_not_know_them(key: str, expected: int) -> None:
    term = AffinityTerm(key, LabelSelector((Requirement("app", "Exists"),)), ("default",))
    kind = PodSignature("default", (("app", "x"),), constraints=InterPodConstraints(anti_affinity=(term,)))
    nodes = [
        node(f"{zone}{at}", labels=((HOSTNAME, f"{zone}{at}"), ("zone", zone))) for zone in "abc" for at in range(20)
    ]
    result = planned(snapshot(nodes, governed(7, kind=kind)), ANYWHERE)
    places = [each.node if key == HOSTNAME else each.node[0] for each in result.placements]
    assert len(places) == len(set(places)) == expected


def test_labels_that_a_network_does_not_read_make_no_kinds() -> None:
    """A thousand jobs of one app are one start of arcs, of as many ways as one pod has."""
    jobs = [pod(f"p{at}", 100, policy="net", kind=PodSignature("default", (("job", str(at)),))) for at in range(1000)]
    assert len(planned(snapshot([node("n", 200_000, pods=2000)], jobs), ANYWHERE).placements) == 1000


def test_a_pod_with_a_choice_is_told_one_price_for_each_node() -> None:
    """That of its cheapest way there."""
    ways = [{"to": "n0", "cost": 9, "maximum": 5}, {"to": "n0", "cost": 4, "maximum": 5}, {"to": "n1", "cost": 6}]
    state = snapshot([node("n0"), node("n1")], governed(2))
    planning = Round(state, {"net": drawing("net", with_choice(ways))})
    while planning.step():
        pass
    (prices,) = planning.node_prices(bound=True)
    assert {each.key for each in prices.pods} == {each.key for each in state.pending}
    assert prices.prices.tolist() == [4, 6]
    assert not planning.outlook().left
    assert [len(pods) for pods in planning.groups] == [2]


def test_pods_with_more_ways_than_a_round_has_time_for_take_one_before_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cheapest that has room, kind by kind; no bound says that nothing else is cheaper."""
    ways = with_choice([{"to": "n", "maximum": 1}, {"to": "n", "cost": 3, "maximum": 1}])
    state = snapshot([node("n")], [*governed(3), *governed(1, "other")])
    monkeypatch.setattr(twins, "MOST_KINDS", 2)
    result = run_round(state, {**POLICIES, "net": drawing("net", ways)})
    assert Counter(each.pod.policy for each in result.placements) == {"net": 2, "other": 1}
    assert sum(each.price for each in result.placements if each.pod.policy == "net") == 3
    assert "Ways" in result.bound_notes
    assert not result.certified


@pytest.mark.parametrize("kinds", [1, 64])
def test_pods_go_where_an_arc_must_have_some(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that take their way before the plan: one of three goes the dear one."""
    ways = with_choice([{"to": "n", "maximum": 5}, {"to": "n", "cost": 3, "minimum": 1}])
    monkeypatch.setattr(twins, "MOST_KINDS", kinds)
    result = planned(snapshot([node("n")], governed(3)), ways)
    assert Counter(each.price for each in result.placements) == {0: 2, 3: 1}


def largest(policy: str) -> Policy:
    """A network with as many classes of ways as pods may have, each with limits and the most segments."""
    rising = [*({"upTo": at + 1, "each": 10 * at} for at in range(31)), {"each": 1000}]
    labels = ["rack", "zone", HOSTNAME]
    points = [
        {
            "name": f"g{at}",
            "over": {"nodeLabel": labels[at % 3]},
            "arcs": [{"to": "Nodes", "maximum": 3, "cost": rising}],
        }
        for at in range(15)
    ]
    arcs = [{"from": EVERYBODY, "to": f"g{at}", "maximum": 40 + at, "cost": rising} for at in range(15)]
    return drawing(policy, {"aggregators": points, "arcs": arcs})


def test_ten_networks_of_the_largest_size_take_no_more_than_a_round_has_time_for() -> None:
    """Each is as 60 kinds of pods in the plan: one has its choices, the others' pods take their ways before it."""
    policies = {name: largest(name) for name in map("p{}".format, range(10))}
    theirs = [
        each
        for name in policies
        for cpu in (500, 550, 600, 650)
        for each in governed(2, name, cpu=cpu, name=f"{name}-{cpu}")
    ]
    others = governed(50, "other", cpu=2000, kind=PodSignature("default", (("app", "other"),)))
    nodes = [
        node(f"n{at}", 16_000, labels=((HOSTNAME, f"n{at}"), ("rack", f"r{at % 5}"), ("zone", f"z{at % 3}")))
        for at in range(20)
    ]
    planned_for = set[tuple[str, int, str]]()

    def charge(paying: Sequence[PendingPod]) -> None:
        for each in paying:
            if "(way" in each.key:
                cpu = dict(each.pod_class.requests)["cpu"]
                planned_for.add((each.policy, cpu, dict(each.signature.labels)["(way)"]))

    planning = Round(snapshot(nodes, [*theirs, *others]), {"other": Policy("other"), **policies}, charge=charge)
    for _ in range(3):
        planning.step()
    result = planning.result()
    assert 0 < len(planned_for) <= twins.MOST_KINDS
    assert not result.unplaced
    assert all(each.way for each in result.placements if each.pod.policy != "other")


def test_no_bound_says_that_a_gang_in_one_class_of_ways_is_cheapest() -> None:
    """Two pods that may go apart for 3 go together for 20."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in governed(2)]
    state = replace(snapshot([node("n")], gang), gangs={"g": Gang("g", 2)})
    once = ({"to": "n", "cost": cost, "maximum": 1} for cost in (0, 3))
    result = planned(state, with_choice([*once, {"to": "n", "cost": 10}]))
    assert result.cost == 20
    assert result.lower_bound <= 3
    assert not result.certified


def test_pods_that_wait_at_different_prices_cost_what_they_cost() -> None:
    """The dearest of those that are alike is placed, whichever way it takes."""
    pods = [msgspec.structs.replace(each, created=float(-600 * at)) for at, each in enumerate(governed(7))]
    state = replace(snapshot([node("n", 2000)], pods), now=100.0)
    result = planned(state, with_choice([{"to": "n", "maximum": 1}, {"to": "n", "cost": 3, "maximum": 1}]))
    assert {each.pod.key for each in result.placements} == {"default/net5", "default/net6"}
    assert result.cost == 3 + sum(each.price for each in result.unplaced)
    assert len(result.unplaced) == 5


# -- pods that run -----------------------------------------------------------------------------------------------------


def nodes_of(network: Mapping[str, Any], runs: Sequence[str], waiting: int = 3) -> dict[str, int]:
    """How many of some pods go to each of two nodes with room."""
    state = snapshot([node("n0"), node("n1")], governed(waiting), pod_index=PodIndex.of((name, WEB) for name in runs))
    return dict(Counter(each.node for each in planned(state, network).placements))


@pytest.mark.parametrize(("count", "expected"), [(0, {"n0": 3}), (2, {"n0": 1}), (3, {}), (7, {})])
def test_a_maximum_has_what_running_pods_leave(count: int, expected: dict[str, int]) -> None:
    """Also where more run than it allows."""
    assert nodes_of(with_choice([{"to": "n0", "maximum": 3}]), ["n0"] * count) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 3), (2, 1), (3, 0), (7, 0)])
def test_a_minimum_needs_what_running_pods_lack(count: int, expected: int) -> None:
    """The other node is cheaper, so no more than that go where the minimum is."""
    network = with_choice([{"to": "n0", "cost": 9, "minimum": 3}, {"to": "n1", "cost": 1}])
    assert nodes_of(network, ["n0"] * count).get("n0", 0) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, {"n0": 2}), (1, {}), (2, {}), (3, {})])
def test_units_behind_a_gain_are_whole(count: int, expected: dict[str, int]) -> None:
    """One pair may run: two running pods are the pair, and one of them has a part of its room."""
    pair = {"name": "pair", "arcs": [{"to": "n0"}]}
    network = with_choice([{"to": "Unscheduled"}, {"to": "pair", "maximum": 1, "gain": 2}], pair)
    assert nodes_of(network, ["n0"] * count) == expected


def test_running_pods_meet_minimums_first_and_then_take_the_cheapest_way() -> None:
    """Four run: one meets the minimum, two take all of the cheap way, and one takes one of three places of the dear."""
    ways = [
        {"to": "n0", "cost": 9, "minimum": 1, "maximum": 1},
        {"to": "n0", "maximum": 2},
        {"to": "n0", "cost": 5, "maximum": 3},
    ]
    assert nodes_of(with_choice(ways), ["n0"] * 4) == {"n0": 2}


def test_running_pods_cost_nothing_and_are_not_placed_again() -> None:
    """The cost of a plan is that of the waiting pods."""
    state = snapshot([node("n0")], governed(3), pod_index=PodIndex.of([("n0", WEB)] * 5))
    result = planned(state, with_choice([{"to": "n0", "cost": 7}]))
    assert (result.cost, len(result.placements)) == (21, 3)
    assert result.certified


TWO_WAYS = {"arcs": [{"from": EVERYBODY, "to": "Nodes", "maximum": 1, "cost": cost} for cost in (0, 5)]}


@pytest.mark.parametrize(("arc", "expected"), [({"maximum": 3}, 4), ({"minimum": 2}, 0)])
def test_running_pods_that_have_a_choice_count_for_nobody_else_twice(arc: Mapping[str, Any], expected: int) -> None:
    """Another network counts each of two that run once: three on a node leave room for two, a minimum is not met."""
    every = {"arcs": [{"from": EVERYBODY, "to": "Nodes", **arc}]}
    state = snapshot(
        [node("n0", 4000), node("n1", 4000)],
        governed(4 if expected else 1, "other", kind=PodSignature("default", (("app", "db"),))),
        pod_index=PodIndex.of([("n0", WEB), ("n1", WEB)]),
    )
    result = run_round(state, {"net": drawing("net", TWO_WAYS), "other": drawing("other", every)})
    assert len(result.placements) == expected


# -- running pods that leave, and pods that replace them ---------------------------------------------------------------


def acting(network: Mapping[str, Any]) -> dict[str, Policy]:
    """A policy of all pods of app web for whose pods others leave, beside the built-in one."""
    web = {"selects": {"podSelector": {"matchLabels": {"app": "web"}}}}
    policy = drawing(BUILT_IN.name, network, **web)
    return {"net": msgspec.structs.replace(policy, name="net"), BUILT_IN.name: BUILT_IN}


def wanting(name: str, cpu: int, priority: int = 10, *gangs: str, **fields: Any) -> PendingPod:
    """A waiting pod with a choice."""
    waiting = clusters.waiting(name, cpu, priority=priority, signature=WEB, gangs=gangs, **fields)
    return msgspec.structs.replace(waiting, policy="net")


def test_a_running_pod_that_leaves_meets_no_minimum() -> None:
    """Two must be there: one runs and leaves for a dearer pod, and one waits."""
    arcs = [
        {"from": EVERYBODY, "to": "Nodes", "minimum": 2},
        {"from": EVERYBODY, "to": "Nodes", "maximum": 1, "cost": 9},
    ]
    low = clusters.running("low", "n0", 1, labels=(("app", "web"),))
    dear = clusters.waiting("dear", 2, priority=20)
    state = clusters.snapshot([clusters.node("n0", 3)], [low], [wanting("a", 1), dear])
    result = run_round(state, acting({"arcs": arcs}))
    assert [each.pod.key for each in result.placements] == ["default/dear"]
    assert not result.evictions
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}


@pytest.mark.parametrize(("runs", "cost"), [(1, 0), (2, 5)])
def test_a_pod_takes_the_way_of_the_pod_that_it_replaces(runs: int, cost: int) -> None:
    """Each way takes one pod; the cheap one is free without the victim, or the other pod that runs has it."""
    victim = Victim(key="default/old", node="n0", usage=amounts(500), signature=WEB)
    (new,) = (msgspec.structs.replace(each, victim=victim) for each in governed(1, cpu=500))
    taken = [("n0", amounts(500), ())] * runs
    state = snapshot([node("n0")], [new], taken, pod_index=PodIndex.of([("n0", WEB)] * runs))
    result = run_round(state, {"net": drawing("net", TWO_WAYS)})
    assert [each.pod.signature.labels for each in result.placements] == [WEB.labels]
    assert result.cost == cost


def test_nobody_leaves_for_a_pod_that_preempts_nobody() -> None:
    """Though its twins are as those of the pod for which somebody may."""
    low = clusters.running("low", "n0", 2, labels=(("app", "db"),))
    for names in (("calm", "eager"), ("eager", "calm")):
        waiting = [wanting(name, 2, preempts=name == "eager") for name in names]
        state, policies = clusters.snapshot([clusters.node("n0", 2)], [low], waiting), acting(TWO_WAYS)
        result = run_round(state, policies)
        assert [each.pod.key for each in result.placements] == ["default/eager"]
        check_evictions(state, result, policies)


# -- gangs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "placed"), [(1, {"default/w", "default/v"}), (9, set())])
def test_gangs_of_a_unit_are_placed_together_where_one_has_a_choice(cpu: int, placed: set[str]) -> None:
    gangs = [Gang("gang w", 1, atomic_group="u"), Gang("gang v", 1, atomic_group="u")]
    waiting = [wanting("w", 1, 10, "gang w"), clusters.waiting("v", cpu, gangs=("gang v",))]
    state = clusters.snapshot([clusters.node("n0", 4)], [], waiting, gangs=gangs)
    assert {each.pod.key for each in run_round(state, acting(TWO_WAYS)).placements} == placed


def test_a_gang_takes_the_cheapest_ways_that_have_room_for_all_of_it() -> None:
    """The cheap way takes one pod, which a pod by itself has then."""
    arcs = [{"from": EVERYBODY, "to": "Nodes", "maximum": most, "cost": 5 * most} for most in (1, 3)]
    waiting = [*(wanting(f"g{at}", 1, 10, "gang g") for at in range(2)), wanting("alone", 1)]
    state = clusters.snapshot([clusters.node("n0", 4)], [], waiting, gangs=[Gang("gang g", 2)])
    result = run_round(state, acting({"arcs": arcs}))
    assert {each.pod.key: each.way for each in result.placements} == {
        "default/g0": ("arcs[1]",),
        "default/g1": ("arcs[1]",),
        "default/alone": ("arcs[0]",),
    }


# -- units -------------------------------------------------------------------------------------------------------------


def of_app(app: str, to: str, gain: int = 2, **fields: Any) -> dict[str, Any]:
    return {"from": {"podSelector": {"matchLabels": {"app": app}}}, "to": to, "gain": gain, **fields}


def app(name: str, count: int = 1, *, cpu: int = 1000) -> list[PendingPod]:
    return governed(count, cpu=cpu, name=f"{name}{cpu}", kind=PodSignature("default", (("app", name),)))


def unit_of_any(**fields: Any) -> dict[str, Any]:
    return {"from": EVERYBODY, "to": "n", "gain": 2, **fields}


POOLS = [
    {"name": pool, "over": {"nodeSelector": {"matchLabels": {"pool": pool}}}, "arcs": [{"to": "Nodes"}]}
    for pool in "xy"
]
GROUPED = [
    # Pods of two arcs are in no unit together, whether or not they have a choice.
    ({"arcs": [of_app("a", "n"), of_app("b", "n")]}, [*app("a"), *app("b")], 0),
    ({"arcs": [of_app("a", "n", maximum=5), of_app("b", "n", maximum=5)]}, [*app("a"), *app("b")], 0),
    ({"arcs": [of_app("a", "n"), unit_of_any(cost=9)]}, [*app("a"), *app("b")], 2),
    ({"arcs": [of_app("a", "n"), unit_of_any(cost=9)]}, [*app("a", 3), *app("b")], 4),
    # One of the sizes that leave a unit short may make it up.
    ({"arcs": [unit_of_any(), unit_of_any(cost=9, maximum=1)]}, [*app("a", cpu=900), *app("a", cpu=500)], 2),
]


@pytest.mark.parametrize(("network", "pods", "count"), GROUPED)
def test_a_unit_is_of_pods_that_pass_the_same_arcs(
    network: Mapping[str, Any], pods: list[PendingPod], count: int
) -> None:
    """From their start to the arc with a gain; pods that are not alike may be one."""
    result = planned(snapshot([node("n", 9000, labels=((HOSTNAME, "n"),))], pods), network)
    assert len(result.placements) == count
    assert all("only 1 of them wait" in each.reason for each in result.unplaced)


@pytest.mark.parametrize(("room", "count"), [(1000, 0), (3000, 4)])
def test_a_unit_goes_through_one_of_two_arcs(room: int, count: int) -> None:
    """No half of it goes to each of two pools."""
    network = {"aggregators": POOLS, "arcs": [unit_of_any(to=pool) for pool in "xy"]}
    state = snapshot([node(f"n{pool}", room, labels=(("pool", pool),)) for pool in "xy"], governed(6))
    result = planned(state, network)
    assert Counter(each.node for each in result.placements) == ({"nx": count // 2, "ny": count // 2} if count else {})


@pytest.mark.parametrize("least", [1, 2, 3])
def test_a_pod_that_makes_no_whole_unit_waits_by_itself(least: int) -> None:
    """The gang that it is of is placed without it if it may be."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in app("a", 3)]
    state = replace(snapshot([node("n", labels=((HOSTNAME, "n"),))], gang), gangs={"g": Gang("g", least)})
    result = planned(state, {"arcs": [unit_of_any()]})
    assert len(result.placements) == (0 if least == 3 else 2)
    assert result.lower_bound <= min(each.price for each in result.unplaced)


def test_no_bound_says_that_units_made_before_the_plan_are_cheapest() -> None:
    """Of three pods the two of one size are a unit, which has no room; one of each would have it."""
    pods = [*app("a", 2, cpu=2000), *app("a", cpu=1000)]
    result = planned(snapshot([node("n", 3000, labels=((HOSTNAME, "n"),))], pods), {"arcs": [unit_of_any()]})
    assert not result.placements
    assert result.lower_bound <= min(each.price for each in result.unplaced)
    assert "Ways" in result.bound_notes


def test_no_bound_of_ways_decided_before_the_plan_goes_to_the_round_without_that_network() -> None:
    """A gang goes together the way that takes one, so an arc lacks a pod; apart it would go for 5."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in governed(2)]
    state = replace(snapshot([node("n")], gang), gangs={"g": Gang("g", 2)})
    arcs = [{"from": EVERYBODY, "to": "n", "maximum": 1, **more} for more in ({"minimum": 1}, {"cost": 5})]
    result = planned(state, {"arcs": arcs})
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}
    assert result.lower_bound <= 5


# -- what is told ------------------------------------------------------------------------------------------------------


def test_no_text_names_a_twin() -> None:
    """A gang waits since its room goes to a pod that has a choice; and no room is held for a gang that rests."""
    low = clusters.running("low", "n0", 1, priority=5, labels=(("app", "db"),))
    gang = [clusters.waiting(f"g{at}", 1, priority=3, gangs=("gang g",)) for at in range(2)]
    state = clusters.snapshot([clusters.node("n0", 3)], [low], [*gang, wanting("w", 3)], gangs=[Gang("gang g", 2)])
    result = run_round(state, acting(TWO_WAYS))
    assert {each.reason for each in result.unplaced} == {"Room of its gang goes to default/w of a higher priority."}
    rests = BackfillHistory(now=clusters.NOW, records=(BackfillRecord("gang g", None, 2 * clusters.NOW, 1200),))
    low = clusters.running("low", "n0", 3, priority=50, labels=(("app", "db"),))
    waiting = [*(wanting(f"g{at}", 1, 10, "gang g") for at in range(2)), clusters.waiting("small", 1)]
    state = clusters.snapshot([clusters.node("n0", 4)], [low], waiting, gangs=[Gang("gang g", 2)])
    result = run_round(replace(state, backfill_history=rests), acting(TWO_WAYS))
    assert [each.pod.key for each in result.placements] == ["default/small"]
    assert {each.name for each in result.holds.records} == {"gang g"}
