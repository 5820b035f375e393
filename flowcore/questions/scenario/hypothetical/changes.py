"""Hypothetical changes of a scenario, as commands, requests and answers write them.

``apply_changes.applied`` makes them, and takes them back. Each is JSON with its ``kind``, such as
``{"kind": "Drain", "node": "worker-3"}``. Pods are named ``namespace/name``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flowcore.model.errors import ModelError

#: Changes of one question, and nodes that they add together, at most.
MAX_CHANGES = 10_000
MAX_ADDED_NODES = 10_000


class _Change(msgspec.Struct, frozen=True, tag_field="kind", tag=True, rename="camel", forbid_unknown_fields=True):
    """One change."""


class Cordon(_Change, frozen=True):
    """Cordons a node: no new pod is placed there."""

    node: str


class Uncordon(_Change, frozen=True):
    """Pods are placed on a node again."""

    node: str


class Drain(_Change, frozen=True):
    """A node is cordoned, and its pods wait for another; pods of a DaemonSet and static pods stay."""

    node: str


class RemoveNode(_Change, frozen=True):
    """A node is gone, and its pods wait for another; pods of a DaemonSet and static pods go with it."""

    node: str


class FailDomain(_Change, frozen=True):
    """All nodes with a value of a label are gone.

    Attributes:
        label: a label, or ``zone`` or ``region`` for ``topology.kubernetes.io/...`` where no node has such a label.
        value: of the label.
    """

    label: str
    value: str


class AddNodes(_Change, frozen=True):
    """New, empty nodes like one that is there.

    They have its labels (another host name), taints of users, allocatable and storage drivers, and the pods that every
    such node has: those of DaemonSets, and static ones.

    Attributes:
        count: how many nodes.
        like: the node that is there.
    """

    count: int
    like: str


class SetPriority(_Change, frozen=True):
    """A pod has another priority."""

    pod: str
    priority: int


class PutPolicy(_Change, frozen=True):
    """A policy is added or replaced.

    Attributes:
        policy: the FlowSchedulingPolicy as an object of the API.
    """

    policy: dict[str, Any]


class PutObjects(_Change, frozen=True):
    """Objects are added or replaced.

    Attributes:
        objects: objects of the API, of the kinds that plans depend on.
    """

    objects: list[dict[str, Any]]


class EvictPods(_Change, frozen=True):
    """Running pods leave their nodes and wait for another.

    Attributes:
        pods: ``namespace/name`` of each.
    """

    pods: list[str]


class MovePod(_Change, frozen=True):
    """A pod, waiting or running, runs on a certain node, whether it fits there or not."""

    pod: str
    node: str


class RemoveTaint(_Change, frozen=True):
    """A node loses its taints of a key.

    Attributes:
        key: of the taint.
        effect: of the taint; "": whichever.
    """

    node: str
    key: str
    effect: str = ""


class Tolerate(_Change, frozen=True):
    """A pod tolerates a taint.

    Attributes:
        key: of the taint.
        value: of the taint.
        effect: of the taint; "": every effect.
    """

    pod: str
    key: str
    value: str = ""
    effect: str = ""


class DropNodeSelector(_Change, frozen=True):
    """A pod no longer asks for a label of its node: in its node selector and its required node affinity.

    Attributes:
        label: key of the label.
    """

    pod: str
    label: str


class ReplaceNodeLabel(_Change, frozen=True):
    """A pod asks for another label of its node in place of one: in its node selector and its required node affinity.

    Attributes:
        label, value: what it asks for.
        new_label, new_value: what it asks for instead.
    """

    pod: str
    label: str
    value: str
    new_label: str
    new_value: str


class Request(_Change, frozen=True):
    """A pod asks for another amount of a resource.

    Attributes:
        resource: its name.
        amount: milli-cores of cpu, else whole units; 0: the pod asks for none.
    """

    pod: str
    resource: str
    amount: int


class DropPodRules(_Change, frozen=True):
    """A pod no longer has its required rules about other pods.

    Attributes:
        rules: ``affinity``, ``antiAffinity`` or ``spread``.
        topology_key: of the rules to drop; "": whichever.
    """

    pod: str
    rules: str
    topology_key: str = ""


class HonorTaints(_Change, frozen=True):
    """A pod's topology spread counts only nodes whose taints it tolerates (``nodeTaintsPolicy: Honor``).

    Attributes:
        topology_key: of the constraints.
    """

    pod: str
    topology_key: str


class ReplaceDeviceSelector(_Change, frozen=True):
    """A claim of a pod selects devices by another expression.

    Attributes:
        claim: its name in the pod.
        request: of the claim, or ``request/alternative``.
        selector: the expression (CEL) that goes, as the request has it.
        new_selector: the one that comes in its place; "": none.
    """

    pod: str
    claim: str
    request: str
    selector: str
    new_selector: str = ""


class DropDeviceConstraint(_Change, frozen=True):
    """The devices of a pod's claim need no longer have an attribute in common, or apart.

    Attributes:
        claim: its name in the pod.
        attribute: of the constraint.
    """

    pod: str
    claim: str
    attribute: str


class CountDevices(_Change, frozen=True):
    """A request of a pod's claim asks for another number of devices.

    Attributes:
        claim: its name in the pod.
        request: of the claim, or ``request/alternative``.
        count: 1 to 32.
    """

    pod: str
    claim: str
    request: str
    count: int


class RaiseCap(_Change, frozen=True):
    """A constraint of a policy lets more pods into a domain.

    Attributes:
        constraint: its name in the policy.
        value: its ``maxPerDomain``.
    """

    policy: str
    constraint: str
    value: int


class RaiseQueueLimit(_Change, frozen=True):
    """A FlowQueue may use more of a resource.

    Attributes:
        resource: its name.
        amount: milli-cores of cpu, else whole units.
    """

    queue: str
    resource: str
    amount: int


Change = (
    Cordon
    | Uncordon
    | Drain
    | RemoveNode
    | FailDomain
    | AddNodes
    | SetPriority
    | PutPolicy
    | PutObjects
    | EvictPods
    | MovePod
    | RemoveTaint
    | Tolerate
    | DropNodeSelector
    | ReplaceNodeLabel
    | Request
    | DropPodRules
    | HonorTaints
    | ReplaceDeviceSelector
    | DropDeviceConstraint
    | CountDevices
    | RaiseCap
    | RaiseQueueLimit
)


def check_size(changes: Sequence[Change]) -> None:
    """Checks that a question is not too large, before anything of it is made.

    Raises:
        ModelError: there are too many changes, or they add too many nodes.
    """
    if len(changes) > MAX_CHANGES:
        raise ModelError("changes", f"there are {len(changes)}; a question may have {MAX_CHANGES}")
    nodes = 0
    for place, change in enumerate(changes):
        field, added = _added_nodes(change)
        nodes += added
        if nodes > MAX_ADDED_NODES:
            together = "the changes up to this one add" if place else "it adds"
            problem = f"{together} {nodes} nodes; a question may add {MAX_ADDED_NODES}"
            raise ModelError(f"changes[{place}].{field}", problem)
        if isinstance(change, AddNodes) and added < 1:
            raise ModelError(f"changes[{place}].{field}", f"it is {added}; add at least 1 node")


def _added_nodes(change: Change) -> tuple[str, int]:
    """The field of a change that says how many nodes come, and how many: a node that is replaced counts too."""
    match change:
        case AddNodes(count=count):
            return "count", count
        case PutObjects(objects):
            return "objects", sum(each.get("kind") == "Node" for each in objects)
    return "", 0
