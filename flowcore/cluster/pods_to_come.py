"""Pods that a controller makes only once the pods of a gang run, from the templates that its object has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache

import msgspec

from flowcore.api import Interner, WirePod, to_pod
from flowcore.api.pod_objects import WireContainer, WirePodMeta, WirePodSpec, WireResources
from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_parents import ParentKey
from flowcore.model.gang_spec import GangKey
from flowcore.model.gangs import PodsToCome
from flowcore.model.pods import Pod, PodClass

#: Templates whose pods are remembered.
_REMEMBERED = 256
#: A parent, and which of its numbered groups; "": it has no numbers.
_Replica = tuple[ParentKey, str]


class ComingPods:
    """The pods to come of one namespace, in one round.

    Args:
        reserved: keys of pods on their way to a node.
        since: pods to come count for other gangs while their first ones started after that; seconds since the epoch.
    """

    def __init__(self, cluster: Cluster, namespace: str, reserved: Container[str], since: float) -> None:
        self._cluster, self._namespace, self._reserved, self._since = cluster, namespace, reserved, since
        #: Pods that come once a gang runs which has begun, by class; and the part of them in each replica.
        self._owed = Counter[PodClass]()
        self._owed_by: dict[_Replica, dict[GangKey, PodsToCome]] = {}

    def steps(self) -> Iterator[None]:
        """Counts what gangs that have begun still get, a gang with each step."""
        gangs = self._cluster.gangs
        for parent in list(gangs.ordered_parents(self._namespace)):
            for key in list(gangs.parts(parent)):
                if self._has_begun(key):
                    self._owed_by.setdefault(_replica(key), {}).update(self._after(key))
                yield
        for owed in self._owed_by.values():
            for later in owed.values():
                self._owed[later.pod_class] += later.count

    def after(self, key: GangKey) -> tuple[PodsToCome, ...]:
        """The pods that come once a gang runs, a class at a time, as far as they can be judged."""
        own = Counter[PodClass]()
        for later in self._after(key).values():
            own[later.pod_class] += later.count
        beside = Counter[PodClass]()
        for later in self._owed_by.get(_replica(key), {}).values():
            beside[later.pod_class] += later.count
        return tuple(PodsToCome(each, count, self._owed[each] - beside[each]) for each, count in own.items())

    def _has_begun(self, key: GangKey) -> bool:
        waiting, bound = self._cluster.gangs.members(key)
        starts = [pod.started or pod.created for pod in bound.values()]
        return (
            bool(waiting or bound)
            and all(pod in self._reserved for pod in waiting)
            and (not starts or max(starts) > self._since)
        )

    def _after(self, key: GangKey) -> dict[GangKey, PodsToCome]:
        """By the gang that they will be. Devices are chosen for pods that are there, so pods that claim some are none.

        Of volumes nothing is judged.
        """
        cluster = self._cluster
        parent = cluster.gangs.parents.get(key.parent)
        role, space, number = key.part.partition(" ")
        coming: dict[GangKey, PodsToCome] = {}
        if parent is None:
            return coming
        for later in parent.after.get(role, ()):
            part = parent.roles[later]
            gang = GangKey(key.source, key.namespace, key.name, key.kind, later + space + number)
            count = part.size - part.ended - len(cluster.gangs.order(gang))
            pod = _pod_of(part.template) if part.template and count > 0 else None
            if pod is None:
                continue
            pod_class = cluster.as_waiting(pod).pod_class
            if pod_class.devices is None:
                coming[gang] = PodsToCome(msgspec.structs.replace(pod_class, volumes=()), count)
        return coming


def _replica(key: GangKey) -> _Replica:
    return key.parent, key.part.partition(" ")[2]


@lru_cache(maxsize=_REMEMBERED)
def _pod_of(template: str) -> Pod | None:
    """A pod of a template; None: it cannot be planned."""
    spec = msgspec.json.decode(template, type=WirePodSpec)
    spec.containers, spec.init_containers = _asking(spec.containers), _asking(spec.init_containers)
    pod = to_pod(WirePod(WirePodMeta(name="to-come"), spec), Interner())
    return None if pod.skip_reason else pod


def _asking(containers: Sequence[WireContainer] | None) -> list[WireContainer]:
    """Containers that ask for their limits where they ask for nothing, as the API server writes it into pods."""
    return [
        msgspec.structs.replace(
            each, resources=WireResources({**each.resources.limits, **(each.resources.requests or {})})
        )
        if each.resources is not None and each.resources.limits
        else each
        for each in containers or ()
    ]
