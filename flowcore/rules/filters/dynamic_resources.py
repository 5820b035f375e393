"""DynamicResources: a node has the devices that a pod's claims ask for, or reaches those that they have already.

Source: kube-scheduler plugins/dynamicresources (PreFilter, Filter). ``flowcore.rules.devices`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.node_matching import term_matches
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker, ResourceClaim
from flowcore.model.resources import Amounts
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.rules.devices.allocation.allocator import REASON_INVALID_POOLS, REASON_NONE_FIT
from flowcore.rules.devices.claim_verdicts import NAME, REASON_ELSEWHERE
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.node_reach import device_taker
from flowcore.rules.devices.pod_claims import REASON_IN_USE, ClaimRejection
from flowcore.rules.devices.search_effort import REASON_LATER, REASON_OTHERS_FIRST
from flowcore.rules.filters.rejection import FilterInputs, Rejection

__all__ = [
    "NAME",
    "REASON_ELSEWHERE",
    "REASON_INVALID_POOLS",
    "REASON_IN_USE",
    "REASON_LATER",
    "REASON_NONE_FIT",
    "REASON_OTHERS_FIRST",
    "alternatives_scores",
    "claimable_devices",
    "closed_to_new_nodes",
    "column_reads",
    "column_rejections",
    "column_requests",
    "errors",
    "nodes_with_errors",
    "nodes_without_devices",
    "prefilter_rejections",
    "reads",
    "rejections",
    "taker_on",
]


def prefilter_rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """A reason that ends a pod's cycle in PreFilter, before any node is filtered: every node is rejected."""
    if pod_class.devices is None:
        return ()
    claims = claimable_devices(snapshot).claims_of(pod_class.devices)
    if not isinstance(claims, ClaimRejection):
        return ()
    return ((NAME, (Rejection(claims.reason, np.ones(len(snapshot.table.nodes), dtype=np.bool_)),)),)


def reads(pod_class: PodClass) -> FilterInputs | None:
    """The class's claims."""
    return None if pod_class.devices is None else FilterInputs(pod_class.devices)


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes without the devices, unless every node is rejected in PreFilter; those with ``errors`` aside."""
    claims = _claims_to_judge(pod_class, snapshot)
    if not claims:
        return ()
    rejected = DeviceIndex.of(snapshot.devices).rejected(claims, snapshot.table, snapshot.takers)
    return tuple(Rejection(reason, nodes) for reason, nodes in rejected)


def errors(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes on which something is found to be wrong with a claim, a class or the pools."""
    claims = _claims_to_judge(pod_class, snapshot)
    if not claims:
        return ()
    erring = DeviceIndex.of(snapshot.devices).errors(claims, snapshot.table, snapshot.takers)
    return tuple(Rejection(reason, nodes) for reason, nodes in erring)


def _claims_to_judge(pod_class: PodClass, snapshot: Snapshot) -> tuple[ResourceClaim, ...]:
    """The claims of a class; (): it has none, or every node is rejected in PreFilter."""
    if pod_class.devices is None:
        return ()
    claims = claimable_devices(snapshot).claims_of(pod_class.devices)
    return () if isinstance(claims, ClaimRejection) else claims


def nodes_without_devices(claims: Sequence[ResourceClaim], snapshot: Snapshot) -> Bools:
    """bool[N]: nodes without devices for claims that some pod might have."""
    if not claims:
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    return DeviceIndex.of(snapshot.devices).without_devices(claims, snapshot.table, snapshot.takers)


def nodes_with_errors(claims: Sequence[ResourceClaim], snapshot: Snapshot) -> Bools:
    """bool[N]: nodes on which something is found to be wrong with claims that some pod might have."""
    erring = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    for _, nodes in DeviceIndex.of(snapshot.devices).errors(claims, snapshot.table, snapshot.takers) if claims else ():
        erring |= nodes
    return erring


def alternatives_scores(pod_class: PodClass, snapshot: Snapshot) -> Int64s | None:
    """int64[N]: how early the alternatives are that nodes have for a class's claims; None: they have no alternatives.

    Those of nodes without the devices have no meaning. For the numbers see
    ``flowcore.rules.devices.claim_verdicts.alternatives_score``.
    """
    claims = _claims_to_judge(pod_class, snapshot)
    return DeviceIndex.of(snapshot.devices).scores(claims, snapshot.table, snapshot.takers)


def closed_to_new_nodes(pod: ClaimingPod, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes whose like, under another name, would not reach what claims of a pod have."""
    closed, claims = np.zeros(len(snapshot.table.nodes), dtype=np.bool_), claimable_devices(snapshot).claims_of(pod)
    for claim in () if isinstance(claims, ClaimRejection) else claims:
        if claim.allocation is not None and claim.allocation.terms is not None:
            reached = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
            for term in claim.allocation.terms:
                if not _names_node(term):
                    reached |= term_matches(term, snapshot.table)
            closed |= ~reached
    return closed


def _names_node(term: NodeSelectorTerm) -> bool:
    return bool(term.fields) or any(each.key == HOSTNAME for each in term.expressions)


def column_requests(pod_class: PodClass, snapshot: Snapshot) -> Amounts:
    """Numbers of devices that a class requests."""
    columns = snapshot.columns
    return () if columns is None else tuple(each for each in pod_class.requests if each[0] in columns.names)


def column_reads(pod_class: PodClass, snapshot: Snapshot) -> FilterInputs | None:
    """The numbers, of these columns."""
    requests = column_requests(pod_class, snapshot)
    return FilterInputs((snapshot.columns.key, requests)) if requests and snapshot.columns is not None else None


def column_rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes with fewer free devices than a class requests."""
    requests, columns = column_requests(pod_class, snapshot), snapshot.columns
    if not requests or columns is None:
        return ()
    short = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    reasons = [columns.later[name] for name, _ in requests if name in columns.later]
    if reasons:
        return (Rejection(reasons[0], ~short),)
    for name, number in requests:
        short |= snapshot.free[:, snapshot.resources.index(name)] < number
    return (
        Rejection(REASON_NONE_FIT, short & ~columns.invalid),
        Rejection(REASON_INVALID_POOLS, short & columns.invalid),
    )


def claimable_devices(snapshot: Snapshot) -> ClaimableDevices:
    """The devices of a snapshot, less what its planned pods take; not to be changed."""
    return DeviceIndex.of(snapshot.devices).devices_beside(snapshot.takers)


def taker_on(pod: ClaimingPod, table: NodeTable, row: int) -> DeviceTaker:
    """A pod that is planned to the node of a row."""
    return device_taker(pod, table.nodes[row])
