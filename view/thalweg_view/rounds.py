"""What the view keeps of rounds. It crosses a pipe as MessagePack, so lists refer to each other by position."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

import msgspec

from flowcore.model.policies import Delivery
from flowcore.model.queues import QueueShare
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import Labels
from flowcore.planning.problem.result import Bounded
from flowcore.questions.scenario.context import UnknownName

#: Rounds that are kept as rows of the timeline, and those of them that are kept whole.
KEPT_ROWS: Final = 200
KEPT_WHOLE: Final = 20


class RoundClass(msgspec.Struct, array_like=True, frozen=True):
    """A pod class, as far as people read it.

    Attributes:
        requests: see ``flowcore.model.resources``.
    """

    requests: Amounts = ()
    priority: int = 0


class RoundPolicy(msgspec.Struct, array_like=True, frozen=True):
    """A policy in force. With delivery Observe, its plan is only shown."""

    name: str
    delivery: Delivery = Delivery.BINDER


class RoundGang(msgspec.Struct, array_like=True, frozen=True):
    """A gang of pending pods.

    Attributes:
        needed: of those that wait, how many must be placed at once; not above zero: it has what it needs.
    """

    name: str
    needed: int


class RoundPod(msgspec.Struct, array_like=True):
    """A pod that the round planned.

    Attributes:
        key: ``namespace/name``.
        pod_class, policy: positions in the round's lists.
        created, since: seconds since the epoch: of the object, and since when it could be placed.
        gangs: names of its gangs.
        queue: name of its FlowQueue; "": none.
    """

    key: str
    pod_class: int
    policy: int
    created: float = 0.0
    since: float = 0.0
    gangs: tuple[str, ...] = ()
    queue: str = ""


class RoundEviction(msgspec.Struct, array_like=True):
    """A running pod that leaves its node.

    Attributes:
        for_pods: the pods that it leaves for, as positions in ``pending``.
        to: the node where room for its replacement is reserved; "": none.
    """

    key: str
    node: str
    kind: EvictionKind
    for_pods: tuple[int, ...] = ()
    to: str = ""
    reason: str = ""


class RoundNode(msgspec.Struct, array_like=True):
    """A node before the round.

    Attributes:
        used: what its pods request, without their number.
        pods: their number.
        taints: those that keep pods away, as kubectl writes them: "dedicated=memory:NoSchedule".
    """

    name: str
    labels: Labels = ()
    unschedulable: bool = False
    allocatable: Amounts = ()
    used: Amounts = ()
    pods: int = 0
    taints: tuple[str, ...] = ()


class RoundPlan(msgspec.Struct, Bounded):
    """What one round decided.

    Attributes:
        time: when it began, seconds since the epoch.
        seconds: how long it took.
        cost, lower_bound, method, steps: see ``flowcore.planning.problem.result.RoundResult``. They tell of the pods
            whose policy acts.
        pending: the pods that it planned.
        placements: position in ``pending``, name of the node, price.
        unplaced: position in ``pending``, position in ``reasons``.
        codes: the code of each of ``reasons`` (flowcore/rules/reasons/codes.py).
        gangs: those of the pending pods.
        skipped: pods that no round may plan, and the reason, by key.
        queue_shares: shares of the queues once the plan is carried out.
        nodes: the nodes before the round, of a round that is shown without the cluster's state; None: the state has
            them.
        gaps: sentences about missing objects that may change the plan.
    """

    number: int
    time: float
    seconds: float
    cost: int
    lower_bound: int
    method: str
    steps: int
    policies: list[RoundPolicy] = []
    classes: list[RoundClass] = []
    pending: list[RoundPod] = []
    placements: list[tuple[int, str, int]] = []
    unplaced: list[tuple[int, int]] = []
    reasons: list[str] = []
    codes: list[str] = []
    gangs: list[RoundGang] = []
    skipped: dict[str, str] = {}
    evictions: list[RoundEviction] = []
    queue_shares: list[QueueShare] = []
    nodes: list[RoundNode] | None = None
    gaps: list[str] = []

    @property
    def certified(self) -> bool:
        """Whether no plan costs less, and no object is missing that may change the plan."""
        return super().certified and not self.gaps

    def order(self) -> list[int]:
        """Positions of all pending pods in the planner's order: by priority, then those that wait the longest first.

        Pods that are alike are placed in this order, and so are the pods of a queue (flowcore/costs/shares).
        """
        classes, pending = self.classes, self.pending

        def rank(place: int) -> tuple[int, float, str]:
            pod = pending[place]
            return -classes[pod.pod_class].priority, pod.since or pod.created, pod.key

        return sorted(range(len(pending)), key=rank)

    def waiting_by_code(self) -> dict[str, int]:
        """How many pods stay pending, by the code of their reason, the most first."""
        counts = Counter(self.codes[reason] for _, reason in self.unplaced)
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


class RoundRow(msgspec.Struct, rename="camel"):
    """A round in the timeline; see ``RoundPlan``.

    Attributes:
        placed, waiting: numbers of pods that get a node, and that get none, those that may not be planned among them.
        evicted: number of pods that leave.
        gap: part of the cost above the lower bound, 0..1; None: nothing is known of it, as where pods are evicted.
        certified: whether no plan costs less.
        codes: how many pods stay pending, by the code of their reason.
        whole: whether the round can be looked at.
    """

    number: int
    time: float
    seconds: float
    placed: int
    waiting: int
    evicted: int
    cost: int
    lower_bound: int
    gap: float | None
    certified: bool
    method: str
    codes: dict[str, int] = {}
    whole: bool = True

    @classmethod
    def of(cls, plan: RoundPlan) -> RoundRow:
        """The row of a round."""
        return cls(
            plan.number,
            plan.time,
            plan.seconds,
            len(plan.placements),
            len(plan.unplaced) + len(plan.skipped),
            len(plan.evictions),
            plan.cost,
            plan.lower_bound,
            plan.gap if plan.lower_bound > 0 or plan.certified else None,
            plan.certified,
            plan.method,
            plan.waiting_by_code(),
        )


class RoundHistory:
    """The last rounds, the oldest first.

    Attributes:
        rows: the timeline.
    """

    def __init__(self) -> None:
        self.rows: deque[RoundRow] = deque(maxlen=KEPT_ROWS)
        self._whole: dict[int, RoundPlan] = {}

    def put(self, plan: RoundPlan) -> None:
        """Adds the newest round. One with the number of an earlier one begins anew: the operator was restarted."""
        if self.rows and plan.number <= self.rows[-1].number:
            self.rows.clear()
            self._whole.clear()
        self.rows.append(RoundRow.of(plan))
        self._whole[plan.number] = plan
        if len(self._whole) > KEPT_WHOLE:
            oldest = next(iter(self._whole))
            del self._whole[oldest]
            for row in self.rows:
                row.whole = row.number in self._whole

    def find(self, number: int = 0) -> RoundPlan | None:
        """A round by its number; 0: the newest, None if there is none yet.

        Raises:
            UnknownName: no round of that number is kept whole.
        """
        if not number:
            return next(reversed(self._whole.values()), None)
        found = self._whole.get(number)
        if found is None:
            kept = ", ".join(str(each) for each in self._whole) or "none"
            raise UnknownName("round", f"{number} is not kept; rounds that are: {kept}")
        return found

    def newest_whole(self) -> Iterator[RoundPlan]:
        """The rounds that can be looked at, the newest first."""
        return reversed(self._whole.values())

    def row(self, number: int) -> RoundRow | None:
        """A round in the timeline; None: it is not there any more."""
        return next((row for row in reversed(self.rows) if row.number == number), None)
