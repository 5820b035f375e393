"""Inter-pod affinity, anti-affinity and topology spread constraints of a pod."""

from __future__ import annotations

from flowcore.api.pod_limits import planned_terms
from flowcore.api.pod_objects import WireAffinity, WirePodAffinity, WirePodAffinityTerm, WirePodSpec, WireSpread
from flowcore.api.selectors import to_label_selector
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.selectors import Labels, LabelSelector, Requirement


def to_inter_pod_constraints(spec: WirePodSpec, namespace: str, labels: Labels) -> InterPodConstraints | None:
    """The rules between this pod and others; None where it has none."""
    if spec.affinity is None and not spec.topology_spread_constraints:
        return None
    affinity = spec.affinity or WireAffinity()
    sides = ((affinity.pod_affinity, "podAffinity", 1), (affinity.pod_anti_affinity, "podAntiAffinity", -1))
    terms: list[tuple[AffinityTerm, ...]] = []
    weighted: list[WeightedTerm] = []
    unreadable_affinity = ""
    for wire, name, sign in sides:
        own = wire or WirePodAffinity()
        required = tuple(_affinity_term(term, namespace) for term in own.required or ())
        # kube-scheduler refuses a pod if it cannot parse one of its preferred terms (NewPodInfo).
        preferred = tuple(
            _affinity_term(preference.pod_affinity_term or WirePodAffinityTerm(), namespace)
            for preference in own.preferred or ()
        )
        if not all(map(_is_readable, required + preferred)):
            unreadable_affinity = unreadable_affinity or f"spec.affinity.{name}"
        # One invalid term voids all terms (framework GetAffinityTerms, GetWeightedAffinityTerms).
        terms.append(required if all(map(_is_readable, required)) else ())
        if all(map(_is_readable, preferred)):
            weights = (sign * each.weight for each in own.preferred or ())
            weighted += (WeightedTerm(weight, term) for weight, term in zip(weights, preferred, strict=True) if weight)
    hard = [
        (_spread(wire, labels), f"spec.topologySpreadConstraints[{position}]")
        for position, wire in enumerate(spec.topology_spread_constraints or ())
        if wire.when_unsatisfiable == "DoNotSchedule"
    ]
    unreadable_spread = next(
        (field for spread, field in hard if spread.selector is not None and not spread.selector.is_valid), ""
    )
    # An invalid preference is ignored: it must not keep a pod waiting.
    soft = tuple(
        spread
        for wire in spec.topology_spread_constraints or ()
        if wire.when_unsatisfiable == "ScheduleAnyway"
        and ((spread := _spread(wire, labels)).selector is None or spread.selector.is_valid)
    )
    if not (terms[0] or terms[1] or weighted or hard or soft or unreadable_affinity):
        return None
    return InterPodConstraints(
        affinity=terms[0],
        anti_affinity=terms[1],
        spread=() if unreadable_spread else tuple(spread for spread, _ in hard),
        preferred=tuple(weighted),
        soft_spread=soft,
        unreadable_affinity=unreadable_affinity,
        unreadable_spread=unreadable_spread,
    )


def anti_affinity_only(spec: WirePodSpec, namespace: str) -> tuple[InterPodConstraints | None, int]:
    """The rules of a pod that is not planned: others heed its required anti-affinity, its own rules are unknown.

    Returns:
        The rules, and how many of the terms are in them: the first ones, as many as a planned pod may have.
    """
    if spec.affinity is None and not spec.topology_spread_constraints:
        return None, 0
    wire = spec.affinity and spec.affinity.pod_anti_affinity
    required = (wire and wire.required) or []
    terms = tuple(_affinity_term(term, namespace) for term in required[: planned_terms(required)])
    rules = InterPodConstraints(
        # One invalid term voids all terms, as above.
        anti_affinity=terms if all(map(_is_readable, terms)) else (),
        unreadable_affinity="spec.affinity",
        unreadable_spread="spec.topologySpreadConstraints",
    )
    return rules, len(terms)


def _is_readable(term: AffinityTerm) -> bool:
    return all(selector is None or selector.is_valid for selector in (term.selector, term.namespace_selector))


def _affinity_term(wire: WirePodAffinityTerm, namespace: str) -> AffinityTerm:
    selector = None if wire.label_selector is None else to_label_selector(wire.label_selector)
    own = (namespace,) if not wire.namespaces and wire.namespace_selector is None else ()
    return AffinityTerm(
        topology_key=wire.topology_key,
        selector=selector,
        namespaces=tuple(wire.namespaces or own),
        namespace_selector=None if wire.namespace_selector is None else to_label_selector(wire.namespace_selector),
    )


def _spread(wire: WireSpread, labels: Labels) -> SpreadConstraint:
    selector = None
    if wire.label_selector is not None:
        keys = wire.match_label_keys or ()
        merged = tuple(Requirement(key, "In", (value,)) for key, value in labels if key in keys)
        selector = LabelSelector(merged + to_label_selector(wire.label_selector).requirements)
    return SpreadConstraint(
        topology_key=wire.topology_key,
        max_skew=wire.max_skew,
        selector=selector,
        min_domains=1 if wire.min_domains is None else wire.min_domains,
        honors_affinity=wire.node_affinity_policy in (None, "Honor"),
        honors_taints=wire.node_taints_policy == "Honor",
    )
