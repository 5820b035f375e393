"""Namespaces take turns where the pods that wait cost a round much.

The worker measures how long a round takes for the pods of each namespace. While all that waits costs little, every
round plans all of it. Beyond ``BOUND`` seconds a round plans a part:

- Pods that no round has planned yet, unless pods of their namespace are known to cost much each: a burst is not cut.
- Of the others, as many lots as ``BOUND`` allows. Namespaces that cost less than their share of it are planned whole.
- Pods that were planned already and got no node have ``_RETRY_SHARE`` of the time. Those that get one now take none of
  it.

After changes that help no waiting pod, such as new pods and where these went, ``CALM_BOUND`` is the bound: pods that
were planned in vain are not planned again beside each new pod, but later in small parts.

A lot is what is planned together: the pods of one namespace that are equal for the planner, or a gang with its group.
Of a namespace's lots every second turn begins with those of the highest priority, and every other one with those that
were planned the longest time ago, of those of one round with the highest priority. So each lot has its turn.

Pure: the caller passes the time (of a monotonic clock) and what each round took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowcore.model.pods import Pod

#: Seconds that a round may take for pods that are planned by turns. A pod that comes waits for one round that runs and
#: for its own: with half a second for both it is bound before anybody asks why it waits.
BOUND = 0.25
#: The same while nothing helped pods that were planned in vain. To plan them again brings next to nothing, so others
#: wait no longer for it than people notice.
CALM_BOUND = 0.05
#: Seconds that a new pod may cost before it is planned by turns too. Pods of large bursts cost a tenth of it.
_CHEAP = 0.001
#: Part of the time for pods that were planned already and got no node. After a dear lot there are none for a while.
_RETRY_SHARE = 0.25
#: Seconds for which rounds with new pods leave them out after some were planned again.
_REST = 0.4
#: Most seconds without one after a round that took long on a busy machine.
_LONGEST_REST = 10.0
#: Seconds after which they have a turn again though nothing helped them but the cluster changed.
_CALM_PERIOD = 2.0
#: What a pod adds to the size of its lot. A lot costs mostly the same, however many equal pods it has.
_PER_POD = 0.01
#: Seconds after which what a namespace cost counts half.
_HALF_LIFE = 60.0
#: Seconds for a lot below which a namespace is forgotten: 500 such lots are less than ``CALM_BOUND``.
_LEAST_COST = 0.0001
#: Seconds that a pod waits for its first turn before its condition says so.
TOLD_AFTER = 2.0


@dataclass(frozen=True, slots=True)
class TurnSelection:
    """The pods of a round.

    Attributes:
        pods: pods to plan, in the order in which they came.
        deferred: pods whose turn comes later.
        told: those of them that no round has planned, and that have waited for their turn for some time.
        more: whether another round has to follow at once: pods wait that no round has planned.
        owes: whether some of them had no turn since the cluster changed. The others were planned in vain since then.
    """

    pods: Sequence[Pod]
    deferred: Sequence[Pod] = ()
    told: Sequence[Pod] = ()
    more: bool = False
    owes: bool = False


@dataclass(slots=True, eq=False)
class _Lot:
    """Pods that are planned together.

    Attributes:
        size: 1, and something for each pod.
        priority: the highest of its pods.
        planned: number of the last round that planned all of them; 0: some were in none.
    """

    namespace: str
    key: Hashable
    pods: list[Pod] = field(default_factory=list)
    size: float = 1.0
    priority: int = -(2**31)
    planned: int = 0

    @property
    def is_new(self) -> bool:
        return not self.planned


@dataclass(slots=True)
class _Record:
    """What a namespace cost.

    Attributes:
        per_size: seconds for a lot of size 1.
        size: of its lots in the round in which they cost so much.
        used: seconds in all rounds that were planned by turns.
        time: of these values; seconds count half after ``_HALF_LIFE``.
        turns: how many it had with new lots (True), and with others.
    """

    per_size: float = 0.0
    size: float = 1.0
    used: float = 0.0
    time: float = 0.0
    turns: Counter[bool] = field(default_factory=Counter)

    def measured(self, seconds: float, size: float, *, was_long: bool) -> None:
        """Records the seconds that a round took for lots of this size.

        Cheap lots do not hide dear ones: the cost falls by half only once as many were cheap as had been dear.
        """
        per_size = seconds / size
        if per_size < self.per_size:
            self.per_size = max(per_size, self.per_size * 0.5 ** min(1.0, size / self.size))
        elif was_long:
            self.per_size, self.size = per_size, size

    def now(self, now: float) -> _Record:
        """The same record as it counts now."""
        factor = 0.5 ** (max(0.0, now - self.time) / _HALF_LIFE)
        self.per_size, self.used, self.time = self.per_size * factor, self.used * factor, now
        return self


def waits_for_turn(pod: Pod) -> str:
    """Why a pod waits that no round has planned."""
    return f"It waits for its turn: pods of namespace {pod.namespace} take long to plan, so they are planned in parts."


class NamespaceTurns:
    """Selects the pods of each round. Call ``choose``, then ``took`` if the round ended with a plan."""

    def __init__(self, lot_of: Callable[[Pod], Hashable]) -> None:
        """``lot_of``: equal for pods that are planned together; of one namespace, but for groups of gangs."""
        self._lot_of = lot_of
        #: By namespace; empty where no round was long of late.
        self._records: dict[str, _Record] = {}
        #: Number of the last round that planned each pod, by uid, and since when others wait for their first turn.
        #: Pods that wait only.
        self._planned: dict[str, int] = {}
        self._waits_since: dict[str, float] = {}
        #: Lots have a turn if no round has planned them since ``_due_round``, which began at ``_due_since``: since then
        #: the cluster is that of ``_generation``, or has changed in ways that help no pod.
        self._due_round, self._due_since = 0, float("-inf")
        self._round, self._generation, self._helped = 0, -1, -1
        self._pods: Sequence[Pod] = ()
        self._in_turns = False
        #: Seconds that pods may be planned again for, and the time of that value; and when some were.
        self._allowance, self._allowance_at = BOUND, 0.0
        #: What the running round takes of it.
        self._spent = 0.0
        self._retried_at = float("-inf")
        #: When the running round was chosen, and until when no pod is planned again unless something helps.
        self._chosen_at, self._rests_until = 0.0, float("-inf")
        self._next_at: float | None = None

    @property
    def next_at(self) -> float | None:
        """When a round is due for pods whose turn has not come since the cluster changed; None: there are none."""
        return self._next_at

    def choose(
        self, pods: Sequence[Pod], generation: int, helped: int, now: float, always: Collection[str] = frozenset()
    ) -> TurnSelection:
        """Selects the pods of the next round.

        Args:
            pods: pods that may be planned.
            generation: of the cluster: without a change only those are planned whose turn has not come.
            helped: rises with each change after which a pod that was planned in vain may have a node.
            now: seconds of a monotonic clock.
            always: uids of pods that the round has to plan.
        """
        self._round += 1
        self._refill(now)
        self._chosen_at = now
        calm = helped == self._helped
        bound = CALM_BOUND if calm else BOUND
        # Where new pods went may help after all: a rule may ask for them.
        due = not calm or (generation != self._generation and now - self._due_since >= _CALM_PERIOD)
        self._pods, self._in_turns, self._next_at, self._spent = pods, False, None, 0.0
        if not self._records:
            return self._all(pods, generation, helped, now)
        lots = self._lots(pods)
        costs = {namespace: self._cost_of(namespace, now) for namespace in {lot.namespace for lot in lots}}
        free, limited = list[_Lot](), list[_Lot]()
        for lot in lots:
            cost = costs[lot.namespace] * lot.size
            is_free = not cost or (lot.is_new and cost < _CHEAP * len(lot.pods))
            if is_free or (always and any(pod.uid in always for pod in lot.pods)):
                free.append(lot)
            else:
                limited.append(lot)
        self._in_turns = _cost(limited, costs) > bound
        if not self._in_turns:
            return self._all(pods, generation, helped, now)
        if due:
            self._generation, self._helped = generation, helped
            self._due_round, self._due_since = self._round, now
        else:
            # Nothing is better for those whose turn has come since. Not all that wait are in each round, and not each
            # round ends with a plan.
            limited = [lot for lot in limited if lot.planned < self._due_round]
        # A new pod does not wait until others are planned again that were planned in vain.
        has_new = any(lot.is_new for lot in lots)
        rests = (has_new and now - self._retried_at < _REST) or (calm and now < self._rests_until)
        share = CALM_BOUND if has_new else bound
        taken = self._take([lot for lot in limited if lot.is_new] if rests else limited, share, costs, now)
        if any(not lot.is_new for lot in taken):
            self._retried_at = now
        picked = {pod.uid for lot in (*free, *taken) for pod in lot.pods}
        later = [lot for lot in limited if lot.pods[0].uid not in picked]
        self._pods = [pod for pod in pods if pod.uid in picked]
        if later:
            self._next_at = max(self._turn_at(now), self._rests_until)
        elif generation != self._generation:
            self._next_at = self._due_since + _CALM_PERIOD
        new = [pod for lot in later if lot.is_new for pod in lot.pods if pod.uid not in self._planned]
        self._waits_since = {pod.uid: self._waits_since.get(pod.uid, now) for pod in new}
        return TurnSelection(
            self._pods,
            [pod for pod in pods if pod.uid not in picked],
            [pod for pod in new if now - self._waits_since[pod.uid] >= TOLD_AFTER],
            more=bool(new),
            owes=bool(later),
        )

    def took(self, by_namespace: Mapping[str, float], now: float, left: Collection[str]) -> None:
        """The last chosen round ended with a plan.

        Args:
            by_namespace: seconds that the round took, by the namespaces of its pods.
            now: as above.
            left: uids of its pods that got no node.
        """
        if self._retried_at == self._chosen_at:
            again = [pod.uid for pod in self._pods if pod.uid in self._planned] or [pod.uid for pod in self._pods]
            in_vain = sum(uid in left for uid in again) / max(1, len(again))
            self._allowance = min(BOUND, self._allowance + self._spent * (1 - in_vain))
            # CPU time says who pays. On a busy machine a round takes longer than that, and others wait for it.
            rest = (now - self._chosen_at) * (1 / _RETRY_SHARE - 1) * in_vain
            self._rests_until = now + min(rest, _LONGEST_REST)
            if self._next_at is not None:
                self._next_at = min(self._next_at, max(self._turn_at(now), self._rests_until))
        was_long = sum(by_namespace.values()) > CALM_BOUND
        if not was_long and not self._records:
            return
        sizes: dict[str, float] = {}
        for lot in self._lots(self._pods):
            sizes[lot.namespace] = sizes.get(lot.namespace, 0.0) + lot.size
        for namespace, size in sizes.items():
            seconds = by_namespace.get(namespace, 0.0)
            if was_long:
                self._records.setdefault(namespace, _Record(time=now))
            if (record := self._records.get(namespace)) is not None:
                record.now(now).measured(seconds, size, was_long=was_long)
                record.used += seconds if self._in_turns else 0.0
        self._planned.update(dict.fromkeys((pod.uid for pod in self._pods), self._round))
        self._records = {
            name: record for name, record in self._records.items() if record.now(now).per_size > _LEAST_COST
        }

    def retain(self, pods: Iterable[Pod]) -> None:
        """Forgets all other pods."""
        if self._planned:
            uids = {pod.uid for pod in pods} if self._records else set[str]()
            self._planned = {uid: number for uid, number in self._planned.items() if uid in uids}

    def _all(self, pods: Sequence[Pod], generation: int, helped: int, now: float) -> TurnSelection:
        """Every pod has its turn."""
        self._waits_since = {}
        self._generation, self._helped, self._retried_at = generation, helped, now
        self._due_round, self._due_since = self._round, now
        return TurnSelection(pods)

    # --- lots ---

    def _lots(self, pods: Sequence[Pod]) -> list[_Lot]:
        lots: dict[Hashable, _Lot] = {}
        for pod in pods:
            key = self._lot_of(pod)
            lot = lots.get(key)
            if lot is None:
                lot = lots[key] = _Lot(pod.namespace, key)
            lot.pods.append(pod)
            lot.size += _PER_POD
            lot.priority = max(lot.priority, pod.pod_class.priority)
            number = self._planned.get(pod.uid, 0)
            lot.planned = number if len(lot.pods) == 1 else min(lot.planned, number)
        return list(lots.values())

    def _cost_of(self, namespace: str, now: float) -> float:
        record = self._records.get(namespace)
        return 0.0 if record is None else record.now(now).per_size

    # --- turns ---

    def _take(self, limited: Sequence[_Lot], share: float, costs: Mapping[str, float], now: float) -> list[_Lot]:
        """The lots that the round plans.

        Args:
            share: seconds for lots that were planned in vain, at most.
            costs: seconds for a lot of size 1, by namespace.
        """
        new = self._within(BOUND, [lot for lot in limited if lot.is_new], costs, now)
        left = max(BOUND - _cost(new, costs), BOUND * _RETRY_SHARE)
        again = self._within(min(left, share, self._allowance), [lot for lot in limited if not lot.is_new], costs, now)
        self._spent = _cost(again, costs)
        self._allowance -= self._spent
        return [*new, *again]

    def _within(self, seconds: float, some: Sequence[_Lot], costs: Mapping[str, float], now: float) -> list[_Lot]:
        """Lots that cost at most ``seconds`` together; one that costs more where it is due."""
        lots: dict[str, list[_Lot]] = {}
        for lot in some if seconds > 0 else ():
            lots.setdefault(lot.namespace, []).append(lot)
        wanted = {name: _cost(each, costs) for name, each in lots.items()}
        taken, left = list[_Lot](), seconds
        # Those that want least first: what they leave of their share is for the others.
        for place, name in enumerate(sorted(lots, key=lambda name: (wanted[name], name))):
            share = left / (len(lots) - place)
            lots[name] = self._in_order(lots[name])
            for lot in lots[name]:
                cost = costs[name] * lot.size
                if cost <= share:
                    taken.append(lot)
                    share, left = share - cost, left - cost
                elif self._is_by_age(lot):
                    break  # a dear lot is not passed over by cheap ones in each turn
        # Lots that cost more than a share: one of each namespace while there is time, the one that used least first.
        # One lot may cost more than that, if the namespaces with cheap lots used as much: they always have some.
        served = {lot.namespace for lot in taken}
        used = {name: self._records[name].now(now).used for name in lots}
        used_by_served, exceeded = sum(used[name] for name in served), False
        for name in sorted(lots.keys() - served, key=lambda name: (used[name], name)):
            cost = costs[name] * lots[name][0].size
            is_due = not exceeded and (not taken or used[name] <= used_by_served)
            if cost <= left or is_due:
                exceeded |= cost > left
                taken.append(lots[name][0])
                left -= cost
        # Only who had something had a turn: else pauses of an even number of rounds would leave each to one order.
        for lot in {lot.namespace: lot for lot in taken}.values():
            self._records[lot.namespace].turns[lot.is_new] += 1
        return taken

    def _in_order(self, lots: Sequence[_Lot]) -> list[_Lot]:
        """``lots``: of one namespace, all new or none."""
        # Lots of one round are equally old: what helps all of them helps the highest priority first.
        by_age = sorted(lots, key=lambda lot: (lot.planned, 0 if lot.is_new else -lot.priority))
        return by_age if self._is_by_age(by_age[0]) else sorted(by_age, key=lambda lot: -lot.priority)

    def _is_by_age(self, lot: _Lot) -> bool:
        return self._records[lot.namespace].turns[lot.is_new] % 2 == 0

    def _turn_at(self, now: float) -> float:
        """When there is time again for pods that were planned in vain."""
        return now + (BOUND - self._allowance) / _RETRY_SHARE

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._allowance_at)
        self._allowance, self._allowance_at = min(BOUND, self._allowance + passed * _RETRY_SHARE), now


def _cost(lots: Iterable[_Lot], costs: Mapping[str, float]) -> float:
    return sum(costs[lot.namespace] * lot.size for lot in lots)
