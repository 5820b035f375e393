"""The question why a pod waits, and its answer."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WhyKind(StrEnum):
    """Why a pod waits: the one reason that decides."""

    #: Filters exclude every node, also if no other pod waits.
    NOTHING_FITS = "NothingFits"
    #: Other waiting pods have its room, and cost more to leave.
    ROOM_TAKEN = "RoomTaken"
    #: What its policy says: a constraint, the price of waiting, the network of a cost model.
    CONSTRAINT = "Constraint"
    #: The limit or the share of its queue.
    SHARE = "Share"
    #: Pods of its gang are missing, or its gang's terms cannot be met.
    GANG_INCOMPLETE = "GangIncomplete"
    #: Running pods leave, or are to leave, for it.
    VICTIMS_LEAVING = "VictimsLeaving"
    #: kube-scheduler is to bind it.
    HANDED_OVER = "HandedOver"
    #: It may not be planned now: a gate of others, a claim, a field that cannot be read.
    BLOCKED = "Blocked"
    #: It waits for nothing: the next plan places it.
    PLANNED = "Planned"
    #: It runs, and another node costs less: the plan moves it, or its policy proposes that.
    MOVES = "Moves"


class WhyQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Asks why a pod waits.

    Attributes:
        target: ``namespace/pod``, or ``kind/namespace/name`` of a gang, a Deployment or another controller.
        fixes: whether changes are looked for that would place it.
    """

    target: str
    fixes: bool = True


class Fix(msgspec.Struct, frozen=True, rename="camel"):
    """Changes that would place a pod. A plan with them was made.

    Attributes:
        text: a sentence.
        change: the changes, as ``what-if`` takes them.
        places: keys of waiting pods that get a node by it; others of their workloads may get none for that.
        loses: keys of pods that lose their node, or the node that they would have got.
        moves: keys of running pods that run on on another node.
    """

    text: str
    change: list[object]
    places: list[str]
    loses: list[str]
    moves: list[str] = []


class WhyAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """Why a pod waits.

    Attributes:
        pod: its key; of a target with several pods the first that waits for the commonest reason.
        kind: what kind of reason it is.
        text: the reason, as the condition and the Event of the pod carry it.
        fixes: the cheapest first.
        evidence: sentences that prove the reason.
        next: what to do: the first fix, where there is one and waiting is not enough.
        waiting: how many pods of the target the plan leaves waiting; where it leaves none, how many have no node yet.
        alike: how many of them wait for this reason.
        now: the moment that the answer is for; "": unknown.
        details: sentences with the numbers of the plan.
    """

    pod: str
    kind: WhyKind
    text: str
    fixes: list[Fix] = []
    evidence: list[str] = []
    next: str = ""
    waiting: int = 1
    alike: int = 1
    now: str = ""
    details: list[str] = []
