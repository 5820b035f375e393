"""The search for pods with which no round ends, among those of a round that failed: halves, and halves of these.

Suspects are pods and gangs by their names, each with its class, whose members are alike.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping, Sequence

#: So many pods of a class must have failed alone before the whole class is at fault.
_OF_A_CLASS = 3


class Suspects:
    """See the module. From the first failed round until no suspects are left.

    Attributes:
        first: how many there were in the first failed round.
        plans: how many rounds had ended with a plan by then.
        found: whether any turned out to be at fault.
        largest: the most pods and gangs that were planned at once meanwhile.
        lost: seconds that nobody was charged with yet.
    """

    def __init__(self, first: int, plans: int) -> None:
        self.first, self.plans = first, plans
        self.found, self.largest, self.lost = False, 1, 0.0
        self._parts: deque[tuple[str, ...]] = deque()
        self._classes: dict[str, Hashable] = {}
        #: Classes of which a member could be planned.
        self._fine: set[Hashable] = set()
        #: Those that failed alone once.
        self._doubted: set[str] = set()
        self._failed: Counter[Hashable] = Counter()

    @property
    def parts(self) -> int:
        """How many parts are to be planned by themselves."""
        return len(self._parts)

    def keep(self, there: Collection[str]) -> set[str]:
        """Strikes off all that are not there; the suspects that are left."""
        parts = (tuple(item for item in part if item in there) for part in self._parts)
        self._parts = deque(part for part in parts if part)
        return {item for part in self._parts for item in part}

    def next_part(self, classes: Mapping[str, Hashable]) -> Sequence[str]:
        """What is to be planned by itself next."""
        part = self._parts.popleft()
        its = {classes[item] for item in part}
        if len(part) > 1 and len(its) == 1 and its <= self._failed.keys() and not its & self._fine:
            # One of the class is at fault: another one tells whether all are.
            self._parts.appendleft(part[1:])
            return part[:1]
        return part

    def planned(self, count: int, classes: Collection[Hashable]) -> None:
        """So many, of these classes, were planned at once."""
        self._fine.update(classes)
        self.largest = max(self.largest, count)

    def divide(self, classes: Mapping[str, Hashable]) -> None:
        """These failed together: they come back in two parts; classes stay whole as long as there are several."""
        self._classes |= classes
        items, order = list(classes), list(dict.fromkeys(classes.values()))
        if len(order) > 1:
            first = set(order[: len(order) // 2])
            items.sort(key=lambda item: classes[item] not in first)
            cut = sum(its in first for its in classes.values())
        else:
            # Alike: one of them tells whether it is their class.
            cut = len(items) // 2 if order[0] in self._fine else 1
        self._parts.extendleft((tuple(items[cut:]), tuple(items[:cut])))

    def failed_alone(self, item: str, its: Hashable) -> Hashable | None:
        """What is at fault: the pod or gang, or its class; None: not known yet, it is tried once more."""
        self._classes[item] = its
        if item not in self._doubted and not self._failed[its]:
            # The worker may have ended for another reason: first see what becomes of the others.
            self._doubted.add(item)
            alike = [part for part in self._parts if all(self._classes[each] == its for each in part)]
            others = (part for part in self._parts if part not in alike)
            self._parts = deque((*others, (item,), *alike))
            return None
        self.found = True
        self._failed[its] += 1
        return its if self._failed[its] >= _OF_A_CLASS and its not in self._fine else item
