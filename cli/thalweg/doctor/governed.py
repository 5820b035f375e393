"""Checks of FlowSchedulingPolicies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowcore.api.base import to_labels
from flowcore.api.ignored_fields import ignored_in
from flowcore.api.policies import KIND, parse_policy
from flowcore.cluster.indexes.policy_coverage import PolicyCoverages, without_effect
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import PolicyError
from flowcore.model.policies import BUILT_IN, Policy
from thalweg.doctor.facts import Facts, NotRead, PolicyObject
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.observing import observed_policies, observes
from thalweg.wire_objects import Pod

_CHECK = "policies"


def parsed(objects: Iterable[PolicyObject]) -> tuple[Policy, ...]:
    """The valid policies. Any cost model counts as known: this machine may lack the operator's plug-ins."""
    policies = []
    for policy in objects:
        cost = policy.spec.get("cost")
        model = cost.get("model") if isinstance(cost, dict) else None
        try:
            policies.append(
                parse_policy(policy.metadata.name, policy.spec, KnownModels((model or BUILT_IN.cost.model,)))
            )
        except PolicyError:
            continue  # the operator says so in the policy's status
    return tuple(policies)


def steered_policies(facts: Facts) -> list[Policy]:
    """The valid policies with delivery Extender; none if policies could not be read."""
    if isinstance(facts.policies, NotRead):
        return []
    return [
        policy
        for policy in parsed(facts.policies)
        if policy.delivery.through_kube_scheduler and not policy.selects.nothing
    ]


def steered_pods(facts: Facts) -> list[Pod]:
    """The pods that policies with delivery Extender govern; none if pods, namespaces or policies could not be read."""
    if isinstance(facts.policies, NotRead) or isinstance(facts.pods, NotRead) or isinstance(facts.namespaces, NotRead):
        return []
    labels = {name: to_labels(each) for name, each in facts.namespaces.items()}
    index = PolicyIndex(parsed(facts.policies), facts.service_account.namespace)
    steered = []
    for pod in facts.pods:
        meta = pod.metadata
        first = index.governing(pod.spec.scheduler_name, to_labels(meta.labels), labels.get(meta.namespace, ()))
        if first and first[0].delivery.through_kube_scheduler:
            steered.append(pod)
    return steered


def policies(facts: Facts) -> Iterator[CheckResult]:
    """Whether every policy is accepted and up to date, does something, and comes before or after others of its pods."""
    if isinstance(facts.policies, NotRead):
        yield CheckResult(_CHECK, Verdict.SKIP, facts.policies.problem)
        return
    results = [*(observed_policies(facts.policies) if observes(facts) else _not_accepted(facts.policies))]
    if not isinstance(facts.pods, NotRead) and not isinstance(facts.namespaces, NotRead):
        labels = {name: to_labels(each) for name, each in facts.namespaces.items()}
        pods = [pod for pod in facts.pods if pod.waiting or pod.spec.node_name]
        index = PolicyIndex(parsed(facts.policies), facts.service_account.namespace)
        results += _matches(index, pods, labels)
    results += _ignored(facts.policies)
    yield from results
    if not results:
        count = len(facts.policies)
        yield CheckResult(_CHECK, Verdict.OK, f"{count} {'policy is' if count == 1 else 'policies are'} in force.")


def _not_accepted(objects: Iterable[PolicyObject]) -> Iterator[CheckResult]:
    for policy in objects:
        name = policy.metadata.name
        conditions = {condition.type: condition for condition in policy.status.conditions}
        accepted = conditions.get("Accepted")
        if accepted is None or policy.status.observed_generation < policy.metadata.generation:
            yield CheckResult(
                _CHECK,
                Verdict.WARN,
                f"FlowSchedulingPolicy {name}: no operator has read generation {policy.metadata.generation} yet.",
                f"kubectl describe fsp {name}; look at the operator's log",
            )
        elif accepted.status != "True":
            yield CheckResult(
                _CHECK,
                Verdict.FAIL,
                f"FlowSchedulingPolicy {name} is not accepted: {accepted.message}",
                f"kubectl edit fsp {name}",
            )


def _ignored(objects: Iterable[PolicyObject]) -> Iterator[CheckResult]:
    for policy in objects:
        name = policy.metadata.name
        for sentence in ignored_in(KIND, policy.spec):
            yield CheckResult(
                _CHECK, Verdict.WARN, f"FlowSchedulingPolicy {name}: {sentence}.", f"kubectl edit fsp {name}"
            )


def _matches(
    index: PolicyIndex, pods: Iterable[Pod], namespaces: dict[str, tuple[tuple[str, str], ...]]
) -> Iterator[CheckResult]:
    coverages = PolicyCoverages(index)
    for pod in pods:
        namespace, bound = pod.metadata.namespace, bool(pod.spec.node_name)
        labels, of_namespace = to_labels(pod.metadata.labels), namespaces.get(namespace, ())
        coverages.add(namespace, labels, pod.spec.scheduler_name, of_namespace, bound, not bound, pod.key)
    for policy in index.ordered:
        if policy is BUILT_IN:
            continue
        coverage, show = coverages.of(policy), f"kubectl get fsp {policy.name} -o yaml"
        for _, sentence in without_effect(policy, coverage):
            yield CheckResult(_CHECK, Verdict.WARN, f"FlowSchedulingPolicy {policy.name}: {sentence}.", show)
        if coverage.governed and coverage.equal:
            yield CheckResult(
                _CHECK,
                Verdict.WARN,
                f"FlowSchedulingPolicies {coverage.equal} and {policy.name} have the same precedence and both match "
                f"pods such as {coverage.example}: {coverage.equal} governs them, because its name comes first.",
                f"Give one of them a higher spec.precedence: kubectl edit fsp {coverage.equal}",
            )
