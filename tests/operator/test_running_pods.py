"""The worker knows the running pods of the cluster, whatever changes between the requests that bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from support.profiles import examples
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.planning.inputs.running_pods import RunningPodsTracker
from thalweg_operator.planning.round_request import RequestBuilder
from thalweg_operator.planning.worker.messages import (
    RoundRequest,
    RunningEntry,
    RunningState,
    join_request,
    split_request,
)
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.ledger import backoff

from flowcore.cluster.running import running_pods
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement

NOW = 5_000.0
MOVING = {"selects": {"podSelector": {}}, "rescheduling": {"mode": "Propose", "minAge": "1h"}}
CLASSES = [PodClass((("cpu", 100),)), PodClass((("cpu", 200),), priority=5)]
GANG = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
NATIVE = [GangRef(GangKey(GangSource.NATIVE, "ns", name)) for name in "pq"]
APP = LabelSelector((Requirement("app", "In", ("x",)),))
OF_TEAM = {"selects": {"podSelector": {}, "namespaceSelector": {"matchLabels": {"team": "one"}}}}
NAMESPACES = ("ns", "far")

names = st.sampled_from(["a", "b", "c", "d"])
budgets = st.sampled_from([APP, LabelSelector(), LabelSelector((Requirement("app", "NotIn", ("x",)),)), None])
pods = st.builds(
    Pod,
    namespace=st.sampled_from(NAMESPACES),
    name=names,
    uid=st.sampled_from(["u1", "u2"]),
    pod_class=st.sampled_from(CLASSES),
    labels=st.sampled_from([(), (("app", "x"),)]),
    node_name=st.sampled_from(["n", "n", "m", "unknown", ""]),
    deleting=st.sampled_from([False, False, False, True]),
    gang=st.sampled_from([None, None, GANG, *NATIVE]),
    created=st.sampled_from([0.0, NOW]),
    owner=st.sampled_from(["", "set"]),
)
events = st.one_of(
    st.tuples(st.just("pod"), pods),
    st.tuples(st.just("gone"), st.tuples(st.sampled_from(NAMESPACES), names)),
    st.tuples(st.just("node"), st.sampled_from(["n", "m"])),
    st.tuples(st.just("node gone"), st.sampled_from(["n", "m"])),
    st.tuples(
        st.just("budget"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from("bc"), st.integers(0, 2), budgets)
    ),
    st.tuples(st.just("budget gone"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from("bc"))),
    st.tuples(st.just("policy"), st.sampled_from([MOVING, OF_TEAM, {"selects": {"podSelector": {}}}])),
    st.tuples(st.just("team"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from([(), (("team", "one"),)]))),
    st.tuples(st.just("refused"), st.sampled_from(["u1", "u2"])),
    st.tuples(st.just("time"), st.sampled_from([1.0, 10.0, 3600.0])),
    st.tuples(st.just("worker lost"), st.none()),
    st.tuples(st.just("group"), st.tuples(st.sampled_from(NATIVE), st.sampled_from(["", "top"]))),
    st.tuples(st.just("group gone"), st.sampled_from(NATIVE)),
)


class Driven:
    """Cluster and ledger, and the requests that tell a worker of them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.known = True
        self.state, self.replica = DrivenLedger(lambda: 1_000.0 + self.seconds), Replica()
        self.fresh, self.versions = True, 0
        for namespace in NAMESPACES:
            self.state.set_namespace(namespace, ())
        cluster, ledger = self.state.cluster, self.state.ledger
        self.tracker = RunningPodsTracker(self.state.shell.state, self.clock, self.wall_clock, lambda: self.known)
        clocks, policies = (self.clock, self.wall_clock), self.state.policies
        usage = MeasuredUsageTracker(cluster, ledger, None)
        deadline = RoundDeadline(60.0, 1.0)
        self.builder = RequestBuilder(self.state.shell.state, policies, 1.0, deadline, *clocks, self.tracker, usage)

    def clock(self) -> float:
        """Seconds of a monotonic clock."""
        return 1_000.0 + self.seconds

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return NOW + self.seconds

    def happen(self, kind: str, what: Any) -> None:
        """One event."""
        state = self.state
        match kind:
            case "pod":
                state.upsert_pod(msgspec.structs.replace(what, usage=what.pod_class.requests))
            case "gone" if "/".join(what) in state.pods:
                state.delete_pod("/".join(what))
            case "node":
                state.upsert_node(Node(what, allocatable=(("cpu", 1000), ("pods", 10))))
            case "node gone":
                state.delete_node(what)
            case "budget":
                namespace, name, allowed, selector = what
                budget = DisruptionBudget(namespace, name, selector, allowed=allowed)
                state.cluster.set_disruption_budget(budget.key, budget)
            case "budget gone":
                state.cluster.set_disruption_budget("/".join(what), None)
            case "team":
                state.set_namespace(*what)
            case "policy":
                self.versions += 1
                state.policies.offer("p", "u", self.versions, what)
            case "refused":
                backoff.eviction_refused(state.ledger, what, "no", self.clock())
            case "time":
                self.seconds += what
            case "group":
                state.cluster.put_pod_group(PodGroup(what[0].key, GangSpec(min_member=2), parent=what[1]))
            case "group gone":
                state.cluster.remove_pod_group(what.key)
            case "worker lost":
                self.replica, self.fresh = Replica(), True
                state.mark_all_dirty()

    def round(self) -> RunningPods | None:
        """A request is built, sent in parts and applied; the running pods of the worker's snapshot."""
        request = asyncio.run(self.builder.build(self.builder.planning_input(), [], reset=self.fresh))
        self.fresh = False
        parts = [
            msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=RoundRequest) for part in split_request(request)
        ]
        request = join_request(parts)
        self.replica.apply(request)
        return self.replica.to_snapshot(request, ()).running

    def expected(self) -> RunningPods:
        """The running pods, computed anew."""
        cluster, ledger = self.state.cluster, self.state.ledger
        return running_pods(
            cluster,
            lambda pod: cluster.policies.of(pod, cluster.namespaces),
            self.wall_clock(),
            excluded=ledger.victims.keys(),
            unevictable_reasons=backoff.unevictable_reasons(ledger, self.clock()),
        )


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(pods, min_size=2, max_size=3), st.lists(st.tuples(events, st.booleans()), min_size=3, max_size=20))
def test_the_worker_knows_the_running_pods(first: list[Pod], happening: list[tuple[tuple[str, Any], bool]]) -> None:
    """After every request the worker's running pods are those that are computed anew from the cluster."""
    driven = Driven()
    for node in ("n", "m"):
        driven.happen("node", node)
    for pod in first:
        driven.happen("pod", pod)
    for (kind, what), is_round in [(("time", 0.0), True), *happening, (("time", 0.0), True)]:
        driven.happen(kind, what)
        if not is_round:
            continue
        driven.tracker.need()
        found, expected = driven.round(), driven.expected()
        assert found is not None
        assert sorted(found.pods, key=lambda pod: pod.key) == sorted(expected.pods, key=lambda pod: pod.key)
        assert (found.budgets, found.gangs) == (expected.budgets, expected.gangs)
        assert sorted(found.terminating) == sorted(expected.terminating)


