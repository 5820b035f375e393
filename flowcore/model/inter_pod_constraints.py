"""Rules between pods: pod affinity and anti-affinity, topology spread, limits and penalties of policies.

Source: core/v1 PodAffinityTerm and TopologySpreadConstraint, kube-scheduler framework (GetAffinityTerms) and
plugins/podtopologyspread/common.go.
"""

from __future__ import annotations

import msgspec

from flowcore.model.networks import CostPart, PodsBeside, Segment
from flowcore.model.selector_index import Scope
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm
from flowcore.model.volumes import REGION, ZONE

#: The label that says which node a node is.
HOSTNAME = "kubernetes.io/hostname"
#: In place of a topology key: each node is a domain of its own. No label has this key.
EACH_NODE = "(node)"
#: Labels that the API server copies from the node to a pod when the pod is bound (PodTopologyLabels, Kubernetes 1.35).
LABELS_OF_NODES = frozenset({ZONE, REGION})


class AffinityTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A pod affinity or anti-affinity term.

    ``namespaces`` are those the term lists (its own pod's when it lists none); ``namespace_selector``
    adds those it selects. No selector: the term matches no pod. ``accepts_every_namespace``: when its own pod waits,
    it speaks of pods in every namespace (kube-scheduler before 1.37, ``kubernetes_version``).
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector | None = None
    accepts_every_namespace: bool = False

    @property
    def scope(self) -> Scope:
        """The namespaces that it is about."""
        return Scope(self.namespaces, self.namespace_selector)


class WeightedTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A preferred term: affinity with its weight, anti-affinity with its negated weight."""

    weight: int
    term: AffinityTerm

    @property
    def selector(self) -> LabelSelector | None:
        """The term's."""
        return self.term.selector

    @property
    def scope(self) -> Scope:
        """The term's."""
        return self.term.scope


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False):
    """A topology spread constraint; ``matchLabelKeys`` are part of the selector already.

    ``honors_affinity`` and ``honors_taints``: nodes that the pod's node affinity or its tolerations rule out are
    not counted. ``is_default``: a policy gives it, the pod says nothing of it (model/default_spread.py).
    ``needs_all_labels``: nodes that lack the label of any of the pod's constraints are the last choice, and not
    counted.
    """

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
    is_default: bool = False
    needs_all_labels: bool = True


class MaxPerDomain(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """At most ``max_pods`` pods that a selector selects in a node's domain, counted with the pod that has this rule.

    The constraints of policies become such limits (``with_policy_constraints``). A limit holds for the pod that has it,
    when that pod is placed. Nodes without the label are in no domain and take no such pod.

    Attributes:
        constraint: its name for people: "constraint az of policy shop".
        topology_key: "": the whole cluster is one domain; EACH_NODE: each node is.
        selectors, namespaces: the description: pods that any of the selectors selects, in namespaces whose labels
            ``namespaces`` selects (None: in all).
        max_pods: 0: no such pod may be there. The pod itself counts if the description matches it.
        nodes: the limit holds on nodes that any of these selects, and counts pods there; (): on all.
        beside: nodes by name, each with how many pods that run there count beside those that the description matches.
    """

    constraint: str
    topology_key: str
    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None
    max_pods: int
    nodes: tuple[NodeSelectorTerm, ...] = ()
    beside: PodsBeside = ()


class AllowedNodes(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Nodes that a policy leaves to a pod: those that any of ``nodes`` selects."""

    constraint: str
    nodes: tuple[NodeSelectorTerm, ...]


class NodePrice(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a way of a policy's network costs a pod that goes to a node; of several ways the cheapest counts.

    Attributes:
        nodes: that it leads to; None: all.
        cost: a constant.
        part: is added, ``weight`` times; None: nothing is.
    """

    nodes: NodeSelectorTerm | None
    cost: int
    part: CostPart | None = None
    weight: int = 1


class CountPrice(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod costs by how many pods are in its node's domain already; the description is as in ``MaxPerDomain``.

    Attributes:
        arc: of the network, for people; it tells two prices of a pod apart.
    """

    arc: str
    topology_key: str
    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None
    segments: tuple[Segment, ...]
    nodes: tuple[NodeSelectorTerm, ...] = ()
    beside: PodsBeside = ()


class MinPerDomain(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """At least so many pods in each domain, else no pod of the policy is placed; a description as in ``MaxPerDomain``.

    Attributes:
        arc: of the network, for people.
        or_none: none is enough too: a domain gets no pod, or has at least so many.
    """

    arc: str
    topology_key: str
    selectors: tuple[LabelSelector, ...]
    namespaces: LabelSelector | None
    min_pods: int
    or_none: bool
    nodes: tuple[NodeSelectorTerm, ...] = ()
    beside: PodsBeside = ()


class KindPenalty(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod costs beside pods of one kind of workload of its policy (model/workload_kinds.py).

    Attributes:
        pods, earlier: the kind: pods that ``pods`` selects and none of ``earlier`` does, in all namespaces, until they
            are gone.
        suffered: cost of the pod itself for each such pod on its node.
        inflicted: cost of each such pod on its node for the pod.
    """

    pods: LabelSelector
    earlier: tuple[LabelSelector, ...]
    suffered: int
    inflicted: int


class InterPodConstraints(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The rules of a pod; what rules read of the pod itself is in its ``PodSignature``.

    Attributes:
        affinity, anti_affinity, spread: required (spread: DoNotSchedule).
        preferred, soft_spread: preferred (spread: ScheduleAnyway): costs read them, no filter does.
        limits, allowed_nodes: required by the policy that governs the pod; unknown to kube-scheduler.
        kind, penalties: its kind of workload and what the policy says of its neighbours: costs read them, no filter.
        node_prices, count_prices: what the ways of the policy's network cost.
        minimums: of arcs of that network which the pod may pass.
        waiting_cost: what the pod costs beside its price while it waits.
        contradiction: why the constraints of that policy rule the pod out on every node, "": they do not.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    soft_spread: tuple[SpreadConstraint, ...] = ()
    limits: tuple[MaxPerDomain, ...] = ()
    allowed_nodes: tuple[AllowedNodes, ...] = ()
    contradiction: str = ""
    #: The field with a selector that Kubernetes cannot parse, so that every node is rejected; "": there is none.
    unreadable_affinity: str = ""
    unreadable_spread: str = ""
    kind: str = ""
    penalties: tuple[KindPenalty, ...] = ()
    node_prices: tuple[NodePrice, ...] = ()
    count_prices: tuple[CountPrice, ...] = ()
    minimums: tuple[MinPerDomain, ...] = ()
    waiting_cost: int = 0

    @property
    def reads_node_labels(self) -> bool:
        """Whether a pod that comes may meet a required rule by a label that it gets from its node."""
        selectors = [*(term.selector for term in self.affinity), *(spread.selector for spread in self.spread)]
        return any(
            requirement.key in LABELS_OF_NODES
            for selector in selectors
            if selector
            for requirement in selector.requirements
        )
