"""One round in the worker: from a request to a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs import MODELS, CostModel
from flowcore.model.policies import OBSERVED, Policy
from flowcore.model.resource_claims import PlannedClaim
from flowcore.planning.plan_document import to_plan_document
from flowcore.planning.round import Round, RoundResult
from flowcore.planning.round.node_prices import NodePrices
from flowcore.planning.saying import Guarded, Say
from flowcore.rules.filters.dynamic_resources import claimable_devices
from flowcore.rules.verdicts.columns import CacheStats
from thalweg_operator.planning.reports.phases import Stopwatch
from thalweg_operator.planning.worker.improving_time import ImprovingTime
from thalweg_operator.planning.worker.messages import (
    NodePricesEntry,
    RoundReply,
    RoundRequest,
    to_pending_pod,
    to_reply,
)
from thalweg_operator.planning.worker.meter import NamespaceMeter
from thalweg_operator.planning.worker.node_prices import encode_prices, first_prices, savings_by_pod
from thalweg_operator.planning.worker.replica import Replica

#: Steps of the plan for pods that are only observed.
_OBSERVED_STEPS = 4
#: Seconds until a search of devices goes on that a round left unfinished. The loop rests longer than the round took.
_SEARCHES_ON = 0.1
#: From this number of pods on, pods like those of a round may come alone next.
_FEW = 8


def run_request(replica: Replica, request: RoundRequest, models: Mapping[str, CostModel] = MODELS) -> RoundReply:
    """One round: first the pods that are bound, then, on the room left, the pods that are only observed.

    An operator that only observes binds none: its round is that of the others.
    """
    stopwatch = Stopwatch()
    policies, cache = {policy.name: policy for policy in request.policies}, replica.cache
    with stopwatch.phase("snapshot"):
        replica.apply(request)
        delivered_pods, observed_pods = _pending_pods(request)
        observes = OBSERVED.name in policies
        first, shown_pods = (observed_pods, delivered_pods) if observes else (delivered_pods, observed_pods)
        snapshot = replica.to_snapshot(request, first)
    meter, say = NamespaceMeter(), Guarded()
    with stopwatch.phase("problem"):
        planned = Round(snapshot, policies, models, cache=cache, seed=request.seed, charge=meter, say=say)
    with stopwatch.phase("solve"):
        improving = ImprovingTime(planned, request.budget, request.deadline, stopwatch)

        def built() -> None:
            meter(())
            improving.begin()

        _run_steps(planned, request.steps, improving.is_over, built)
        meter.improved(improving.seconds)
    with stopwatch.phase("result"):
        results = [planned.result()]
    if shown_pods:
        # This plan is only shown, so it gets the first steps only, and no search.
        with stopwatch.phase("observed"):
            rest = replace(results[0].after, pending=shown_pods, running=None)
            shown = Round(rest, policies, models, cache=cache, charge=meter, say=say)
            _run_steps(shown, _OBSERVED_STEPS, lambda: False, lambda: None)
            results.append(shown.result())
    with stopwatch.phase("prices"):
        position_by_key = {waiting.key: i for i, waiting in enumerate(request.pending)}
        savings: Mapping[str, Mapping[str, int]] = {}
        priced: list[NodePrices] = []
        prices: list[NodePricesEntry] = []
        if not observes:
            nodes, few = results[0].after.table.nodes, len(delivered_pods) <= _FEW
            priced = say("The prices of nodes", lambda: list(first_prices(planned.node_prices(bound=few))), priced)
            prices = say("The prices of nodes", lambda: list(encode_prices(request, position_by_key, priced)), prices)
            savings = say("The prices of nodes", lambda: savings_by_pod(priced, nodes), savings)
    reply = _to_reply(request, position_by_key, results, savings, cache.take_stats(), say)
    return msgspec.structs.replace(
        reply,
        node_prices=prices,
        node_names=replica.names_to_tell() if prices else None,
        namespace_seconds=meter.seconds([*planned.groups, *([pod] for pod in shown_pods)]),
        seconds=stopwatch.seconds,
        phases=stopwatch.phases,
        claims=list(_planned_claims(results[0], policies, position_by_key)),
        frees=[
            (position_by_key[each.pod.key], each.frees)
            for each in results[0].unplaced
            if each.frees and policies[each.pod.policy].delivery.binds
        ],
        filter_seconds=cache.take_seconds(),
        warnings=list(say.missing.values()),
    )


def _pending_pods(request: RoundRequest) -> tuple[tuple[PendingPod, ...], tuple[PendingPod, ...]]:
    """The pods to plan: pods that are delivered, and pods that are only observed."""
    delivered_pods: list[PendingPod] = []
    observed_pods: list[PendingPod] = []
    for waiting in request.pending:
        acts = request.policies[waiting.policy].delivery.acts
        (delivered_pods if acts else observed_pods).append(to_pending_pod(waiting, request))
    return tuple(delivered_pods), tuple(observed_pods)


def _planned_claims(
    result: RoundResult, policies: Mapping[str, Policy], positions: Mapping[str, int]
) -> Iterator[tuple[int, tuple[PlannedClaim, ...]]]:
    """What the claims of placed pods have or get, of pods that we bind: kube-scheduler chooses for others itself."""
    for placement in result.placements:
        pod = placement.pod
        if pod.pod_class.devices is not None and policies[pod.policy].delivery.binds:
            claims = claimable_devices(result.after).planned_claims(pod.pod_class.devices)
            if claims is not None:
                yield positions[pod.key], claims


def _settling(results: Sequence[RoundResult]) -> Iterator[float]:
    """Seconds until another round may place what these leave: waiting costs more by then, or a search goes on."""
    yield from (out.settles_in for result in results for out in result.unplaced if out.settles_in)
    if not results[0].after.devices.is_searched:
        yield _SEARCHES_ON


def _run_steps(planning_round: Round, steps: int, ends: Callable[[], bool], built: Callable[[], None]) -> None:
    """Takes steps while they are worth it, at least one; or exactly ``steps``, for a replay.

    Args:
        ends: whether no further step is worth its time.
        built: is called once there is a plan; the steps after it improve it.
    """
    taken = 0
    while planning_round.step():
        taken += 1
        if taken == 1:
            built()
        if taken >= steps if steps else ends():
            break


def _to_reply(
    request: RoundRequest,
    position_by_key: Mapping[str, int],
    results: list[RoundResult],
    savings: Mapping[str, Mapping[str, int]],
    tallies: dict[str, CacheStats],
    say: Say,
) -> RoundReply:
    costs = dict.fromkeys((policy.name for policy in request.policies), 0)
    for result in results:
        for placement in result.placements:
            costs[placement.pod.policy] += placement.price
        for left in result.unplaced:
            costs[left.pod.policy] += left.price
    policy_positions = {policy.name: place for place, policy in enumerate(request.policies)}
    return to_reply(
        to_plan_document(results, position_by_key, request.policies, number=request.number, savings=savings, say=say),
        costs=list(costs.values()),
        solves=sum(r.solves for r in results),
        arcs=max(r.arcs for r in results),
        backfill_history=results[0].holds,
        settles_in=min(_settling(results), default=0.0),
        contradictions=list(
            dict.fromkeys((policy_positions[c.policy], c.sentence) for r in results for c in r.contradictions)
        ),
        cache_tallies=[
            (name, tally.hits, tally.refreshed, tally.misses, tally.rows) for name, tally in tallies.items()
        ],
    )
