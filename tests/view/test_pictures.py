"""Pictures of drawn rounds: their sums agree with the plan, and nobody sees what they may not read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import node, pod
from support.draw import Case, crowded_cases
from support.profiles import examples
from support.scenario_state import NOW, drawn_scenario, scenario_of
from thalweg.questions.status import of_dump
from thalweg_view.operations import OPERATIONS
from thalweg_view.pictures import flow
from thalweg_view.pictures.flow import FlowAnswer, FlowQuery, answer_flow
from thalweg_view.pictures.gangs import answer_gangs
from thalweg_view.pictures.nodes import NodesQuery, answer_nodes
from thalweg_view.pictures.one_pod import PodQuery, answer_pod
from thalweg_view.pictures.overview import answer_overview
from thalweg_view.pictures.pending import PendingQuery, answer_pending
from thalweg_view.pictures.policies import answer_policies
from thalweg_view.pictures.shapes import RoundQuery
from thalweg_view.pictures.timeline import RoundsQuery, answer_rounds
from thalweg_view.rounds import KEPT_ROWS, KEPT_WHOLE, RoundHistory, RoundRow
from thalweg_view.status import StatusQuery
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.model.errors import ModelError
from flowcore.model.policies import Delivery
from flowcore.planning.plan_document import PlanClass, PlanDocument, PlanPod, PlanPolicy
from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.alternatives.comparison import compare_one_by_one
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.plan_listing import PlanQuery, answer_plan
from flowcore.questions.scenario.planned_workloads import planned_workloads
from flowcore.rules.reasons.codes import WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES

ALL = AnswerContext(NOW)
HOSTILE = "<script>alert(1)</script>"
NEWEST = RoundQuery()


def planned(scenario: Scenario) -> tuple[ViewData, PlanDocument]:
    """What the view of a dump knows; the round has crossed the pipe to the process that answers."""
    found = plan_scenario(scenario, NOW).document(seconds=0.5)
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=PlanDocument)
    data = ViewData(scenario, RoundHistory(), SourceInfo("dump", "now.json", "1"), 7)
    data.rounds.put(plan)
    return data, plan


def answers(data: ViewData, context: AnswerContext) -> Iterator[msgspec.Struct]:
    """The answers of all pictures that need no name."""
    for query in (FlowQuery(), FlowQuery(of="namespace"), FlowQuery(of="queue")):
        yield answer_flow(data, query, context)
    yield answer_overview(data, NEWEST, context)
    yield answer_pending(data, PendingQuery(), context)
    yield answer_gangs(data, NEWEST, context)
    yield answer_rounds(data, RoundsQuery(), context)


def check_flow(answer: FlowAnswer, plan: PlanDocument) -> None:
    """All sums of a flow."""
    sources, groups = {each.id: each for each in answer.sources}, {each.id: each for each in answer.groups}
    nodes = {each.id: each for each in answer.nodes}
    left, inwards, outwards, prices = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for each in answer.left:
        left[each.source] += each.pods
    for link in answer.links:
        side = "groups" if link.source in sources else "nodes"
        assert link.target in (groups if side == "groups" else nodes)
        prices[side] += link.price
        outwards[link.source] += link.pods
        inwards[link.target] += link.pods
    for source in answer.sources:
        assert source.pods == outwards[source.id] + left[source.id]
    for group in answer.groups:
        assert group.pods == inwards[group.id] == outwards[group.id]
    for target in answer.nodes:
        assert target.pods == inwards[target.id]
        assert target.group in groups
    total = sum(each.price for each in plan.placements)
    assert answer.cost == total
    assert prices["groups"] == prices["nodes"] == total
    assert sum(source.pods for source in answer.sources) == len(plan.pending)
    assert answer.placed == sum(group.pods for group in answer.groups) == len(plan.placements)
    assert answer.unplaced == sum(left.values()) == len(plan.unplaced)


@settings(max_examples=examples(40))
@given(
    crowded_cases(),
    st.sampled_from(("zone", "rack", "zone")),
    st.sampled_from(("workload", "class", "policy", "queue", "priority", "namespace")),
    st.integers(1, 3),
)
def test_the_flow_adds_up(case: Case, by: str, of: str, most: int) -> None:
    """Pods of the left side are those placed and those left; pods and prices are the same on both layers of links.

    Also where all but a few classes, groups and nodes are summed up as others.
    """
    data, plan = planned(drawn_scenario(case))
    check_flow(answer_flow(data, FlowQuery(by=by, of=of), ALL), plan)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_SOURCES", "MAX_GROUPS", "MAX_NODES"):
            patch.setattr(flow, name, most)
        small = answer_flow(data, FlowQuery(by=by, of=of), ALL)
    check_flow(small, plan)
    assert len(small.sources) <= most
    assert len(small.groups) <= most
    whole = answer_flow(data, FlowQuery(by=by, of=of), ALL)
    assert sum(each.summed for each in small.sources) == len(whole.sources)
    assert sum(each.summed for each in small.groups) == len(whole.groups)
    assert sum(each.summed for each in small.nodes) == len({each.node for each in plan.placements})


@settings(max_examples=examples(40))
@given(crowded_cases())
def test_positions_are_the_planners_order(case: Case) -> None:
    """The planned pods that wait have the positions 1, 2, 3, ...: by priority, then those that wait the longest."""
    scenario = drawn_scenario(case)
    data, plan = planned(scenario)
    answer = answer_pending(data, PendingQuery(limit=1000), ALL)
    assert answer.total == len(answer.items) == sum(answer.codes.values())
    counted = [each for each in answer.items if each.position]
    assert [each.position for each in counted] == list(range(1, len(plan.unplaced) + 1))
    assert {each.pod for each in counted} == {plan.pending[place].key for place, _ in plan.unplaced}
    ranks = [(-each.priority, each.since, each.pod) for each in counted]
    assert ranks == sorted(ranks)
    # Every pod that waits is placed or in the list, and none is in both.
    placed = {plan.pending[each.pod].key for each in plan.placements}
    assert placed.isdisjoint(each.pod for each in answer.items)
    assert placed | {each.pod for each in answer.items} == set(scenario.cluster.waiting)
    assert all(each.reason for each in answer.items)


@settings(max_examples=examples(30))
@given(crowded_cases(), st.sampled_from((1, 2, 5)), st.sampled_from(("position", "pod", "-priority", "-since", "code")))
def test_pages_of_the_list_are_the_list(case: Case, limit: int, sort: str) -> None:
    """Offset and limit cut the sorted list; a search finds exactly the pods that contain the text."""
    data, _ = planned(drawn_scenario(case))
    whole = answer_pending(data, PendingQuery(sort=sort, limit=1000), ALL)
    pages = []
    for offset in range(0, whole.total, limit):
        pages += answer_pending(data, PendingQuery(sort=sort, offset=offset, limit=limit), ALL).items
    assert pages == whole.items
    found = answer_pending(data, PendingQuery(query="P1", sort=sort, limit=1000), ALL)
    assert [each for each in whole.items if "p1" in f"{each.pod} {each.reason} {each.gang}".casefold()] == found.items


@settings(max_examples=examples(40))
@given(crowded_cases())
def test_the_map_of_use_agrees_with_the_plan(case: Case) -> None:
    """Each node has what its pods request; what the plan adds is what the placed pods request."""
    scenario = drawn_scenario(case)
    data, plan = planned(scenario)
    answer = answer_nodes(data, NodesQuery(), ALL)
    assert answer.names == list(scenario.cluster.nodes)
    requested: Counter[str] = Counter()
    for place in (each.pod for each in plan.placements):
        requested.update({"pods": 1, **dict(plan.classes[plan.pending[place].pod_class].requests)})
    for name, columns in answer.resources.items():
        assert sum(columns.planned) == requested[name]
        assert len(columns.allocatable) == len(columns.used) == len(columns.planned) == len(answer.names)
    bound = Counter(each.node_name for each in scenario.running())
    assert answer.pods == [bound[name] for name in answer.names]
    overview = answer_overview(data, NEWEST, ALL)
    for each in overview.resources:
        columns = answer.resources[each.name]
        assert (each.allocatable, each.used, each.planned) == (
            sum(columns.allocatable),
            sum(columns.used),
            sum(columns.planned),
        )
    assert overview.waiting == sum(overview.codes.values())


@settings(max_examples=examples(30))
@given(crowded_cases())
def test_waiting_and_placed_mean_one_thing(case: Case) -> None:
    """The header, the list, the workloads, the timeline, policies and gangs, the status, simulate and what-if agree."""
    scenario = drawn_scenario(case)
    data, _ = planned(scenario)
    plan = plan_scenario(scenario, NOW)
    left, placed = len(plan.result.unplaced) + len(plan.skipped), len(plan.result.placements)
    overview, pending = answer_overview(data, NEWEST, ALL), answer_pending(data, PendingQuery(), ALL)
    status, listed = of_dump(scenario, StatusQuery(), ALL), answer_plan(scenario, PlanQuery(), ALL)
    what_if = answer_what_if(scenario, WhatIfQuery(), ALL).before
    assert overview.round is not None
    assert {
        "header": overview.waiting,
        "timeline": overview.round.waiting,
        "list": pending.total,
        "workloads": sum(each.waiting for each in pending.workloads),
        "policies": sum(each.waiting for each in answer_policies(data, NEWEST, ALL).policies),
        "status": status.overview.waiting,
        "status by workload": sum(each.waiting for each in status.workloads),
        "simulate": sum(each.waiting for each in planned_workloads(scenario, plan.document())),
        "plan": len(listed.waiting),
        "plan by workload": sum(each.waiting for each in listed.workloads),
        "compare": compare_one_by_one(scenario, plan).thalweg.waiting,
        "what-if": what_if.waiting - what_if.evicted,  # the pods that run now are told beside them
    } == dict.fromkeys((
        "header", "timeline", "list", "workloads", "policies", "status", "status by workload", "simulate", "plan",
        "plan by workload", "compare", "what-if",
    ), left)  # fmt: skip
    assert {overview.round.placed, len(listed.placed), what_if.placed} == {placed}
    assert sum(each.placed for each in status.workloads) == placed
    for gang in answer_gangs(data, NEWEST, ALL).gangs:
        members = [each for each in scenario.cluster.pods.values() if each.gang is not None and not each.terminal]
        of = [each for each in members if each.gang is not None and each.gang.key.display_name == gang.gang]
        assert gang.running + gang.planned + gang.waiting == len(of)


def test_a_plan_that_evicts_has_a_gap() -> None:
    """Its bound holds with evictions too, and the row says what that counts as less than it is."""
    running = pod("low", "4", nodeName="n0", priority=0, schedulerName="thalweg", status={"phase": "Running"})
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    running["metadata"]["ownerReferences"] = [reference]
    data, plan = planned(scenario_of([node("n0"), running, pod("urgent", "4", priority=1000)]))
    assert plan.evictions
    assert 0 < plan.lower_bound < plan.cost
    assert answer_rounds(data, RoundsQuery(), ALL).gap == [pytest.approx(1 - plan.lower_bound / plan.cost)]
    assert "running pods that may leave" in RoundRow.of(plan).weak
    plan.lower_bound = 0
    assert RoundRow.of(plan).gap is None, "where nothing is known, not all of the cost is a gap"


def test_the_timeline_says_what_every_plan_leaves() -> None:
    """Of a round that leaves pods; nothing where the plan leaves none, or where objects are missing that it needs."""
    data, plan = planned(scenario_of([node("n0"), pod("a", "3"), pod("b", "3")]))
    assert plan.left_at_least is not None
    data.rounds.put(msgspec.structs.replace(plan, number=plan.number + 1, gaps=["something is missing"]))
    without, _ = planned(scenario_of([node("n0"), pod("a", "3")]))
    assert answer_rounds(data, RoundsQuery(), ALL).left_at_least == [plan.left_at_least, None]
    assert (plan.left_at_least.waiting, plan.left_at_least.pods) == (1, 1)
    assert answer_rounds(without, RoundsQuery(), ALL).left_at_least == [None]


def test_nodes_that_take_no_pods_are_marked() -> None:
    """One that is not ready, and tainted ones with their taints; the taint of a cordoned node is told by itself."""
    bad = node("bad")
    bad["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": effect} for effect in
                              ("NoSchedule", "NoExecute")]}  # fmt: skip
    gpu, closed = node("gpu"), node("closed")
    gpu["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                              {"key": "soft", "effect": "PreferNoSchedule"}]}  # fmt: skip
    closed["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    data, _ = planned(scenario_of([bad, gpu, closed, node("good")]))
    answer = answer_nodes(data, NodesQuery(), ALL)
    assert answer.not_ready == [True, False, False, False]
    assert answer.unschedulable == [False, False, True, False]
    assert [len(each) for each in answer.taints] == [2, 1, 0, 0]
    assert answer.taints[1] == ("nvidia.com/gpu=present:NoSchedule",)


def test_the_status_of_a_dump_says_what_is_held() -> None:
    """A queue's use counts its running pods: the dump is planned, not shown as if nothing were known."""
    queue = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowQueue",
        "metadata": {"name": "team"},
        "spec": {"selects": {"namespaceSelector": {}}},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    held = pod("held", "3", nodeName="n0", schedulerName="thalweg")
    scenario = scenario_of([node("n0"), queue, namespace, held, pod("w", "9")])
    (row,) = of_dump(scenario, StatusQuery(), ALL).queues
    assert row.used_share == 0.75
    assert row.waiting == 1


