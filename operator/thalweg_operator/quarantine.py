"""Finds pods with which no round ends, and keeps them out of the rounds of others.

When a round fails (no plan in time, or the worker ended) its pods are suspects. They are planned in halves, and what
fails again is halved again, until single pods are left (suspects.py). Others have every second round meanwhile. A pod
that fails alone, twice, rests; it is tried again after a pause that grows. Three such pods of a class, none of which
could be planned, make the whole class rest as one. If no pod fails alone, the round was too much work: then fewer pods
are planned at once for a while.

Where nothing at all can be planned, the fault is not the pods': then pauses are short.

The time that a namespace's pods cost is counted. A namespace that cost more than ``_ALLOWED`` seconds has only pods of
classes planned that could be planned before, until its debt is paid off at 1 % of the time.

Pure: whoever owns it says what time it is (a monotonic clock's) and how each round ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from flowcore.model.gang_terms import GangKey
from flowcore.model.pods import Pod
from thalweg_operator.suspects import Suspects

#: A pause is so many times as long as the time that was lost: retries cost 1 % of the time.
_PAUSE_FOR_LOST = 100.0
_FIRST_PAUSE = 60.0
#: Pauses double up to this, or to the first one where that is longer.
_LONGEST_PAUSE = 3600.0
#: While no other pods can be planned either: the first pause, and the longest.
_SHORT_PAUSE, _LONGEST_SHORT = 1.0, 60.0
#: Seconds that the pods of a namespace may cost others at once.
_ALLOWED = 120.0
#: A round of so few pods is not too much work the first time that it fails.
_FEW = 16
#: Classes that are remembered to be fine.
_MOST_FINE = 10_000


class _Of(Enum):
    """What a round consists of."""

    #: Pods that are no suspects.
    OTHERS = "others"
    #: Some of the suspects.
    SUSPECTS = "suspects"
    #: One pod, or gang, whose pause is over.
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a round is to plan.

    Attributes:
        pods: those that are planned.
        resting: those that rest, and why.
        more: whether another round is to follow at once: others wait for their turn.
    """

    pods: Sequence[Pod]
    resting: Sequence[tuple[Pod, str]] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Rest:
    """A pod, gang or class that rests.

    Attributes:
        until, pause: when it may be tried again, and how long that is from when it failed.
        reason: what it is told.
        plans: how many rounds had ended with a plan when it failed.
        unpaid: seconds that it cost and that its namespace was not charged with yet.
    """

    until: float
    pause: float
    reason: str
    plans: int
    unpaid: float


@dataclass(slots=True)
class _Fewer:
    """How many pods and gangs are planned at once while a full round is too much."""

    most: int
    until: float
    turn: int = 0


