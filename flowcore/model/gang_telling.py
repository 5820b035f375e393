"""What one round is told of gangs; the same for the operator and ``simulate``.

One gang a step, so that others have their turn between two steps. The state may change meanwhile; each step looks at it
as it is then, and looks at a gang once: all gangs of a group are judged by the same looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowcore.model.gang_terms import GangKey
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery

if TYPE_CHECKING:
    from flowcore.model.gang_book import GangBook

#: A node's value of a label, "" where it has none.
DomainOf = Callable[[str, str], str]
#: Gangs of a group that its name lists; of a larger one, the first and a count.
_LISTED = 3
_PODS_A_STEP = 8


class Telling:
    """See the module.

    Attributes:
        names: for each pod that was asked for the names of its gangs.
        gangs: these gangs, by name; both are complete when the steps are done.
    """

    def __init__(
        self,
        book: GangBook,
        asked: Sequence[tuple[Pod, Delivery]],
        reserved: Mapping[str, str],
        domain_of: DomainOf,
    ) -> None:
        """For a round that is to place some pods.

        Args:
            asked: these pods, and how their plan is delivered.
            reserved: keys of pods that are on their way to a node, and the node.
        """
        self._book, self._asked, self._reserved, self._domain_of = book, asked, reserved, domain_of
        self._places: dict[GangKey, list[int]] = {}
        self._looks: dict[GangKey, _Look] = {}
        self._groups: dict[tuple[GangKey, ...], _Group] = {}
        self.names: list[tuple[str, ...]] = [()] * len(asked)
        self.gangs: list[Gang] = []

    def steps(self) -> Iterator[None]:
        """Finds the names and the gangs, a little with each step."""
        for at, (pod, _) in enumerate(self._asked):
            now = self._book.waits(pod.key)  # it may have changed since the round was begun
            if now is None or now.gang is None:
                continue
            key = now.gang.key
            stranger = self._book.view(key).strangers.get(pod.key)
            if stranger is None:
                self._places.setdefault(key, []).append(at)
            else:
                self._add(Gang(f"{key.shown} as {pod.key} has it", 1, flaw=stranger), [at])
            if not at % _PODS_A_STEP:
                yield
        for key, at_them in self._places.items():
            gang = self._gang(key)
            if gang is not None:
                self._add(gang, at_them)
            yield
        self.gangs.sort(key=lambda gang: gang.name)

    def _add(self, gang: Gang, at_them: Sequence[int]) -> None:
        self.gangs.append(gang)
        for at in at_them:
            self.names[at] = (gang.name,)

    def _gang(self, key: GangKey) -> Gang | None:
        look = self.look(key)
        terms = look.terms
        flaw = look.flaw
        if not flaw and look.missing > 0 and terms.group:
            flaw = self._group(terms.group).flaw_of(key, look)
        if not flaw and look.missing <= 0 and not terms.topology:
            return None
        return Gang(
            name=key.shown,
            least=max(0, look.missing),
            # One that cannot be placed must not be in the way of a group that it names, and that does not name it.
            unit=_unit(terms.group) if look.missing > 0 and not flaw else "",
            topology=terms.topology,
            domain=self._domain(key, terms.topology) if terms.topology else "",
            flaw=flaw,
            started=look.missing > 0 and look.there > 0,
            guests=self._guests(key) if not flaw and look.missing < len(self._places.get(key, ())) else (),
        )

    def _guests(self, key: GangKey) -> tuple[str, ...]:
        """Pods of other controllers than the one that decides, where the gang may do without some of its pods."""
        owner = self._book.view(key).owner
        pods = (self._asked[at][0] for at in self._places[key])
        return tuple(sorted(pod.key for pod in pods if pod.owner != owner))

    def look(self, key: GangKey) -> _Look:
        """A gang as this round meets it."""
        found = self._looks.get(key)
        if found is None:
            asked = [self._asked[at] for at in self._places.get(key, ())]
            found = self._looks[key] = _Look(self._book, key, asked, self._reserved)
        return found

    def _group(self, group: tuple[GangKey, ...]) -> _Group:
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Group(self, self._book, group)
        return found

    def is_group_of(self, group: _Group, key: GangKey) -> bool:
        """Whether a gang names this group: values are compared once for each gang."""
        return self._group(self.look(key).terms.group) is group

    def _domain(self, key: GangKey, topology: str) -> str:
        """Where most of its pods are, should others have put them in several domains."""
        waiting, bound = self._book.members(key)
        nodes = [pod.node_name for pod in bound.values()]
        nodes += [self._reserved[pod] for pod in waiting if pod in self._reserved]
        found = Counter(value for node in nodes if (value := self._domain_of(node, topology)))
        return min(found, key=lambda value: (-found[value], value), default="")


class _Look:
    """A gang as one round meets it.

    Attributes:
        there: how many of its pods have a node or are on their way to one.
        missing: how many more it needs; not above zero where it has them.
        waits: whether any pod of it waits.
        deliveries: how the plans of its pods in this round are delivered.
        flaw: why it cannot be placed in this round whatever room there is, by itself; "" when it can.
    """

    def __init__(
        self, book: GangBook, key: GangKey, asked: Sequence[tuple[Pod, Delivery]], reserved: Mapping[str, str]
    ) -> None:
        view = book.view(key)
        waiting, bound = book.members(key)
        self.terms = view.terms
        self.there = len(bound) + sum(pod in reserved for pod in waiting)
        self.waits = bool(waiting)
        needed = view.terms.least or 0
        self.missing = needed - self.there - view.done
        self.deliveries = {delivery for _, delivery in asked}
        self.flaw = view.flaw
        if self.flaw:
            self.missing = max(1, self.missing)
        elif self.missing > 0:
            exist = view.bound + view.done + len(waiting)
            self.flaw = self._flaw(key, asked, waiting, reserved, f"{exist} of {needed}" if exist < needed else "")

    def _flaw(
        self,
        key: GangKey,
        asked: Sequence[tuple[Pod, Delivery]],
        waiting: Mapping[str, Pod],
        reserved: Mapping[str, str],
        too_few: str,
    ) -> str:
        if too_few:
            return f"{key.shown}: {too_few} pods exist"
        if len(asked) < self.missing:
            now = {pod.key for pod, _ in asked}
            others = [pod for name, pod in sorted(waiting.items()) if name not in now and name not in reserved]
            why = next((f"; {pod.key}: {pod.blocked or pod.unjudged}" for pod in others if _hindered(pod)), "")
            return f"{key.shown}: it needs {self.missing} pods at once, {len(asked)} can be planned now{why}"
        if len(self.deliveries) > 1:
            ways = ", ".join(sorted(each.value for each in self.deliveries))
            return f"{key.shown}: its pods are not delivered the same way: {ways}"
        return ""


@dataclass(frozen=True, slots=True)
class _Hitch:
    """Why the other gangs of a group wait for one of them.

    Attributes:
        waits: whether any pod of it waits.
        deliveries: it keeps back only gangs that are delivered in another way than this; None: all.
    """

    of: GangKey
    waits: bool
    why: str
    deliveries: set[Delivery] | None = None


class _Group:
    """A group of gangs as one round meets it: each of them is looked at once, whichever others ask."""

    def __init__(self, telling: Telling, book: GangBook, group: tuple[GangKey, ...]) -> None:
        self._telling, self._book = telling, book
        self._hitches: list[_Hitch] = []
        self._unseen = iter(group)

    def flaw_of(self, key: GangKey, look: _Look) -> str:
        """Why the others of its group keep a gang waiting; "" where they do not.

        Once it has begun, those of which none waits do not: they may have ended before it.
        """
        for hitch in self._found():
            if hitch.of == key or (look.there > 0 and not hitch.waits):
                continue
            if hitch.deliveries is None or hitch.deliveries != look.deliveries:
                return f"{key.shown}{hitch.why}"
        return ""

    def _found(self) -> Iterator[_Hitch]:
        yield from self._hitches
        for key in self._unseen:
            hitch = self._hitch(key)
            if hitch is not None:
                self._hitches.append(hitch)
                yield hitch

    def _hitch(self, key: GangKey) -> _Hitch | None:
        if not self._book.exists(key):
            return _Hitch(key, waits=False, why=f": {key.shown} of its group has no pods")
        look = self._telling.look(key)
        if not self._telling.is_group_of(self, key):
            return _Hitch(key, look.waits, f": {key.shown} does not name the same group")
        if look.missing <= 0:
            return None
        if look.flaw:
            return _Hitch(key, look.waits, f" waits for its group: {look.flaw}")
        if any(each.deliveries == look.deliveries for each in self._hitches):
            return None  # it keeps nobody back that another one does not
        return _Hitch(key, look.waits, ": its group is not delivered the same way", look.deliveries)


def _hindered(pod: Pod) -> bool:
    return bool(pod.blocked or pod.unjudged)


def _unit(group: tuple[GangKey, ...]) -> str:
    """A name that no other group of gangs has: a gang is in one group only."""
    if len(group) > _LISTED:
        return f"{group[0].shown} and {len(group) - 1} others of its group"
    return ", ".join(each.shown for each in group)
