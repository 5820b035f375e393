"""What waiting pods lack, in a few plain words: filters and codes are for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from flowcore.rules.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resource_topology,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    policy_constraints,
    taint_eviction,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.rules.filters.registry import NODE_UNREADABLE
from flowcore.rules.reasons import codes

#: By code: what pods wait for.
WORDS: Final[Mapping[str, str]] = {
    NODE_UNREADABLE: "nodes that can be read",
    node_unschedulable.NAME: "nodes that are not cordoned",
    node_name.NAME: "the node that they name",
    taint_toleration.NAME: "nodes without taints",
    taint_eviction.NAME: "nodes without taints",
    node_affinity.NAME: "node labels",
    node_ports.NAME: "host ports",
    node_resources_fit.NAME: "room",
    volume_restrictions.NAME: "volumes in use",
    node_volume_limits.NAME: "places for volumes",
    volume_binding.NAME: "volumes",
    volume_zone.NAME: "the zone of their volumes",
    pod_topology_spread.NAME: "spread constraints",
    inter_pod_affinity.NAME: "pod affinity",
    dynamic_resources.NAME: "devices",
    node_declared_features.NAME: "node features",
    node_resource_topology.NAME: "a NUMA zone with room",
    policy_constraints.NAME: "constraints of their policy",
    codes.NO_NODES: "nodes",
    codes.GANG_INCOMPLETE: "the rest of their gang",
    codes.GANG_WITHOUT_ROOM: "room for the whole gang",
    codes.ROOM_HELD: "room that is held for a gang",
    codes.REPLACEMENT: "the place of another pod",
    codes.QUEUE_LIMIT: "the limit of their queue",
    codes.ROOM_TAKEN: "room that more urgent pods take",
    codes.NETWORK_REFUSED: "the network that places them",
    codes.NETWORK_UNSCHEDULED: "the network that places them",
    codes.CHEAPER_TO_WAIT: "a cheaper node",
    codes.UNEXPLAINED: "what could not be computed",
    codes.WAITING_FOR_DEVICES: "devices of their claims",
    codes.WAITING_FOR_VOLUMES: "volumes of their claims",
}
#: Codes of pods that only room keeps out.
ROOM_CODES: Final = (node_resources_fit.NAME, codes.GANG_WITHOUT_ROOM)
#: Of pods whose gates are closed, and of others that no plan may place.
GATES: Final = "scheduling gates"
NOT_PLANNABLE: Final = "what their reason says"
_SLOTS: Final = "pod slots"
_INSUFFICIENT: Final = re.compile(r"\d+\sInsufficient\s(\S+?)(?=,|\.?(?:\s|$))")


def without_amounts(short: str) -> str:
    """What pods wait for, from ``short_words`` of one of them, without what it lacks on the best node."""
    return short.partition(" (")[0]


def short_words(code: str, reason: str, lack: str = "", *, gated: bool = False) -> str:
    """What a pod waits for.

    Args:
        code: of the reason; one that is not among ``WORDS`` is of a pod that no plan may place.
        reason: in a sentence.
        lack: what its group lacks on the best node (``lacks_in_words``); "": unknown, as of an operator's rounds: then
            it is the resources that the reason names in kube-scheduler's words.
        gated: whether scheduling gates of others keep the pod out (``Pod.held_by_gates``).
    """
    if code in ROOM_CODES:
        named = [*dict.fromkeys(_INSUFFICIENT.findall(reason))]
        named += [_SLOTS] if node_resources_fit.TOO_MANY_PODS in reason else []
        return lack or ", ".join(named) or WORDS[code]
    if code in WORDS:
        return WORDS[code]
    return GATES if gated else NOT_PLANNABLE
