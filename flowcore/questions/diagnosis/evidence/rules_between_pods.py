"""Pods that keep a pod away by affinity: its partners, those that it keeps away from, and those that keep it away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.model.inter_pod_constraints import AffinityTerm
from flowcore.model.pod_index import AffinityMatch
from flowcore.model.workloads import workload_of
from flowcore.questions.diagnosis.finding import Occupant, UnplacedCase
from flowcore.questions.diagnosis.lists import listed
from flowcore.rules.filters import inter_pod_affinity
from flowcore.rules.topology.domains import Domains

#: Characters of a selector in a sentence: it may have thousands.
_LONGEST = 100


def rules_between_pods(pod: UnplacedCase) -> Iterator[str]:
    """Sentences about the partners of a pod, about pods that it keeps away from and about pods that keep it away."""
    signature, after = pod.unplaced.pod.signature, pod.plan.result.after
    rejected = {
        rejection.reason
        for name, rejections in pod.after.by_filter
        if name == inter_pod_affinity.NAME
        for rejection in rejections
        if rejection.nodes.any()
    }
    rules = signature.constraints
    if rules is not None and rules.affinity and inter_pod_affinity.REASON_AFFINITY in rejected:
        yield _partners(pod, rules.affinity)
    if inter_pod_affinity.REASON in rejected:
        yield from _kept_away(pod)
    if rules is not None and inter_pod_affinity.REASON_ANTI_AFFINITY in rejected:
        for term in rules.anti_affinity:
            match = AffinityMatch((term,))
            beside = [each for each in pod.occupants if match.includes(each.signature, after.pod_index.namespaces)]
            if beside:
                yield f"Its anti-affinity by {term.topology_key} keeps it away from {_where(pod, beside)}."


def _partners(pod: UnplacedCase, terms: tuple[AffinityTerm, ...]) -> str:
    """Where the pods run that a pod must run beside, and what else its nodes have against it."""
    after, match = pod.plan.result.after, AffinityMatch(terms)
    wanted = " and ".join(dict.fromkeys(f"{_selector(term)} by {term.topology_key}" for term in terms))
    partners = [each for each in pod.occupants if match.includes(each.signature, after.pod_index.namespaces)]
    if not partners:
        namespaces = dict.fromkeys(name for term in terms for name in term.namespaces)
        anywhere = any(term.namespace_selector is not None or term.accepts_every_namespace for term in terms)
        where = "" if anywhere else f" in namespace{'s' * (len(namespaces) > 1)} {listed(list(namespaces))}"
        return f"It must run beside {wanted}, and no such pod runs{where}."
    near = np.ones(len(after.table.nodes), dtype=np.bool_)
    rows = [after.table.index[each.node] for each in partners]
    for term in terms:
        domains = Domains.unordered(term.topology_key, after.table)
        if not domains.labelled[rows].any():
            lack = "its node has no" if len(partners) == 1 else "no node of theirs has the"
            where = f"{_where(pod, partners)}; {lack} label {term.topology_key}"
            return f"It must run beside {wanted}, such as {where}."
        near &= domains.labelled & np.isin(domains.codes, domains.codes[rows])
    against = pod.reasons_of(np.flatnonzero(near), inter_pod_affinity.NAME)
    return f"It must run beside {wanted}, such as {_where(pod, partners)}: {against}."


def _kept_away(pod: UnplacedCase) -> Iterator[str]:
    """Pods whose own anti-affinity keeps a pod away, by workload."""
    signature, after = pod.unplaced.pod.signature, pod.plan.result.after
    own = signature.constraints is not None and bool(signature.constraints.anti_affinity)
    for term, _ in after.pod_index.anti_affinity_terms_for(signature):
        by_workload: dict[str, list[Occupant]] = defaultdict(list)
        for occupant in pod.occupants:
            rules = occupant.signature.constraints
            if rules is not None and term in rules.anti_affinity:
                by_workload[workload_of(pod.scenario.cluster.pods[occupant.key])].append(occupant)
        for workload, those in by_workload.items():
            who = _where(pod, those)
            if len(those) > 1 and pod.context.may_name(those[0].key):
                who = f"{len(those)} pods of {workload}, such as {_where(pod, those[:1])}"
            besides = "" if own else " It has no such rule itself."
            yield f"The anti-affinity of {who} keeps it away by {term.topology_key}.{besides}"


def _where(pod: UnplacedCase, those: Sequence[Occupant]) -> str:
    return listed([f"{pod.context.name(each.key)} on {each.node}" for each in those])


def _selector(term: AffinityTerm) -> str:
    text = "" if term.selector is None else term.selector.text
    text = f"{text[:_LONGEST]}..." if len(text) > _LONGEST else text
    return f"pods that match {text}" if text else "pods"
