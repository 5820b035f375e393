"""Pods that a waiting pod must run beside, and that wait as well."""

from __future__ import annotations

from collections.abc import Iterable

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm
from flowcore.model.pod_index import AffinityMatch, PodSignature
from flowcore.rules.topology.affinity import affinity_matches_itself

#: Characters of a selector, and terms, in a sentence at most: a pod may name thousands of values.
_LONGEST, _MOST_TERMS = 200, 3


def awaited_pods(signature: PodSignature, after: Snapshot, waiting: Iterable[PodSignature]) -> str:
    """A sentence about the required affinity of a pod that names waiting pods only; "": it does not.

    Args:
        after: the snapshot after the round.
        waiting: pods that wait after it.
    """
    constraints, pod_index = signature.constraints, after.pod_index
    if constraints is None or not constraints.affinity:
        return ""
    match = AffinityMatch(constraints.affinity)
    runs_somewhere = len(pod_index.matching_pods(match).to_arrays(after.table.index)[0])
    if runs_somewhere or affinity_matches_itself(signature, constraints, pod_index.namespaces):
        return ""
    if not any(match.includes(kind, pod_index.namespaces) for kind in waiting):
        return ""
    needed = list(dict.fromkeys(map(_needed, constraints.affinity)))
    more = len(needed) - _MOST_TERMS
    told = [*needed[:_MOST_TERMS], *([f"{more} more"] if more > 0 else [])]
    return f"It needs {' and '.join(told)}, and these wait, too."


def _needed(term: AffinityTerm) -> str:
    selector = "" if term.selector is None else term.selector.text
    text = f"{selector[:_LONGEST]}..." if len(selector) > _LONGEST else selector
    where = "on its node" if term.topology_key == HOSTNAME else f"in its {term.topology_key}"
    return f"pods that match {text} {where}" if text else f"pods {where}"
