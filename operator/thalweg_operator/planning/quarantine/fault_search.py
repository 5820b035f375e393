"""The search for pods of one namespace that make rounds fail, by bisection of the pods of a failed round.

Items are pods and gangs by their names. Each has a class; the pods of a class are equal for the planner. What is to be
tried forms a queue of parts, each for a round of its own: halves of a part that failed go to its end, and so do items
that come meanwhile. So nobody waits for the end of the search but who is at fault.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping, Sequence

#: When this number of pods of a class failed alone, the whole class is at fault.
_CLASS_FAILURES = 3


class FaultSearch:
    """A search in one namespace.

    Attributes:
        newcomers: items that came since a part was taken: together they are one more part, the last.
        has_failed: whether a part of it failed by itself.
    """

    def __init__(self) -> None:
        self.newcomers: Sequence[str] = ()
        self.has_failed = False
        self._parts: deque[Sequence[str]] = deque()
        self._classes: dict[str, Hashable] = {}
        #: Items that were in a failed round.
        self._failed: set[str] = set()
        #: Classes with a planned pod.
        self._plannable_classes: set[Hashable] = set()
        #: Items that failed alone once.
        self._failed_once: set[str] = set()
        self._failures: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        """Number of parts that are still to be tried."""
        return len(self._parts) + bool(self.newcomers)

    @property
    def items(self) -> set[str]:
        """Items of all parts, without the newcomers."""
        return {item for part in self._parts for item in part}

    def was_in_failed_round(self, item: str) -> bool:
        """Whether an item was in a failed round."""
        return item in self._failed

    def retain(self, present: Collection[str], known: Collection[str]) -> None:
        """Drops the newcomers, all items that are not present, and those that nobody suspects any more.

        Args:
            known: items of classes that could be planned before. Those that were in a failed round are tried all the
                same.
        """
        kept = {item for item in present if item in self._failed or item not in known}
        parts = ([item for item in part if item in kept] for part in self._parts)
        self._parts, self.newcomers = deque(part for part in parts if part), ()

    def add(self, items: Sequence[str]) -> None:
        """Adds a part that is to be tried: its items failed together with those of other namespaces."""
        self._failed.update(items)
        self._parts.append(items)

    def next_part(self, classes: Mapping[str, Hashable]) -> Sequence[str]:
        """Removes and returns the part for the next round.

        Args:
            classes: of all items.
        """
        if self.newcomers:
            self._parts.append(self.newcomers)
            self.newcomers = ()
        self._classes.update(classes)
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

    def planned(self, classes: Collection[Hashable]) -> None:
        """Records that a round planned pods of these classes."""
        self._plannable_classes.update(classes)

    def failed(self, classes: Mapping[str, Hashable]) -> Hashable | None:
        """Records a round that failed with these items and no others.

        Args:
            classes: of the items.

        Returns:
            What is at fault: an item or a class; None: not known yet.
        """
        self.has_failed = True
        self._classes.update(classes)
        self._failed.update(classes)
        if len(classes) > 1:
            self._bisect(classes)
            return None
        ((item, pod_class),) = classes.items()
        return self._failed_alone(item, pod_class)

    def _bisect(self, classes: Mapping[str, Hashable]) -> None:
        """Splits items that failed together into two parts; with several classes each class stays in one part."""
        items, order = list(classes), list(dict.fromkeys(classes.values()))
        if len(order) > 1:
            first = set(order[: len(order) // 2])
            items.sort(key=lambda item: classes[item] not in first)
            cut = sum(pod_class in first for pod_class in classes.values())
        else:
            # One class: a single pod shows whether the class is at fault.
            cut = len(items) // 2 if order[0] in self._plannable_classes else 1
        self._parts += (items[:cut], items[cut:])

    def _failed_alone(self, item: str, pod_class: Hashable) -> Hashable | None:
        if item not in self._failed_once and not self._failures[pod_class]:
            # The worker may have ended for another reason: try the other classes first.
            self._failed_once.add(item)
            same_class = [part for part in self._parts if all(self._classes.get(each) == pod_class for each in part)]
            others = [part for part in self._parts if part not in same_class]
            self._parts = deque((*others, [item], *same_class))
            return None
        self._failures[pod_class] += 1
        is_class = self._failures[pod_class] >= _CLASS_FAILURES and pod_class not in self._plannable_classes
        return pod_class if is_class else item
