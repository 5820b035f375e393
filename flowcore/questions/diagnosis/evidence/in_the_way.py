"""What is in a pod's way, by name, for each filter that matters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice

from flowcore.questions.diagnosis.evidence.amounts import amounts
from flowcore.questions.diagnosis.evidence.kept_rooms import kept_rooms
from flowcore.questions.diagnosis.evidence.ports import ports
from flowcore.questions.diagnosis.evidence.rules_between_pods import rules_between_pods
from flowcore.questions.diagnosis.evidence.skew import skew
from flowcore.questions.diagnosis.evidence.volumes import attached_volumes, claims, used_volumes
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.rules.filters import (
    inter_pod_affinity,
    node_ports,
    node_resources_fit,
    node_volume_limits,
    pod_topology_spread,
    volume_binding,
    volume_restrictions,
    volume_zone,
)

#: Most sentences of one filter, and of all.
_MOST_OF_ONE, _MOST = 2, 4
#: Filters that pin a pod to a few nodes: they are told wherever they reject a node.
_PINNING = frozenset((volume_binding.NAME, volume_zone.NAME))
#: In the order in which they are told: what keeps to one place first. Both filters of claims have the same sentences.
_SENTENCES: Mapping[str, Callable[[UnplacedCase], Iterator[str]]] = {
    volume_binding.NAME: claims,
    volume_zone.NAME: claims,
    volume_restrictions.NAME: used_volumes,
    node_ports.NAME: ports,
    inter_pod_affinity.NAME: rules_between_pods,
    pod_topology_spread.NAME: skew,
    node_volume_limits.NAME: attached_volumes,
    node_resources_fit.NAME: lambda pod: chain(amounts(pod), kept_rooms(pod)),
}


def in_the_way(pod: UnplacedCase, filters: Collection[str]) -> list[str]:
    """Sentences that name what is in the way of a pod; a few.

    Args:
        filters: names of the filters that matter. Those of claims to volumes matter wherever they reject a node.
    """
    rejecting = {name for name, rejections in pod.after.by_filter if any(each.nodes.any() for each in rejections)}
    told = [of for name, of in _SENTENCES.items() if name in rejecting and (name in filters or name in _PINNING)]
    sentences = (text for of in dict.fromkeys(told) for text in islice(of(pod), _MOST_OF_ONE))
    return list(islice(dict.fromkeys(sentences), _MOST))