@settings(max_examples=examples(30))
@given(crowded_cases())
def test_policies_and_pods_agree_with_the_plan(case: Case) -> None:
    """Policies count each pending pod once; each pod's page says where it is planned, with the same price."""
    data, plan = planned(drawn_scenario(case))
    rows = answer_policies(data, NEWEST, ALL).policies
    assert sum(row.placed for row in rows) == len(plan.placements)
    assert sum(row.left for row in rows) == len(plan.unplaced)
    assert sum(row.price for row in rows) == sum(each.price for each in plan.placements)
    nodes = {each.pod: (each.node, each.price) for each in plan.placements}
    for place, each in enumerate(plan.pending):
        answer = answer_pod(data, PodQuery(*each.key.split("/")), ALL)
        if place in nodes:
            assert (answer.state, answer.node, answer.price) == ("Planned", *nodes[place])
        else:
            assert answer.state == "Waiting"
            assert answer.position
            assert answer.code
            assert answer.reason


@settings(max_examples=examples(40))
@given(crowded_cases())
def test_names_of_other_namespaces_are_not_shown(case: Case) -> None:
    """Who may read one namespace sees the names, and the reasons, of its pods only; numbers count all pods."""
    for manifest in [*case.pods, *case.pending]:
        secret = f"secret-{manifest['metadata']['name']}"
        if manifest["metadata"]["namespace"] != "default":
            manifest["metadata"]["name"] = manifest["metadata"]["uid"] = secret
    data, plan = planned(drawn_scenario(case))
    one = AnswerContext(NOW, sees=lambda namespace: namespace == "default")
    text = b"".join(msgspec.json.encode(answer) for answer in answers(data, one)).decode()
    assert "secret-" not in text
    assert answer_flow(data, FlowQuery(), one).pods == len(plan.pending)
    visible = [each.pod for each in answer_pending(data, PendingQuery(), one).items]
    assert all(key.startswith("default/") for key in visible)
    for each in data.scenario.cluster.pods.values():
        query = PodQuery(each.namespace, each.name)
        if each.namespace == "default":
            answer_pod(data, query, one)
            continue
        with pytest.raises(UnknownName) as hidden:
            answer_pod(data, query, one)
        with pytest.raises(UnknownName) as missing:
            answer_pod(data, PodQuery(each.namespace, "no-such-pod"), one)
        assert str(hidden.value).replace(each.name, "") == str(missing.value).replace("no-such-pod", "")


