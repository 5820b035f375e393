"""What a pod demands and what it would rather have of the pods around it: pod affinity and anti-affinity, spread.

Source: core/v1 PodAffinityTerm and TopologySpreadConstraint, kube-scheduler framework (GetAffinityTerms) and
plugins/podtopologyspread/common.go.
"""

from __future__ import annotations

import msgspec

from flowcore.model.selectors import LabelSelector


class AffinityTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A pod affinity or anti-affinity term.

    ``namespaces`` are those the term lists (its own pod's when it lists none); ``namespace_selector``
    adds those it selects. No selector: the term speaks of no pod.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None


class WeightedTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A preferred term: of affinity with its weight, of anti-affinity with its weight below zero."""

    weight: int
    term: AffinityTerm

    @property
    def selector(self) -> LabelSelector | None:
        """The term's."""
        return self.term.selector


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False):
    """A topology spread constraint; ``matchLabelKeys`` are part of the selector already.

    ``honors_affinity`` and ``honors_taints``: nodes that the pod's node affinity or its tolerations rule out are
    not counted.
    """

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class Limit(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """At most so many pods of a description in a node's domain once the pod that has this rule is there too.

    What policies' constraints come to for a pod (``constrained``); it holds for the pod that has it as it is placed.
    Nodes without the label are in no domain and take none.

    Attributes:
        constraint: whose it is, for people: "constraint az of policy shop".
        topology_key: "": the whole cluster is one domain.
        selectors, namespaces: the description: pods that any of the former selects, in namespaces that the latter
            selects by their labels (None: in all).
        most: the pod itself counts where the description meets it; 0: none of them may be there.
    """

    constraint: str
    topology_key: str
    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None
    most: int


class OnlyOn(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Nodes that a policy's constraint leaves to a pod: those with labels that ``nodes`` selects."""

    constraint: str
    nodes: LabelSelector


class Rules(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod demands of others; what its rules read of the pod itself is in its ``Kind``.

    Attributes:
        affinity, anti_affinity, spread: what must hold (spread: DoNotSchedule).
        limits, only_on: what the policy that governs it demands of it; kube-scheduler knows nothing of these.
        contradiction: why it can never be placed by the words of that policy, "" when it can: no node is good enough.
        preferred, soft_spread: what should (spread: ScheduleAnyway): no verdict reads it, costs do.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    soft_spread: tuple[SpreadConstraint, ...] = ()
    limits: tuple[Limit, ...] = ()
    only_on: tuple[OnlyOn, ...] = ()
    contradiction: str = ""
    #: The field with a selector that Kubernetes cannot parse, "" when all is well: no node is good enough then.
    unreadable_affinity: str = ""
    unreadable_spread: str = ""
