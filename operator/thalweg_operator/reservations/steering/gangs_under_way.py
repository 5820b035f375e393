"""Gangs that kube-scheduler is binding: most places of their pods are written down nowhere else.

A new leader finds some pods of such a gang bound, and nothing of the others. It plans those before anybody else may get
their room.
"""

from __future__ import annotations

from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.ledger.ledger import KeysOnTheWay
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
        if not delivery_of(policy).steered or delivery_of(policy).blocked(pod):
            continue
        gang = pod.gang.key
        if gang not in is_begun:
            runs = any(gangs.members(member)[1] for member in gangs.depends_on(gang))
            is_begun[gang] = runs and gangs.lacks_pods(gang, on_the_way)
        if is_begun[gang]:
            begun.add(pod.uid)
    if begun:
        state.nominations.begun, state.nominations.begun_until = frozenset(begun), state.now + _PLANNED_WITHIN


def lacks_others(state: SteeringState, pod: Pod) -> bool:
    """Whether no pod of a pod's gang is bound, and fewer than it needs are on their way."""
    gangs = state.cluster.gangs
    return (
        pod.gang is not None
        and not gangs.members(pod.gang.key)[1]
        and gangs.lacks_pods(pod.gang.key, KeysOnTheWay(state.ledger))
    )