class Quarantine:
    """See the module. Call ``choose``, then ``succeeded`` or ``failed``, for each round."""

    def __init__(self, first_of: Callable[[GangKey], GangKey] = lambda key: key) -> None:
        """``first_of``: the first gang of the group that a gang is placed with, itself where it is by itself."""
        self._first_of = first_of
        self._of, self._asked = _Of.OTHERS, tuple[Pod, ...]()
        self._search: Suspects | None = None
        #: By pod or gang, or by class.
        self._rests: dict[Hashable, _Rest] = {}
        #: No pause ends earlier: one retry at a time, however many rest.
        self._next_retry = 0.0
        #: Rounds with pods that ended with a plan.
        self._plans = 0
        self._fewer: _Fewer | None = None
        self._last_pause = 0.0
        #: Seconds that each namespace cost, and when that was so.
        self._debts: dict[str, tuple[float, float]] = {}
        self._fine: dict[Hashable, None] = {}

    def __len__(self) -> int:
        """Pods, gangs and classes that rest."""
        return len(self._rests)

    def choose(self, pods: Sequence[Pod], now: float) -> Choice:
        """Which of the pods that may be planned the next round plans; always some, unless all rest."""
        if self._fewer is not None and self._fewer.until <= now:
            self._fewer = None
        self._debts = {name: debt for name, debt in self._debts.items() if self._debt(name, now) > 0}
        if self._search is None and self._fewer is None and not self._rests and not self._debts:
            self._of, self._asked = _Of.OTHERS, tuple(pods)
            return Choice(pods)
        items: dict[str, list[Pod]] = {}
        for pod in pods:
            items.setdefault(self._item(pod), []).append(pod)
        resting, due = self._resting(items, now)
        suspects = self._search.keep(items.keys() - resting.keys()) if self._search is not None else set[str]()
        others = [item for item in items if item not in resting and item not in suspects]
        chosen, more = self._turn(items, others, due)
        self._asked = tuple(pod for item in chosen for pod in items[item])
        for item in chosen:
            resting.pop(item, None)
        return Choice(self._asked, [(pod, why) for item, why in resting.items() for pod in items[item]], more)

    def succeeded(self, now: float) -> None:
        """The round that was chosen last ended with a plan."""
        asked = self._asked
        self._plans += bool(asked)
        if self._search is None and not self._rests and not self._debts:
            return
        fine = dict.fromkeys(map(self._class, asked))
        if self._of is _Of.RETRY:
            for key in (*map(self._item, asked), *fine):
                self._rests.pop(key, None)
            self._next_retry = now
        self._fine |= fine
        while len(self._fine) > _MOST_FINE:
            del self._fine[next(iter(self._fine))]
        if self._search is not None:
            self._search.planned(len(set(map(self._item, asked))), fine)
            self._end_search(now)

    def failed(self, now: float, lost: float, problem: str) -> None:
        """The round that was chosen last failed.

        Args:
            lost: seconds that it cost.
            problem: what happened, for the pods that are found to be at fault.
        """
        classes = {self._item(pod): self._class(pod) for pod in self._asked}
        namespaces = {self._item(pod): pod.namespace for pod in self._asked}
        self._asked = ()
        if not classes:
            return
        if self._of is _Of.RETRY:
            for item, its in classes.items():
                key = its if its in self._rests else item
                before = self._rests.get(key)  # its gang may be in another group by now
                plans, unpaid = (before.plans, before.unpaid) if before is not None else (self._plans, 0.0)
                self._rest(key, namespaces[item], now, lost, problem, plans, unpaid + lost)
            return
        search = self._search = self._search or Suspects(len(classes), self._plans)
        search.lost += lost
        if len(classes) > 1:
            search.divide(classes)
            return
        ((item, its),) = classes.items()
        fault = search.failed_alone(item, its)
        if fault is not None:
            self._rest(fault, namespaces[item], now, lost, problem, search.plans, search.lost)
            search.lost = 0.0
        self._end_search(now)

    def next_due(self, after: float) -> float | None:
        """When the first pause ends, of those that end later than that; None where none does."""
        ends = [max(rest.until, self._next_retry) for rest in self._rests.values()]
        ends += [at + _PAUSE_FOR_LOST * (debt - _ALLOWED) for debt, at in self._debts.values()]
        if self._fewer is not None:
            ends.append(self._fewer.until)
        return min((end for end in ends if end > after), default=None)

    def forget_all_but(self, pods: Iterable[Pod]) -> None:
        """Drops what is known of pods that are not among these."""
        if self._rests:
            kept = {key for pod in pods for key in (self._item(pod), self._class(pod))}
            self._rests = {key: rest for key, rest in self._rests.items() if key in kept}

    # --- choosing ---

    def _resting(self, items: Mapping[str, Sequence[Pod]], now: float) -> tuple[dict[str, str], list[str]]:
        """Reasons of those that rest, and those of them whose turn has come, longest due first."""
        indebted = {name: debt for name in self._debts if (debt := self._debt(name, now)) > _ALLOWED}
        resting: dict[str, str] = {}
        due: list[tuple[float, str]] = []
        for item, pods in items.items():
            its, namespace = self._class(pods[0]), pods[0].namespace
            rests = [self._rests[key] for key in (item, its) if key in self._rests]
            if rests:
                resting[item] = rests[0].reason
                until = max(self._next_retry, *(rest.until for rest in rests))
                if until <= now:
                    due.append((until, item))
            elif namespace in indebted and its not in self._fine:
                resting[item] = (
                    f"planning pods of namespace {namespace} failed too often: "
                    "until it has paid for that, only pods like those that could be planned are planned"
                )
        return resting, [item for _, item in sorted(due)]

    def _turn(
        self, items: Mapping[str, Sequence[Pod]], others: Sequence[str], due: Sequence[str]
    ) -> tuple[Sequence[str], bool]:
        """What is next, and whether more is to come at once. Those that are something take turns."""
        parts = self._search.parts if self._search is not None else 0
        sizes = {_Of.OTHERS: len(others), _Of.SUSPECTS: parts, _Of.RETRY: len(due)}
        order = [*_Of, *_Of]
        after = order[order.index(self._of) + 1 :]
        self._of = next((each for each in after if sizes[each]), _Of.OTHERS)
        more = sum(map(bool, sizes.values())) > 1 or parts > 1
        if self._of is _Of.SUSPECTS and self._search is not None:
            return self._search.next_part({item: self._class(pods[0]) for item, pods in items.items()}), more
        if self._of is _Of.RETRY:
            return due[:1], more
        fewer = self._fewer
        if fewer is None or len(others) <= fewer.most:
            return others, more
        start = fewer.turn if fewer.turn < len(others) else 0
        fewer.turn = start + fewer.most
        return others[start : fewer.turn], more or fewer.turn < len(others)

    # --- resting ---

    def _end_search(self, now: float) -> None:
        search = self._search
        if search is None or search.parts:
            return
        self._search = None
        if search.found:
            return
        # Each part could be planned: it was all of them at once that was too much.
        again = self._last_pause > 0
        pause = max(_FIRST_PAUSE, min(2 * self._last_pause, _LONGEST_PAUSE), _PAUSE_FOR_LOST * search.lost)
        self._last_pause = pause
        if again or search.first > _FEW:
            self._fewer = _Fewer(search.largest, now + pause)

    def _rest(
        self, key: Hashable, namespace: str, now: float, lost: float, problem: str, plans: int, unpaid: float
    ) -> None:
        """Makes it rest, and its namespace pay.

        Args:
            plans: how many rounds had ended with a plan when it was first suspected, or failed last. If none did since,
                the fault may be elsewhere: it rests for a short time, and nobody pays yet.
        """
        before = self._rests.get(key)
        first, longest = _SHORT_PAUSE, _LONGEST_SHORT
        if self._plans > plans:
            first, longest = max(_FIRST_PAUSE, _PAUSE_FOR_LOST * lost), _LONGEST_PAUSE
            self._debts[namespace] = self._debt(namespace, now) + unpaid, now
            unpaid = 0.0
        pause = first if before is None else max(first, min(2 * before.pause, longest))
        reason = f"planning this pod failed: {problem}; next try in {_in_words(pause)}"
        self._rests[key] = _Rest(now + pause, pause, reason, self._plans, unpaid)
        self._next_retry = max(self._next_retry, now + first)

    def _debt(self, namespace: str, now: float) -> float:
        seconds, since = self._debts.get(namespace, (0.0, now))
        return max(0.0, seconds - (now - since) / _PAUSE_FOR_LOST)

    def _item(self, pod: Pod) -> str:
        """What is planned as a whole: the pod, its gang, or the group of its gang."""
        return pod.uid if pod.gang is None else f"gang {self._first_of(pod.gang.key).shown}"

    def _class(self, pod: Pod) -> Hashable:
        """Pods of which one is as good as another; those of other namespaces are not to suffer."""
        return self._item(pod) if pod.gang is not None else (pod.namespace, pod.pod_class, pod.rules)


def _in_words(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
