"""Policies that contradict themselves, or the cluster: which of their pods can never be placed, in a sentence.

What is found here keeps the pods concerned waiting with that sentence, and disturbs no others. That nothing would have
been placed against the constraints does not hang on it: it only says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowcore.model.constrained import HOSTNAME, lets_nothing_in, named
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, LabelSelector
from flowcore.model.snapshot import NodeTable, Snapshot


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
    """All that can be said of these policies, their waiting pods and these nodes; policies in their order."""
    found: list[Contradiction] = []
    for policy in policies.values():
        if policy.constraints:
            waiting = [pod.kind.labels for pod in snapshot.pending if pod.policy == policy.name]
            found += _Search(policy, waiting, snapshot.table).run()
    return tuple(found)


class _Search:
    """Through one policy."""

    def __init__(self, policy: Policy, waiting: Sequence[Labels], table: NodeTable) -> None:
        self._policy, self._waiting, self._table = policy, waiting, table

    def run(self) -> Iterator[Contradiction]:
        for each in self._policy.constraints:
            name, pods = named(each, self._policy), _any_of(_selectors(each))
            for sentence in lets_nothing_in(each, self._policy):
                yield self._found(sentence, pods)
            key = _topology(each)
            if self._table.nodes and not (self._table.column(key).codes >= 0).any():
                yield self._found(f"{name} speaks of {key}, a label that no node has", pods)
            if isinstance(each, Exclusive):
                twice = _twice(each.groups)
                if any(map(twice, self._waiting)):
                    yield self._found(f"{name} has pods in two groups at once, which may share no {key}", twice)
            if isinstance(each, OneDomain):
                yield from self._together(each)

    def _together(self, together: OneDomain) -> Iterator[Contradiction]:
        """Pods that are to share a domain, and that something else keeps from it."""
        members = [labels for labels in self._waiting if together.pods.matches(labels)]
        name, here = named(together, self._policy), together.topology_key
        for other in self._policy.constraints:
            start = f"{name} and {named(other, self._policy)} contradict each other"
            if isinstance(other, Exclusive) and self._within(here, other.topology_key):
                groups = {at for at, group in enumerate(other.groups) for each in members if group.matches(each)}
                if len(groups) > 1:
                    text = f"pods of different groups are to share a {here} and may share no {other.topology_key}"
                    yield self._found(f"{start}: {text}", together.pods.matches)
                    continue
            for key, selectors, most in _caps(other):
                counted = sum(map(_any_of(selectors), members))
                if counted > most > 0 and self._within(here, key):
                    where = f"a {key}" if key else "the cluster"
                    text = f"{counted} pods are to share a {here}, and {where} takes {most} of them"
                    yield self._found(f"{start}: {text}", together.pods.matches)

    def _within(self, inner: str, outer: str) -> bool:
        """Whether nodes with one value of a label never have two of another."""
        if inner == outer or not outer:
            return True
        parts, wholes = self._table.column(inner).codes, self._table.column(outer).codes
        pairs = {pair for pair in zip(parts.tolist(), wholes.tolist(), strict=True) if min(pair) >= 0}
        return len(pairs) == len({part for part, _ in pairs})

    def _found(self, sentence: str, concerns: Callable[[Labels], bool]) -> Contradiction:
        return Contradiction(self._policy.name, sentence, concerns)


def _selectors(constraint: Constraint) -> tuple[LabelSelector, ...]:
    return constraint.groups if isinstance(constraint, Exclusive) else (constraint.pods,)


def _topology(constraint: Constraint) -> str:
    return HOSTNAME if isinstance(constraint, Global) else constraint.topology_key


def _caps(constraint: Constraint) -> Iterator[tuple[str, tuple[LabelSelector, ...], int]]:
    if isinstance(constraint, Conflict | Exclusive) and constraint.most is not None:
        yield constraint.topology_key, _selectors(constraint), constraint.most
    if isinstance(constraint, Exclusive) and constraint.most_placed is not None:
        yield "", constraint.groups, constraint.most_placed
    if isinstance(constraint, Global):
        yield HOSTNAME, (constraint.pods,), 1


def _any_of(selectors: Sequence[LabelSelector]) -> Callable[[Labels], bool]:
    return lambda labels: any(selector.matches(labels) for selector in selectors)


def _twice(selectors: Sequence[LabelSelector]) -> Callable[[Labels], bool]:
    return lambda labels: sum(selector.matches(labels) for selector in selectors) > 1