def test_reasons_do_not_name_what_may_not_be_read() -> None:
    """Why a pod waits may be others, which the round names: pods of the newest state, and pods that are gone."""
    scenario = scenario_of([node("n1"), pod("waits", "64"), {**pod("known", "1"), "metadata": metadata("known")}])
    data = ViewData(scenario, RoundHistory(), SourceInfo("dump", "now.json", "1"), 7)
    pending = [PlanPod("default/waits", 0, 0, gangs=("default/gang",)), PlanPod("gone/other", 0, 0)]
    reasons = ["room is held for PodGroup gone/gang and for secret/known", "it waits for gone/gang"]
    plan = PlanDocument(
        1, NOW, 0.1, 5, 5, "flow", 1, [PlanPolicy("p", Delivery.BINDER)], [PlanClass()], pending,
        unplaced=[(0, 0), (1, 1)], reasons=reasons, codes=["Room", "Room"],
    )  # fmt: skip
    data.rounds.put(plan)
    one = AnswerContext(NOW, sees=lambda namespace: namespace == "default")
    for context, named in ((ALL, True), (one, False)):
        reason = answer_pod(data, PodQuery("default", "waits"), context).reason
        assert reason.startswith("room is held for PodGroup ")
        text = msgspec.json.encode([reason, *answers(data, context)])
        assert (b"gone/" in text) == (b"secret/" in text) == named


