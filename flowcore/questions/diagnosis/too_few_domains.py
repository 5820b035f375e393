"""Pods that keep apart from each other, and are more than the domains that they may use: four replicas, three zones."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm
from flowcore.model.pod_index import AffinityMatch
from flowcore.questions.diagnosis.answers import WhyKind
from flowcore.questions.diagnosis.finding import Finding, UnplacedCase
from flowcore.rules.filters import inter_pod_affinity, node_ports, node_resources_fit
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains

#: Filters that other pods decide: a node that only these reject may be used.
_BY_OTHER_PODS = (inter_pod_affinity.NAME, node_ports.NAME, node_resources_fit.NAME)


def too_few_domains(pod: UnplacedCase) -> Finding | None:
    """The finding for a pod that requires anti-affinity to pods like it where each domain has one; None: not so."""
    rules = pod.unplaced.pod.signature.constraints
    for term in rules.anti_affinity if rules is not None else ():
        if _matches(term, pod) and (finding := _full(term, pod)):
            return finding
    return None


def _matches(term: AffinityTerm, pod: UnplacedCase) -> bool:
    index = pod.plan.result.after.pod_index
    return AffinityMatch((term,)).includes(pod.unplaced.pod.signature, index.namespaces)


def _full(term: AffinityTerm, pod: UnplacedCase) -> Finding | None:
    after: Snapshot = pod.plan.result.after
    domains = Domains.unordered(term.topology_key, after.table)
    counter = DomainCounter.of(after.pod_index.matching_pods(AffinityMatch((term,))), domains, None, after.table)
    usable = np.unique(domains.codes[_usable(pod) & domains.labelled])
    if not len(usable) or not (counter.initial[usable] > 0).all():
        return None
    match, namespaces = AffinityMatch((term,)), after.pod_index.namespaces
    waiting = sum(match.includes(each.pod.signature, namespaces) for each in pod.plan.result.unplaced)
    wanted, count, word = int(counter.initial.sum()) + waiting, len(usable), _word(term.topology_key)
    has = f"The only {word} that it may use has one" if count == 1 else f"Each of {count} {word}s has one"
    evidence = f"{has}, and {wanted} pods want one each: its anti-affinity by {term.topology_key} keeps them apart."
    step = (
        f"Run {count} of these pods, add a {word}, or prefer other {word}s in place of requiring them "
        "(preferredDuringSchedulingIgnoredDuringExecution)."
    )
    kind = WhyKind.ROOM_TAKEN if pod.before.fits.any() else WhyKind.NOTHING_FITS
    return Finding(kind, pod.unplaced.reason, (evidence,), step)


def _usable(pod: UnplacedCase) -> Bools:
    """bool[N]: nodes that nothing but other pods keeps it from."""
    usable = np.ones(len(pod.after.table.nodes), dtype=np.bool_)
    for name, rejections in pod.after.by_filter:
        for rejection in rejections if name not in _BY_OTHER_PODS else ():
            usable &= ~rejection.nodes
    return usable


def _word(topology_key: str) -> str:
    """What people call a domain: node, zone, region; else its label."""
    return "node" if topology_key == HOSTNAME else topology_key.rpartition("/")[2]
