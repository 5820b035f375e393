"""The worker process: its own copy of the nodes, deltas in, plans out.

OR-Tools holds the GIL for a whole solve, and filters and costs are arithmetic too: all of a round runs here, so
that the operator's event loop never waits for it. ``worker_client`` starts it as ``python -m thalweg_operator.worker``.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from flowcore.classes import VerdictCache
from flowcore.classes.columns import Tally
from flowcore.classes.invalidation import STORAGE_EVENTS, Event
from flowcore.costs import MODELS, CostModel
from flowcore.model.lasting import Lasting
from flowcore.model.neighbours import Neighbours
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import HostPort
from flowcore.model.policies import Delivery
from flowcore.model.reports import Reports
from flowcore.model.resources import BASE_RESOURCES, PODS
from flowcore.model.snapshot import Int64s, NodeTable, PendingPod, Snapshot, to_int64
from flowcore.model.storage import Storage
from flowcore.model.volumes import StorageKey, StorageObject, key_of
from flowcore.rounds import Round, RoundResult, run_round
from thalweg_operator import record
from thalweg_operator.cost_models import KnownModels, find_models
from thalweg_operator.wire import (
    LENGTH,
    Greeting,
    RoundReply,
    RoundRequest,
    Use,
    failed,
    join,
    reply_encoder,
    request_decoder,
    told,
)
from thalweg_operator.worker_limits import RoundExpired, at_most, confine, in_words

#: What no round of so many, and none of as many before, asked for is forgotten.
GENERATION = 64
#: Steps of the plan for pods that are only observed.
_OBSERVED_STEPS = 4


class Replica:
    """The worker's copy of the nodes, of what is taken and runs there, and of storage, and what filters said of it.

    Attributes:
        cache: verdicts on earlier states as far as they still hold; told of every change here.
    """

    def __init__(self) -> None:
        self.cache = VerdictCache()
        self._uses: dict[str, Use] = {}
        self._table = NodeTable.of(())
        #: By how many nodes each resource is offered.
        self._offers: Counter[str] = Counter()
        self._resources: tuple[str, ...] = BASE_RESOURCES
        self._allocatable: Int64s = np.zeros((0, len(BASE_RESOURCES)), dtype=np.int64)
        self._used: Int64s = self._allocatable.copy()
        self._assumed: Int64s = np.zeros((0, 2), dtype=np.int64)
        self._ports: dict[int, frozenset[HostPort]] = {}
        self._neighbours = Neighbours()
        self._reports = Reports()
        self._storage = Storage()
        self._lasting: tuple[Lasting, ...] | None = None
        self._rounds = 0

    def apply(self, request: RoundRequest) -> None:
        """Takes over a request's changes."""
        self._rounds += 1
        if self._rounds % GENERATION == 0:
            self.cache.age()
            self._table.age()
            self._neighbours.age()
        added = {node.name for node in request.nodes if node.name not in self._table.index}
        if request.nodes or request.gone:
            self._change_nodes(request.nodes, request.gone)
        self._change_uses(request.uses, added)
        for namespace, labels in request.namespaces.items():
            self._neighbours.set_namespace(namespace, labels)
        for kind, name, by in request.neighbours:
            self._neighbours.change(request.kinds[kind], name, by)
        at = [self._table.index[each.node] for each in request.reports if each.node in self._table.index]
        if at:
            self.cache.change_at(Event.NODE_REPORT, at)
        for each in request.reports:
            images = tuple(request.images[at] for at in each.images)
            self._reports.put(each.node, Report(images, each.bandwidth))
        self._change_storage(request.storage, request.storage_gone)
        if request.lasting is not None:
            self._lasting = request.lasting

    def _change_nodes(self, put: list[Node], gone: list[str]) -> None:
        before = self._table
        self._table = before.updated(put, gone)
        if self._table.index is not before.index:
            places = self._table.places_in(before)
            self._allocatable, self._used, self._assumed = (
                _moved(rows, places) for rows in (self._allocatable, self._used, self._assumed)
            )
            self._ports = (
                {at: self._ports[place] for at, place in enumerate(places.tolist()) if place in self._ports}
                if self._ports
                else {}
            )
        for name in gone:
            self._uses.pop(name, None)
            self._reports.put(name, None)
            self._storage.mount(name, ())
        self.cache.change_nodes(before, self._table, [node.name for node in put])
        self._offer(before, put, gone)
        column = {name: i for i, name in enumerate(self._resources)}
        for node in put:
            row = [0] * len(self._resources)
            for name, amount in node.allocatable:
                row[column[name]] = amount
            self._allocatable[self._table.index[node.name]] = row

    def _offer(self, before: NodeTable, put: list[Node], gone: list[str]) -> None:
        """Counts by how many nodes each resource is offered. Each that any node offers has a column, no other has."""
        changed = {node.name: node for node in put}
        for name in changed.keys() | set(gone):
            if name in before.index:
                self._offers.subtract(resource for resource, _ in before.nodes[before.index[name]].allocatable)
        for node in changed.values():
            self._offers.update(name for name, _ in node.allocatable)
        self._offers = +self._offers
        names = BASE_RESOURCES + tuple(sorted(self._offers.keys() - set(BASE_RESOURCES)))
        if names == self._resources:
            return
        places = np.array([self._resources.index(each) if each in self._resources else -1 for each in names])
        new = set(names).difference(self._resources)
        self._resources = names
        self._allocatable, self._used = (
            np.ascontiguousarray(_moved(rows.T, places).T) for rows in (self._allocatable, self._used)
        )
        for use in self._uses.values() if new else ():
            place = self._table.index.get(use.node)
            if place is not None and not new.isdisjoint(name for name, _ in use.amounts):
                self._used[place] = self._row(use)

    def _row(self, use: Use) -> Int64s:
        row = dict.fromkeys(self._resources, 0)
        # A resource without a column: no node offers it.
        row.update((name, amount) for name, amount in use.amounts if name in row)
        row[PODS] = use.pods
        values: Int64s = to_int64([list(row.values())], len(row))[0]
        return values

    def _change_uses(self, uses: list[Use], added: set[str]) -> None:
        at: dict[Event, list[int]] = {}
        mounts = False
        for use in uses:
            before = self._uses.get(use.node)
            self._uses[use.node] = use
            if use.volumes != (() if before is None else before.volumes):
                self._storage.mount(use.node, use.volumes)
                mounts |= use.node not in added
            place = self._table.index.get(use.node)
            if place is None:
                continue
            self._used[place] = self._row(use)
            self._assumed[place] = to_int64([[use.cpu, use.memory]], 2)[0]
            if use.ports:
                self._ports[place] = frozenset(use.ports)
            else:
                self._ports.pop(place, None)
            if before != use and use.node not in added:  # that those came is told already
                at.setdefault(_event(before, use), []).append(place)
        for event, places in at.items():
            self.cache.change_at(event, places)
        if mounts:
            self.cache.change_storage(Event.POD_VOLUMES)

    def _change_storage(self, put: list[StorageObject], gone: list[StorageKey]) -> None:
        for each in put:
            self._storage.put(each)
        for key in gone:
            self._storage.drop(key)
        for kind in sorted({key[0] for key in (*map(key_of, put), *gone)}):
            self.cache.change_storage(STORAGE_EVENTS[kind])

    def snapshot(self, request: RoundRequest, pending: tuple[PendingPod, ...]) -> Snapshot:
        """The nodes as they are now, with these pods waiting."""
        snapshot = Snapshot(
            generation=request.generation,
            now=request.now,
            table=self._table,
            resources=self._resources,
            allocatable=self._allocatable,
            used=self._used,
            assumed=self._assumed,
            ports=self._ports,
            pending=pending,
            storage=self._storage,
            neighbours=self._neighbours,
            reports=self._reports,
            gangs={gang.name: gang for gang in request.gangs},
            lasting=self._lasting,
            holds=request.holds,
        )
        self.cache.follow(snapshot)
        return snapshot

    def whole(self, request: RoundRequest) -> RoundRequest:
        """The request as a worker that knows nothing would need it."""
        kinds = {kind: at for at, kind in enumerate(request.kinds)}
        neighbours = [
            (kinds.setdefault(kind, len(kinds)), node, count) for kind, node, count in self._neighbours.counts()
        ]
        images: dict[tuple[str, int], int] = {}
        reports = [told(node, report, images) for node, report in self._reports.items()]
        return msgspec.structs.replace(
            request,
            fresh=True,
            images=list(images),
            reports=reports,
            nodes=list(self._table.nodes),
            gone=[],
            uses=list(self._uses.values()),
            namespaces=dict(self._neighbours.namespaces),
            kinds=list(kinds),
            neighbours=neighbours,
            storage=list(self._storage),
            storage_gone=[],
            lasting=self._lasting,
        )


