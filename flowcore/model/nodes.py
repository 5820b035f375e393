"""Nodes, as far as scheduling reads them."""

from __future__ import annotations

import msgspec

from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels


class Taint(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Taint; effects are NoSchedule, PreferNoSchedule and NoExecute."""

    key: str
    value: str = ""
    effect: str = ""


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node. Its conditions play no part: the node controller turns them into taints."""

    name: str
    uid: str = ""
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Amounts = ()
    #: What its kubelet declares that it can do, of what pods may need.
    features: tuple[str, ...] = ()
    #: Why nothing may be placed on it, "" for a sound node (an allocatable that does not parse).
    problem: str = ""
