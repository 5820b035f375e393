"""FlowQueues: owners of pods that share a cluster, with weights, guarantees and limits, in a tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels, LabelSelector


class ReclaimMode(StrEnum):
    """Whether a queue takes back what it lent."""

    #: It waits until the others give it back.
    NEVER = "Never"
    #: Pods of queues above their fair share are evicted for it, but none of a higher priority than the waiting pod.
    LOWER_OR_EQUAL_PRIORITY = "LowerOrEqualPriority"


class Queue(msgspec.Struct, frozen=True):
    """One FlowQueue.

    Attributes:
        uid, generation: of the object, for its status.
        parent: name of the queue above it; "": none.
        weight: its part of what its parent has, beside its siblings' weights.
        guarantee: what its pods get before others; resources that are not listed have no guarantee.
        limit: what its pods use at most, those of queues below it included; resources that are not listed have none.
        pods, namespaces: which pods count for it; both must match. Both None: no pods, but those of queues below it.
        reclaim: whether its waiting pods take back what it lent.
        min_runtime: seconds that a pod of it has run at least before another queue takes its room back.
        problem: why the object cannot be read; "": it can. A queue that cannot be read selects no pods.
    """

    name: str
    uid: str = ""
    generation: int = 0
    parent: str = ""
    weight: int = 1
    guarantee: Amounts = ()
    limit: Amounts = ()
    pods: LabelSelector | None = None
    namespaces: LabelSelector | None = None
    reclaim: ReclaimMode = ReclaimMode.LOWER_OR_EQUAL_PRIORITY
    min_runtime: int = 300
    problem: str = ""

    def selects(self, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod counts for the queue itself, as far as its own selectors say."""
        if self.pods is None and self.namespaces is None:
            return False
        if self.pods is not None and not self.pods.matches(labels):
            return False
        return self.namespaces is None or self.namespaces.matches(namespace_labels)


class QueueUsage(msgspec.Struct, frozen=True, gc=False):
    """What the pods of a queue hold, without those of queues below it; the resource ``pods`` counts them.

    Attributes:
        used: of all pods with a node or a reservation.
        leaving: the part of it whose pods are being deleted or evicted.
        twice: what ``used`` has twice, that of queues below it included: of pods that come once others have left, and
            of these others, the larger part is what counts for a limit.
    """

    used: Amounts = ()
    leaving: Amounts = ()
    twice: Amounts = ()


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queues of a snapshot, and what their pods hold.

    Attributes:
        queues: accepted FlowQueues, at least one (``QueueTree.state``).
        usage: by name of queue; queues without pods may be left out.
    """

    queues: tuple[Queue, ...] = ()
    usage: Mapping[str, QueueUsage] = field(default_factory=dict)


class QueueShare(msgspec.Struct, frozen=True):
    """The shares of a queue after a round, those of queues below it included.

    A share is the largest part that is taken of what all queues can have of a resource (the dominant share).

    Attributes:
        used: what its pods hold.
        used_share: dominant share of that.
        fair_share: dominant share that is its due at what all queues ask for now.
        borrowed_share: how much of ``used_share`` it would give back if all queues asked for more than their due.
        problem: reason and message of what is wrong with its guarantee; "": nothing is. It has none then.
    """

    name: str
    used: Amounts = ()
    used_share: float = 0.0
    fair_share: float = 0.0
    borrowed_share: float = 0.0
    problem: tuple[str, str] = ("", "")