def metadata(name: str) -> dict[str, str]:
    """Of a pod in a namespace that not everybody may read."""
    return {"name": name, "namespace": "secret", "uid": name}


def test_a_cluster_without_nodes() -> None:
    """Each picture is empty, and the pending pod has its reason."""
    data, _ = planned(scenario_of([pod("web-0")]))
    assert answer_nodes(data, NodesQuery(by="zone"), ALL).names == []
    flow_answer = answer_flow(data, FlowQuery(by="no-such-label"), ALL)
    assert (flow_answer.groups, flow_answer.links, flow_answer.unplaced) == ([], [], 1)
    (item,) = answer_pending(data, PendingQuery(), ALL).items
    assert item.code == "NoNodes"


def test_nothing_is_known_yet() -> None:
    """Before the first state and round every picture can be asked for."""
    data = ViewData()
    for operation in OPERATIONS.values():
        if operation.answer.__module__.startswith("thalweg_view.pictures") and not operation.segments:
            operation.answer(data, operation.query(), ALL)
    with pytest.raises(UnknownName, match="web-0"):
        answer_pod(data, PodQuery("default", "web-0"), ALL)


def test_hostile_names_stay_data() -> None:
    """Names and labels that look like a page's code come out of the JSON as they went in.

    The API server accepts no such name of a pod. A dump may have anything.
    """
    objects = [
        {**node("n0"), "metadata": {"name": "n0", "labels": {"rack": HOSTILE}}},
        pod(HOSTILE, "1"),
        pod(f"{HOSTILE}-large", "100"),
    ]
    data, _ = planned(scenario_of(objects))
    flow_answer = json.loads(msgspec.json.encode(answer_flow(data, FlowQuery(by="rack"), ALL)))
    assert [each["name"] for each in flow_answer["groups"]] == [HOSTILE]
    (item,) = json.loads(msgspec.json.encode(answer_pending(data, PendingQuery(), ALL)))["items"]
    assert item["pod"] == f"default/{HOSTILE}-large"
    assert answer_pod(data, PodQuery("default", HOSTILE), ALL).node == "n0"