def test_nothing_is_sent_where_nobody_may_have_to_leave() -> None:
    """Nor while PodDisruptionBudgets are unknown: then nobody is evicted."""
    driven = Driven()
    driven.happen("node", "n")
    driven.happen("pod", Pod("ns", "a", "u1", CLASSES[0], node_name="n"))
    assert driven.round() is None
    assert driven.tracker.need()
    found = driven.round()
    assert found is not None
    assert [pod.key for pod in found.pods] == ["ns/a"]
    assert not driven.tracker.need(), "it is known already"
    driven.known = False
    assert driven.round() is None


def _count_tests(monkeypatch: pytest.MonkeyPatch) -> list[LabelSelector]:
    """Selectors, as often as one is tested from now on."""
    tested: list[LabelSelector] = []
    selects = LabelSelector.selects

    def counted(self: LabelSelector, values: Mapping[str, str]) -> bool:
        tested.append(self)
        return selects(self, values)

    monkeypatch.setattr(LabelSelector, "selects", counted)
    return tested


def test_budgets_of_a_namespace_are_tested_for_its_own_pods_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again only when a selector of one of them changes: not for a status, not for a round more."""
    driven = Driven()
    driven.happen("node", "n")
    for number in range(300):
        namespace = "far" if number % 100 else "ns"
        driven.happen("pod", Pod(namespace, f"p{number}", f"u{number}", CLASSES[0], node_name="n"))
    every_pod = LabelSelector()
    for number in range(5):
        driven.happen("budget", ("ns", f"b{number}", 0, every_pod))
    driven.tracker.need()
    tested = _count_tests(monkeypatch)
    driven.round()
    assert tested.count(every_pod) == 3 * 5, "three pods of ns, five budgets"

    for change, again in (
        (("time", 1.0), 0),
        (("budget", ("ns", "b0", 1, every_pod)), 0),
        (("budget", ("ns", "b0", 1, APP)), 3 * 4),
        (("budget gone", ("ns", "b0")), 3 * 4),
    ):
        driven.happen(*change)
        tested.clear()
        driven.round()
        assert tested.count(every_pod) == again, change


def test_an_entry_has_all_fields_of_a_running_pod() -> None:
    """In the same order: entries are made field by field."""
    assert RunningEntry.__struct_fields__ == RunningPod.__struct_fields__
    assert {*RunningState.__struct_fields__, "pods"} == {field.name for field in fields(RunningPods)}


def test_labels_of_a_pod_are_sent_and_kept_once() -> None:
    """They may be its own, as with a StatefulSet, and the pod is in the counts of its node and among those that run."""
    driven = Driven()
    for event in (
        ("node", "n"),
        ("policy", MOVING),
        ("pod", Pod("ns", "a", "u1", CLASSES[0], labels=(("pod", "only-once"),), node_name="n", owner="set")),
    ):
        driven.happen(*event)
    request = asyncio.run(driven.builder.build(driven.builder.planning_input(), [], reset=True))
    body = msgspec.msgpack.encode(request)
    assert body.count(b"only-once") == 1
    driven.replica.apply(msgspec.msgpack.decode(body, type=RoundRequest))
    snapshot = driven.replica.to_snapshot(request, ())
    assert snapshot.running is not None
    (pod,) = snapshot.running.pods
    assert pod.signature is next(iter(snapshot.pod_index.counts()))[0]
    full = msgspec.msgpack.encode(driven.replica.full_request(request))
    assert full.count(b"only-once") == 1
