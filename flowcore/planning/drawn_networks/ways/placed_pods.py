"""Pods that have a node already, as starts of a network's arcs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.policies import Selects
from flowcore.model.selectors import LabelSelector

#: Pods by the position of their node.
_ByNode = Counter[int]


def placed_by(
    snapshot: Snapshot, selects: Selects, own: Sequence[LabelSelector], anybody: Sequence[LabelSelector]
) -> Iterator[tuple[int, int, frozenset[int]]]:
    """The pods that run, or have a place reserved: the position of their node, how many, and what matches them.

    Each pod is in one entry, or in none.

    Args:
        selects: which pods the policy governs.
        own: match pods that the policy's own selectors match too, whoever placed them.
        anybody: match any pods; their numbers follow those of ``own``.
    """
    first = len(own)
    base = LabelSelector() if selects.pods is None else selects.pods
    counts_by = _matching(snapshot, (*own, *anybody), base, selects.namespaces)
    for matched, counts in _matching(snapshot, anybody, LabelSelector(), None).items() if anybody else ():
        numbers = frozenset(first + number for number in matched)
        rest = Counter(counts)
        for inside_matched, inside in counts_by.items():
            if inside_matched - set(range(first)) == numbers:
                rest.subtract(inside)
        counts_by[numbers] = counts_by.get(numbers, Counter()) + rest
    for matched, counts in counts_by.items():
        yield from ((node, count, matched) for node, count in sorted(counts.items()) if count > 0)


def _matching(
    snapshot: Snapshot, selectors: Sequence[LabelSelector], base: LabelSelector, namespaces: LabelSelector | None
) -> dict[frozenset[int], _ByNode]:
    """Pods by node, by the numbers of the selectors that match them; those that none matches are left out."""
    cells: dict[frozenset[int], _ByNode] = {frozenset(): Counter()}
    for number in range(len(selectors)):
        split: dict[frozenset[int], _ByNode] = {}
        for matched in cells:
            for some in (matched | {number}, matched):
                together = (base, *(selectors[each] for each in sorted(some)))
                selector = LabelSelector(tuple(wanted for each in together for wanted in each.requirements))
                unless = tuple(selectors[each] for each in range(number + 1) if each not in some)
                match = ConstraintMatch((selector,), namespaces, unless)
                counts = _counted(snapshot, match) if some else Counter[int]()
                if counts or not some:
                    split[some] = counts
        cells = split
    return {matched: counts for matched, counts in cells.items() if matched}


def _counted(snapshot: Snapshot, match: ConstraintMatch) -> _ByNode:
    counts = _ByNode()
    matching = snapshot.pod_index.matching_pods(match).to_arrays(snapshot.table.index)
    for row, count in zip(*(array.tolist() for array in matching), strict=True):
        counts[row] += count
    return counts
