"""One round in the worker: from a request to a reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs import MODELS, CostModel
from flowcore.costs.shares.shares import Shares
from flowcore.model.policies import ReschedulingMode
from flowcore.model.queues import QueueShare
from flowcore.planning.problem.result import Eviction
from flowcore.planning.round import Round, RoundResult, run_round
from flowcore.rules.reasons import Reason
from flowcore.rules.verdicts.columns import CacheStats
from thalweg_executor.forked import ForkedExecutor
from thalweg_operator.planning.reports.phases import Stopwatch
from thalweg_operator.planning.worker.messages import EvictionEntry, RoundReply, RoundRequest, to_pending_pod
from thalweg_operator.planning.worker.meter import NamespaceMeter
from thalweg_operator.planning.worker.node_prices import (
    encode_cheapest,
    encode_names,
    encode_prices,
    encode_scores,
    first_prices,
    savings_by_pod,
)
from thalweg_operator.planning.worker.replica import Replica

#: Steps of the plan for pods that are only observed.
_OBSERVED_STEPS = 4
#: Pods like those of a round with so many may come alone next.
_FEW = 8


def run_request(
    replica: Replica, request: RoundRequest, models: Mapping[str, CostModel] = MODELS, cores: int = 1
) -> RoundReply:
    """One round: first the pods that are bound, then, on the room left, the pods that are only observed.

    Args:
        cores: that it may use; they do not change the plan of so many steps.
    """
    stopwatch = Stopwatch()
    with stopwatch.phase("snapshot"):
        replica.apply(request)
        delivered_pods, observed_pods = _pending_pods(request)
        snapshot = replica.to_snapshot(request, delivered_pods)
    meter = NamespaceMeter()
    policies, cache = {policy.name: policy for policy in request.policies}, replica.cache
    with ForkedExecutor(cores) as executor:
        with stopwatch.phase("problem"):
            planned = Round(snapshot, policies, models, cache=cache, seed=request.seed, executor=executor, charge=meter)
        with stopwatch.phase("solve"):
            _run_steps(
                planned,
                request.steps,
                lambda: stopwatch.seconds >= request.budget or planned.is_close,
                lambda: meter(()),
            )
            meter.improved(request.budget)
    with stopwatch.phase("result"):
        results = [planned.result()]
    if observed_pods:
        # Nobody acts on this plan, so it gets the first steps only, and no search.
        with stopwatch.phase("observed"):
            rest = replace(results[0].after, pending=observed_pods, running=None)
            results.append(run_round(rest, policies, models, cache=cache, steps=_OBSERVED_STEPS))
    with stopwatch.phase("scores"):
        position_by_key = {waiting.key: i for i, waiting in enumerate(request.pending)}
        scores = list(encode_scores(request, position_by_key, planned.scores(), results[0].after.table.nodes))
        priced = list(first_prices(planned.node_prices()))
        prices = list(encode_prices(request, position_by_key, priced))
        savings = savings_by_pod(priced, results[0].after.table.nodes)
        cheapest = []
        if len(delivered_pods) <= _FEW:
            nodes = results[0].after.table.nodes
            cheapest = list(encode_cheapest(request, position_by_key, planned.node_prices(bound=True), nodes))
    reply = _to_reply(request, position_by_key, results, savings, scores, cache.take_stats())
    if prices:
        reply.node_prices, reply.node_names = prices, encode_names(results[0].after.table.nodes)
    return msgspec.structs.replace(
        reply,
        cheapest=cheapest,
        namespace_seconds=meter.seconds([*planned.groups, *([pod] for pod in observed_pods)]),
        seconds=stopwatch.seconds,
        phases=stopwatch.phases,
        filter_seconds=cache.take_seconds(),
    )


def _pending_pods(request: RoundRequest) -> tuple[tuple[PendingPod, ...], tuple[PendingPod, ...]]:
    """The pods to plan: those that are delivered, and those that are only observed."""
    delivered_pods: list[PendingPod] = []
    observed_pods: list[PendingPod] = []
    for waiting in request.pending:
        acts = request.policies[waiting.policy].delivery.acts
        (delivered_pods if acts else observed_pods).append(to_pending_pod(waiting, request))
    return tuple(delivered_pods), tuple(observed_pods)


def _run_steps(planning_round: Round, steps: int, ends: Callable[[], bool], built: Callable[[], None]) -> None:
    """Takes steps while they are worth it, at least one; with ``steps`` so many, for a replay.

    Args:
        ends: whether the time is over, or next to nothing is left to gain. No pod is bound meanwhile.
        built: is called once there is a plan; the steps after it improve it.
    """
    taken = 0
    while planning_round.step():
        taken += 1
        if taken == 1:
            built()
        if taken >= steps if steps else ends():
            break


def _queue_shares(result: RoundResult) -> list[QueueShare]:
    if result.after.queues is None:
        return []
    waiting = tuple(each.pod for each in result.unplaced)
    return list(Shares(replace(result.after, pending=waiting)).report())


def _to_entry(eviction: Eviction, position_by_key: Mapping[str, int]) -> EvictionEntry:
    return EvictionEntry(
        eviction.pod.key,
        eviction.pod.uid,
        eviction.pod.node,
        eviction.kind,
        tuple(position_by_key[key] for key in eviction.for_pods),
        eviction.to,
        eviction.reason,
        eviction.by_controller,
    )


def _to_proposals(
    request: RoundRequest, result: RoundResult, position_by_key: Mapping[str, int]
) -> list[tuple[int, EvictionEntry]]:
    """Each with the policy that proposes it: that of the pod that would leave, or of a pod that it would leave for."""
    places = {policy.name: place for place, policy in enumerate(request.policies)}
    found: list[tuple[int, EvictionEntry]] = []
    for eviction in sorted(result.proposals, key=lambda each: each.pod.key):
        entry = _to_entry(eviction, position_by_key)
        own = [places[eviction.pod.policy]] if eviction.pod.policy in places else []
        for place in (*own, *(request.pending[index].policy for index in entry.for_pods)):
            if request.policies[place].rescheduling.mode is ReschedulingMode.PROPOSE:
                found.append((place, entry))
                break
    return found


def _to_reply(
    request: RoundRequest,
    position_by_key: Mapping[str, int],
    results: list[RoundResult],
    savings: Mapping[str, Mapping[str, int]],
    scores: list[tuple[int, bytes]],
    tallies: dict[str, CacheStats],
) -> RoundReply:
    reasons: dict[Reason, int] = {}
    atomic_groups: dict[str, int] = {}
    costs = dict.fromkeys((policy.name for policy in request.policies), 0)
    policy_positions = {policy.name: place for place, policy in enumerate(request.policies)}
    placements, saved, unplaced = [], list[int | None](), []
    # Nobody is evicted for pods that are only observed.
    victims = {eviction.pod.key: place for place, eviction in enumerate(results[0].evictions)}
    for result in results:
        for placement in result.placements:
            unit = (
                atomic_groups.setdefault(placement.atomic_group, len(atomic_groups)) if placement.atomic_group else -1
            )
            place = position_by_key[placement.pod.key]
            turn = placement.chain, placement.wave
            leaving = tuple(victims[key] for key in placement.victims)
            placements.append((place, placement.node, placement.price, turn, unit, placement.optional, leaving))
            saved.append(savings.get(placement.pod.key, {}).get(placement.node))
            costs[placement.pod.policy] += placement.price
        for out in result.unplaced:
            reason = Reason(out.reason, out.code, out.more_nodes_help)
            unplaced.append((position_by_key[out.pod.key], reasons.setdefault(reason, len(reasons))))
            costs[out.pod.policy] += out.price
    return RoundReply(
        number=request.number,
        generation=request.generation,
        placements=placements,
        unplaced=unplaced,
        reasons=[each.text for each in reasons],
        codes=[each.code for each in reasons],
        more_nodes_help=[each.more_nodes_help for each in reasons],
        costs=list(costs.values()),
        cost=results[0].cost,
        lower_bound=results[0].lower_bound,
        steps=results[0].steps,
        method=results[0].method,
        solves=sum(r.solves for r in results),
        arcs=max(r.arcs for r in results),
        seconds=0.0,
        savings=saved,
        scores=scores,
        atomic_groups=list(atomic_groups),
        backfill_history=results[0].holds,
        queue_shares=_queue_shares(results[0]),
        settles_in=min((out.settles_in for r in results for out in r.unplaced if out.settles_in), default=0.0),
        evictions=[_to_entry(eviction, position_by_key) for eviction in results[0].evictions],
        contradictions=list(
            dict.fromkeys((policy_positions[c.policy], c.sentence) for r in results for c in r.contradictions)
        ),
        proposals=_to_proposals(request, results[0], position_by_key),
        cache_tallies=[
            (name, tally.hits, tally.refreshed, tally.misses, tally.rows) for name, tally in tallies.items()
        ],
    )
