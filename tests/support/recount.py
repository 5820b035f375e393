"""What nodes hold, counted anew: bound pods and the ledger's reservations."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from support.driven_ledger import DrivenLedger
from thalweg_operator.reservations.transitions import Phase

from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.model.pod_index import PodSignature


def recounted(state: DrivenLedger) -> dict[str, NodeUsageSums]:
    uses: dict[str, NodeUsageSums] = {}
    for pod in state.pods.values():
        if pod.node_name and not pod.terminal:
            uses.setdefault(pod.node_name, NodeUsageSums()).change(pod.usage, pod.pod_class, 1)
    for reservation in state.reservations.values():
        pod_class = reservation.pod.pod_class
        beside = None if reservation.victim is None else reservation.victim.usage
        uses.setdefault(reservation.node, NodeUsageSums()).change(pod_class.requests, pod_class, 1, beside)
    return uses


def met(state: DrivenLedger) -> Counter[tuple[PodSignature, str]]:
    leaving = {each.victim.key for each in state.reservations.values() if each.victim is not None}
    bound = [
        (msgspec.structs.replace(pod.signature, deleting=pod.deleting or pod.key in leaving), pod.node_name)
        for pod in state.pods.values()
        if pod.node_name and not pod.terminal
    ]
    return Counter([*bound, *((each.pod.signature, each.node) for each in state.reservations.values())])


def plain(uses: Mapping[str, NodeUsageSums]) -> dict[str, Any]:
    return {
        name: (+use.amounts, use.pods, use.cpu, use.memory, +use.ports, +use.volumes)
        for name, use in uses.items()
        if use.pods
    }


def check_occupancy(state: DrivenLedger) -> None:
    """Each node holds its bound pods and the ledger's; the ledger's indexes agree with its reservations."""
    occupancy, ledger = state.cluster.occupancy, state.ledger
    assert plain(occupancy.usage) == plain(recounted(state))
    assert {(signature, node): count for signature, node, count in occupancy.pod_index.counts()} == met(state)
    nodes: dict[str, set[str]] = {}
    for key, reservation in ledger.reservations.items():
        nodes.setdefault(reservation.node, set()).add(key)
    assert ledger.by_node == nodes
    phases = {key: reservation.phase for key, reservation in ledger.reservations.items()}
    assert ledger.held == {key for key, phase in phases.items() if phase is Phase.HELD}
    assert ledger.withdrawing == {key for key, phase in phases.items() if phase is Phase.WITHDRAWING}
    awaiting = {key for key, phase in phases.items() if phase is Phase.AWAITING_VICTIM}
    assert set(ledger.successor_by_victim.values()) == awaiting
    assert state.cluster.leaving == set(ledger.successor_by_victim)
    assert ledger.pending.keys() <= state.waiting.keys()