def _event(before: Use | None, after: Use) -> Event:
    pods = 0 if before is None else before.pods
    if after.pods == pods:
        return Event.POD_RESIZED
    return Event.POD_ADDED if after.pods > pods else Event.POD_DELETED


def _moved(rows: Int64s, places: Int64s) -> Int64s:
    moved = np.zeros((len(places), rows.shape[1]), dtype=np.int64)
    there = places >= 0
    moved[there] = rows[places[there]]
    return moved


def answer(replica: Replica, request: RoundRequest, models: Mapping[str, CostModel] = MODELS) -> RoundReply:
    """One round: pods that will be bound first, then, on what they leave, pods that are only observed."""
    started = time.perf_counter()
    replica.apply(request)
    policies = {policy.name: policy for policy in request.policies}
    at = {waiting.key: i for i, waiting in enumerate(request.waiting)}
    binding: list[PendingPod] = []
    observed: list[PendingPod] = []
    for waiting in request.waiting:
        policy = request.policies[waiting.policy]
        pod = PendingPod(
            key=waiting.key,
            uid="",
            pod_class=request.classes[waiting.pod_class],
            policy=policy.name,
            created=waiting.created,
            kind=request.kinds[waiting.kind],
            gangs=waiting.gangs,
            replaces=waiting.replaces,
            since=waiting.since,
        )
        (observed if policy.delivery is Delivery.OBSERVE else binding).append(pod)
    until, cache = started + request.budget, replica.cache
    planned = Round(replica.snapshot(request, tuple(binding)), policies, models, cache=cache, seed=request.seed)
    result = _plan(planned, request.steps, until)
    results = [result]
    if observed:
        # Nobody acts on these: their plan gets the work that every plan gets, and no search.
        rest = replace(result.after, pending=tuple(observed))
        results.append(run_round(rest, policies, models, cache=cache, steps=_OBSERVED_STEPS))
    scores = _scores(request, planned, at, [node.name for node in result.after.table.nodes])
    return _reply(request, results, at, scores, cache.take_tallies(), time.perf_counter() - started)


