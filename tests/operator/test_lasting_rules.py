"""Rules that a policy has hold while pods run, over several rounds: the real ledger, plans in this process."""

from typing import Any

import pytest
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.reservations.victims.replacements import RULE_TIMEOUT

from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Taint
from flowcore.model.selectors import LabelSelector, Requirement

LABELS = (("app", "web"),)
SPREAD = InterPodConstraints(
    spread=(SpreadConstraint("zone", 1, LabelSelector((Requirement("app", "In", ("web",)),))),)
)


SPEC = {
    "selects": {"podSelector": {}},
    "duringExecution": {"rules": "Replace", "also": ["TopologySpread", "Taints"]},
    "rescheduling": {"minAge": "0s"},
}


def scene_of(pods: int, **fields: object) -> EvictionScene:
    """All pods on one of two nodes, each in a zone of its own."""
    scene = EvictionScene()
    scene.policies.offer("own", "u", 2, SPEC)
    scene.node("n", labels=(("zone", "a"),))
    scene.node("m", labels=(("zone", "b"),))
    for number in range(pods):
        scene.pod(
            f"p{number}", 100, node_name="n", owner="rs", labels=LABELS,
            started=1.0 + number, created=1.0, **fields,
        )  # fmt: skip
    return scene


async def test_no_more_leave_while_the_first_are_on_their_way() -> None:
    """Those that leave count as gone, and places that are kept as taken: at each step, and to the end."""
    scene = scene_of(4, constraints=SPREAD)
    await scene.turn()
    leave = ["p3", "p2"]
    assert scene.evictions() == leave
    scene.end_evictions()
    await scene.turn()
    for name in leave:
        scene.change(name, deleting=True)
        await scene.turn()
    assert scene.evictions() == []
    for name in leave:
        scene.gone(name)
        await scene.turn()
        scene.pod(f"{name}-again", 100, owner="rs", labels=LABELS, constraints=SPREAD)
        await scene.turn()
    assert scene.evictions() == []
    assert scene.bound == {"ns/p3-again": "m", "ns/p2-again": "m"}
    for name in leave:
        scene.change(f"{name}-again", node_name="m", started=9.0)
    await scene.turn()
    assert scene.evictions() == []


async def test_a_taint_that_goes_again_in_time_evicts_nobody() -> None:
    """The eviction waits for a PodDisruptionBudget; the node has changed by then, so the plan is void."""
    scene = scene_of(1)
    await scene.turn()
    assert scene.evictions() == []
    scene.node("n", labels=(("zone", "a"),), taints=(Taint("dedicated", "gpu", "NoSchedule"),))
    await scene.turn()
    (call,) = scene.asked
    assert scene.evictions() == ["p0"]
    scene.node("n", labels=(("zone", "a"),))
    call.refused("not now")
    scene.now += 60.0
    await scene.turn()
    assert scene.evictions() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"duringExecution": {"rules": "Replace"}},
        {"duringExecution": {"rules": "Ignore", "also": ["TopologySpread"]}},
        {"rescheduling": {"minAge": "999999h"}},
    ],
    ids=str,
)
async def test_a_policy_that_does_not_ask_for_it_any_more_evicts_nobody(changes: dict[str, Any]) -> None:
    """Though the eviction is in line already, and unanswered."""
    scene = scene_of(2, constraints=SPREAD)
    await scene.turn()
    assert scene.evictions() == ["p1"]
    scene.policies.offer("own", "u", 3, SPEC | changes)
    scene.now += 1.0
    await scene.turn()
    assert scene.evictions() == []


async def test_an_eviction_that_waits_is_planned_anew() -> None:
    """Another pod has come meanwhile, placed by another scheduler, and the rule holds again."""
    scene = scene_of(2, constraints=SPREAD)
    await scene.turn()
    assert scene.evictions() == ["p1"]
    scene.pod("new", 100, node_name="m", owner="rs", labels=LABELS, constraints=SPREAD, started=9.0)
    scene.now += RULE_TIMEOUT + 1.0
    await scene.turn()
    await scene.turn()
    assert scene.evictions() == []


async def test_an_eviction_that_waits_goes_on_while_the_rule_is_broken() -> None:
    """After its plan is too old another one says the same."""
    scene = scene_of(2, constraints=SPREAD)
    await scene.turn()
    scene.now += RULE_TIMEOUT + 1.0
    await scene.turn()
    await scene.turn()
    assert len(scene.evictions()) == 1
