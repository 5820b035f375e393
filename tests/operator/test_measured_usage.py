"""The worker knows which load counts on each node, whatever changes between the requests that tell it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from support.profiles import examples
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.planning.inputs.running_pods import RunningPodsTracker
from thalweg_operator.planning.round_request import RequestBuilder
from thalweg_operator.planning.worker.messages import RoundRequest, join_request, split_request
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.poller import UsagePoller

from flowcore.cluster.usage_samples import PodOnNode
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.usage import MeasuredLoad, UsageClass, UsageSample

NOW = 5_000_000.0
GI = 2**30
MEASURED = {"selects": {"podSelector": {}}, "cost": {"utilisation": "Measured"}}
REQUESTED = {"selects": {"podSelector": {}}}
SMALL = PodClass((("cpu", 100), ("memory", GI)))
IMAGE = UsageClass("ns", ("registry/app",), SMALL.requests)

names, nodes = st.sampled_from(["a", "b", "c"]), st.sampled_from(["n", "m"])
events = st.one_of(
    st.tuples(st.just("pod"), st.tuples(names, nodes, st.sampled_from([0.0, -10.0, -1000.0]))),
    st.tuples(st.just("gone"), names),
    st.tuples(st.just("reserved"), st.tuples(names, nodes)),
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node gone"), nodes),
    st.tuples(st.just("poll"), st.dictionaries(nodes, st.integers(0, 3000))),
    st.tuples(st.just("time"), st.sampled_from([1.0, 30.0, 300.0])),
    st.tuples(st.just("worker lost"), st.none()),
    st.tuples(st.just("idle round"), st.none()),
    st.tuples(st.just("round"), st.none()),
)


class Driven:
    """Cluster, ledger and samples, and the requests that tell a worker of them."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.seconds = 0.0
        self.state, self.replica, self.fresh = DrivenLedger(self.clock), Replica(), True
        self.state.set_namespace("ns", ())
        self.state.policies.offer("p", "u", 1, spec)
        cluster, ledger, metrics = self.state.cluster, self.state.ledger, Metrics()
        self.usage = UsagePoller(None, cluster, UsageSettings(), metrics, BadInput(metrics))  # type: ignore[arg-type]
        running = RunningPodsTracker(self.state.shell.state, self.clock, self.wall_clock, lambda: True)
        self.builder = RequestBuilder(
            self.state.shell.state,
            self.state.policies,
            1.0,
            RoundDeadline(60.0, 1.0),
            self.clock,
            self.wall_clock,
            running,
            MeasuredUsageTracker(cluster, ledger, self.usage),
        )

    def clock(self) -> float:
        """Seconds of a monotonic clock."""
        return 1_000.0 + self.seconds

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return NOW + self.seconds

    def pod(self, name: str, node: str = "", started: float = 0.0) -> Pod:
        return Pod("ns", name, f"uid-{name}", SMALL, scheduler_name="thalweg", node_name=node, usage=SMALL.requests,
                   started=started, usage_class=IMAGE)  # fmt: skip

    def node(self, name: str) -> None:
        allocatable = (("cpu", 4000), ("memory", 16 * GI), ("pods", 10))
        self.state.upsert_node(Node(name, allocatable=tuple(sorted(allocatable))))

    def poll(self, cpu: dict[str, int], pods: dict[str, int] | None = None) -> None:
        """Samples of these nodes and pods come, in milli-cores."""
        now, cluster = self.wall_clock(), self.state.cluster
        self.usage.store.put_nodes({node: UsageSample(now, 30, use, GI) for node, use in cpu.items()}, cluster.nodes)
        samples = {key: UsageSample(now, 30, use, GI) for key, use in (pods or {}).items()}
        self.usage.store.put_pods(samples, self.usage._class_of)
        for key in self.usage.store.pods:
            if key not in cluster.pods:
                self.usage.store.drop_pod(key)
        self.usage.store.refresh()
        self.usage.polls += 1

    def happen(self, kind: str, what: Any) -> None:
        """One event."""
        state = self.state
        match kind:
            case "pod":
                name, node, ago = what
                state.upsert_pod(self.pod(name, node, self.wall_clock() + ago if ago else 0.0))
            case "gone" if f"ns/{what}" in state.pods:
                state.delete_pod(f"ns/{what}")
            case "reserved" if f"ns/{what[0]}" not in state.pods and what[1] in state.cluster.nodes:
                pod = self.pod(what[0])
                state.upsert_pod(pod)
                state.reserve(pod, what[1])
            case "node":
                self.node(what)
            case "node gone":
                state.delete_node(what)
            case "poll":
                self.poll(what, {"ns/a": 70})
            case "time":
                self.seconds += what
            case "worker lost":
                self.replica, self.fresh = Replica(), True
                state.mark_all_dirty()
                self.request([])
            case "idle round":
                self.request([])

    def request(self, pods: list[Pod]) -> RoundRequest:
        """A request is built, sent in parts and applied."""
        waiting = [(pod, 0) for pod in pods]
        made = asyncio.run(self.builder.build(self.builder.planning_input(), waiting, reset=self.fresh))
        self.fresh = False
        parts = [
            msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=RoundRequest) for part in split_request(made)
        ]
        request = join_request(parts)
        self.replica.apply(request)
        return request

    def expected(self, node: str) -> MeasuredLoad:
        """The load of a node, from all pods there and on their way there."""
        cluster, ledger, estimate = self.state.cluster, self.state.ledger, SMALL.non_zero_requests
        estimate = self.usage.store.foreseen(IMAGE) or estimate
        there = [
            PodOnNode(each.key, each.started, estimate) for each in cluster.pods.values() if each.node_name == node
        ]
        coming = [PodOnNode(key, 0.0, estimate) for key, each in ledger.reservations.items() if each.node == node]
        return self.usage.store.measured_load(node, there + coming, self.wall_clock())