def test_gangs_say_how_much_of_them_is_there() -> None:
    """A gang that is too large for the cluster is left whole, one that fits is planned whole."""

    def member(gang: str, at: int, cpu: str) -> dict[str, object]:
        annotations = {"scheduling.thalweg/gang": gang, "scheduling.thalweg/gang-min-member": "2"}
        return pod(f"{gang}-{at}", cpu, metadata={"annotations": annotations})

    pods = [member(gang, at, cpu) for gang, cpu in (("fits", "1"), ("large", "3")) for at in range(2)]
    data, _ = planned(scenario_of([node("n0", "4"), *pods]))
    large, fits = answer_gangs(data, NEWEST, ALL).gangs
    assert (large.gang, large.min_member, large.waiting, large.planned) == ("gang default/large", 2, 2, 0)
    assert large.code == "GangWithoutRoom"
    assert (fits.gang, fits.waiting, fits.planned, fits.reason) == ("gang default/fits", 0, 2, "")


@pytest.mark.parametrize(
    ("answer", "query", "said"),
    [
        (answer_pending, PendingQuery(sort="colour"), "sort"),
        (answer_pending, PendingQuery(limit=100_000), "limit"),
        (answer_flow, FlowQuery(of="colour"), "of"),
        (answer_flow, FlowQuery(by="colour"), "by"),
        (answer_nodes, NodesQuery(by="colour"), "by"),
        (answer_flow, FlowQuery(round=99), "99"),
    ],
)
def test_queries_that_cannot_be_answered(answer: object, query: object, said: str) -> None:
    """The error names the field."""
    data, _ = planned(scenario_of([node("n0"), pod("web-0")]))
    with pytest.raises(ModelError, match=said):
        answer(data, query, ALL)  # type: ignore[operator]


