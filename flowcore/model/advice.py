"""The answer about one pod when kube-scheduler asks its extender.

The operator makes these from plan and reservations, the extender turns them into answers; both know nothing of each
other but these values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

#: Why a pod is held. Never changed by what is known of the pod: each change of a pod's message queues the pod again.
HELD_MESSAGE: Final = "waiting for Thalweg's plan"
#: Why a pod is held that the operator's watch has not shown yet. Constant for the same reason.
UNSEEN_MESSAGE: Final = "waiting for Thalweg's watch to show the pod"


class ExtenderPod(msgspec.Struct, frozen=True):
    """A pod as a request describes it. Whether there is such a pod is not known.

    Attributes:
        nominated: its ``status.nominatedNodeName`` in kube-scheduler's cache, which may be older than ours.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    scheduler_name: str
    nominated: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Advice(msgspec.Struct, frozen=True):
    """What the plan says about a pod.

    Attributes:
        known: whether the watch has shown this pod, by name and UID, and that it is pending. Otherwise no node passes.
        managed: whether a policy steers it.
        node: where it is to go; "" when the plan has no node for it, or it is not managed.
        holder: key of the pod whose place there it takes, mostly its own; "": no place of the plan is meant.
        hold: whether it must stay pending where ``node`` is not among the nodes asked about.
        infeasible_nodes: nodes without room for it once what is on its way has arrived; withheld from every pod.
        scores: what prioritize says of nodes, 0 (dearest) to 10 (cheapest); nodes not named score 0.
        victims: UIDs of the pods that leave a node for it, by node.
        may_preempt: whether kube-scheduler may choose whom it evicts for a managed pod.
        spares: whether nobody is to be evicted for it now, whoever it is: it gets a node in a moment.
    """

    known: bool = True
    managed: bool = False
    node: str = ""
    holder: str = ""
    hold: bool = False
    infeasible_nodes: Collection[str] = ()
    scores: Mapping[str, int] = msgspec.field(default_factory=dict)
    victims: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    may_preempt: bool = False
    spares: bool = False