@settings(max_examples=examples(150))
@given(st.lists(events, max_size=20))
def test_the_worker_knows_the_load_of_each_node(history: list[tuple[str, Any]]) -> None:
    """After a round with pods, as after a new computation: samples, pods that no sample contains, and placements."""
    driven = Driven(MEASURED)
    for kind, what in [*history, ("round", None)]:
        if kind != "round":
            driven.happen(kind, what)
            continue
        if kind == "round" and driven.usage.polls:
            driven.usage.polls += 1  # what becomes stale is noticed with the next poll
        request = driven.request([driven.pod("waits")])
        snapshot = driven.replica.to_snapshot(request, ())
        loads = [driven.expected(node.name) for node in snapshot.table.nodes] if driven.usage.polls else []
        if all(load.is_empty for load in loads):
            assert snapshot.measured is None
        else:
            expected = [[np.nan if each is None else each for each in load.amounts] for load in loads]
            assert snapshot.measured is not None
            np.testing.assert_array_equal(snapshot.measured, expected)


def test_only_what_changed_is_sent() -> None:
    """A second round sends nothing; one after a placement sends its node; one after a poll what differs."""
    driven = Driven(MEASURED)
    for name in ("n", "m"):
        driven.node(name)
    driven.poll({"n": 500, "m": 600})
    waits = driven.pod("waits")
    assert sorted(each.node for each in driven.request([waits]).changes.measured) == ["m", "n"]
    assert driven.request([waits]).changes.measured == []
    driven.happen("reserved", ("a", "n"))
    assert driven.request([waits]).changes.measured == [MeasuredLoad("n", 600, 2 * GI)]
    driven.seconds += 30
    driven.poll({"n": 500, "m": 700})
    assert driven.request([waits]).changes.measured == [MeasuredLoad("m", 700, GI)]


def test_a_pod_that_runs_for_long_is_not_new_after_a_restart() -> None:
    """A new operator lists all pods at once; those that started before the sample began count within it."""
    driven = Driven(MEASURED)
    driven.node("n")
    driven.happen("pod", ("old", "n", -3600.0))
    driven.happen("pod", ("new", "n", -10.0))
    driven.poll({"n": 500})
    assert driven.request([driven.pod("waits")]).changes.measured == [MeasuredLoad("n", 600, 2 * GI)]


def test_what_is_foreseen_goes_with_the_pods_of_policies_that_ask() -> None:
    """And only with theirs: with requested utilisation no pod carries it, so that groups stay as they were."""
    for spec, foreseen in ((MEASURED, (70, 1_100_000_000)), (REQUESTED, None)):
        driven = Driven(spec)
        driven.node("n")
        driven.happen("pod", ("a", "n", -3600.0))
        for _ in range(5):
            driven.seconds += 30
            driven.poll({"n": 500}, {"ns/a": 70})
        (entry,) = driven.request([driven.pod("waits")]).pending
        assert entry.foreseen == foreseen


@pytest.mark.parametrize(("spec", "node"), [(MEASURED, "idle"), (REQUESTED, "empty")])
def test_the_plan_goes_by_what_is_measured_where_the_policy_asks(spec: dict[str, Any], node: str) -> None:
    """The node with pods that use little, or the node without pods that is busy all the same."""
    driven = Driven(spec)
    for name in ("idle", "empty"):
        driven.node(name)
    for number in range(8):
        driven.happen("pod", (f"p{number}", "idle", -3600.0))
    driven.poll({"idle": 50, "empty": 3900})
    request = driven.request([driven.pod("waits")])
    reply = run_request(Replica(), driven.replica.full_request(request))
    assert [placement.node for placement in reply.placements] == [node]
