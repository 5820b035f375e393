"""How much storage stays free on each node once a pod's claims have theirs.

Source: kube-scheduler 1.37 plugins/volumebinding (volume_binding.go Score, scorer.go, binder.go hasEnoughCapacity) with
the default shape (apis/config/v1/defaults.go): 100 where nothing is used, 0 where all is. A class counts with what the
claims ask for as a share of the volumes that they take; on a node where they take none, of the capacity that a driver
reports. Of several capacities that are large enough kube-scheduler takes any, we the first by key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.node_matching import meets_all
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.quantities import whole_from_nanos
from flowcore.model.volumes import Claim, ClaimVolume, Volumes
from flowcore.rules.filters.volume_binding import Matching, in_turn, provisions, remembered

Float64s = NDArray[np.float64]
#: The score of a node where all stays free.
BEST = 100


def storage_scores(
    volumes: Volumes, storage: Storage, table: NodeTable, promised: Collection[str] = ()
) -> Int64s | None:
    """int64[N], 0..BEST: the score of each node; None: a pod's claims give none.

    Args:
        promised: names of volumes that others are to get, beside those that the storage knows of.
    """
    claims = _waiting(volumes, storage)
    if not claims:
        return None
    known, alike = remembered(volumes, storage, table)
    key = None if alike is None or promised else ("scored", alike, tuple(claim.size for claim in claims))
    if key is None:
        return _scores(claims, storage, table, promised)
    if key not in known:
        known[key] = _scores(claims, storage, table, ())
    scores: Int64s = known[key]
    return scores


def _waiting(volumes: Volumes, storage: Storage) -> list[Claim]:
    """The claims that are yet to get a volume, in their turn; none where a class is not scored."""
    claims = [storage.claims.get(each.key) for each in volumes if isinstance(each, ClaimVolume)]
    known = [claim for claim in dict.fromkeys(claims) if claim is not None]
    waiting = [claim for claim in known if not claim.bound]
    classes = [storage.classes.get(claim.storage_class) for claim in waiting]
    is_scored = None not in claims and all(each is not None and each.is_scored for each in classes)
    return in_turn(waiting) if is_scored else []


def _scores(claims: Iterable[Claim], storage: Storage, table: NodeTable, promised: Collection[str]) -> Int64s:
    count, matching = len(table.nodes), Matching(storage, table, promised)
    #: By class: what claims ask for and what they ask it of, float64[N] twice; of volumes, and of what is made.
    bound, made = _ByClass(count), _ByClass(count)
    for claim in claims:
        sizes, asked = np.zeros(count, dtype=np.int64), whole_from_nanos(int(claim.size or Decimal(0)))
        has_volume = matching.take(claim, sizes)
        bound.add(claim.storage_class, has_volume, asked, sizes.astype(np.float64), adds_up=True)
        capacity = _capacity(claim, asked, storage, table)
        if capacity is not None:
            made.add(claim.storage_class, ~has_volume & (capacity >= 0), asked, capacity, adds_up=False)
    return np.where(bound.any, bound.scores(), made.scores())


def _capacity(claim: Claim, asked: int, storage: Storage, table: NodeTable) -> Float64s | None:
    """float64[N]: what a driver has of a claim's class on each node, -1 where it has too little; None: nobody asks."""
    storage_class = storage.classes[claim.storage_class]
    driver = storage.drivers.get(storage_class.provisioner)
    if claim.size is None or not provisions(storage_class) or driver is None or not driver.tracks_capacity:
        return None
    capacity = np.full(len(table.nodes), -1.0)
    for space in storage.spaces(storage_class.name):
        if space.topology is not None and space.topology.is_valid and space.largest >= asked:
            here = (capacity < 0) & meets_all(space.topology.requirements, table)
            capacity[here] = max(space.free, 0)
    return capacity


class _ByClass:
    """What claims ask for, by storage class."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._asked: dict[str, Float64s] = {}
        self._capacity: dict[str, Float64s] = {}
        self._used: dict[str, Bools] = {}

    def add(self, storage_class: str, nodes: Bools, asked: int, capacity: Float64s, *, adds_up: bool) -> None:
        """A claim has so much on these nodes.

        Args:
            capacity: float64[N].
            adds_up: each claim has a capacity of its own; else all of a class share one.
        """
        if storage_class not in self._used:
            self._asked[storage_class], self._capacity[storage_class] = np.zeros(self._count), np.zeros(self._count)
            self._used[storage_class] = np.zeros(self._count, dtype=np.bool_)
        self._asked[storage_class][nodes] += asked
        self._used[storage_class] |= nodes
        before = self._capacity[storage_class]
        before[nodes] = before[nodes] + capacity[nodes] if adds_up else capacity[nodes]

    @property
    def any(self) -> Bools:
        """bool[N]: nodes where some claim has something."""
        anywhere = np.zeros(self._count, dtype=np.bool_)
        for used in self._used.values():
            anywhere |= used
        return anywhere

    def scores(self) -> Int64s:
        """int64[N]: the mean of the classes' scores, rounded; 0 where there are none."""
        total, classes = np.zeros(self._count), np.zeros(self._count)
        for name, used in self._used.items():
            asked, capacity = self._asked[name], self._capacity[name]
            fits = used & (capacity > 0) & (asked <= capacity)
            share = np.floor(BEST * asked / np.where(fits, capacity, 1.0))
            total += np.where(fits, BEST - share, 0.0)
            classes += used
        scores: Int64s = np.floor(total / np.maximum(classes, 1.0) + 0.5).astype(np.int64)
        return scores
