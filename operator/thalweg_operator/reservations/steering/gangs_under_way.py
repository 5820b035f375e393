"""Gangs that kube-scheduler is binding: a gang comes whole, or not at all.

Most places of their pods are written down nowhere else. A new leader finds some pods of such a gang bound, and nothing
of the others. It plans those before anybody else may get their room. A gang that loses a pod before it has begun is
planned anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_spec import GangKey, GangRef
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.ledger.ledger import KeysOnTheWay, Ledger
from thalweg_operator.reservations.steering.nominations import domains_of_gang, take_back
from thalweg_operator.reservations.steering.state import SteeringState

#: Seconds that answers to kube-scheduler wait for the first plan at most. kube-scheduler gives up after 5.
_PLANNED_WITHIN = 2.0


def find_begun_gangs(state: SteeringState) -> None:
    """Notes the waiting pods of gangs that are bound in part. Called once, when cluster and policies are known."""
    gangs, on_the_way = state.cluster.gangs, KeysOnTheWay(state.ledger)
    is_begun: dict[GangKey, bool] = {}
    begun = set[str]()
    for key, pod in state.cluster.waiting.items():
        policy = state.policy_of(pod)
        if pod.gang is None or policy is None or key in on_the_way:
            continue
        if not delivery_of(policy).steered or delivery_of(policy).blocked(policy, pod):
            continue
        gang = pod.gang.key
        if gang not in is_begun:
            is_begun[gang] = has_begun(state.cluster, state.ledger, gang) and gangs.lacks_pods(gang, on_the_way)
        if is_begun[gang]:
            begun.add(pod.uid)
    if begun:
        state.nominations.begun, state.nominations.begun_until = frozenset(begun), state.now + _PLANNED_WITHIN


def has_begun(cluster: Cluster, ledger: Ledger, key: GangKey) -> bool:
    """Whether a pod of a gang, or of another gang of its group, has or had a node, or may be on its way to one.

    A binding of ours may have been carried out. kube-scheduler may be binding a pod that it was let through with.
    """
    return any(_has_begun_itself(cluster, ledger, gang) for gang in cluster.gangs.depends_on(key))


def _has_begun_itself(cluster: Cluster, ledger: Ledger, gang: GangKey) -> bool:
    """As ``has_begun``, whatever is the case with other gangs of its group."""
    waiting, bound = cluster.gangs.members(gang)
    if bound or cluster.gangs.state(gang).succeeded_count:
        return True
    for pod in waiting:
        reservation = ledger.reservations.get(pod)
        if ledger.in_flight.is_let_through(pod) or (reservation is not None and reservation.maybe_bound):
            return True
    return False


def lacks_others(state: SteeringState, pod: Pod) -> bool:
    """Whether a pod's gang has not begun, and fewer of its pods than it needs are on their way."""
    if pod.gang is None:
        return False
    cluster, ledger, gang = state.cluster, state.ledger, pod.gang.key
    return not has_begun(cluster, ledger, gang) and cluster.gangs.lacks_pods(gang, KeysOnTheWay(ledger))


def take_back_gangs(state: SteeringState) -> None:
    """Takes back the places of gangs that lack pods and have not begun: they are planned anew, as a whole.

    Once a gang has begun, its other pods go on, and replacements join them.
    """
    records = state.nominations
    while records.may_lack:
        looked_at, records.may_lack = records.may_lack, {}
        for key, member in looked_at.items():
            for gang in _to_plan_anew(state, key, member):
                _take_back(state, gang)


def _to_plan_anew(state: SteeringState, key: GangKey, member: GangRef) -> list[GangKey]:
    """Gangs of a group that have places, lack pods and have not begun. Each is looked at once, whoever names it.

    Args:
        key: one of the group.
        member: as a pod names it that it has, or had.
    """
    gangs, ledger = state.cluster.gangs, state.ledger
    spec = gangs.state(key).spec
    placed = [gang for gang in spec.group or member.spec.group or (key,) if any(_places(state, gang))]
    if not placed:
        return []
    # A gang of a group that has no pods any more says of nothing that it lacks them.
    lacking = gangs.lacking(placed, KeysOnTheWay(ledger)) if gangs.exists(key) else placed
    begun_itself = cache(lambda gang: _has_begun_itself(state.cluster, ledger, gang))
    begun = cache(lambda group: any(map(begun_itself, group)))
    return [gang for gang in lacking if not begun(gangs.depends_on(gang))]


def bound_elsewhere(state: SteeringState, pod: Pod, planned: str) -> None:
    """A pod was bound to another node than planned: an earlier leader let it go there, or somebody else bound it.

    If that node is in another domain, the gang's other pods were to be where this one is not.
    """
    node, before = state.cluster.nodes.get(pod.node_name), state.cluster.nodes.get(planned)
    if pod.gang is None or node is None or before is None:
        return
    if domains_of_gang(state, pod, node) != domains_of_gang(state, pod, before):
        _take_back(state, pod.gang.key)


def _take_back(state: SteeringState, gang: GangKey) -> None:
    reservations = state.ledger.reservations
    # The last waves first: none of them begins meanwhile.
    for key in sorted(_places(state, gang), key=lambda key: reservations[key].wave, reverse=True):
        take_back(state, key)


def _places(state: SteeringState, gang: GangKey) -> Iterator[str]:
    """The waiting pods of a gang that have a place."""
    return (key for key in state.cluster.gangs.members(gang)[0] if key in state.ledger.reservations)
