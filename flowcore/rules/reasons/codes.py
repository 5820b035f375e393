"""Codes of reasons why a pod waits: a fixed set of words for metrics, beside the sentences for people.

A pod that the nodes reject has the name of a filter as its code. No code comes from an object of the cluster.
"""

from __future__ import annotations

from typing import Final

from flowcore.rules.filters import (
    node_affinity,
    node_name,
    node_unschedulable,
    taint_toleration,
)
from flowcore.rules.filters.registry import IN_ORDER, NODE_UNREADABLE

#: There are no nodes.
NO_NODES: Final = "NoNodes"
#: The pod's gang cannot be placed whatever room there is: pods of it are missing, or its terms cannot be met.
GANG_INCOMPLETE: Final = "GangIncomplete"
#: There is not enough room for the pod's gang as a whole, or in the domain that it keeps to.
GANG_WITHOUT_ROOM: Final = "GangWithoutRoom"
#: Free room is held for a gang that has waited for long.
ROOM_HELD: Final = "RoomHeld"
#: The pod may not take the place of the pod that it names.
REPLACEMENT: Final = "Replacement"
#: The limit of the pod's FlowQueue, or of one above it, leaves too little for the pod or its gang.
QUEUE_LIMIT: Final = "QueueLimit"
#: Its room goes to a pod of a higher priority.
ROOM_TAKEN: Final = "RoomTaken"
#: The network of the pod's policy is refused: it asks for what no plan has, or for what rules of pods do not say.
NETWORK_REFUSED: Final = "NetworkRefused"
#: No way of the pod's network leads to a node that has room, or waiting costs less.
NETWORK_UNSCHEDULED: Final = "NetworkUnscheduled"

#: Waiting costs less than every node that has room, and the pod's policy waits then.
CHEAPER_TO_WAIT: Final = "CheaperToWait"

#: Why the pod waits could not be computed: a fault of Thalweg.
UNEXPLAINED: Final = "Unexplained"

#: The pod's node is chosen, and its claims are to get devices or volumes first: only who binds it says so.
WAITING_FOR_DEVICES: Final = "WaitingForDevices"
WAITING_FOR_VOLUMES: Final = "WaitingForVolumes"

_OTHERS: Final = (
    NO_NODES, GANG_INCOMPLETE, GANG_WITHOUT_ROOM, ROOM_HELD, REPLACEMENT, QUEUE_LIMIT, ROOM_TAKEN, NETWORK_REFUSED,
    NETWORK_UNSCHEDULED, CHEAPER_TO_WAIT, UNEXPLAINED,
)  # fmt: skip
CODES: Final = frozenset((*_OTHERS, *(each.name for each in IN_ORDER)))
"""All codes of pods that a round leaves unplaced."""

UNRESOLVABLE: Final = frozenset((
    NO_NODES, GANG_INCOMPLETE, REPLACEMENT, NODE_UNREADABLE, node_unschedulable.NAME, node_name.NAME,
    NETWORK_REFUSED, NETWORK_UNSCHEDULED, CHEAPER_TO_WAIT, taint_toleration.NAME, node_affinity.NAME,
))  # fmt: skip
"""Codes of pods for which it would not help if others left.

Of filters only those that come before all others that say so: a code is that of the filter that rejects the nodes
which pass the most filters, and others may leave a node that an earlier filter rejected.
"""