def test_the_timeline_keeps_rows_longer_than_rounds() -> None:
    """The oldest rounds go: first as a whole, much later from the timeline; a restarted operator begins anew."""
    data = ViewData()
    for number in range(1, KEPT_ROWS + 11):
        data.rounds.put(PlanDocument(number, float(number), 0.1, 10, 5, "flow", 1))
    answer = answer_rounds(data, RoundsQuery(), ALL)
    assert answer.number == list(range(11, KEPT_ROWS + 11))
    assert sum(answer.whole) == KEPT_WHOLE
    assert all(answer.whole[-KEPT_WHOLE:])
    assert set(answer.gap) == {0.5}
    assert answer_rounds(data, RoundsQuery(last=3), ALL).number == answer.number[-3:]
    with pytest.raises(UnknownName, match="11 is not kept"):
        data.rounds.find(11)
    data.rounds.put(PlanDocument(1, 0.0, 0.1, 0, 0, "flow", 1))
    assert answer_rounds(data, RoundsQuery(), ALL).number == [1]


def test_a_live_list_follows_the_newest_state() -> None:
    """A pod that is gone since the round is left out, one that came since is added; older rounds stay as they were."""
    data, plan = planned(scenario_of([node("n0", "1"), *(pod(f"web-{at}", "2") for at in range(3))]))
    data.source.kind = "live"
    cluster = data.scenario.cluster
    late = msgspec.structs.replace(cluster.pods["default/web-0"], name="web-9", uid="web-9", scheduler_name="thalweg")
    cluster.remove_pod("default/web-1")
    cluster.put_pod(late)
    data.state_after = plan.number
    items = answer_pending(data, PendingQuery(), ALL).items
    assert [(each.position, each.pod) for each in items] == [
        (1, "default/web-0"),
        (2, "default/web-2"),
        (0, "default/web-9"),
    ]
    assert answer_pending(data, PendingQuery(round=plan.number), ALL).total == 3
    data.state_after = 0
    assert "default/web-1" in [each.pod for each in answer_pending(data, PendingQuery(), ALL).items]


def test_a_pod_that_the_newest_round_left_out_keeps_its_reason() -> None:
    """Not every round plans all that wait. A pod that was made anew since has none yet."""
    data, plan = planned(scenario_of([node("n0", "1"), pod("web-0", "2"), pod("web-1", "2")]))
    data.source.kind = "live"
    data.rounds.put(PlanDocument(plan.number + 1, NOW, 0.1, 0, 0, "flow", 1))
    (before, after) = answer_pending(data, PendingQuery(), ALL).items
    assert (before.pod, before.code) == ("default/web-0", "NodeResourcesFit")
    assert "Insufficient cpu" in before.reason
    again = msgspec.structs.replace(data.scenario.cluster.pods["default/web-1"], uid="again", created=NOW + 1)
    data.scenario.cluster.put_pod(again)
    (before, after) = answer_pending(data, PendingQuery(), ALL).items
    assert (before.code, after.code) == ("NodeResourcesFit", "New")


@pytest.mark.parametrize("code", [WAITING_FOR_DEVICES, WAITING_FOR_VOLUMES])
def test_a_pod_that_waits_for_its_claims(code: str) -> None:
    """No round plans it any more: what it was told by who binds it is its reason."""
    data, plan = planned(scenario_of([node("n0", "4"), pod("web-0", "2"), pod("web-1", "2")]))
    data.source.kind = "live"
    data.rounds.put(PlanDocument(plan.number + 1, NOW, 0.1, 0, 0, "flow", 1))
    told = {"unschedulable_reason": code, "unschedulable_message": "its volumes on n0 are not ready"}
    known = data.scenario.cluster.pods["default/web-1"]
    data.scenario.cluster.put_pod(msgspec.structs.replace(known, **told))
    answer = answer_pod(data, PodQuery("default", "web-1"), ALL)
    assert (answer.state, answer.code, answer.reason) == ("Waiting", code, "its volumes on n0 are not ready")


def test_a_pod_that_its_policy_proposes_to_move() -> None:
    """Its page says where to and why, and that it runs where it does."""
    rescheduling = {
        "mode": "Propose",
        "minAge": "0s",
        "reasons": ["Gain"],
        "minGain": 1,
        "price": {"startup": "1s", "lostWork": "Ignore"},
    }
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "p"},
        "spec": {"selects": {"podSelector": {}}, "rescheduling": rescheduling},
    }
    pods = [pod(name, "1", nodeName="n0", schedulerName="thalweg") for name in ("p", "q")]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    pods[0]["metadata"]["ownerReferences"] = [owner]
    data, plan = planned(scenario_of([node("n0"), node("n1"), policy, *pods]))
    assert not plan.evictions
    answer = answer_pod(data, PodQuery("default", "p"), ALL)
    assert (answer.state, answer.node, answer.leaves, answer.proposed_to) == ("Running", "n0", "", "n1")
    assert answer.reason.startswith("it costs ")
    assert answer_pod(data, PodQuery("default", "q"), ALL).proposed_to == ""


