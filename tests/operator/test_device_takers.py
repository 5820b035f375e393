"""The worker knows which pods are on their way and take devices, though their claims do not say so yet."""

import msgspec
import pytest
from support.device_clusters import claim, devices_of, of_template, slice_of
from support.fake_cluster.driven_ledger import DrivenLedger
from support.model import node
from thalweg_operator.planning.worker.messages import PendingEntry, RoundRequest
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import to_running_pod
from flowcore.model.devices import DeviceClass
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, ExtendedRequest, PodClaim
from flowcore.rules.devices import search_effort

GPU = "nvidia.com/gpu"

CLAIMING = ClaimingPod("default", "p", "p", (PodClaim("gpu", claim="c"),))
CLAIMANT = Pod("default", "p", "p", PodClass(devices=CLAIMING))
OTHER = Pod("default", "q", "q", PodClass())


def test_reservations_of_pods_with_claims_are_told_once() -> None:
    """With the labels of their node, which slices may select by; and that there are none any more, too."""
    state = DrivenLedger()
    state.upsert_node(node("n0", labels=(("zone", "a"),)))
    for pod in (CLAIMANT, OTHER):
        state.upsert_pod(pod)
        assert state.reserve(pod, "n0")
    taker = DeviceTaker(CLAIMING, "n0", (("zone", "a"),))
    assert state.device_takers.update((), fresh=True) == [taker]
    assert state.device_takers.update((), fresh=False) is None
    assert state.device_takers.update((), fresh=True) == [taker]
    state.upsert_node(node("n0", labels=(("zone", "b"),)))
    assert state.device_takers.update((), fresh=False) == [DeviceTaker(CLAIMING, "n0", (("zone", "b"),))]
    state.release(CLAIMANT.key, CLAIMANT.uid)
    assert state.device_takers.update((), fresh=False) == []
    assert state.device_takers.update((), fresh=False) is None


def test_pods_with_claims_are_left_alone_while_claims_cannot_be_read() -> None:
    """They are planned as soon as they can."""
    state = DrivenLedger()
    for pod in (CLAIMANT, OTHER):
        state.upsert_pod(pod)
    assert state.cluster.set_claims_known(known=False)
    assert "cannot be read" in state.waiting[CLAIMANT.key].unsupported_reason
    assert state.waiting[OTHER.key].unsupported_reason == ""
    assert not state.cluster.set_claims_known(known=False)
    state.upsert_pod(Pod("default", "late", "late", PodClass(devices=CLAIMING)))
    assert state.waiting["default/late"].unsupported_reason
    assert state.cluster.set_claims_known(known=True)
    assert not any(pod.unsupported_reason for pod in state.waiting.values())


def test_pods_that_have_an_extended_resource_by_devices() -> None:
    """They get a place on a node that does not offer the resource, of any amount, and one that does by what it offers.

    The worker is told which of them need devices there; a resource that no class backs is the node's to offer.
    """
    state = DrivenLedger()
    state.upsert_node(node("devices"))
    state.upsert_node(node("offers", gpu=1))
    state.set_device_class("gpu", DeviceClass("gpu", GPU))
    pods = [_asking(f"p{number}") for number in range(3)]
    for pod in pods:
        state.upsert_pod(pod)
    assert state.reserve(pods[0], "devices")
    assert state.reserve(pods[1], "offers")
    assert not state.reserve(pods[2], "offers")
    assert state.holds(pods[0].key)
    told = {taker.pod.uid: (taker.node, taker.offered) for taker in state.device_takers.update((), fresh=True) or ()}
    assert told == {"p0": ("devices", ()), "p1": ("offers", (GPU,))}
    state.upsert_pod(unbacked := _asking("fpga", "example.com/fpga"))
    assert not state.reserve(unbacked, "devices")


@pytest.mark.parametrize("delivery", [Delivery.BINDER, Delivery.EXTENDER])
def test_a_running_pod_moves_only_if_another_one_would_be_planned(delivery: Delivery) -> None:
    """Nobody leaves for a place that no replacement of it gets, since claims cannot be read."""
    cluster = Cluster()
    cluster.put_node(node("offers", gpu=1))
    running = msgspec.structs.replace(_asking("p"), node_name="offers", started=1.0)
    cluster.put_pod(running)
    policy = Policy("x", delivery=delivery, rescheduling=ReschedulingPolicy(mode=ReschedulingMode.ACT))
    assert to_running_pod(cluster, running, policy, 10_000.0).immovable_reason == ""
    cluster.set_device_class("gpu", DeviceClass("gpu", GPU))
    assert to_running_pod(cluster, running, policy, 10_000.0).immovable_reason == ""
    cluster.set_claims_known(known=False)
    assert "cannot be read" in to_running_pod(cluster, running, policy, 10_000.0).immovable_reason


def test_a_search_that_a_round_left_unfinished_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not anything changes in the cluster."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 3 * search_effort.NODE)
    claiming, replica = of_template("p"), Replica()
    selecting = claim("p", owner="p", selectors=[{"cel": {"expression": "device.driver == 'none'"}}])
    selecting["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/model"}]
    devices = devices_of([slice_of(f"n{number}", 1) for number in range(4)], [selecting])
    changes = ClusterChanges(nodes=[node(f"n{number}") for number in range(4)], namespaces={"default": ()})
    devices.add_all(changes)
    replies = [
        run_request(
            replica,
            RoundRequest(
                number=number,
                generation=number,
                now=0.0,
                reset=number == 1,
                changes=changes if number == 1 else ClusterChanges(),
                policies=[Policy("x")],
                classes=[PodClass((("cpu", 1),), devices=claiming)],
                signatures=[PodSignature("default", ())],
                pending=[PendingEntry("default/p", 0, 0, 0.0, 0)],
                budget=0.0,
                steps=1,
            ),
        )
        for number in range(1, 5)
    ]
    assert replies[0].settles_in
    assert not replies[-1].settles_in


def _asking(name: str, resource: str = GPU) -> Pod:
    pod = Pod("default", name, name, PodClass(((resource, 1),)), usage=((resource, 1),))
    return msgspec.structs.replace(pod, extended=(ExtendedRequest(resource, (("container-0-request-0", 1),)),))
