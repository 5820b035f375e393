"""The search for pods that make rounds fail, by bisection of the pods of a failed round.

Items are pods and gangs by their names. Each has a class; the pods of a class are equal for the planner.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping, Sequence

#: When this number of pods of a class failed alone, the whole class is at fault.
_CLASS_FAILURES = 3


class FaultSearch:
    """A search, from the first failed round until no part remains.

    Attributes:
        initial_count: number of items in the first failed round.
        planned_rounds: number of rounds with a plan before the first failed round.
        found_fault: whether the search found an item or a class at fault.
        largest_planned: largest number of items planned in one round during the search.
        seconds_lost: seconds lost and not yet charged to a namespace.
    """

    def __init__(self, initial_count: int, planned_rounds: int) -> None:
        self.initial_count, self.planned_rounds = initial_count, planned_rounds
        self.found_fault, self.largest_planned, self.seconds_lost = False, 1, 0.0
        self._parts: deque[tuple[str, ...]] = deque()
        self._classes: dict[str, Hashable] = {}
        #: Classes with a planned pod.
        self._plannable_classes: set[Hashable] = set()
        #: Items that failed alone once.
        self._failed_once: set[str] = set()
        self._failures: Counter[Hashable] = Counter()

    @property
    def remaining_parts(self) -> int:
        """Number of parts that still have to be planned, each in a round of its own."""
        return len(self._parts)

    def retain(self, present: Collection[str]) -> set[str]:
        """Drops all items that are not present; returns the remaining items."""
        parts = (tuple(item for item in part if item in present) for part in self._parts)
        self._parts = deque(part for part in parts if part)
        return {item for part in self._parts for item in part}

    def next_part(self, classes: Mapping[str, Hashable]) -> Sequence[str]:
        """Removes and returns the part for the next round."""
        part = self._parts.popleft()
        part_classes = {classes[item] for item in part}
        if (
            len(part) > 1
            and len(part_classes) == 1
            and part_classes <= self._failures.keys()
            and not part_classes & self._plannable_classes
        ):
            # A pod of this class is at fault: another one shows whether the whole class is.
            self._parts.appendleft(part[1:])
            return part[:1]
        return part

    def planned(self, count: int, classes: Collection[Hashable]) -> None:
        """Records a round that planned ``count`` items of these classes."""
        self._plannable_classes.update(classes)
        self.largest_planned = max(self.largest_planned, count)

    def bisect(self, classes: Mapping[str, Hashable]) -> None:
        """Splits items that failed together into two parts; with several classes each class stays in one part."""
        self._classes |= classes
        items, order = list(classes), list(dict.fromkeys(classes.values()))
        if len(order) > 1:
            first = set(order[: len(order) // 2])
            items.sort(key=lambda item: classes[item] not in first)
            cut = sum(pod_class in first for pod_class in classes.values())
        else:
            # One class: a single pod shows whether the class is at fault.
            cut = len(items) // 2 if order[0] in self._plannable_classes else 1
        self._parts.extendleft((tuple(items[cut:]), tuple(items[:cut])))

    def failed_alone(self, item: str, pod_class: Hashable) -> Hashable | None:
        """Records an item that failed alone.

        Returns:
            What is at fault: the item or its class; None: not known yet, the item is tried once more.
        """
        self._classes[item] = pod_class
        if item not in self._failed_once and not self._failures[pod_class]:
            # The worker may have ended for another reason: plan the other classes first.
            self._failed_once.add(item)
            same_class = [part for part in self._parts if all(self._classes[member] == pod_class for member in part)]
            others = (part for part in self._parts if part not in same_class)
            self._parts = deque((*others, (item,), *same_class))
            return None
        self.found_fault = True
        self._failures[pod_class] += 1
        return (
            pod_class
            if self._failures[pod_class] >= _CLASS_FAILURES and pod_class not in self._plannable_classes
            else item
        )
