"""Kueue's rule of placement, written anew: topology-aware scheduling with its default profile, without leaders.

Source: KEP-2724 and pkg/cache/scheduler/tas_flavor_snapshot.go of kubernetes-sigs/kueue, as of August 2026.

* A gang with a required level: of the domains of that level that have room for it, the one with the least room. Within
  it level by level: domains with the most room first; as soon as one has room for all that is left, of the rest the one
  with the least room that suffices (BestFit). With slices a domain's room is counted in whole slices down to the level
  of the slices, and in pods below it.
* A gang without a level (Unconstrained): the hosts with the least room first, over all blocks; one host that has room
  for all of it, if there is one (LeastFreeCapacity, TASProfileMixed).
* Among equals the name decides, which is the number here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.gang_levels.arrivals import SLICE, ArrivingGang, Need
from harness.gang_levels.cluster import Hosts, Int64s, Places


def kueue(hosts: Hosts, gang: ArrivingGang) -> Places | None:
    """Where Kueue's scheduler would put a gang; None: nowhere."""
    room = hosts.room(1)
    if gang.need is Need.NONE:
        return _least_free(room, gang.pods)
    racks = hosts.by_rack(room)
    if gang.need is Need.RACK:
        rack = _tightest(racks, gang.pods)
        return None if rack is None else _best_fit(hosts.hosts_of(rack), room, gang.pods)
    size = SLICE if gang.need is Need.SLICES else 1
    slices = racks // size
    block = _tightest(hosts.by_block(slices), gang.pods // size)
    if block is None:
        return None
    places: dict[int, int] = {}
    for rack, count in _best_fit(hosts.racks_of(block), slices, gang.pods // size).items():
        places |= _best_fit(hosts.hosts_of(rack), room, count * size)
    return places


def _tightest(room: Int64s, count: int) -> int | None:
    """The domain with the least room that suffices."""
    enough = np.nonzero(room >= count)[0]
    return int(enough[np.argmin(room[enough])]) if len(enough) else None


def _best_fit(domains: Iterable[int], room: Int64s, count: int) -> dict[int, int]:
    """Domain -> its part; all of them together have room enough."""
    ordered = sorted(domains, key=lambda domain: (-room[domain], domain))
    parts: dict[int, int] = {}
    for first, domain in enumerate(ordered):
        if room[domain] >= count:
            enough = [rest for rest in ordered[first:] if room[rest] >= count]
            parts[min(enough, key=lambda rest: room[rest])] = count
            break
        parts[domain] = int(room[domain])
        count -= int(room[domain])
    return parts


def _least_free(room: Int64s, count: int) -> Places | None:
    alone = _tightest(room, count)
    if alone is not None:
        return {alone: count}
    if int(room.sum()) < count:
        return None
    places: dict[int, int] = {}
    for host in np.argsort(room, kind="stable").tolist():
        part = min(count, int(room[host]))
        if part:
            places[host] = part
            count -= part
        if not count:
            break
    return places
