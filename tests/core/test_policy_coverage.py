"""Policies and constraints that do nothing: which, and why."""

from typing import Any

import pytest

from flowcore.api.policies import parse_policy
from flowcore.cluster.indexes.policy_coverage import PolicyCoverage, PolicyCoverages, without_effect
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.cost_policy import KnownModels
from flowcore.model.policies import STEERED_NAME, Policy

WEB, API = {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "api"}}
MODELS = KnownModels(("CPUMemory",))


def policy(name: str, selector: Any = WEB, **spec: Any) -> Policy:
    selects = {} if selector is None else {"podSelector": selector}
    return parse_policy(name, {"selects": selects, **spec}, MODELS)


def conflict(name: str, pods: Any) -> dict[str, Any]:
    return {"name": name, "conflict": {"pods": pods, "topologyKey": "zone"}}


def covered(*policies: Policy, pods: dict[str, int], namespace: str = "shop") -> PolicyCoverages:
    """Each label ``app`` with its number of waiting pods."""
    coverages = PolicyCoverages(PolicyIndex(policies, "thalweg-system"))
    for app, count in pods.items():
        own = (("kubernetes.io/metadata.name", namespace),)
        for scheduler in ("thalweg", STEERED_NAME):
            coverages.add(namespace, (("app", app),), scheduler, own, 0, count, f"{namespace}/{app}-0")
    return coverages


def reasons(one: Policy, coverages: PolicyCoverages) -> list[str]:
    return [reason for reason, _ in without_effect(one, coverages.of(one))]


@pytest.mark.parametrize(
    ("one", "pods", "reason", "said"),
    [
        (policy("p", None), {"web": 1}, "SelectsNothing", "spec.selects is empty"),
        (policy("p"), {"api": 3}, "MatchesNoPod", "spec.selects matches no pod of the cluster"),
        (policy("p"), {}, "MatchesNoPod", "spec.selects matches no pod of the cluster"),
        (
            policy("p", constraints=[conflict("right", WEB), conflict("wrong", API)]),
            {"web": 2, "api": 5},
            "ConstraintRulesNoPod",
            "constraint wrong of policy p does nothing: its selectors match none of the 2 pods that the policy governs",
        ),
    ],
)
def test_what_does_nothing_is_named(one: Policy, pods: dict[str, int], reason: str, said: str) -> None:
    """One reason and one sentence; pods that the policy does not select change nothing."""
    ((found, sentence),) = without_effect(one, covered(one, pods=pods).of(one))
    assert found == reason
    assert said in sentence


def test_what_does_something_is_not_named() -> None:
    """Each constraint rules a governed pod, of one kind or another."""
    one = policy("p", {}, constraints=[conflict("a", WEB), conflict("b", API)])
    assert reasons(one, covered(one, pods={"web": 1, "api": 1})) == []
    exclusive = {"name": "xor", "exclusive": {"groups": [API, WEB], "topologyKey": "zone"}}
    one = policy("p", WEB, constraints=[exclusive])
    assert reasons(one, covered(one, pods={"web": 1})) == []


def test_the_second_of_two_policies_for_the_same_pods() -> None:
    """It governs nothing, and its name is why; with a lower precedence of its own it comes first."""
    first, second = policy("a"), policy("b")
    coverages = covered(first, second, pods={"web": 4})
    assert reasons(first, coverages) == []
    ((reason, sentence),) = without_effect(second, coverages.of(second))
    assert reason == "AnotherComesFirst"
    assert sentence == (
        "it governs no pod: a comes first, since its name comes first at the same precedence, such as shop/web-0"
    )
    assert coverages.of(second) == PolicyCoverage(overridden=4, overridden_by="a", equal="a", example="shop/web-0")


def test_pods_that_are_left_to_kube_scheduler() -> None:
    """Where a policy with delivery Extender selects only pods of system namespaces."""
    one = policy("p", delivery="Extender")
    coverages = covered(one, pods={"web": 1}, namespace="thalweg-system")
    assert reasons(one, coverages) == ["LeftToKubeScheduler"]
