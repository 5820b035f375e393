"""Pods whose ResourceClaim is still to be made from its template, by its controller: mostly a matter of a moment."""

import msgspec
from support.fake_cluster.eviction_scene import EvictionScene, sized
from thalweg_operator.reservations.effects import TOLD_AFTER, RequestRound
from thalweg_operator.reservations.events import PodPut
from thalweg_operator.reservations.step.advance import advance

from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import ClaimingPod, PodClaim


def with_claim(made: tuple[tuple[str, str], ...] = ()) -> PodClass:
    claiming = ClaimingPod("ns", "p", "u", (PodClaim("gpu", template="t"),), made)
    return msgspec.structs.replace(sized(100), devices=claiming)


def scene_of_a_node() -> EvictionScene:
    scene = EvictionScene()
    scene.node("a")
    scene.state.sync()
    return scene


def test_no_round_is_in_haste_before_the_claim_is_there() -> None:
    """A round before that would be in vain; kube-scheduler's DynamicResources.PreEnqueue holds such pods back, too."""
    scene = scene_of_a_node()
    for pod_class, in_haste in ((with_claim(), False), (with_claim((("gpu", "p-gpu"),)), True)):
        pod = Pod("ns", "p", "u", pod_class, scheduler_name="thalweg", resource_version=str(in_haste))
        effects = advance(scene.state.shell.state, PodPut(pod), scene.now)
        (asked,) = (each for each in effects if isinstance(each, RequestRound))
        assert asked.at_once == in_haste


async def test_it_is_told_once_that_lasts() -> None:
    """A condition and an Event for each pod with a template would be two writes in vain; others are told at once."""
    scene = scene_of_a_node()
    pod = Pod("ns", "p", "u", with_claim(), scheduler_name="thalweg")
    scene.state.upsert_pod(pod)
    scene.pod("large", 5000)
    await scene.turn()
    assert "ResourceClaim not created yet" in scene.told["p"]
    assert scene.told_after == {"p": TOLD_AFTER, "large": 0.0}
