"""A day: gangs come, wait, start where a placer puts them, and end. What it comes to."""

from __future__ import annotations

import heapq
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import BenchError
from harness.gang_levels.arrivals import SLICE, ArrivingGang, Need
from harness.gang_levels.cluster import Hosts, Places, Shape
from harness.gang_levels.placers import Placer

#: Pods of a gang that is large: two racks, of the shape that the bench has.
LARGE = 128


@dataclass(frozen=True, slots=True)
class Hours:
    """Times in seconds.

    Attributes:
        before: from the first arrival to the begin of the day; what happens in it is not counted.
        day: what is counted.
        every: between two decisions.
    """

    before: float
    day: float
    every: float

    @property
    def end(self) -> float:
        """Of the day."""
        return self.before + self.day


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one day.

    Attributes:
        gangs, in_rack, in_block: that came in the day, of all kinds, that need one rack, and that need one block.
        started, rack_started, block_started: that started in it.
        median, p95: minutes that gangs of the day waited; those that never started until its end.
        rack_median, rack_p95: the same of those that need a rack.
        large, large_started: gangs of ``LARGE`` pods and more that came in the day, and that started in it.
        large_median, large_longest: minutes that those of the day waited, median and the longest time.
        whole_racks: all of whose GPUs are free, the mean.
        utilisation: part of all GPUs that run, the mean.
        slices, whole_slices: of gangs with slices that started, and how many of them are in one rack.
        seconds: CPU time of all decisions.
        longest: of one decision.
    """

    gangs: int
    started: int
    in_rack: int
    rack_started: int
    in_block: int
    block_started: int
    median: float
    p95: float
    rack_median: float
    rack_p95: float
    large: int
    large_started: int
    large_median: float
    large_longest: float
    whole_racks: float
    utilisation: float
    slices: int
    whole_slices: int
    seconds: float
    longest: float


def simulate(shape: Shape, gangs: Sequence[ArrivingGang], placer: Placer, hours: Hours) -> Row:
    """The day of one placer.

    Raises:
        BenchError: the placer overcommitted a host, tore a gang apart, or put it where it must not be.
    """
    hosts, day = Hosts(shape), _Day(hours)
    arriving, waiting, ends = list(reversed(gangs)), list[ArrivingGang](), list[tuple[float, int, Places]]()
    now = 0.0
    while now < hours.end:
        while ends and ends[0][0] <= now:
            hosts.change(heapq.heappop(ends)[2], -1)
        while arriving and arriving[-1].arrives <= now:
            waiting.append(arriving.pop())
        before = time.process_time()
        started: set[int] = set()
        for gang, places in placer.decide(hosts, tuple(waiting), now):
            hosts.change(places, 1)
            _check(hosts, gang, places)
            heapq.heappush(ends, (now + gang.runs_for, gang.number, places))
            started.add(gang.number)
            day.start(gang, places, hosts, now)
        day.look(hosts, now, time.process_time() - before)
        waiting = [gang for gang in waiting if gang.number not in started]
        now += hours.every
    return day.row([gang for gang in gangs if hours.before <= gang.arrives < hours.end])


def _check(hosts: Hosts, gang: ArrivingGang, places: Places) -> None:
    """Counts anew what a placer did; slices are counted, not demanded: not every rule knows them."""
    domain = {Need.RACK: hosts.rack_of, Need.NONE: lambda _: 0}.get(gang.need, hosts.block_of)
    if sum(places.values()) != gang.pods or min(hosts.free[host] for host in places) < 0:
        raise BenchError(f"gang {gang.number}: {gang.pods} pods, placed {dict(places)}: too few, or a full host")
    if len({domain(host) for host in places}) > 1:
        raise BenchError(f"gang {gang.number} needs one {gang.need}, and is in several")


class _Day:
    """Adds up one day."""

    def __init__(self, hours: Hours) -> None:
        self._hours = hours
        self._started: dict[int, float] = {}
        self._counted: Counter[Need] = Counter()
        self._large = 0
        self._slices = self._whole_slices = 0
        self._used: list[float] = []
        self._whole: list[int] = []
        self._seconds: list[float] = []

    def start(self, gang: ArrivingGang, places: Places, hosts: Hosts, now: float) -> None:
        """A gang starts."""
        self._started[gang.number] = now
        if now < self._hours.before:
            return
        self._counted[gang.need] += 1
        self._large += gang.pods >= LARGE
        if gang.need is Need.SLICES:
            in_rack: Counter[int] = Counter()
            for host, pods in places.items():
                in_rack[hosts.rack_of(host)] += pods
            self._slices += gang.pods // SLICE
            self._whole_slices += sum(pods // SLICE for pods in in_rack.values())

    def look(self, hosts: Hosts, now: float, seconds: float) -> None:
        """After a decision that took so much CPU time."""
        if now >= self._hours.before:
            self._used.append(hosts.used / hosts.shape.all_gpus)
            self._whole.append(hosts.whole_racks)
            self._seconds.append(seconds)

    def row(self, gangs: Sequence[ArrivingGang]) -> Row:
        """What it came to, for the gangs of the day."""
        waited = {gang.number: self._started.get(gang.number, self._hours.end) - gang.arrives for gang in gangs}
        median, p95 = _minutes([waited[gang.number] for gang in gangs])
        rack_median, rack_p95 = _minutes([waited[gang.number] for gang in gangs if gang.need is Need.RACK])
        large = [waited[gang.number] / 60 for gang in gangs if gang.pods >= LARGE]
        in_block = (Need.BLOCK, Need.SLICES)
        return Row(
            gangs=len(gangs),
            started=self._counted.total(),
            in_rack=sum(gang.need is Need.RACK for gang in gangs),
            rack_started=self._counted[Need.RACK],
            in_block=sum(gang.need in in_block for gang in gangs),
            block_started=sum(self._counted[need] for need in in_block),
            median=median,
            p95=p95,
            rack_median=rack_median,
            rack_p95=rack_p95,
            large=len(large),
            large_started=self._large,
            large_median=statistics.median(large) if large else 0.0,
            large_longest=max(large, default=0.0),
            whole_racks=statistics.mean(self._whole),
            utilisation=statistics.mean(self._used),
            slices=self._slices,
            whole_slices=self._whole_slices,
            seconds=sum(self._seconds),
            longest=max(self._seconds),
        )


def _minutes(waited: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile of seconds, in minutes; zeros of fewer than two."""
    if len(waited) < 2:
        return 0.0, 0.0
    return statistics.median(waited) / 60, statistics.quantiles(waited, n=20, method="inclusive")[-1] / 60
