"""A plan as steps, in an order in which each of them is legal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.planning.evictions.moves.move_prices import move_prices, seconds_run
from flowcore.planning.round import Eviction, RoundResult
from flowcore.questions.audit.finding import StepAction, WitnessStep


def steps_of(result: RoundResult, begun: Snapshot, policies: Mapping[str, Policy]) -> list[WitnessStep]:
    """The steps of a plan.

    First come the pods that wait for nobody, then pods leave, each after those whose room its replacement takes, and
    then the pods come that waited for these.

    Args:
        begun: the snapshot that was planned.
    """
    return [
        *_placed(result, at_once=True),
        *leaving_steps(result.evictions, begun, policies),
        *_placed(result, at_once=False),
    ]


def leaving_steps(evictions: Sequence[Eviction], begun: Snapshot, policies: Mapping[str, Policy]) -> list[WitnessStep]:
    """The steps of those that leave, in their order."""
    prices = prices_of([each.pod for each in evictions], begun, policies)
    return [
        _leaves(eviction, price, int(seconds_run(eviction.pod, begun.now)))
        for eviction, price in zip(evictions, prices, strict=True)
    ]


def _leaves(eviction: Eviction, price: int, lost: int) -> WitnessStep:
    """A pod that is preempted waits, whether room for its replacement was found or not: nothing relies on that."""
    moves = eviction.kind is EvictionKind.MIGRATION
    action, to = (StepAction.MOVE, eviction.to) if moves else (StepAction.EVICT, "")
    return WitnessStep(action, eviction.pod.key, to, eviction.pod.node, price, lost)


def prices_of(pods: Sequence[RunningPod], begun: Snapshot, policies: Mapping[str, Policy]) -> list[int]:
    """What it costs that each of these pods leaves its node (``move_prices``)."""
    if not pods:
        return []
    usage = np.array([begun.vector(pod.usage) for pod in pods])
    prices: list[int] = move_prices(pods, usage, policies, begun).tolist()
    return prices


def _placed(result: RoundResult, *, at_once: bool) -> Iterator[WitnessStep]:
    for placement in result.placements:
        if at_once is not bool(placement.victims):
            yield WitnessStep(StepAction.PLACE, placement.pod.key, placement.node)
