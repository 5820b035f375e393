"""NodeResourcesFit: what a pod asks for must be free, exact fits included.

Source: kube-scheduler plugins/noderesources/fit.go (fitsRequest, shouldDelegateResourceToDRA). A resource that the pod
does not ask for never rejects it, even where the node is overcommitted already; every pod takes one of ``pods``. An
extended resource that a DeviceClass backs is left to DynamicResources on nodes that do not offer it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.resources import BASE_RESOURCES, PODS
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"


def insufficient(resource: str) -> str:
    """kube-scheduler's text for a resource that runs short."""
    return f"Insufficient {resource}"


def reads(pod_class: PodClass, snapshot: Snapshot) -> FilterInputs:
    """What the class asks for, and what of it is left to devices."""
    columns = snapshot.columns
    if columns is not None and any(name in columns.extended for name, _ in pod_class.requests):
        return FilterInputs((pod_class.requests, columns.key))
    extended = () if pod_class.devices is None else pod_class.devices.extended_resources
    return FilterInputs((pod_class.requests, extended) if extended else pod_class.requests)


def left_to_devices(pod_class: PodClass, snapshot: Snapshot) -> Mapping[str, Bools]:
    """Extended resources that a DeviceClass backs, each with bool[N], the nodes where devices decide."""
    if snapshot.columns is not None and snapshot.columns.extended:
        return snapshot.columns.extended
    nodes = len(snapshot.table.nodes)
    return {
        name: snapshot.allocatable[:, snapshot.resources.index(name)] == 0
        if name in snapshot.resources
        else np.ones(nodes, dtype=np.bool_)
        for name in (() if pod_class.devices is None else pod_class.devices.extended_resources)
    }


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """One rejection per requested resource, short of it anywhere or not; a node can be in several.

    Numbers of devices are judged by DynamicResources.
    """
    requests, free = snapshot.vector(pod_class.requests), snapshot.free
    left = left_to_devices(pod_class, snapshot)
    # No node offers these, so they have no column.
    everywhere = np.ones(len(free), dtype=np.bool_)
    short = dict.fromkeys(not_offered(pod_class, snapshot), everywhere)
    short |= {
        name: free[:, column] < requests[column]
        for column, name in enumerate(snapshot.plain_resources)
        if requests[column] > 0
    }
    for name, nodes in left.items():
        if name in short:
            short[name] = short[name] & ~nodes
    pods = Rejection(TOO_MANY_PODS, short.pop(PODS, ~everywhere))
    # The order depends on names alone, so a verdict reads the same whether a resource has a column by now.
    first = [name for name in BASE_RESOURCES if name in short]
    rest = sorted(short.keys() - set(first))
    return (pods, *(Rejection(insufficient(name), short[name]) for name in (*first, *rest)))


def not_offered(pod_class: PodClass, snapshot: Snapshot) -> list[str]:
    """Requested resources that no node offers, and no device."""
    lacking = [name for name, amount in pod_class.requests if amount > 0 and name not in snapshot.resources]
    devices = () if pod_class.devices is None or not lacking else pod_class.devices.extended_resources
    return sorted(name for name in lacking if name not in devices)


def counts(pod_class: PodClass, snapshot: Snapshot) -> Int64s:
    """int64[N]: how many pods of a class each node takes, alone."""
    if not_offered(pod_class, snapshot):
        return np.zeros(len(snapshot.table.nodes), dtype=np.int64)
    requests, free = snapshot.vector(pod_class.requests), snapshot.free
    if snapshot.columns is None:
        for name, nodes in left_to_devices(pod_class, snapshot).items():
            if name in snapshot.resources:
                free = free.copy()
                free[nodes, snapshot.resources.index(name)] = requests[snapshot.resources.index(name)] * 2**31
    return count_fitting(requests, free)


def count_fitting(wanted: Int64s, free: Int64s) -> Int64s:
    """int64[N]: how many pods of this size each node takes, alone.

    Args:
        wanted: int64[R], with a positive entry for ``pods``.
        free: int64[N, R], may be negative.
    """
    fitting: Int64s = np.full(len(free), 2**31, dtype=np.int64)
    for column in np.nonzero(wanted > 0)[0].tolist():
        np.minimum(fitting, free[:, column] // wanted[column], out=fitting)
    return np.maximum(fitting, 0, out=fitting)
