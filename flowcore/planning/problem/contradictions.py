"""Policies that contradict themselves or the cluster: which of their pods can never be placed, and why.

The pods concerned stay pending with that reason; others are not affected. No plan breaks a constraint either way: this
module only explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.model.constraint_limits import display_name, limits_of, reasons_nothing_fits, selectors_of
from flowcore.model.constraints import Constraint, Exclusive, Global, OneDomain
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector
from flowcore.rules.topology.domain_limits import within_limit


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Why some of a policy's pods can never be placed.

    Attributes:
        policy: its name.
        sentence: for people: "constraint az of policy shop lets no pod in: its maxPerDomain is 0".
        concerns: whether a governed pod with these labels is one of them.
    """

    policy: str
    sentence: str
    concerns: Callable[[Labels], bool]


def contradictions(snapshot: Snapshot, policies: Mapping[str, Policy]) -> tuple[Contradiction, ...]:
    """All contradictions of these policies with their own constraints, their pending pods and the nodes."""
    contradictions: list[Contradiction] = []
    for policy in policies.values():
        if policy.constraints:
            pending = [pod.signature.labels for pod in snapshot.pending if pod.policy == policy.name]
            contradictions += _Search(policy, pending, snapshot.table).run()
    return tuple(contradictions)


class _Search:
    """The search for contradictions of one policy."""

    def __init__(self, policy: Policy, pending: Sequence[Labels], table: NodeTable) -> None:
        self._policy, self._pending, self._table = policy, pending, table

    def run(self) -> Iterator[Contradiction]:
        for constraint in self._policy.constraints:
            name, concerns = display_name(constraint, self._policy), _any_of(selectors_of(constraint))
            for sentence in reasons_nothing_fits(constraint, self._policy):
                yield self._contradiction(sentence, concerns)
            key = _topology(constraint)
            if self._table.nodes and not (self._table.column(key).codes >= 0).any():
                yield self._contradiction(f"{name} names {key}, a label that no node has", concerns)
            if isinstance(constraint, Exclusive):
                in_two = _matches_several(constraint.groups)
                if any(map(in_two, self._pending)):
                    sentence = f"{name} has pods in two groups at once, which may share no {key}"
                    yield self._contradiction(sentence, in_two)
            if isinstance(constraint, OneDomain):
                yield from self._of_one_domain(constraint)

    def _of_one_domain(self, one_domain: OneDomain) -> Iterator[Contradiction]:
        """Pods that must share a domain, and that another constraint does not let into one."""
        pods = [labels for labels in self._pending if one_domain.pods.matches(labels)]
        name, key = display_name(one_domain, self._policy), one_domain.topology_key
        for second in self._policy.constraints:
            start = f"{name} and {display_name(second, self._policy)} contradict each other"
            if isinstance(second, Exclusive) and self._within(key, second.topology_key):
                groups = {
                    number for number, group in enumerate(second.groups) for labels in pods if group.matches(labels)
                }
                if len(groups) > 1:
                    text = f"pods of different groups are to share a {key} and may share no {second.topology_key}"
                    yield self._contradiction(f"{start}: {text}", one_domain.pods.matches)
                    continue
            for limit_key, selectors, limit in limits_of(second):
                count = sum(map(_any_of(selectors), pods))
                if limit > 0 and not within_limit(count, 0, limit) and self._within(key, limit_key):
                    where = f"a {limit_key}" if limit_key else "the cluster"
                    text = f"{count} pods are to share a {key}, and {where} takes {limit} of them"
                    yield self._contradiction(f"{start}: {text}", one_domain.pods.matches)

    def _within(self, inner: str, outer: str) -> bool:
        """Whether nodes with the same value of the inner label never have two values of the outer label."""
        if inner == outer or not outer:
            return True
        inner_codes, outer_codes = self._table.column(inner).codes, self._table.column(outer).codes
        pairs = {pair for pair in zip(inner_codes.tolist(), outer_codes.tolist(), strict=True) if min(pair) >= 0}
        return len(pairs) == len({code for code, _ in pairs})

    def _contradiction(self, sentence: str, concerns: Callable[[Labels], bool]) -> Contradiction:
        return Contradiction(self._policy.name, sentence, concerns)


def _topology(constraint: Constraint) -> str:
    return HOSTNAME if isinstance(constraint, Global) else constraint.topology_key


def _any_of(selectors: Sequence[LabelSelector]) -> Callable[[Labels], bool]:
    return lambda labels: any(selector.matches(labels) for selector in selectors)


def _matches_several(selectors: Sequence[LabelSelector]) -> Callable[[Labels], bool]:
    return lambda labels: sum(selector.matches(labels) for selector in selectors) > 1
