"""Nodes, as far as scheduling reads them."""

from __future__ import annotations

import msgspec

from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels

#: The annotation of a node by which an agent tells the bits per second that it measured there, a quantity ("1200M").
MEASURED_BANDWIDTH = "networking.thalweg/measured-bandwidth"
#: Effects of taints that keep a node, or a device, from who does not tolerate them; others keep nobody out.
KEEPS_OUT = ("NoSchedule", "NoExecute")


class Taint(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Taint; effects are NoSchedule, PreferNoSchedule and NoExecute."""

    key: str
    value: str = ""
    effect: str = ""

    @property
    def text(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"

    @property
    def keeps_out(self) -> bool:
        """Whether pods that do not tolerate it may not come to the node."""
        return self.effect in KEEPS_OUT


class Report(msgspec.Struct, frozen=True, gc=False):
    """What a node tells of itself that changes often and that no filter reads.

    Attributes:
        images: name and bytes of each image that it holds (status.images); an image with two names is there twice.
        bandwidth: bits per second that an agent measured on its network (MEASURED_BANDWIDTH), None where none did.
        keeps_pods: the annotation by which people keep its pods from leaving it for the sake of others; "": none.
    """

    images: tuple[tuple[str, int], ...] = ()
    bandwidth: int | None = None
    keeps_pods: str = ""


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
    report: Report = Report()

    @property
    def without_report(self) -> Node:
        """All that filters read of it."""
        return msgspec.structs.replace(self, report=Report())
