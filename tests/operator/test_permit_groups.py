"""Permit groups are forgotten when none of their pods waits any more."""

from thalweg_operator.reservations.ledger.reservation import PermitKey
from thalweg_operator.reservations.steering.records.permit_groups import PermitGroups

from flowcore.model.pods import Pod, PodClass

GROUP = PermitKey(1, "gang ml/train", 0)


def test_a_permit_group_of_optional_pods_that_are_all_lost() -> None:
    """Nobody requires them, so nobody is given up with them; nothing of the permit group stays behind."""
    groups = PermitGroups()
    for name in "ab":
        groups.join(GROUP, f"ml/{name}", optional=True)
    assert groups.lost(GROUP, "ml/a") == []
    assert groups.lost(GROUP, "ml/b") == []
    assert groups._groups == {}
    # A pod that joins later waits for nobody.
    pod = Pod("ml", "c", "c", PodClass())
    groups.join(GROUP, pod.key, optional=True)
    assert groups.ready(GROUP, pod) == [pod]
    assert groups._groups == {}
