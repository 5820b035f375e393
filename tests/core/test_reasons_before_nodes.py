"""Pods for which no node is looked at: the reason is the same as with all filters, and none of them is asked."""

from typing import Any

import pytest
from support.model import node, pod, snapshot

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.model.volumes import ClaimVolume
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.registry import Filter
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.reasons import Reason, reason_for, summary
from flowcore.rules.reasons.more_nodes import more_nodes_help
from flowcore.rules.verdicts.groups import Group

TO_BE_MADE = ClaimingPod("ns", "p", "u", (PodClaim("gpu", template="t"),))
MISSING = (ClaimVolume("ns", "data"),)
UNREADABLE = InterPodConstraints(unreadable_affinity="pod affinity term")


def _never(which: Filter, *_: object) -> tuple[Rejection, ...]:
    raise AssertionError(which.name)


@pytest.mark.parametrize(
    ("fields", "rules", "text", "code"),
    [
        ({"devices": TO_BE_MADE}, None, 'pod "ns/p": ResourceClaim not created yet', "DynamicResources"),
        ({"volumes": MISSING}, None, 'persistentvolumeclaim "data" not found', "VolumeRestrictions"),
        ({"volumes": MISSING, "devices": TO_BE_MADE}, None, 'persistentvolumeclaim "data" not found',
         "VolumeRestrictions"),
        ({}, UNREADABLE, "", "InterPodAffinity"),
    ],
)  # fmt: skip
def test_what_decides_before_any_node_is_looked_at(
    fields: dict[str, Any], rules: InterPodConstraints | None, text: str, code: str
) -> None:
    """One pod of 5 cores, which fits on neither node either."""
    pod_class = PodClass(requests=(("cpu", 5000),), **fields)
    cluster: Snapshot = snapshot([node("a"), node("b")], [])
    signature = PodSignature("ns", constraints=rules)
    asked = Group(pod_class, "", signature, (pod("p"),))
    reason = reason_for(asked, before=cluster, after=cluster, runner=_never)
    verdicts = run_filters(pod_class, cluster, signature)
    curable = more_nodes_help(pod_class, signature, cluster, verdicts)
    assert reason == Reason(summary(verdicts), verdicts.furthest_filter(), curable)
    assert (reason.code, reason.more_nodes_help) == (code, False)
    assert text in reason.text
    assert reason.text.startswith("0/2 nodes are available: ")
