"""The document of a plan: who proposes the moves that it only proposes."""

from dataclasses import replace

import msgspec
from support.model import node, pod, snapshot

from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.planning.plan_document import to_plan_document
from flowcore.planning.round import Eviction, run_round

NAMES = {"acts": ReschedulingMode.ACT, "first": ReschedulingMode.PROPOSE, "second": ReschedulingMode.PROPOSE}
POLICIES = [Policy(name, rescheduling=ReschedulingPolicy(mode)) for name, mode in NAMES.items()]


def proposed(waiting_policy: str, **moved: str) -> list[tuple[str, str]]:
    """Which policy proposes which move; pods leave for one of a policy, each is given with its own policy."""
    result = run_round(snapshot([node("n")], [pod("w")]), {BUILT_IN.name: BUILT_IN})
    (placement,) = result.placements
    planned = msgspec.structs.replace(placement.pod, policy=waiting_policy)
    moves = [RunningPod(name, f"u-{name}", "n", planned.pod_class, policy=own) for name, own in moved.items()]
    result = replace(
        result,
        placements=(replace(placement, pod=planned),),
        proposals=tuple(Eviction(each, EvictionKind.MIGRATION, (planned.key,)) for each in moves),
    )
    document = to_plan_document([result], {planned.key: 0}, POLICIES)
    assert all(each.for_pods == (0,) for _, each in document.proposals)
    return [(POLICIES[place].name, each.key) for place, each in document.proposals]


def test_the_pods_own_policy_proposes_before_that_of_the_pod_it_leaves_for() -> None:
    """Moves are sorted by pod."""
    assert proposed("second", b="first", a="acts", c="") == [("second", "a"), ("first", "b"), ("second", "c")]


def test_what_no_policy_proposes_is_no_proposal() -> None:
    """The pod's own policy moves it by itself, or none governs it, and so it is with the pod that it leaves for."""
    assert proposed("acts", a="acts", b="", c="first") == [("first", "c")]
