"""A scenario: the state of a cluster to plan, and its policies. It comes from a dump or from a running operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from flowcore.api.priority_classes import PriorityClass
from flowcore.cluster.arrays.snapshot import PendingPod, Victim
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.policy_coverage import PolicyCoverages, without_effect
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.cluster.replaced_pod import find_victim, forbidden_reason, victim_key
from flowcore.cluster.running import leaving_for, running_pods
from flowcore.cluster.saved_state import AwaitedRoom
from flowcore.model.pods import Pod
from flowcore.model.policies import OBSERVED, Policy, ReschedulingMode
from flowcore.model.regret import RegretRecord
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.running_pods import RunningPods
from flowcore.model.usage import MeasuredLoad, UsageSample
from flowcore.planning.round_input import GovernedPod, RoundInput, pending_pod

#: Milli-cores and bytes of memory that a pod is expected to use; None: unknown.
Foreseen = Callable[[Pod], tuple[int, int] | None]


def nothing_foreseen(_pod: Pod) -> None:
    """Foresees no usage for any pod."""


def unchanged(policy: Policy) -> Policy:
    """Policies are in force as they are."""
    return policy


def acting(policy: Policy) -> Policy:
    """The policy with rescheduling Act and its own limits."""
    return msgspec.structs.replace(
        policy, rescheduling=msgspec.structs.replace(policy.rescheduling, mode=ReschedulingMode.ACT)
    )


@dataclass(slots=True)
class Scenario:
    """What is known of a cluster.

    Attributes:
        cluster: nodes, pods and other objects.
        policies: accepted policies by name.
        complete: whether an operator knew it: no object is missing, and pods that no policy governs are not planned.
        warnings: sentences about objects of a dump that were skipped or replaced.
        gaps: sentences about objects that a dump lacks and that another object names.
        priority_classes: by name, for pods whose priority is not written into their spec; an operator needs none.
        named: resource claims and their templates, by kind, namespace and name.
        names: which of them pods name, by key of the pod, and PriorityClasses that are not there; an operator has none.
        claim_templates: claims as ResourceClaimTemplates make them, by namespace and name of the template; an operator
            has none.
        node_samples, pod_samples: measured usage, by name and by ``namespace/name``.
        awaiting: pods that have a plan and wait for others to leave, by key.
        held: what the operator decided for policies with ``waiting: Auto`` (``BesideCluster``).
        regret: of the operator's last audits, the oldest first.
        loads, foreseen: what the operator that knew the cluster plans with by measurement (``BesideCluster``).
        unread: kinds that an API server did not list for the asker; None: a dump, which may lack objects of any kind.
        moment: when the cluster was so, in seconds since the epoch; 0: unknown. Ages count up to it.
    """

    cluster: Cluster = field(default_factory=Cluster)
    policies: dict[str, Policy] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    complete: bool = False
    gaps: list[str] = field(default_factory=list)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    named: dict[tuple[str, str, str], None] = field(default_factory=dict)
    names: dict[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    claim_templates: dict[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    node_samples: dict[str, UsageSample] = field(default_factory=dict)
    pod_samples: dict[str, UsageSample] = field(default_factory=dict)
    awaiting: dict[str, AwaitedRoom] = field(default_factory=dict)
    loads: dict[str, MeasuredLoad] = field(default_factory=dict)
    foreseen: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    regret: list[RegretRecord] = field(default_factory=list)
    unread: frozenset[str] | None = None
    moment: float = 0.0

    def running(self) -> list[Pod]:
        """Pods that use a node, also a node that is not known."""
        return [pod for pod in self.cluster.pods.values() if pod.node_name and not pod.terminal]

    def permanent(self) -> list[Pod]:
        """Running pods of DaemonSets, and static ones: they go with their node, and a new node has them too."""
        return [pod for pod in self.running() if pod.permanent or pod.static]

    @property
    def free_by_omission(self) -> str:
        """A sentence where no pod is known: then all room counts as free, which is hardly true; "": pods are known.

        An operator knows all pods: if it has none, there are none.
        """
        if self.complete or self.cluster.pods:
            return ""
        who = "the files have" if self.unread is None else "the API server lists"
        return f"{who} no Pod: everything counts as free"

    def has_namespace(self, name: str) -> bool:
        """Whether there is a namespace of this name, or a pod of one: a dump need not have namespaces."""
        return name in self.cluster.namespaces or any(pod.namespace == name for pod in self.cluster.pods.values())

    def waiting(self) -> list[Pod]:
        """Pods without a node, in the order in which they came, including pods that may not be placed.

        And deferred resizes for which others must leave.
        """
        return [pod for pod in self.cluster.waiting.values() if not pod.grows or self.cluster.lacks_room(pod)]


class GovernedScenario:
    """A scenario under its policies: the input of a round, pod by pod.

    A missing namespace counts as a namespace without labels (``unknown_namespace``).

    Args:
        as_if: what each policy in force counts as.

    Attributes:
        policies: all policies in force by name, the built-in default and ``OBSERVED`` among them.
    """

    def __init__(self, scenario: Scenario, as_if: Callable[[Policy], Policy] = unchanged) -> None:
        self._scenario, self._cluster = scenario, scenario.cluster
        self._index = PolicyIndex(scenario.policies.values())
        self._cluster.govern_gangs(self._index)
        self._namespaces = {pod.namespace: () for pod in self._cluster.pods.values()} | self._cluster.namespaces
        self.policies: Mapping[str, Policy] = {
            policy.name: as_if(policy) for policy in (*self._index.ordered, OBSERVED)
        }

    def policy_of(self, pod: Pod) -> Policy:
        """The policy that governs a pod; ``OBSERVED`` if none does: another scheduler binds it."""
        return self.policies[(self._index.of(pod, self._namespaces) or OBSERVED).name]

    def governs(self, pod: Pod) -> bool:
        """Whether a policy governs a pod."""
        return self._index.of(pod, self._namespaces) is not None

    def policies_without_effect(self) -> list[str]:
        """Sentences about policies and constraints that do nothing, and about policies that one pod has two of."""
        coverages = PolicyCoverages(self._index)
        for (namespace, labels, scheduler_name), population in self._cluster.populations.items():
            known = self._namespaces.get(namespace, ())
            coverages.add(namespace, labels, scheduler_name, known, population.placed, population.waiting)
        sentences = []
        for policy in self._scenario.policies.values():
            if policy.name == OBSERVED.name:
                continue
            coverage = coverages.of(policy)
            sentences += [f"policy {policy.name}: {sentence}" for _, sentence in without_effect(policy, coverage)]
            if coverage.governed and coverage.equal:
                sentences.append(
                    f"policies {coverage.equal} and {policy.name} have the same precedence and both match "
                    f"{coverage.overridden} pods: {coverage.equal} governs them, because its name comes first"
                )
        return sentences

    def victim_of(self, pod: Pod) -> Victim | None:
        """The running pod that a waiting pod replaces; None without one."""
        if pod.replaces is None:
            return None
        pods = self._cluster.pods
        victim = pods.get(victim_key(pod))
        if victim is not None and victim.node_name and not victim.terminal:
            victim_policy = self._index.of(victim, self._namespaces)
            if reason := forbidden_reason(pod, victim, self.policy_of(pod), victim_policy):
                return Victim(victim.key, unschedulable_reason=reason)
        usage = self._cluster.occupancy.usage_of("" if victim is None else victim.node_name)
        queue = "" if victim is None else self._cluster.queues.of(victim, self._namespaces)
        return find_victim(pod, pods, usage.ports, usage.volumes, queue)

    def running_pods(self, now: float, replaced: Collection[str]) -> RunningPods:
        """The running pods that may leave.

        Args:
            now: seconds since the epoch.
            replaced: keys of pods that waiting pods replace.
        """
        return running_pods(
            self._cluster,
            lambda pod: self.policy_of(pod) if self.governs(pod) or not self._scenario.complete else None,
            now,
            excluded=replaced,
        )

    def round_input(
        self, waiting: Sequence[Pod], foreseen: Foreseen = nothing_foreseen, *, unplanned: Collection[str] = ()
    ) -> RoundInput:
        """What a round reads of the waiting pods that may be planned.

        Args:
            foreseen: what a pod is expected to use.
            unplanned: keys of pods that count for their gangs, but are not planned.
        """
        asked = [
            GovernedPod(pod, self.policy_of(pod), self.policy_of(pod).delivery)
            for pod in waiting
            if not pod.skip_reason
        ]
        facts = _ScenarioFacts(self, self._cluster, foreseen)
        return RoundInput(
            self._cluster, asked, facts, self._policy_in_force, unplanned=unplanned, now=self._scenario.moment
        ).complete()

    def pending_pod(self, pod: Pod) -> PendingPod:
        """A waiting pod as a round would plan it, whether it may be planned or not; its gangs are left out."""
        return pending_pod(
            pod, self.policy_of(pod), _ScenarioFacts(self, self._cluster, nothing_foreseen), self._cluster
        )

    def _policy_in_force(self, pod: Pod) -> Policy | None:
        return self._index.of(pod, self._namespaces)


@dataclass(frozen=True, slots=True)
class _ScenarioFacts:
    """What a scenario tells of its waiting pods."""

    governed: GovernedScenario
    cluster: Cluster
    expected_use: Foreseen

    def rejected_nodes(self, _pod: Pod) -> tuple[str, ...]:
        return ()

    def victim_of(self, pod: Pod, _policy: Policy) -> Victim | None:
        return self.governed.victim_of(pod)

    def plannable_since(self, pod: Pod) -> float:
        return pod.unschedulable_since

    def preempts(self, pod: Pod) -> bool:
        return pod.preempts and not leaving_for(self.cluster, pod)

    def foreseen(self, pod: Pod) -> tuple[int, int] | None:
        return self.expected_use(pod)
