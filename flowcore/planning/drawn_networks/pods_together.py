"""Arcs with a gain: a unit that passes one is several pods, which go to one domain at once: a gang.

Source: the "and" construct of the seed pod-affinity-and-gangs.md, figure 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.amount_text import counted
from flowcore.model.gangs import Gang
from flowcore.model.networks import NetworkRules
from flowcore.model.policies import Policy
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem


class FormNetworkGangs(Pass):
    """Makes gangs of the pods that a network places so many at once."""

    def apply(self, problem: Problem) -> Problem:
        """A snapshot with more gangs, and pods that are in them."""
        policies = [each for each in problem.policies.values() if each.network_rules and each.network_rules.together]
        if not policies:
            return problem
        return problem.with_snapshot(_with_gangs(problem.snapshot, policies))


def _with_gangs(snapshot: Snapshot, policies: Sequence[Policy]) -> Snapshot:
    gangs, gang_of = dict(snapshot.gangs), dict[str, str]()
    for policy in policies:
        assert policy.network_rules is not None  # noqa: S101 - see apply
        own = [pod for pod in snapshot.pending if pod.policy == policy.name and pod.victim is None]
        for gang, pods in _gangs(policy.network_rules, own):
            gangs[gang.name] = gang
            gang_of |= dict.fromkeys((pod.key for pod in pods), gang.name)

    def with_gang(pod: PendingPod) -> PendingPod:
        name = gang_of.get(pod.key)
        return pod if name is None else msgspec.structs.replace(pod, gangs=(*pod.gangs, name))

    return replace(snapshot, pending=tuple(map(with_gang, snapshot.pending)), gangs=gangs)


def _gangs(rules: NetworkRules, pods: Sequence[PendingPod]) -> Iterator[tuple[Gang, Sequence[PendingPod]]]:
    """Gangs of pods that are alike as far as there are enough of these; the last one may have too few."""
    for size, key in dict.fromkeys((size, key) for _, size, key in rules.together):
        selectors = [selector for selector, *asked in rules.together if asked == [size, key]]
        kinds: dict[object, list[PendingPod]] = {}
        for pod in pods:
            if any(selector.matches(pod.signature.labels) for selector in selectors):
                kinds.setdefault((pod.pod_class, pod.signature), []).append(pod)
        ordered = [pod for of_kind in _whole_first(kinds, size) for pod in of_kind]
        for first in range(0, len(ordered), size):
            members = ordered[first : first + size]
            name = f"{counted(size, 'pod')} with {members[0].key} of {rules.name}"
            short = len(members) < size
            reason = f"{name}: only {len(members)} of them wait" if short else ""
            yield Gang(name, size, topology_key=key, unschedulable_reason=reason), members


def _whole_first(kinds: Mapping[object, list[PendingPod]], size: int) -> Iterator[list[PendingPod]]:
    """Of each kind as many as make whole gangs; then what is left of all."""
    yield from (pods[: len(pods) // size * size] for pods in kinds.values())
    yield from (pods[len(pods) // size * size :] for pods in kinds.values())
