"""The rules that policies add to pods are remembered, and are those of the policies and Services as they are."""

from __future__ import annotations

import random

import pytest

from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.default_spread import NO_SPREAD, SYSTEM_SPREAD
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import CONTROLLER, PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.services import Service, ServiceIndex

WEB = LabelSelector((Requirement("app", "In", ("web",)),))
SPREAD = InterPodConstraints(spread=(SpreadConstraint(HOSTNAME, 1, WEB),))
SIGNATURES = [
    PodSignature("team", labels, constraints=constraints)
    for labels in ((("app", "web"),), (("app", "web"), ("track", "canary")), ((CONTROLLER, "uid"), ("app", "web")))
    for constraints in (None, SPREAD)
]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_what_holds(seed: int) -> None:
    """Whatever changed since, and whoever asks with the policy of before."""
    draw = random.Random(seed)
    index, services, policies = PolicyIndex(), ServiceIndex(), [Policy("p")]
    for _ in range(200):
        match draw.randrange(4):
            case 0:
                selector = draw.choice([(), (("app", "web"),), (("track", "canary"),)])
                name = draw.choice("st")
                services.put(f"team/{name}", draw.choice([None, Service("team", name, selector)]))
            case 1:
                spread = draw.choice([NO_SPREAD, SYSTEM_SPREAD])
                limits = draw.choice([(), (Conflict("few", WEB, HOSTNAME, draw.randrange(1, 3)),)])
                policies.append(Policy(draw.choice("pq"), cost=CostPolicy(default_spread=spread), constraints=limits))
                index.replace(policies[-1:])
            case 2:
                index.age()
        signature, policy = draw.choice(SIGNATURES), draw.choice(policies[-2:])
        assert index.with_policy_rules(signature, policy, services) == with_policy_constraints(
            signature, policy, services
        )
