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
        constraint: whose it is, for people: "policy shop: conflict az".
        topology_key: "": the whole cluster is one domain.
        selector, namespace_selector: the description; None for the latter: pods of all namespaces.
        most: at least 0. The pod itself counts where the description meets it.
    """

    constraint: str
    topology_key: str
    selector: LabelSelector
    namespace_selector: LabelSelector | None
    most: int


class Rules(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod demands of others; what its rules read of the pod itself is in its ``Kind``.

    Attributes:
        affinity, anti_affinity, spread: what must hold (spread: DoNotSchedule).
        limits: what the policy that governs it demands of it and of others.
        preferred, soft_spread: what should (spread: ScheduleAnyway): no verdict reads it, costs do.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    soft_spread: tuple[SpreadConstraint, ...] = ()
    limits: tuple[Limit, ...] = ()
    #: The field with a selector that Kubernetes cannot parse, "" when all is well: no node is good enough then.
    unreadable_affinity: str = ""
    unreadable_spread: str = ""
