"""The pods that a fix is to place: which of them are alike, and which nodes would take them if they were changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.rules.filters import Verdicts, run_filters
from flowcore.rules.verdicts import VerdictCache


@dataclass(frozen=True, slots=True)
class Wanted:
    """Waiting pods that are alike.

    Attributes:
        pod: one of them, perhaps changed.
        signature: its own, with the limits of its policy.
        keys: of all of them.
    """

    pod: Pod
    signature: PodSignature
    keys: tuple[str, ...]
    policy: Policy

    def with_pod(self, pod: Pod) -> Wanted:
        """The same pods, changed."""
        return Wanted(pod, with_policy_constraints(pod.signature, self.policy), self.keys, self.policy)

    def without_requests(self) -> Wanted:
        """The same pods if they took no room."""
        pod_class = msgspec.structs.replace(self.pod.pod_class, requests=(), host_ports=())
        return Wanted(msgspec.structs.replace(self.pod, pod_class=pod_class), self.signature, self.keys, self.policy)


def wanted_pods(scenario: Scenario, keys: Sequence[str]) -> tuple[Wanted, ...]:
    """These waiting pods, those that are alike together."""
    governed = GovernedScenario(scenario)
    alike: dict[tuple[object, ...], list[Pod]] = {}
    for key in keys:
        pod = scenario.cluster.waiting[key]
        alike.setdefault((pod.pod_class, pod.signature, governed.policy_of(pod).name), []).append(pod)
    wanted = []
    for pods in alike.values():
        policy = governed.policy_of(pods[0])
        signature = with_policy_constraints(pods[0].signature, policy)
        wanted.append(Wanted(pods[0], signature, tuple(pod.key for pod in pods), policy))
    return tuple(wanted)


class Judge:
    """Says which nodes take pods beside all that a plan places."""

    def __init__(self, after: Snapshot) -> None:
        """``after``: the snapshot after the plan."""
        self.snapshot = after
        self._cache = VerdictCache.of(after)

    def fits(self, wanted: Wanted) -> Bools:
        """bool[N]: nodes that take one of these pods."""
        return self.verdicts(wanted).fits

    def verdicts(self, wanted: Wanted) -> Verdicts:
        """Verdicts of all filters."""
        return run_filters(wanted.pod.pod_class, self.snapshot, wanted.signature, self._cache.run_filter)
