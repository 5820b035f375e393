"""Arcs with a gain: a unit that passes one is several pods, which go to one domain at once: a gang.

Source: the "and" construct of the seed pod-affinity-and-gangs.md, figure 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.amount_text import as_sentence, counted
from flowcore.model.gangs import Gang
from flowcore.model.networks import NetworkRules
from flowcore.planning.drawn_networks.decided_ways import price_of_waiting
from flowcore.planning.problem.bounds.bound_notes import BoundNote
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Unplaced
from flowcore.rules.reasons.codes import GANG_INCOMPLETE


class FormNetworkGangs(Pass):
    """Makes gangs of the pods that a network places as units of several."""

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED

    @property
    def slack(self) -> int:
        """By how much a plan may cost more than one with other units."""
        return self._decided.slack

    def apply(self, problem: Problem) -> Problem:
        """A snapshot with more gangs, and pods that are in them; without pods that make no whole unit."""
        policies = [each for each in problem.policies.values() if each.network_rules and each.network_rules.units]
        if not policies:
            return problem
        snapshot, gangs, gang_of = problem.snapshot, dict(problem.snapshot.gangs), dict[str, str]()
        left, missed = dict[str, str](), dict[str, int]()
        for policy in policies:
            rules = policy.network_rules
            assert rules is not None  # noqa: S101 - see above
            demands = [demand for demand in problem.demands if demand.policy.name == policy.name]
            own = [pod for demand in demands for pod in demand.group.pods if pod.victim is None]
            is_one_of_several = len(demands) > 1 or any(pod.gangs for pod in own)
            for gang, pods in _gangs(rules, own):
                keys = [pod.key for pod in pods]
                if len(pods) < gang.min_placed:
                    left |= dict.fromkeys(keys, f"{gang.name}: only {len(pods)} of them wait")
                    missed |= dict.fromkeys(keys if is_one_of_several else (), 0)
                else:
                    gangs[gang.name] = msgspec.structs.replace(gang, is_one_of_several=is_one_of_several)
                    gang_of |= dict.fromkeys(keys, gang.name)
        slack, _ = price_of_waiting(problem, missed, ())
        unplaced = tuple(
            Unplaced(pod, as_sentence(left[pod.key]), int(price), GANG_INCOMPLETE, more_nodes_help=False)
            for demand in (problem.demands if left else ())
            for pod, price in zip(demand.group.pods, demand.prices, strict=True)
            if pod.key in left
        )
        self._decided = Decided(unplaced=unplaced, slack=slack, notes=(BoundNote.WAYS,) if slack else ())

        def with_gang(pod: PendingPod) -> PendingPod:
            name = gang_of.get(pod.key)
            return pod if name is None else msgspec.structs.replace(pod, gangs=(*pod.gangs, name))

        pending = tuple(with_gang(pod) for pod in snapshot.pending if pod.key not in left)
        return problem.with_snapshot(replace(snapshot, pending=pending, gangs=gangs))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with the pods that make no whole unit; it may cost more for the units that were decided."""
        return candidate.with_decided(self._decided)


def _gangs(rules: NetworkRules, pods: Sequence[PendingPod]) -> Iterator[tuple[Gang, Sequence[PendingPod]]]:
    """Gangs of pods that are alike as far as there are enough of these; the last one may have too few.

    Pods of one gang come together, and pods of none last.
    """
    for unit in dict.fromkeys(unit for _, unit in rules.units):
        selectors, size = [selector for selector, of_pods in rules.units if of_pods == unit], unit.size
        kinds: dict[object, list[PendingPod]] = {}
        for pod in sorted(pods, key=lambda pod: (not pod.gangs, pod.gangs)):
            if any(selector.matches(pod.signature.labels) for selector in selectors):
                kinds.setdefault((pod.pod_class, pod.signature), []).append(pod)
        ordered = [pod for of_kind in _whole_first(kinds, size) for pod in of_kind]
        for first in range(0, len(ordered), size):
            members = ordered[first : first + size]
            name = f"{counted(size, 'pod')} with {members[0].key} of {rules.name}"
            yield Gang(name, size, topology_key=unit.topology_key), members


def _whole_first(kinds: Mapping[object, list[PendingPod]], size: int) -> Iterator[list[PendingPod]]:
    """Of each kind as many as make whole gangs; then what is left of all."""
    yield from (pods[: len(pods) // size * size] for pods in kinds.values())
    yield from (pods[len(pods) // size * size :] for pods in kinds.values())
