"""Features of the kubelet that pods need and nodes declare."""

import pytest
from support.draw import GENEROUS, Case, Manifest
from support.safety import plan_and_check
from support.verdicts import read_pods, snapshot_of

RESTART, HOST_USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"


def pod(**spec: object) -> Manifest:
    own = {"containers": [{"name": "main"}], **spec}
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": own}


def node(name: str, *features: str) -> Manifest:
    status = {"allocatable": GENEROUS, "declaredFeatures": list(features)}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({}, ()),
        ({"hostNetwork": True, "hostUsers": False}, (HOST_USERS,)),
        ({"hostNetwork": True, "hostUsers": None}, ()),
        ({"hostUsers": False}, ()),
        ({"initContainers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]}, (RESTART,)),
        ({"initContainers": [{"restartPolicyRules": [{"action": "Restart"}, {}]}]}, ()),
    ],
)
def test_what_a_pod_needs(spec: Manifest, needed: tuple[str, ...]) -> None:
    """Of all that the kubelet may declare, scheduling asks for these two."""
    assert read_pods([pod(**spec)])[0].pod_class.features == needed


def test_rounds_place_a_pod_only_where_its_features_are_declared() -> None:
    """Other features than those that are known are passed over."""
    nodes = [node("bare"), node("other", "Aim", HOST_USERS), node("good", "Aim", RESTART)]
    needy = pod(initContainers=[{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}])
    assert [p.node for p in plan_and_check(snapshot_of(Case(nodes, [], [needy]))).placements] == ["good"]
    left = plan_and_check(snapshot_of(Case(nodes[:2], [], [needy]))).unplaced
    assert [each.reason for each in left] == [
        "0/2 nodes are available: 2 node(s) didn't match Pod's required features."
    ]
