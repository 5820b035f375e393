"""Planned pods that are not nominated yet: equal pods may take each other's places.

kube-scheduler asks about a fresh pod with a sample of the nodes. The pod's own node is rarely in the sample, but the
node of an equal pod may be, or a node to which such a place may shift (``shifts.py``). Then no pod needs a nomination.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resources import Amounts, Unrequested
from flowcore.model.selectors import domain_value, value_of

_Place = TypeVar("_Place", bound=Hashable)
_Key = TypeVar("_Key", bound=Hashable)
#: Values of a node's labels.
Domains: TypeAlias = tuple[str | None, ...]


class PlaceKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What two pods must have in common to take each other's places.

    Attributes:
        within: the topologies of the pod's gang, each with the domain of the pod's node.
    """

    pod_class: PodClass
    signature: PodSignature
    policy: str
    within: tuple[tuple[str, str | None], ...] = ()

    def fits(self, pod: Pod) -> bool:
        """Whether a pod still has this class and signature."""
        return (self.pod_class, self.signature) == (pod.pod_class, pod.signature)

    def admits(self, node: Node) -> bool:
        """Whether a node is in the same domains of the gang's topologies."""
        return all(domain_value(node.labels, key) == domain for key, domain in self.within)


class Size(msgspec.Struct, frozen=True, cache_hash=True):
    """What two pods must have in common to exchange their nodes without a change of any node's load."""

    requests: Amounts
    priority: int
    policy: str
    within: tuple[tuple[str, str | None], ...] = ()
    unrequested: Unrequested = ()

    @classmethod
    def of(cls, place_key: PlaceKey) -> Size | None:
        """Needs of the pods with this place key; None: a node must have more than room for them."""
        pod_class = place_key.pod_class
        if place_key.signature.constraints or pod_class.volumes or not pod_class.fits_by_amounts:
            return None
        requests, unrequested = pod_class.requests, pod_class.unrequested
        return cls(requests, pod_class.priority, place_key.policy, place_key.within, unrequested)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    place_key: PlaceKey
    size: Size | None
    node: str
    domains: Domains


class PlacePool:
    """Pods in the order in which they came, by place key, and there by node and by the domains of the node.

    Pods for which room is all that counts are also kept by size, and there by node.
    """

    def __init__(self) -> None:
        self._by_node: dict[PlaceKey, dict[str, dict[str, None]]] = {}
        self._by_domains: dict[PlaceKey, dict[Domains, dict[str, None]]] = {}
        self._by_size: dict[Size, dict[str, dict[str, None]]] = {}
        self._entries: dict[str, _Entry] = {}

    def add(self, key: str, place_key: PlaceKey, node: str, domains: Domains) -> None:
        """Adds a pod that is planned for this node, which is in these domains."""
        self.remove(key)
        size = Size.of(place_key)
        self._entries[key] = _Entry(place_key, size, node, domains)
        self._by_node.setdefault(place_key, {}).setdefault(node, {})[key] = None
        self._by_domains.setdefault(place_key, {}).setdefault(domains, {})[key] = None
        if size is not None:
            self._by_size.setdefault(size, {}).setdefault(node, {})[key] = None

    def remove(self, key: str) -> None:
        """Removes a pod, if it is here."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            _remove(self._by_node, entry.place_key, entry.node, key)
            _remove(self._by_domains, entry.place_key, entry.domains, key)
            if entry.size is not None:
                _remove(self._by_size, entry.size, entry.node, key)

    def place_key(self, key: str) -> PlaceKey | None:
        """The place key of a pod; None: the pod is not here."""
        entry = self._entries.get(key)
        return None if entry is None else entry.place_key

    def on(self, place_key: PlaceKey, nodes: Sequence[str]) -> Iterator[str]:
        """One pod with this place key for each of these nodes that has one."""
        return _one_each(self._by_node.get(place_key, {}), nodes)

    def of_size(self, size: Size, nodes: Sequence[str]) -> Iterator[str]:
        """One pod of this size for each of these nodes that has one."""
        return _one_each(self._by_size.get(size, {}), nodes)

    def within(self, place_key: PlaceKey, domains: Domains) -> str:
        """The oldest pod with this place key in these domains; "": there is none."""
        return next(iter(self._by_domains.get(place_key, {}).get(domains, ())), "")


def _one_each(keys_by_node: Mapping[str, Mapping[str, None]], nodes: Sequence[str]) -> Iterator[str]:
    return (next(iter(keys_by_node[node])) for node in nodes if node in keys_by_node)


def _remove(index: dict[_Key, dict[_Place, dict[str, None]]], group: _Key, place: _Place, key: str) -> None:
    keys_by_place = index[group]
    del keys_by_place[place][key]
    if not keys_by_place[place]:
        del keys_by_place[place]
    if not keys_by_place:
        del index[group]


def counting_keys(signature: PodSignature) -> tuple[str, ...]:
    """Keys of the topologies in which rules of a pod, and its spread, count pods.

    Anti-affinity and what a pod prefers of a single node are asked node by node.
    """
    constraints = signature.constraints or InterPodConstraints()
    keys = {term.topology_key for term in constraints.affinity}
    keys.update(spread.topology_key for spread in constraints.spread)
    keys.update(spread.topology_key for spread in constraints.soft_spread if spread.topology_key != HOSTNAME)
    keys.update(limit.topology_key for limit in constraints.limits)
    return tuple(sorted(keys - {""}))


def domains_of(node: Node, keys: Sequence[str]) -> Domains:
    """The node's domain in each of these topologies."""
    return tuple(value_of(node.labels, key) for key in keys)
