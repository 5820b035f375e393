"""The worker knows which pods are on their way and take devices, though their claims do not say so yet."""

from support.fake_cluster.driven_ledger import DrivenLedger
from support.model import node

from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, PodClaim

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