def _scores(request: RoundRequest, planned: Round, at: dict[str, int], names: list[str]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for pods, scores in planned.scores():
        encoded = msgspec.msgpack.encode(dict(zip(names, scores.tolist(), strict=True)))
        # Pods of several classes may be alike for a round.
        first = {request.waiting[place].pod_class: place for place in (at[pod.key] for pod in pods)}
        found.extend((place, encoded) for place in first.values())
    return found


def _plan(this: Round, steps: int, until: float) -> RoundResult:
    """Takes steps while there is time, at least one; the result says how many, so that it can be replayed."""
    taken = 0
    while this.step():
        taken += 1
        if taken >= steps if steps else time.perf_counter() >= until:
            break
    return this.result()


def _reply(
    request: RoundRequest,
    results: list[RoundResult],
    at: dict[str, int],
    scores: list[tuple[int, bytes]],
    tallies: dict[str, Tally],
    seconds: float,
) -> RoundReply:
    reasons: dict[str, int] = {}
    units: dict[str, int] = {}
    costs = dict.fromkeys((policy.name for policy in request.policies), 0)
    places = {policy.name: place for place, policy in enumerate(request.policies)}
    placements, left = [], []
    for result in results:
        for placement in result.placements:
            unit = units.setdefault(placement.unit, len(units)) if placement.unit else -1
            place = at[placement.pod.key]
            turn = placement.chain, placement.wave
            placements.append((place, placement.node, placement.price, turn, unit, placement.spare))
            costs[placement.pod.policy] += placement.price
        for out in result.left:
            left.append((at[out.pod.key], reasons.setdefault(out.reason, len(reasons))))
            costs[out.pod.policy] += out.price
    return RoundReply(
        number=request.number,
        generation=request.generation,
        placements=placements,
        left=left,
        reasons=list(reasons),
        costs=list(costs.values()),
        cost=results[0].cost,
        lower_bound=results[0].lower_bound,
        steps=results[0].steps,
        method=results[0].method,
        solves=sum(r.solves for r in results),
        arcs=max(r.arcs for r in results),
        seconds=seconds,
        scores=scores,
        units=list(units),
        holds=results[0].holds,
        contradictions=list(dict.fromkeys((places[c.policy], c.sentence) for r in results for c in r.contradictions)),
        cached=[(name, tally.hits, tally.refreshed, tally.misses, tally.rows) for name, tally in tallies.items()],
    )


def greet(sink: BinaryIO, known: KnownModels) -> None:
    """Says that it is ready, and which cost models there are."""
    body = reply_encoder.encode(Greeting(list(known.names), dict(known.problems)))
    sink.write(LENGTH.pack(len(body)) + body)
    sink.flush()


def serve(
    source: BinaryIO,
    sink: BinaryIO,
    records: Path | None = None,
    models: Mapping[str, CostModel] = MODELS,
    memory: int = 0,
) -> None:
    """Answers requests until the source ends. A round that fails is answered with its problem.

    Args:
        records: where each round is kept for a replay; None keeps none.
        memory: bytes that this process may use, 0 for no limit.
    """
    replica = Replica()
    keeper = None if records is None else record.Keeper(records)
    parts: list[RoundRequest] = []
    while True:
        header = source.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return
        parts.append(request_decoder.decode(source.read(LENGTH.unpack(header)[0])))
        if parts[-1].more:
            continue
        request = join(parts)
        parts = []
        if request.fresh:
            replica = Replica()
        try:
            with at_most(request.deadline):
                reply = answer(replica, request, models)
        except RoundExpired as error:
            reply = failed(request, str(error), "timeout")
        except MemoryError:
            reply = failed(request, f"the worker reached its memory limit of {in_words(memory)}", "memory")
        except Exception as error:  # noqa: BLE001 - the operator decides what follows; this process must go on
            reply = failed(request, repr(error))
        body = reply_encoder.encode(reply)
        sink.write(LENGTH.pack(len(body)) + body)
        sink.flush()
        if keeper is not None and not reply.problem:
            with suppress(OSError):  # a full disk must not keep pods waiting
                keeper.keep(replica.whole(request), reply)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the operator's to handle; it closes our input
    gc.set_threshold(100_000, 50, 100)
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # what a plug-in prints must not come between the replies
    allowed, kept = int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    confine(allowed)
    found = find_models()
    greet(replies, found.known)
    serve(sys.stdin.buffer, replies, kept, found.usable, allowed)
