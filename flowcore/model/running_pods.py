"""Running pods that may leave their node, as a round reads them.

Most rounds need none of this: they count running pods as usage of their node. A round reads single pods only where a
waiting pod may preempt, or where a policy moves pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import DuringExecution
from flowcore.model.resources import Amounts, Unrequested


class EvictionKind(StrEnum):
    """Why a running pod leaves its node."""

    #: A pod of a higher priority takes its room.
    PREEMPTION = "Preemption"
    #: It runs better, or makes room, on another node.
    MIGRATION = "Migration"
    #: A rule that must hold while it runs does not hold any more.
    RULE = "Rule"
    #: Its owner uses more than its share, and another owner uses less.
    RECLAIM = "Reclaim"


class RunningPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with a node.

    Attributes:
        pod_class: without ``node_name``: what its replacement asks for.
        usage: what it takes on its node.
        started: seconds since the epoch; 0: its kubelet has not started it yet.
        policy: name of the policy that governs it; "": none does.
        owner: uid of its controller; "": it has none.
        gang: name of its gang (``RunningPods.gangs``); "": it has none.
        budgets: keys of the PodDisruptionBudgets that protect it.
        immovable_reason: why no move may evict it; "": a move may.
        unevictable_reason: why it may not be evicted; "": it may be.
        queue: name of the FlowQueue that its usage counts for; "": none.
        during_execution: what becomes of it when a required rule of it does not hold any more.
        checkpointed: seconds since the epoch when its work was last saved, as it says; 0: never.
        finite: it runs to an end: what it has done is lost if it leaves before.
    """

    key: str
    uid: str
    node: str
    pod_class: PodClass
    usage: Amounts = ()
    signature: PodSignature = PodSignature()
    started: float = 0.0
    policy: str = ""
    owner: str = ""
    gang: str = ""
    budgets: tuple[str, ...] = ()
    immovable_reason: str = ""
    unevictable_reason: str = ""
    queue: str = ""
    during_execution: DuringExecution = DuringExecution.IGNORE
    checkpointed: float = 0.0
    finite: bool = False

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.pod_class.priority

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.signature.namespace


class HeldRoom(NamedTuple):
    """What a pod holds on a node that ends or is about to leave; see ``Pod`` and ``PodClass``."""

    node: str
    usage: Amounts
    unrequested: Unrequested = ()


class GangDisruption(msgspec.Struct, frozen=True, gc=False):
    """What may leave of a running gang. Source: ``disruptionMode`` of PodGroup (KEP-5710).

    Attributes:
        running: how many of its pods run.
        min_member: with fewer it is no use: then all of its pods leave.
        whole: its pods leave all together or not at all.
    """

    name: str
    running: int
    min_member: int = 0
    whole: bool = False


class RecentMove(msgspec.Struct, frozen=True, gc=False):
    """A move of the last hour, for the budgets of moves.

    Attributes:
        under_way: the replacement does not have its node yet.
    """

    policy: str
    node: str
    namespace: str
    owner: str
    seconds_ago: float
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class RunningPods:
    """The running pods of a snapshot.

    Attributes:
        pods: all that hold room and do not leave already.
        budgets: PodDisruptionBudget -> how many more pods may be evicted now.
        gangs: running gangs by name.
        moves: of the last hour.
        terminating: of each pod that still holds room, and ends or is about to leave.
        places: names of nodes where places wait for replacements.
    """

    pods: tuple[RunningPod, ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    gangs: Mapping[str, GangDisruption] = field(default_factory=dict)
    moves: tuple[RecentMove, ...] = ()
    terminating: tuple[HeldRoom, ...] = ()
    places: tuple[str, ...] = ()
