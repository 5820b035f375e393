"""Finds pods that make rounds fail, and keeps them out of the rounds of other pods.

A round fails when it misses its deadline or the worker ends. Then the pods of the round are bisected until single pods
remain (fault_search.py); all other pods get every second round meanwhile. A pod that fails alone twice backs off, with
growing pauses between retries. Three such pods of a class without a planned pod make the whole class back off. If no
pod fails alone, the round was too large: then rounds have fewer pods for a while.

If no pods at all can be planned, the pods are not at fault, and pauses are short.

A namespace is charged with the time that its pods cost. Above ``_ALLOWED_DEBT`` seconds only its pods of plannable
classes are planned. Its debt is paid off at 1 % of the time that passes.

Pure: the caller passes the time (of a monotonic clock) and the outcome of each round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from thalweg_operator.planning.fault_search import FaultSearch

#: Seconds of pause per second lost: retries cost 1 % of the time.
_BACKOFF_PER_LOST_SECOND = 100.0
_INITIAL_BACKOFF = 60.0
#: Pauses double up to this limit, or to the first pause if that is longer.
_MAX_BACKOFF = 3600.0
#: First and longest pause while no other pods can be planned either.
_SHORT_INITIAL_BACKOFF, _SHORT_MAX_BACKOFF = 1.0, 60.0
#: Seconds that the pods of a namespace may cost before the namespace is restricted.
_ALLOWED_DEBT = 120.0
#: A round of so few pods does not count as too large at its first failure.
_SMALL_ROUND = 16
#: Limit of remembered plannable classes.
_MAX_PLANNABLE_CLASSES = 10_000


class _RoundKind(Enum):
    """Which pods a round plans."""

    #: Pods outside the fault search.
    OTHERS = "others"
    #: A part of the fault search.
    SUSPECTS = "suspects"
    #: One pod or gang whose pause is over.
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class RoundSelection:
    """The pods of a round.

    Attributes:
        pods: pods to plan.
        backing_off: pods that back off, with the reason.
        more: whether another round has to follow at once, because other pods wait for their turn.
    """

    pods: Sequence[Pod]
    backing_off: Sequence[tuple[Pod, str]] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Backoff:
    """The back-off of a pod, gang or class.

    Attributes:
        retry_at: time of the next retry.
        delay: seconds from the failure to the retry.
        reason: message for the condition of its pods.
        planned_rounds: number of rounds with a plan before the failure.
        uncharged_seconds: seconds lost and not yet charged to its namespace.
    """

    retry_at: float
    delay: float
    reason: str
    planned_rounds: int
    uncharged_seconds: float


@dataclass(slots=True)
class _BatchLimit:
    """Limit of pods and gangs per round after a round that was too large.

    Attributes:
        max_items: the limit.
        until: time when the limit ends.
        remaining: items of this cycle that had no turn yet. Newcomers join the next cycle, so a namespace that creates
            pods all the time takes no turns of others.
        done: items of this cycle that had their turn.
        helped: see ``Quarantine.choose``, when the cycle began.
    """

    max_items: int
    until: float
    remaining: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    helped: int = 0

    def next_part(self, items: Sequence[str], helped: int) -> Sequence[str]:
        """The items of the next round. Each cycle begins with all ``items``; it is over when each had its turn."""
        if not self.remaining:
            self.remaining, self.done, self.helped = set(items), set(), helped
        part = [item for item in items if item in self.remaining][: self.max_items]
        self.remaining.difference_update(part)
        self.done.update(part)
        return part

    def retain(self, items: Sequence[str]) -> None:
        """Forgets all other items."""
        self.remaining.intersection_update(items)
        self.done.intersection_update(items)


def _by_turns(items: Mapping[str, Sequence[Pod]], keys: Sequence[str]) -> Sequence[str]:
    """The items of each namespace in turn, so that a namespace with many pods does not go before one with few."""
    places: list[tuple[int, int, str]] = []
    counts: Counter[str] = Counter()
    for turn, key in enumerate(keys):
        namespace = items[key][0].namespace
        places.append((counts[namespace], turn, key))
        counts[namespace] += 1
    return [key for _, _, key in sorted(places)]


class Quarantine:
    """Selects the pods of each round. Call ``choose``, then ``succeeded`` or ``failed``, for each round."""

    def __init__(self, first_in_group: Callable[[GangKey], GangKey] = lambda key: key) -> None:
        """``first_in_group``: maps a gang to the first gang of its gang group; a gang without a group to itself."""
        self._first_in_group = first_in_group
        self._round_kind, self._planned_pods = _RoundKind.OTHERS, tuple[Pod, ...]()
        self._search: FaultSearch | None = None
        #: By item key or class key.
        self._backoffs: dict[Hashable, _Backoff] = {}
        #: No retry starts before this time: there is one retry at a time.
        self._earliest_retry = 0.0
        #: Number of rounds with pods that ended with a plan.
        self._planned_rounds = 0
        self._batch_limit: _BatchLimit | None = None
        self._last_limit_seconds = 0.0
        #: Debt of each namespace in seconds, and the time of that value.
        self._debts: dict[str, tuple[float, float]] = {}
        self._plannable_classes: dict[Hashable, None] = {}

    def __len__(self) -> int:
        """Number of pods, gangs and classes that back off."""
        return len(self._backoffs)

    def choose(
        self,
        pods: Sequence[Pod],
        now: float,
        in_turn: Callable[[Sequence[Pod]], Sequence[Pod]] = lambda pods: pods,
        helped: int = 0,
    ) -> RoundSelection:
        """Selects the pods of the next round; at least one, unless all back off or wait for their turn.

        Args:
            pods: pods that may be planned.
            now: seconds of a monotonic clock.
            in_turn: those whose turn it is, of pods outside the fault search; called at most once.
            helped: rises with each change after which a pod that was planned in vain may have a node. Where rounds have
                few pods, those whose turn was before it have another one.
        """
        if self._batch_limit is not None and self._batch_limit.until <= now:
            self._batch_limit = None
        self._debts = {name: debt for name, debt in self._debts.items() if self._debt(name, now) > 0}
        if self._search is None and self._batch_limit is None and not self._backoffs and not self._debts:
            self._round_kind, self._planned_pods = _RoundKind.OTHERS, tuple(in_turn(pods))
            return RoundSelection(self._planned_pods)
        items: dict[str, list[Pod]] = {}
        for pod in pods:
            items.setdefault(self._item_key(pod), []).append(pod)
        resting, due = self._backing_off(items, now)
        suspects = self._search.retain(items.keys() - resting.keys()) if self._search is not None else set[str]()
        others = [item for item in items if item not in resting and item not in suspects]
        chosen, more = self._next_items(items, others, due, helped)
        self._planned_pods = tuple(pod for item in chosen for pod in items[item])
        if self._round_kind is _RoundKind.OTHERS:
            self._planned_pods = tuple(in_turn(self._planned_pods))
        for item in chosen:
            resting.pop(item, None)
        return RoundSelection(
            self._planned_pods, [(pod, why) for item, why in resting.items() for pod in items[item]], more
        )

    def succeeded(self, now: float) -> None:
        """The last chosen round ended with a plan."""
        pods = self._planned_pods
        self._planned_rounds += bool(pods)
        if self._search is None and not self._backoffs and not self._debts:
            return
        plannable_classes = dict.fromkeys(map(self.class_key, pods))
        if self._round_kind is _RoundKind.RETRY:
            for key in (*map(self._item_key, pods), *plannable_classes):
                self._backoffs.pop(key, None)
            self._earliest_retry = now
        self._plannable_classes |= plannable_classes
        while len(self._plannable_classes) > _MAX_PLANNABLE_CLASSES:
            del self._plannable_classes[next(iter(self._plannable_classes))]
        if self._search is not None:
            self._search.planned(len(set(map(self._item_key, pods))), plannable_classes)
            self._end_search(now)

    def failed(self, now: float, seconds_lost: float, problem: str) -> None:
        """The last chosen round failed.

        Args:
            now: seconds of a monotonic clock.
            seconds_lost: seconds that the round cost.
            problem: description of the failure, for the conditions of the pods at fault.
        """
        classes = {self._item_key(pod): self.class_key(pod) for pod in self._planned_pods}
        namespaces = {self._item_key(pod): pod.namespace for pod in self._planned_pods}
        self._planned_pods = ()
        if not classes:
            return
        if self._round_kind is _RoundKind.RETRY:
            for item, class_key in classes.items():
                key = class_key if class_key in self._backoffs else item
                before = self._backoffs.get(key)  # None: its gang may have changed its group
                planned_rounds, uncharged = (
                    (before.planned_rounds, before.uncharged_seconds)
                    if before is not None
                    else (self._planned_rounds, 0.0)
                )
                uncharged += seconds_lost
                self._back_off(key, namespaces[item], now, seconds_lost, problem, planned_rounds, uncharged)
            return
        search = self._search = self._search or FaultSearch(len(classes), self._planned_rounds)
        search.seconds_lost += seconds_lost
        if len(classes) > 1:
            search.bisect(classes)
            return
        ((item, class_key),) = classes.items()
        fault = search.failed_alone(item, class_key)
        if fault is not None:
            self._back_off(
                fault, namespaces[item], now, seconds_lost, problem, search.planned_rounds, search.seconds_lost
            )
            search.seconds_lost = 0.0
        self._end_search(now)

    def next_retry(self, after: float) -> float | None:
        """End of the first pause that ends later than ``after``; None without one."""
        ends = [max(backoff.retry_at, self._earliest_retry) for backoff in self._backoffs.values()]
        ends += [end + _BACKOFF_PER_LOST_SECOND * (debt - _ALLOWED_DEBT) for debt, end in self._debts.values()]
        if self._batch_limit is not None:
            ends.append(self._batch_limit.until)
        return min((end for end in ends if end > after), default=None)

    def retain(self, pods: Iterable[Pod]) -> None:
        """Drops the back-offs of all other pods."""
        if self._backoffs:
            keys = {key for pod in pods for key in (self._item_key(pod), self.class_key(pod))}
            self._backoffs = {key: backoff for key, backoff in self._backoffs.items() if key in keys}

    # --- choosing ---

    def _backing_off(self, items: Mapping[str, Sequence[Pod]], now: float) -> tuple[dict[str, str], list[str]]:
        """Reasons of the items that back off, and the items of them that are due for a retry, longest due first."""
        indebted = {name: debt for name in self._debts if (debt := self._debt(name, now)) > _ALLOWED_DEBT}
        resting: dict[str, str] = {}
        due: list[tuple[float, str]] = []
        for item, pods in items.items():
            class_key, namespace = self.class_key(pods[0]), pods[0].namespace
            backoffs = [self._backoffs[key] for key in (item, class_key) if key in self._backoffs]
            if backoffs:
                resting[item] = backoffs[0].reason
                until = max(self._earliest_retry, *(backoff.retry_at for backoff in backoffs))
                if until <= now:
                    due.append((until, item))
            elif namespace in indebted and class_key not in self._plannable_classes:
                resting[item] = (
                    f"planning pods of namespace {namespace} failed too often: "
                    "until it has paid for that, only pods like those that could be planned are planned"
                )
        return resting, [item for _, item in sorted(due)]

    def _next_items(
        self, items: Mapping[str, Sequence[Pod]], others: Sequence[str], due: Sequence[str], helped: int
    ) -> tuple[Sequence[str], bool]:
        """Items of the next round, and whether another round follows at once. The three kinds of round take turns."""
        limit = self._batch_limit
        if limit is not None:
            limit.retain(others)
        parts = self._search.remaining_parts if self._search is not None else 0
        sizes = {_RoundKind.OTHERS: len(others), _RoundKind.SUSPECTS: parts, _RoundKind.RETRY: len(due)}
        order = [*_RoundKind, *_RoundKind]
        after = order[order.index(self._round_kind) + 1 :]
        self._round_kind = next((kind for kind in after if sizes[kind]), _RoundKind.OTHERS)
        more = sum(map(bool, sizes.values())) > 1 or parts > 1
        if self._round_kind is _RoundKind.SUSPECTS and self._search is not None:
            return self._search.next_part({item: self.class_key(pods[0]) for item, pods in items.items()}), more
        if self._round_kind is _RoundKind.RETRY:
            return due[:1], more
        if limit is None:
            return others, more
        part = limit.next_part(_by_turns(items, others), helped)
        return part, more or len(limit.done) < len(others) or limit.helped != helped

    # --- backing off ---

    def _end_search(self, now: float) -> None:
        search = self._search
        if search is None or search.remaining_parts:
            return
        self._search = None
        if search.found_fault:
            return
        # Each part could be planned, so the round was too large.
        repeated = self._last_limit_seconds > 0
        limit_seconds = max(
            _INITIAL_BACKOFF,
            min(2 * self._last_limit_seconds, _MAX_BACKOFF),
            _BACKOFF_PER_LOST_SECOND * search.seconds_lost,
        )
        self._last_limit_seconds = limit_seconds
        if repeated or search.initial_count > _SMALL_ROUND:
            self._batch_limit = _BatchLimit(search.largest_planned, now + limit_seconds)

    def _back_off(
        self,
        key: Hashable,
        namespace: str,
        now: float,
        seconds_lost: float,
        problem: str,
        planned_rounds: int,
        uncharged_seconds: float,
    ) -> None:
        """Starts the back-off of an item or class, and charges its namespace.

        Args:
            key: item key or class key.
            planned_rounds: number of rounds with a plan before the item entered the search or failed last. If there was
                none since, the pods may not be at fault: the pause is short, and the namespace is not charged yet.
            uncharged_seconds: seconds to charge.
        """
        before = self._backoffs.get(key)
        first, longest = _SHORT_INITIAL_BACKOFF, _SHORT_MAX_BACKOFF
        if self._planned_rounds > planned_rounds:
            first, longest = max(_INITIAL_BACKOFF, _BACKOFF_PER_LOST_SECOND * seconds_lost), _MAX_BACKOFF
            self._debts[namespace] = self._debt(namespace, now) + uncharged_seconds, now
            uncharged_seconds = 0.0
        pause = first if before is None else max(first, min(2 * before.delay, longest))
        reason = f"planning this pod failed: {problem}; next try in {_format_seconds(pause)}"
        self._backoffs[key] = _Backoff(now + pause, pause, reason, self._planned_rounds, uncharged_seconds)
        self._earliest_retry = max(self._earliest_retry, now + first)

    def _debt(self, namespace: str, now: float) -> float:
        seconds, since = self._debts.get(namespace, (0.0, now))
        return max(0.0, seconds - (now - since) / _BACKOFF_PER_LOST_SECOND)

    def _item_key(self, pod: Pod) -> str:
        """Key of the smallest unit of planning: the pod, its gang, or the group of its gang."""
        return pod.uid if pod.gang is None else f"gang {self._first_in_group(pod.gang.key).display_name}"

    def class_key(self, pod: Pod) -> Hashable:
        """Key of pods that are equal for the planner, per namespace, so that a fault stays within its namespace."""
        return self._item_key(pod) if pod.gang is not None else (pod.namespace, pod.pod_class, pod.constraints)


def _format_seconds(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
