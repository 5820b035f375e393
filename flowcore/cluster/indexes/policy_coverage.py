"""Which pods each policy selects, which of them it governs, and whether it does anything for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.constraint_limits import display_name, selectors_of
from flowcore.model.constraints import Constraint
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import Labels


@dataclass(slots=True)
class PolicyCoverage:
    """Pods of one policy.

    Attributes:
        placed, waiting: numbers of pods that it governs, with and without a node.
        overridden: number of pods that it selects and another policy governs.
        overridden_by: name of such a policy; "": none.
        equal: name of a policy that comes first by its name alone, for pods that both select; "": none.
        example: a pod of ``overridden`` or ``left_out``, as the caller names it; "": none.
        left_out: number of pods that it selects and that are left to kube-scheduler because of their namespaces.
        left_out_namespaces: these namespaces.
        idle: constraints that rule none of the pods that it governs.
    """

    placed: int = 0
    waiting: int = 0
    overridden: int = 0
    overridden_by: str = ""
    equal: str = ""
    example: str = ""
    left_out: int = 0
    left_out_namespaces: set[str] = field(default_factory=set)
    idle: tuple[Constraint, ...] = ()

    @property
    def governed(self) -> int:
        """Number of pods that it governs."""
        return self.placed + self.waiting


class PolicyCoverages:
    """Counts pods by the policies that select them.

    Args:
        policies: the policies in force.
    """

    def __init__(self, policies: PolicyIndex) -> None:
        self._policies = policies
        self._by_name = {
            policy.name: PolicyCoverage(idle=policy.constraints)
            for policy in policies.ordered
            if policy is not BUILT_IN
        }

    def add(
        self,
        namespace: str,
        labels: Labels,
        scheduler_name: str,
        namespace_labels: Labels,
        placed: int,
        waiting: int,
        example: str = "",
    ) -> None:
        """Counts equal pods with and without a node.

        Args:
            example: name of one of them, for messages.
        """
        pods = placed + waiting
        kind = scheduler_name, labels, namespace_labels
        for policy in self._policies.left_out(*kind):
            coverage = self._of(policy)
            coverage.left_out += pods
            coverage.left_out_namespaces.add(namespace)
            coverage.example = coverage.example or example
        matching = self._policies.governing(*kind)
        for place, policy in enumerate(matching):
            coverage = self._of(policy)
            if place:
                coverage.overridden += pods
                coverage.overridden_by = matching[0].name
                coverage.example = coverage.example or example
                if policy.precedence == matching[0].precedence and policy is not BUILT_IN:
                    coverage.equal = matching[0].name
                continue
            coverage.placed += placed
            coverage.waiting += waiting
            if coverage.idle:
                coverage.idle = tuple(each for each in coverage.idle if not _rules(each, labels))

    def of(self, policy: Policy) -> PolicyCoverage:
        """The pods of a policy; none where no pod was counted."""
        return self._by_name.get(policy.name, PolicyCoverage(idle=policy.constraints))

    def _of(self, policy: Policy) -> PolicyCoverage:
        return self._by_name.setdefault(policy.name, PolicyCoverage())


def without_effect(policy: Policy, coverage: PolicyCoverage) -> Iterator[tuple[str, str]]:
    """Why a policy, or a part of it, does nothing for the pods that there are: reasons, each with a sentence.

    Reasons are those of the condition Effective (docs/reference/reasons.md). A policy that governs no pod has one.
    """
    if policy.selects.nothing:
        yield "SelectsNothing", "spec.selects is empty: it governs no pod"
    elif coverage.governed:
        for constraint in coverage.idle:
            name = display_name(constraint, policy)
            said = f"{name} does nothing: its selectors match none of the {coverage.governed} pods that the policy"
            yield "ConstraintRulesNoPod", f"{said} governs"
    elif coverage.overridden:
        which = coverage.overridden_by
        why = ", since its name comes first at the same precedence" if coverage.equal == which else ""
        yield "AnotherComesFirst", f"it governs no pod: {which} comes first{why}{_such_as(coverage)}"
    elif coverage.left_out:
        where = " and ".join(sorted(coverage.left_out_namespaces))
        yield (
            "LeftToKubeScheduler",
            f"it governs no pod: pods of {where} are left to kube-scheduler{_such_as(coverage)}",
        )
    else:
        yield "MatchesNoPod", "it governs no pod: spec.selects matches no pod of the cluster"


def _such_as(coverage: PolicyCoverage) -> str:
    return f", such as {coverage.example}" if coverage.example else ""


def _rules(constraint: Constraint, labels: Labels) -> bool:
    return any(selector.matches(labels) for selector in selectors_of(constraint))
