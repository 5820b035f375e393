"""Pods whose ResourceClaim is still to be made from its template, by its controller: mostly a matter of a moment."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from support.fake_cluster.cluster import asked
from support.fake_cluster.eviction_scene import EvictionScene, sized
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.reservations.effects import TOLD_AFTER, RequestRound
from thalweg_operator.reservations.events import PodPut
from thalweg_operator.reservations.steering.advise import advise, awaits_plan
from thalweg_operator.reservations.step.advance import advance

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.resource_claims import ClaimingPod, PodClaim

#: Its controller says that the pod needs no claim.
NEEDLESS = (("gpu", ""),)
TO_BE_MADE = '0/1 nodes are available: pod "ns/p": ResourceClaim not created yet.'
GANG = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(2))
TOGETHER = {"name": "near", "together": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}}


def with_claim(made: tuple[tuple[str, str], ...] = (), name: str = "p") -> PodClass:
    claiming = ClaimingPod("ns", name, f"u-{name}", (PodClaim("gpu", template="t"),), made)
    return msgspec.structs.replace(sized(100), devices=claiming)


class Claiming(EvictionScene):
    """A scene with a node that keeps whom each round planned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.planned = set[str]()
        self.node("a", labels=(("zone", "one"),))
        self.state.sync()

    async def ask(self, request: RoundRequest) -> RoundReply:
        self.planned |= {entry.key.removeprefix("ns/") for entry in request.pending}
        return await super().ask(request)

    def claiming(self, name: str = "p", made: tuple[tuple[str, str], ...] = (), **fields: Any) -> Pod:
        """A pod with a claim comes, or its claim."""
        return self.pod(name, 100, pod_class=with_claim(made, name), **fields)

    async def round(self) -> set[str]:
        """Takes a round; names of the pods that were planned."""
        self.planned = set()
        await self.turn(1)
        return self.planned

    def waiting(self) -> Mapping[str, float]:
        """The metric of waiting pods, by reason."""
        samples = (sample for family in self.metrics.registry.collect() for sample in family.samples)
        found = {each.labels["reason"]: each.value for each in samples if each.name == "thalweg_waiting_pods"}
        return {code: number for code, number in found.items() if number}


def test_no_round_is_in_haste_before_the_claim_is_there() -> None:
    """A round before that would be in vain; kube-scheduler's DynamicResources.PreEnqueue holds such pods back, too."""
    scene = Claiming()
    for pod_class, in_haste in ((with_claim(), False), (with_claim((("gpu", "p-gpu"),)), True)):
        pod = Pod("ns", "p", "u", pod_class, scheduler_name="thalweg", resource_version=str(in_haste))
        effects = advance(scene.state.shell.state, PodPut(pod), scene.now)
        (asks,) = (each for each in effects if isinstance(each, RequestRound))
        assert asks.at_once == in_haste


@pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])
async def test_a_pod_by_itself_is_in_no_round_before_its_claim_is_there(scheduler: str) -> None:
    """It costs the pods beside it nothing, and is among those that wait. With its claim the next round plans it."""
    scene = Claiming()
    scene.claiming(scheduler_name=scheduler)
    scene.pod("plain", 100)
    assert await scene.round() == {"plain"}
    assert "ns/plain" in scene.bound
    assert (scene.told, scene.codes, scene.told_after) == ({"p": TO_BE_MADE}, {"p": "DynamicResources"}, {"p": 0.5})
    assert scene.waiting() == {"DynamicResources": 1}
    assert await scene.round() == set()
    assert scene.waiting() == {"DynamicResources": 1}

    scene.claiming(made=NEEDLESS, scheduler_name=scheduler)
    assert await scene.round() == {"p"}
    assert scene.state.reservations["ns/p"].node == "a"
    assert scene.waiting() == {}


async def test_it_is_told_once_that_lasts() -> None:
    """A condition and an Event for each pod with a template would be two writes in vain; others are told at once."""
    scene = Claiming()
    scene.claiming()
    scene.pod("large", 5000)
    await scene.turn()
    assert scene.told["p"] == TO_BE_MADE
    assert scene.told_after == {"p": TOLD_AFTER, "large": 0.0}


async def test_it_has_no_others_planned_again() -> None:
    """A pod that no node takes rests on: what comes is no help to it."""
    scene = Claiming()
    scene.pod("large", 5000)
    assert await scene.round() == {"large"}
    scene.claiming()
    assert await scene.round() == set()


async def test_a_claim_that_is_named_and_not_there() -> None:
    """Its pod says so. kube-scheduler looks for it in what it watches, as rounds do."""
    scene = Claiming()
    scene.claiming(made=(("gpu", "p-gpu"),))
    assert await scene.round() == {"p"}
    assert scene.told["p"] == '0/1 nodes are available: could not find ResourceClaim "ns/p-gpu".'


async def test_a_gang_says_which_of_its_pods_waits_for_a_claim() -> None:
    """It is planned as a whole: it lacks no room, as each of its pods says."""
    scene = Claiming()
    scene.claiming("p0", NEEDLESS, gang=GANG)
    scene.claiming("p1", gang=GANG)
    await scene.turn()
    why = "Gang ns/g: it needs 2 pods at once, 1 can be planned now; ns/p1: its ResourceClaim is not created yet."
    assert scene.told == {"p0": why, "p1": why}
    assert set(scene.codes.values()) == {"GangIncomplete"}
    scene.claiming("p1", NEEDLESS, gang=GANG)
    await scene.turn()
    assert scene.bound == {"ns/p0": "a", "ns/p1": "a"}


async def test_pods_that_are_placed_together_wait_for_the_claim_of_one() -> None:
    """A constraint places them all or none, so no round leaves that one out."""
    scene = Claiming()
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}, "constraints": [TOGETHER]})
    labels = (("app", "web"),)
    scene.pod("plain", 100, labels=labels)
    scene.claiming(labels=labels)
    await scene.turn()
    assert scene.bound == {}
    scene.claiming(made=NEEDLESS, labels=labels)
    await scene.turn()
    assert scene.bound == {"ns/plain": "a", "ns/p": "a"}


async def test_what_is_only_observed_is_planned() -> None:
    """Another scheduler has these pods; a plan says the same of them as ``thalweg plan``."""
    scene = Claiming()
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}, "delivery": "Observe"})
    scene.claiming()
    assert await scene.round() == {"p"}


async def test_a_question_waits_for_the_first_round_with_the_claim() -> None:
    """kube-scheduler asks once the claim is there: rounds before that are not the pod's first."""
    scene = Claiming()
    state, pod = scene.state.shell.state, scene.claiming(scheduler_name=STEERED_NAME)
    await scene.turn()
    assert not awaits_plan(state.cluster, state.ledger, asked(pod))
    assert advise(state, asked(pod), ["a"]).hold
    pod = scene.claiming(made=NEEDLESS, scheduler_name=STEERED_NAME)
    assert awaits_plan(state.cluster, state.ledger, asked(pod))
    await scene.turn()
    assert advise(state, asked(pod), ["a"]).node == "a"