def of_other_scheduler() -> Scenario:
    """Two full nodes, an urgent pod for which one leaves and one moves, and pods that lack different things."""
    nodes = [node("n0", "4"), node("n1", "8")]
    runs = []
    for name, place, cpu in (("a", "n0", "1"), ("b", "n0", "3"), ("c", "n1", "6")):
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        each = pod(name, cpu, nodeName=place, priority=0 if place == "n0" else 5000, status={"phase": "Running"})
        each["metadata"]["ownerReferences"] = [reference]
        runs.append(each)
    waits = [
        pod("urgent", "4", priority=1000, schedulerName="default-scheduler"),
        pod("cpu-0", "9", schedulerName="default-scheduler"),
        pod("cpu-1", "9", schedulerName="default-scheduler"),
        pod("label", "1", nodeSelector={"disk": "ssd"}, schedulerName="default-scheduler"),
    ]
    return scenario_of([*nodes, *runs, *waits])


def test_pods_that_wait_are_told_by_what_is_short() -> None:
    """In the flow, in the list and its filter, and for gangs, as the commands say it: no name of a filter."""
    data, _ = planned(of_other_scheduler())
    pending = answer_pending(data, PendingQuery(), ALL)
    assert pending.short == {"cpu": 2, "node labels": 1}
    assert {each.pod: each.short.partition(" (")[0] for each in pending.items} == {
        "default/cpu-0": "cpu",
        "default/cpu-1": "cpu",
        "default/label": "node labels",
    }
    assert pending.items[0].short == "cpu (best node lacks 8)"
    only = answer_pending(data, PendingQuery(short="node labels"), ALL)
    assert [each.pod for each in only.items] == ["default/label"]
    left = Counter[str]()
    for each in answer_flow(data, FlowQuery(), ALL).left:
        left[each.short] += each.pods
    assert left == {"cpu": 2, "node labels": 1}


def test_who_leaves_and_whose_pods_are_in_the_overview() -> None:
    """Who would leave, with and without a new node; and that nobody acts for these pods, on their own pages too."""
    data, plan = planned(of_other_scheduler())
    overview = answer_overview(data, NEWEST, ALL)
    assert (overview.leaving.would_move, overview.leaving.would_be_evicted) == (1, 1)
    assert overview.leaving.sentence == "2 running pods would leave: 1 with a new node, 1 without"
    assert overview.counts.sentence == "4 pods wait: 1 gets a node, 3 have none"
    sentence = "No policy governs these pods: default-scheduler binds them. Thalweg changes nothing."
    assert overview.ungoverned.sentence == sentence
    for name in ("urgent", "label"):
        page = answer_pod(data, PodQuery("default", name), ALL)
        assert page.ungoverned == "No policy governs this pod: default-scheduler binds it. Thalweg changes nothing."
    (card,) = [each for each in answer_policies(data, NEWEST, ALL).policies if each.placed]
    assert (card.name, card.delivery, card.selects) == ("(observed)", "Observe", "pods that no policy governs")
    assert len(plan.evictions) == 2


def test_a_dump_is_audited_when_it_is_asked_for() -> None:
    """Its owner gets what the command says; nobody else has it computed, and no operator computes it for a page."""
    scenario = of_other_scheduler()
    data, _ = planned(scenario)
    audit = OPERATIONS["audit"]
    query = msgspec.convert({}, audit.query)
    told = msgspec.to_builtins(audit.answer(data, query, ALL))
    assert told == msgspec.to_builtins(answer_audit(scenario, AuditQuery(), ALL))
    assert {each["kind"] for each in told["findings"]} >= {"WaitingPods", "PriorityInversions"}
    data.source.kind = "live"
    with pytest.raises(ModelError, match="only a dump is audited here"):
        audit.answer(data, query, ALL)
    data.source.kind = "dump"
    with pytest.raises(ModelError, match="only a dump is audited here"):
        audit.answer(data, query, AnswerContext(NOW, sees=lambda namespace: namespace == "default"))
