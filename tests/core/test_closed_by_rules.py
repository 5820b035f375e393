"""Nodes that rules between pods close, without the other filters: the verdicts of all filters say the same."""

from hypothesis import given, settings
from support.constrained_snapshots import constrained_snapshots
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.rules.filters import (
    closed_by_rules,
    inter_pod_affinity,
    pod_topology_spread,
    policy_constraints,
    run_filters,
)

RULES = {inter_pod_affinity.NAME, pod_topology_spread.NAME, policy_constraints.NAME}


@given(snapshot=constrained_snapshots())
@settings(max_examples=examples(200))
def test_as_the_filters_say(snapshot: Snapshot) -> None:
    for pod in snapshot.pending:
        verdicts = run_filters(pod.pod_class, snapshot, pod.signature)
        closed = closed_by_rules(pod.pod_class, pod.signature, snapshot.pod_index, snapshot.table)
        assert (closed == verdicts.rejected_by(RULES)).all()
