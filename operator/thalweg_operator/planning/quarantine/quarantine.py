"""Selects the pods of each round, so that a pod that makes rounds fail delays nobody else for long.

A round fails when it misses its deadline or the worker ends. Then its pods of classes that no round has planned are
suspects; if there are none, all its pods are. Each namespace's suspects are tried in rounds of their own, and bisected
until single pods remain. Rounds of the others come between them: they hold what could be planned before. While a search
is on, pods of new classes are suspects too.

A pod that fails alone twice backs off, with growing pauses between retries. Three such pods of a class without a
planned pod make the whole class back off. If no pod fails alone, the round was too large: then rounds have fewer pods
for a while.

A failed round is charged to the namespace whose pods it had alone. If that owes too much, only its pods of classes that
could be planned before are planned. Parts of namespaces of which one failed have a third of the time together. While no
pods at all can be planned the pods are not at fault: nobody is charged, and pauses are short.

Pure: the caller passes the time (of a monotonic clock) and the outcome of each round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod, with_wish
from thalweg_operator.planning.quarantine.backoffs import Backoffs
from thalweg_operator.planning.quarantine.debts import SECONDS_PER_LOST_SECOND, NamespaceDebts
from thalweg_operator.planning.quarantine.fault_search import FaultSearch
from thalweg_operator.planning.quarantine.known_classes import KnownClasses
from thalweg_operator.planning.quarantine.small_rounds import SmallRounds

#: Shortest and longest time in seconds for which rounds have few pods.
_SHORTEST_LIMIT, _LONGEST_LIMIT = 60.0, 3600.0
#: A round of so few pods does not count as too large at its first failure.
_SMALL_ROUND = 16
#: After a failed part none is tried for so many times as long as it took, but of namespaces of which none failed. So
#: others wait for such rounds less than half of the time.
_PAUSE = 2.0


class _RoundKind(Enum):
    """Which pods a round plans."""

    #: All that nobody suspects.
    OTHERS = "others"
    #: The suspects of a namespace of which no part failed, and that owes nothing.
    UNTRIED = "untried"
    #: A part of the suspects of another namespace.
    SEARCH = "search"
    #: One pod or gang whose pause is over.
    RETRY = "retry"


#: In this order, again and again; kinds without pods are left out.
_TURNS = (
    _RoundKind.OTHERS,
    _RoundKind.UNTRIED,
    _RoundKind.OTHERS,
    _RoundKind.SEARCH,
    _RoundKind.OTHERS,
    _RoundKind.RETRY,
)


@dataclass(frozen=True, slots=True)
class RoundSelection:
    """The pods of a round.

    Attributes:
        pods: pods to plan.
        backing_off: pods that back off, with the reason.
        deferred: pods that wait for another round.
        told: those of them that wait since rounds failed, with the reason.
        more: whether another round has to follow at once, because other pods wait for their turn.
    """

    pods: Sequence[Pod]
    backing_off: Sequence[tuple[Pod, str]] = ()
    deferred: Sequence[Pod] = ()
    told: Sequence[tuple[Pod, str]] = ()
    more: bool = False


@dataclass(slots=True)
class _Incident:
    """What is known from a failed round until all suspects were tried.

    Attributes:
        planned_rounds: number of rounds with a plan before it.
        count: items of the largest round that failed with suspects only.
        seconds_lost: by all its failed rounds.
        largest_planned: largest number of items planned in one round since.
        found_fault: whether an item or a class is at fault.
    """

    planned_rounds: int
    count: int = 0
    seconds_lost: float = 0.0
    largest_planned: int = 1
    found_fault: bool = False


class Quarantine:
    """Call ``choose``, then ``succeeded`` or ``failed``, for each round."""

    def __init__(self, first_in_group: Callable[[GangKey], GangKey] = lambda key: key) -> None:
        """``first_in_group``: maps a gang to the first gang of its gang group; a gang without a group to itself."""
        self._first_in_group = first_in_group
        #: Position in ``_TURNS`` of the last round.
        self._turn, self._planned_pods = 0, tuple[Pod, ...]()
        #: By namespace, the one whose turn is next first.
        self._searches: dict[str, FaultSearch] = {}
        self._incident: _Incident | None = None
        #: End of the pause after a failed part.
        self._search_resumes = 0.0
        self._backoffs, self._debts = Backoffs(), NamespaceDebts()
        #: Number of rounds with pods that ended with a plan: ever, and before the last failed round.
        self._planned_rounds = self._planned_before_failure = 0
        #: Classes that could be planned and have not failed since.
        self._known_classes = KnownClasses()
        self._small_rounds: SmallRounds | None = None
        self._last_limit_seconds = 0.0

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
            in_turn: those whose turn it is, of pods that nobody suspects; called at most once.
            helped: rises with each change after which a pod that was planned in vain may have a node. Where rounds have
                few pods, those whose turn was before it have another one.
        """
        if self._small_rounds is not None and self._small_rounds.until <= now:
            self._small_rounds = None
        self._debts.forget_paid(now)
        if not (self._searches or self._small_rounds or self._backoffs or self._debts):
            self._turn, self._planned_pods = 0, tuple(in_turn(pods))
            return RoundSelection(self._planned_pods)
        items: dict[str, list[Pod]] = {}
        for pod in pods:
            items.setdefault(self._item_key(pod), []).append(pod)
        resting, due = self._backing_off(items, now)
        others = self._sort_out(items, resting)
        chosen, more = self._next_items(items, others, due, now, helped)
        self._planned_pods = tuple(pod for item in chosen for pod in items[item])
        if _TURNS[self._turn] is _RoundKind.OTHERS:
            self._planned_pods = tuple(in_turn(self._planned_pods))
        planned = set(chosen)
        backing_off = [(pod, why) for item, why in resting.items() if item not in planned for pod in items[item]]
        deferred = [pod for item in items if item not in resting and item not in planned for pod in items[item]]
        told = [(pod, _waits_for_part(pod)) for pod in deferred if self._is_told(pod)]
        return RoundSelection(self._planned_pods, backing_off, deferred, told, more)

    def succeeded(self, now: float) -> None:
        """The last chosen round ended with a plan."""
        pods = self._planned_pods
        if not pods:
            return
        self._planned_rounds += 1
        classes = dict.fromkeys(map(self.class_key, pods))
        self._known_classes.planned(classes)
        if _TURNS[self._turn] is _RoundKind.RETRY:
            self._backoffs.planned((*map(self._item_key, pods), *classes), now)
        if self._incident is not None:
            self._incident.largest_planned = max(self._incident.largest_planned, len(set(map(self._item_key, pods))))
            for search in self._searches.values():
                search.planned(classes)
            self._end_incident(now)

    def failed(self, now: float, seconds_lost: float, problem: str) -> None:
        """The last chosen round failed.

        Args:
            now: seconds of a monotonic clock.
            seconds_lost: seconds that the round cost.
            problem: description of the failure, for the conditions of the pods at fault.
        """
        classes = {self._item_key(pod): self.class_key(pod) for pod in self._planned_pods}
        namespaces = {self._item_key(pod): pod.namespace for pod in self._planned_pods}
        kind, self._planned_pods = _TURNS[self._turn], ()
        if not classes:
            return
        if kind is _RoundKind.OTHERS:
            self._turn -= 1  # those whom nobody suspects wait for one failed round only
        self._charge(set(namespaces.values()), now, seconds_lost, kind)
        if kind is _RoundKind.RETRY:
            for item, pod_class in classes.items():
                key = pod_class if pod_class in self._backoffs else item
                self._backoffs.begin(key, now, seconds_lost, problem, self._planned_rounds, self._planned_rounds)
            return
        incident = self._incident = self._incident or _Incident(self._planned_rounds)
        incident.seconds_lost += seconds_lost
        unknown = [item for item, pod_class in classes.items() if pod_class not in self._known_classes]
        suspects = unknown if unknown and kind is _RoundKind.OTHERS else list(classes)
        if len(suspects) == len(classes):
            incident.count = max(incident.count, len(classes))
        by_namespace: dict[str, dict[str, Hashable]] = {}
        for item in suspects:
            by_namespace.setdefault(namespaces[item], {})[item] = classes[item]
            self._known_classes.failed(classes[item])
        for namespace, part in by_namespace.items():
            search = self._searches.setdefault(namespace, FaultSearch())
            if len(part) < len(classes):
                search.add(list(part))
            elif (fault := search.failed(part)) is not None:
                incident.found_fault = True
                planned_rounds = self._planned_rounds, incident.planned_rounds
                self._backoffs.begin(fault, now, seconds_lost, problem, *planned_rounds)
        self._end_incident(now)

    def next_retry(self, after: float) -> float | None:
        """End of the first pause that ends later than ``after``; None without one."""
        ends = [*self._backoffs.retries(), *self._debts.allowed_again()]
        if self._searches:
            ends.append(self._search_resumes)
        if self._small_rounds is not None:
            ends.append(self._small_rounds.until)
        return min((end for end in ends if end > after), default=None)

    def retain(self, pods: Iterable[Pod]) -> None:
        """Drops the back-offs of all other pods."""
        if self._backoffs:
            self._backoffs.retain({key for pod in pods for key in (self._item_key(pod), self.class_key(pod))})

    # --- choosing ---

    def _backing_off(self, items: Mapping[str, Sequence[Pod]], now: float) -> tuple[dict[str, str], list[str]]:
        """Reasons of the items that back off, and the items of them that are due for a retry, longest due first."""
        exceeded = {pods[0].namespace for pods in items.values() if self._debts.exceeded(pods[0].namespace, now)}
        resting: dict[str, str] = {}
        due: list[tuple[float, str]] = []
        for item, pods in items.items():
            pod_class, namespace = self.class_key(pods[0]), pods[0].namespace
            if backoff := self._backoffs.of(item, pod_class):
                resting[item], retry_at = backoff
                if retry_at <= now:
                    due.append((retry_at, item))
            elif namespace in exceeded and pod_class not in self._known_classes:
                resting[item] = (
                    f"planning pods of namespace {namespace} failed too often: "
                    "until it has paid for that, only pods like those that could be planned are planned"
                )
        return resting, [item for _, item in sorted(due)]

    def _sort_out(self, items: Mapping[str, Sequence[Pod]], resting: Mapping[str, str]) -> Sequence[str]:
        """The items that nobody suspects. Others that do not rest are in the search of their namespace afterwards."""
        present = items.keys() - resting.keys()
        known = {item for item in present if self.class_key(items[item][0]) in self._known_classes}
        for search in self._searches.values():
            search.retain(present, known)
        searched = {item for search in self._searches.values() for item in search.items}
        others, newcomers = list[str](), dict[str, list[str]]()
        for item, pods in items.items():
            if item in resting or item in searched:
                continue
            if item not in known and (searched or pods[0].namespace in self._debts):
                newcomers.setdefault(pods[0].namespace, []).append(item)
            else:
                others.append(item)
        for namespace, new in newcomers.items():
            self._searches.setdefault(namespace, FaultSearch()).newcomers = new
        self._searches = {namespace: search for namespace, search in self._searches.items() if search}
        return others

    def _next_items(
        self, items: Mapping[str, Sequence[Pod]], others: Sequence[str], due: Sequence[str], now: float, helped: int
    ) -> tuple[Sequence[str], bool]:
        """Items of the next round, and whether another round follows at once."""
        untried = [name for name, search in self._searches.items() if not (search.has_failed or name in self._debts)]
        if len(untried) > 1:
            untried.sort(key=partial(self._rank, items, self._known_classes.namespaces))
        tried = [name for name in self._searches if name not in untried] if self._search_resumes <= now else []
        searched = {_RoundKind.UNTRIED: untried, _RoundKind.SEARCH: tried}
        rounds = {kind: sum(len(self._searches[each]) for each in names) for kind, names in searched.items()}
        rounds |= {_RoundKind.OTHERS: int(bool(others)), _RoundKind.RETRY: len(due)}
        more = sum(rounds.values()) > 1
        if untried and self._is_in_doubt:
            rounds[_RoundKind.SEARCH] = rounds[_RoundKind.RETRY] = (
                0  # first it must be known whether anybody is planned
            )
        turns = [(self._turn + step) % len(_TURNS) for step in range(1, len(_TURNS) + 1)]
        self._turn = next((turn for turn in turns if rounds[_TURNS[turn]]), 0)
        kind = _TURNS[self._turn]
        if kind in searched:
            namespace = searched[kind][0]
            search = self._searches[namespace] = self._searches.pop(namespace)  # now its turn is the last
            return search.next_part({item: self.class_key(pods[0]) for item, pods in items.items()}), more
        if kind is _RoundKind.RETRY:
            return due[:1], more
        if self._small_rounds is None:
            return others, more
        part = self._small_rounds.next_part(items, others, helped)
        return part, more or self._small_rounds.has_more(others, helped)

    @property
    def _is_in_doubt(self) -> bool:
        """Whether no round with pods ended with a plan since the incident began."""
        return self._incident is not None and self._planned_rounds == self._incident.planned_rounds

    def _rank(self, items: Mapping[str, Sequence[Pod]], planned: Collection[int], namespace: str) -> tuple[bool, float]:
        """Where a namespace is in the order in which they are tried, the first one lowest.

        First are those of which something could be planned before, then those with the most pods for each class.
        """
        suspects = self._searches[namespace].items.union(self._searches[namespace].newcomers)
        return hash(namespace) not in planned, -len(suspects) / len(
            {self.class_key(items[item][0]) for item in suspects}
        )

    def _is_told(self, pod: Pod) -> bool:
        """Whether a pod waits since a round failed that it was in, or that its namespace was charged for."""
        search, item = self._searches.get(pod.namespace), self._item_key(pod)
        return search is not None and (search.was_in_failed_round(item) or pod.namespace in self._debts)

    # --- failures ---

    def _charge(self, namespaces: set[str], now: float, seconds_lost: float, kind: _RoundKind) -> None:
        """Charges a failed round to its only namespace, unless no pods at all could be planned since the last one."""
        before = self._planned_before_failure if self._incident is None else self._incident.planned_rounds
        self._planned_before_failure = self._planned_rounds
        if len(namespaces) == 1 and self._planned_rounds > before:
            self._debts.charge(next(iter(namespaces)), seconds_lost, now)
            if kind is not _RoundKind.RETRY:
                self._search_resumes = now + _PAUSE * seconds_lost

    def _end_incident(self, now: float) -> None:
        incident = self._incident
        if incident is None or any(self._searches.values()):
            return
        self._searches, self._incident = {}, None
        if incident.found_fault or not incident.count:
            return
        # Each part could be planned, so the round was too large.
        repeated = self._last_limit_seconds > 0
        self._last_limit_seconds = max(
            _SHORTEST_LIMIT,
            min(2 * self._last_limit_seconds, _LONGEST_LIMIT),
            SECONDS_PER_LOST_SECOND * incident.seconds_lost,
        )
        if repeated or incident.count > _SMALL_ROUND:
            self._small_rounds = SmallRounds(incident.largest_planned, now + self._last_limit_seconds)

    def _debt(self, namespace: str, now: float) -> float:
        return self._debts.of(namespace, now)

    # --- keys ---

    def _item_key(self, pod: Pod) -> str:
        """Key of the smallest unit of planning: the pod, its gang, or the group of its gang."""
        return pod.uid if pod.gang is None else f"gang {self._first_in_group(pod.gang.key).display_name}"

    def class_key(self, pod: Pod) -> tuple[Hashable, ...]:
        """Key of pods that are equal for the planner, per namespace, so that a fault stays within its namespace.

        It begins with the namespace.
        """
        if pod.gang is None:
            return pod.namespace, with_wish(pod.pod_class, pod.nominated_node), pod.constraints
        return self._first_in_group(pod.gang.key).namespace, self._item_key(pod)


def _waits_for_part(pod: Pod) -> str:
    return (
        f"It waits for its turn: rounds with pods of namespace {pod.namespace} failed, "
        "so pods of it unlike those that could be planned before are tried in parts."
    )
