"""Rounds of Thalweg's own engine over all gangs that wait, as the operator's worker plans them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.backfill_history import NO_BACKFILL_HISTORY, BackfillHistory
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import Amounts
from flowcore.planning.round import run_round
from harness.gang_levels.arrivals import NARROWNESS, SLICE, ArrivingGang, Need
from harness.gang_levels.cluster import Hosts, Shape
from harness.gang_levels.placers import Decision

_GPU = "nvidia.com/gpu"
_RACK, _BLOCK = "example.com/rack", "example.com/block"
_TOPOLOGY = {Need.RACK: _RACK, Need.BLOCK: _BLOCK, Need.SLICES: _BLOCK, Need.NONE: ""}
#: Milli-cores and bytes that go with each GPU.
_MILLI_CORES, _MEMORY = 12_000, 128 * 2**30
#: When the day begins, seconds since the epoch: 0 means unknown.
_MIDNIGHT = 1e6
#: What gangs that need a narrower domain have above others, where they come first.
_PRIORITY = 1000
PACKED = msgspec.structs.replace(BUILT_IN, cost=msgspec.structs.replace(BUILT_IN.cost, model="BinPacking"))
#: The same without a backfill reservation: no room is held for a gang.
WITHOUT_HOLDS = msgspec.structs.replace(PACKED, gangs=msgspec.structs.replace(PACKED.gangs, hold_room_after=0))


class ThalwegRounds:
    """One round for each decision.

    Args:
        steps: of a round at most.
        narrow_first: gangs that need a rack have a higher priority than those that need a block, and these than others.
    """

    def __init__(self, shape: Shape, policy: Policy, steps: int, *, narrow_first: bool = False) -> None:
        self._table = NodeTable.of(_nodes(shape))
        self._policy, self._steps, self._narrow_first = policy, steps, narrow_first
        self._history = NO_BACKFILL_HISTORY
        self._pods: dict[int, tuple[PendingPod, ...]] = {}

    def decide(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Iterator[Decision]:
        """The gangs that a round places, see Placer."""
        if not waiting:
            return
        result = run_round(self._snapshot(hosts, waiting, now), {self._policy.name: self._policy}, steps=self._steps)
        self._history = result.holds
        places: dict[str, dict[int, int]] = {}
        for placement in result.placements:
            parts = places.setdefault(placement.pod.gangs[0], {})
            host = self._table.index[placement.node]
            parts[host] = parts.get(host, 0) + 1
        for gang in waiting:
            if _name(gang) in places:
                del self._pods[gang.number]
                yield gang, places[_name(gang)]

    def _snapshot(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Snapshot:
        used = (hosts.shape.gpus - hosts.free).tolist()
        snapshot = build_snapshot(
            generation=1,
            now=_MIDNIGHT + now,
            table=self._table,
            running=[
                (node.name, (*_amounts(gpus), ("pods", 1)), ())
                for node, gpus in zip(self._table.nodes, used, strict=True)
                if gpus
            ],
            pending=tuple(pod for gang in waiting for pod in self._pods_of(gang)),
        )
        gangs = {each.name: each for gang in waiting for each in _gangs_of(gang)}
        return replace(snapshot, gangs=gangs, backfill_history=BackfillHistory(now, self._history.records))

    def _pods_of(self, gang: ArrivingGang) -> tuple[PendingPod, ...]:
        if gang.number not in self._pods:
            priority = _PRIORITY * NARROWNESS[gang.need] if self._narrow_first else 0
            pod_class = PodClass(_amounts(1), priority=priority)
            created = _MIDNIGHT + gang.arrives
            names = [f"{_name(gang)}-{pod}" for pod in range(gang.pods)]
            self._pods[gang.number] = tuple(
                PendingPod(f"{_name(gang)}/{name}", name, pod_class, self._policy.name, created, gangs=gangs)
                for name, gangs in zip(names, _memberships(gang), strict=True)
            )
        return self._pods[gang.number]


def _name(gang: ArrivingGang) -> str:
    """Of the gang and of its namespace: each has one of its own."""
    return f"gang-{gang.number}"


def _gangs_of(gang: ArrivingGang) -> Iterator[Gang]:
    """The gang, and its slices, which are gangs that share its pods."""
    name = _name(gang)
    yield Gang(name, gang.pods, topology_key=_TOPOLOGY[gang.need])
    if gang.need is Need.SLICES:
        for number in range(gang.pods // SLICE):
            yield Gang(_slice_name(gang, number), SLICE, topology_key=_RACK, slice_of=name)


def _memberships(gang: ArrivingGang) -> Iterator[tuple[str, ...]]:
    """Of each pod the names of its gang and of its slice."""
    for pod in range(gang.pods):
        yield (_name(gang), *([_slice_name(gang, pod // SLICE)] if gang.need is Need.SLICES else []))


def _slice_name(gang: ArrivingGang, number: int) -> str:
    return f"{_name(gang)} slice {number}"


def _amounts(gpus: int) -> Amounts:
    return (("cpu", gpus * _MILLI_CORES), ("memory", gpus * _MEMORY), (_GPU, gpus))


def _nodes(shape: Shape) -> Iterator[Node]:
    hosts = Hosts(shape)
    for host in range(shape.nodes):
        labels = ((_BLOCK, f"block-{hosts.block_of(host)}"), (_RACK, f"rack-{hosts.rack_of(host)}"))
        yield Node(f"node-{host:05}", labels=labels, allocatable=(*_amounts(shape.gpus), ("pods", 110)))
