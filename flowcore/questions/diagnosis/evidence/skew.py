"""Topology spread that keeps a pod out: how many pods each domain has, and what its nodes lack that may have more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowcore.model.pod_index import SpreadMatch
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.lists import listed
from flowcore.rules.filters import pod_topology_spread
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.domains import Domains
from flowcore.rules.topology.spread import CountedNodes, Spread


def skew(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each topology spread constraint that rejects a node."""
    waiting, after = pod.unplaced.pod, pod.plan.result.after
    rules, table = waiting.signature.constraints, after.table
    if rules is None:
        return
    counted_nodes = CountedNodes(rules.spread, waiting.pod_class, table)
    for rule in rules.spread:
        key = rule.topology_key
        domains, column = Domains.unordered(key, table), table.column(key)
        matching_pods = after.pod_index.matching_pods(SpreadMatch(waiting.signature.namespace, rule.selector))
        counter = DomainCounter.of(matching_pods, domains, counted_nodes(rule), table)
        spread = Spread.of(rule, waiting.signature, counter)
        minimum = spread.global_minimum(counter.initial)
        allowed = spread.allowed_domains(counter.initial, minimum)
        known = spread.eligible_domains.tolist()
        if not known or bool(allowed[known].all()):
            continue
        fewest_first = sorted(known, key=lambda domain: int(counter.initial[domain]))
        least = f"; minDomains is {rule.min_domains}" if len(known) < rule.min_domains else ""
        counts = [f"{column.values[domain]} has {int(counter.initial[domain])}" for domain in fewest_first]
        text = f"Its topology spread by {key} allows a difference of {rule.max_skew}{least}: {listed(counts)}."
        free = [domain for domain in known if allowed[domain]]
        if not free:
            yield text
            continue
        names = [column.values[domain] for domain in free]
        nodes = np.flatnonzero(np.isin(domains.codes, free))
        yield f"{text} Only {listed(names)} may have more: {pod.reasons_of(nodes, pod_topology_spread.NAME)}."
