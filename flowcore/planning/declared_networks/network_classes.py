"""The pods of one policy as its network sees them: interchangeable also by their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs.network_model import Pods
from flowcore.model.selectors import Labels
from flowcore.planning.declared_networks import Supply
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.free_capacity import FreeCapacity

_Number = TypeVar("_Number", np.int64, np.float64)

#: Labels that controllers give each pod a value of its own of.
_LABELS_OF_ONE_POD = frozenset((
    "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
))  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class NetworkClass:
    """Pods that are one start of arcs: a part of a demand, with equal labels."""

    demand: Demand
    labels: Labels

    @property
    def name(self) -> str:
        """For sentences."""
        first, more = self.demand.group.pods[0].key, self.demand.count - 1
        return f"{first} and {more} more" if more else first

    def supply(self, capacity: FreeCapacity, *, alone: bool = False) -> Supply:
        """What the solver reads.

        Args:
            alone: without rules between pods: others may be there that they ask for.
        """
        demand = self.demand
        fits = capacity.fit_counts(demand) if alone else capacity.max_pods(demand)
        return Supply(
            self.name,
            demand.prices,
            demand.requests,
            fits.copy(),
            host_ports=bool(demand.group.pod_class.host_ports),
        )

    def pods(self, supply: Supply) -> Pods:
        """What the model sees."""
        group = self.demand.group
        return Pods(
            name=self.name,
            namespace=group.signature.namespace,
            labels=dict(self.labels),
            priority=group.pod_class.priority,
            requests=dict(group.pod_class.requests),
            prices=read_only(supply.prices),
            costs=read_only(self.demand.arc),
            fits=read_only(supply.fits),
        )


def network_classes(
    demands: Sequence[Demand], snapshot: Snapshot
) -> tuple[list[NetworkClass], list[tuple[PendingPod, int, str]]]:
    """The classes of a policy's pods; and the pods that a gang keeps out, with their prices and the gang's name.

    Args:
        demands: all of the policy.
        snapshot: has the gangs.
    """
    classes, in_gangs = [], list[tuple[PendingPod, int, str]]()
    for demand in demands:
        places: dict[tuple[str, Labels], list[int]] = {}
        for place, pod in enumerate(demand.group.pods):
            gang = _gang_of(pod, snapshot)
            if gang:
                in_gangs.append((pod, int(demand.prices[place]), gang))
                continue
            labels = tuple(each for each in pod.signature.labels if each[0] not in _LABELS_OF_ONE_POD)
            places.setdefault((pod.signature.namespace, labels), []).append(place)
        classes += [NetworkClass(_part(demand, places_of), labels) for (_, labels), places_of in places.items()]
    return classes, in_gangs


def _gang_of(pod: PendingPod, snapshot: Snapshot) -> str:
    """The gang that binds the pod to others; "": none does. One that is not known may."""
    for name in pod.gangs:
        gang = snapshot.gangs.get(name)
        if gang is None or gang.min_placed > 0 or gang.topology_key or gang.unschedulable_reason:
            return name
    return ""


def _part(demand: Demand, places: Sequence[int]) -> Demand:
    """Some of a demand's pods."""
    pods = tuple(demand.group.pods[place] for place in places)
    group = replace(demand.group, pods=pods, signature=pods[0].signature)
    return replace(demand, group=group, prices=demand.prices[np.array(places)])


def read_only(array: NDArray[_Number]) -> NDArray[_Number]:
    """A read-only view: arrays of the round go to the code of plug-ins."""
    view = array.view()
    view.setflags(write=False)
    return view


def shares(cost: int, count: int) -> Iterator[int]:
    """Divides a cost into ``count`` parts that differ by one at most, the larger ones first."""
    for turn in range(count):
        yield cost // count + (turn < cost % count)
