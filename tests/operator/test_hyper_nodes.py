"""Volcano's HyperNodes in the operator: events, and members that cannot be read."""

from __future__ import annotations

from typing import cast

import msgspec
from structlog.testing import capture_logs
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches import sinks
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.events import NodePut, ObjectSet

from flowcore.api import Interner
from flowcore.api.kinds import HYPER_NODE
from flowcore.cluster.kinds import HYPER_NODES
from flowcore.model.hyper_nodes import HyperNode, NodeMembers, tier_key
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import PodClass

LEAF = HyperNode("s0", 1, "leaf", nodes=(NodeMembers("n0"),))


def test_heartbeats_of_a_node_in_a_hyper_node_change_nothing() -> None:
    """The API server knows nothing of the label that the node has here."""
    state = DrivenLedger()
    state.apply(NodePut(Node("n0")))
    requested = state.rounds_requested
    state.apply(ObjectSet(HYPER_NODES, "s0", LEAF))
    assert state.rounds_requested > requested
    assert state.cluster.nodes["n0"].labels == ((tier_key(1), "s0"),)
    records, requested = state.shell.state.nominations, state.rounds_requested
    records.changed = -1
    state.apply(NodePut(Node("n0")))
    state.apply(ObjectSet(HYPER_NODES, "s0", msgspec.structs.replace(LEAF)))
    assert (records.changed, state.rounds_requested) == (-1, requested)
    records.arrivals.add("n0", PodClass())
    state.apply(NodePut(Node("n0", report=Report(images=(("image", 1),)))))
    assert records.changed == records.arrivals.last


def test_a_version_that_cannot_be_read_has_no_members() -> None:
    """And the right tier, so that others keep their labels."""
    state = DrivenLedger()
    state.apply(NodePut(Node("n0")))
    sink = sinks.ObjectSink(state.shell, HYPER_NODE, HYPER_NODES)
    sink.upsert(LEAF)
    sink.unreadable("s0")
    assert state.cluster.nodes["n0"].labels == ()
    tiers = state.cluster.hyper_nodes.numbered()
    assert (tiers.numbers, tiers.by_name) == ((1,), {"leaf": 1})
    assert list(state.cluster.hyper_nodes.problems()) == ["HyperNode s0: the object cannot be read: it does not count"]


def test_members_that_cannot_be_read_are_counted() -> None:
    """One line is written for all of them; the other members count."""
    metrics = Metrics()
    decode = sinks.decoder(HYPER_NODE, Interner(), BadInput(metrics))
    selectors = [{"regexMatch": {"pattern": "("}}, {"exactMatch": {"name": "n0"}}]
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    raw = [{"metadata": {"name": name}, "spec": {"tier": 1, "members": members}} for name in "ab"]
    with capture_logs() as logs:
        read = [cast("HyperNode", decode(msgspec.json.encode(each))) for each in raw]
    assert [each.nodes for each in read] == [(NodeMembers("n0"),)] * 2
    assert [(each["kind"], each["field"], each["name"]) for each in logs] == [("HyperNode", "spec.members", "a")]
    count = metrics.registry.get_sample_value
    assert count("thalweg_refused_inputs_total", {"kind": "HyperNode", "field": "spec.members"}) == 2
