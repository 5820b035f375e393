"""Which chains of waves have an order: those where a rule of one counts pods of the other.

Affinity and spread need an order, as in ``flowcore/rules/topology/round_constraints/waves.py``: a pod that comes makes
a node legal for another one. Anti-affinity and limits need none: if all pods may be together, so may any part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from flowcore.model.pod_index import AffinityMatch, PodIndex, PodMatch, PodSignature, SpreadMatch
from flowcore.model.selectors import Labels


def ordering_matches(signature: PodSignature) -> Iterator[PodMatch]:
    """The pods that affinity and spread of a pod count."""
    constraints = signature.constraints
    if constraints is None:
        return
    if constraints.affinity:
        yield AffinityMatch(constraints.affinity)
    yield from (SpreadMatch(signature.namespace, spread.selector) for spread in constraints.spread)


def earlier_chains(
    chains: Sequence[AbstractSet[PodSignature]],
    earlier: Sequence[AbstractSet[PodSignature]],
    namespaces: Mapping[str, Labels],
) -> list[set[int]]:
    """For each chain of a plan, which chains of earlier plans come before it: indexes into ``earlier``.

    Chains of one set have no order. All their pods have the same affinity to pods of the set, and no other rule that
    needs an order. While none of them is placed, all that are planned go to one domain, and any may be the first. After
    that each is legal where it is planned.

    Args:
        chains: signatures of the pods of each chain of the plan.
        earlier: the same of chains of earlier plans.
        namespaces: labels of the namespaces.
    """
    before: list[set[int]] = [set() for _ in chains]
    if not chains or not earlier:
        return before
    together = [*earlier, *chains]
    sets = [_set_of(signatures, namespaces) for signatures in together]
    index = PodIndex.of(
        ((str(number), signature) for number, signatures in enumerate(together) for signature in signatures), namespaces
    )
    readers: dict[PodMatch, set[int]] = {}
    for number, signatures in enumerate(together):
        for signature in signatures:
            for match in ordering_matches(signature):
                readers.setdefault(match, set()).add(number)
    for match, reading in readers.items():
        counted = {int(number) for number in index.matching_pods(match).by_node}
        for later_chains, linked in ((reading, counted), (counted, reading)):
            for later in (number for number in later_chains if number >= len(earlier)):
                own_set = sets[later]
                before[later - len(earlier)].update(
                    number
                    for number in linked
                    if number < len(earlier) and (own_set is None or sets[number] != own_set)
                )
    return before


def _set_of(signatures: AbstractSet[PodSignature], namespaces: Mapping[str, Labels]) -> AffinityMatch | None:
    """The set that all these pods belong to; None: there is none, or its pods need an order.

    With affinity in several topologies the first pod of a set comes alone.
    """
    constraints = next(iter(signatures)).constraints
    if constraints is None or len({term.topology_key for term in constraints.affinity}) != 1:
        return None
    match = AffinityMatch(constraints.affinity)
    is_set = all(
        tuple(ordering_matches(signature)) == (match,) and match.includes(signature, namespaces)
        for signature in signatures
    )
    return match if is_set else None
