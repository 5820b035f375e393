"""What an audit finds: how much better a plan of the same cluster is, and how much better no plan is.

A *witness* is a plan: steps that anybody can carry out in a copy of the dump. A *bound* is a set of prices of room:
from them the number that no plan exceeds follows by sums alone (``tools/verify_audit.py`` computes both again).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

#: Prices count parts of one: one pod, one gang or one node, whatever the finding counts.
PARTS = 10**18


class FindingKind(StrEnum):
    """What is counted."""

    #: Pods that wait and that a plan runs beside all that runs now.
    WAITING_PODS = "WaitingPods"
    #: Gangs that wait and that a plan runs whole.
    WAITING_GANGS = "WaitingGangs"
    #: Nodes that hold pods and that a plan empties.
    EMPTY_NODES = "EmptyNodes"
    #: An amount of a resource that is free and of no use, and that moves make usable.
    STRANDED_ROOM = "StrandedRoom"
    #: Pods that wait while pods of lower priority run where they could.
    PRIORITY_INVERSIONS = "PriorityInversions"


class StepAction(StrEnum):
    """What is done to a pod."""

    #: A waiting pod comes to a node.
    PLACE = "Place"
    #: A running pod leaves its node for another one, where there is room for it before it leaves.
    MOVE = "Move"
    #: A running pod leaves its node and waits.
    EVICT = "Evict"


class WitnessStep(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_node": "from", "lost_seconds": "lostSeconds"}
):
    """One step of a witness.

    Attributes:
        action: what is done to the pod.
        pod: ``namespace/name``.
        node: where it goes; "": nowhere.
        from_node: where it ran; "": it waited.
        price: of the move or eviction: lost work and start, as moves for gain are priced.
        lost_seconds: seconds since its start or its last checkpoint.
    """

    action: StepAction
    pod: str
    node: str = ""
    from_node: str = ""
    price: int = 0
    lost_seconds: int = 0


class PricedPool(msgspec.Struct, frozen=True):
    """Nodes whose room has the same prices.

    Attributes:
        nodes: their names.
        prices: parts (``PARTS``) of what is counted, for a unit of each resource: milli-cores of cpu, else whole units.
            0 where a resource is left out.
    """

    nodes: list[str]
    prices: dict[str, int]


class PriceBound(msgspec.Struct, frozen=True):
    """Prices from which a bound follows.

    Attributes:
        resources: that the bound counts; pods that ask for others pay nothing for these.
        pools: nodes in none have no prices.
        parts: of one, that prices count.
    """

    resources: list[str]
    pools: list[PricedPool]
    parts: int = PARTS


class CountedGang(msgspec.Struct, frozen=True):
    """A gang that waits.

    Attributes:
        needs: how many of its pods that wait must have a node at once.
        pods: keys of those that may be among them.
    """

    name: str
    needs: int
    pods: list[str]


class AuditFinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One finding.

    Attributes:
        kind: what is counted.
        now: how many there are now: pods that wait, gangs that wait, nodes that hold pods, what is free of a resource.
        at_least: by how many fewer there are once the witness is carried out.
        at_most: no plan does better.
        sentence: the same for people.
        plan: the name of the witness in ``AuditAnswer.plans``; "": nothing is better, or nothing was found.
        bound: the prices that ``at_most`` follows from; None: there is nothing to do better.
        counted: keys of the pods, or names of the nodes, that are counted.
        gangs: of a finding about gangs.
        resource: of stranded room; "": none.
        like: the pod that stranded room is measured by; "": none.
    """

    kind: FindingKind
    now: int
    at_least: int
    at_most: int
    sentence: str
    plan: str = ""
    bound: PriceBound | None = None
    counted: list[str] = []
    gangs: list[CountedGang] = []
    resource: str = ""
    like: str = ""

    @property
    def name(self) -> str:
        """Its kind, with the resource where it has one: StrandedRoom/memory."""
        return "/".join(filter(None, (self.kind, self.resource)))
