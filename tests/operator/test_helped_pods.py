"""kube-scheduler asks again about a pod that no plan had a node for, once something may have helped it."""

from __future__ import annotations

import asyncio

import pytest
from support.fake_cluster.cluster import asked
from support.fake_cluster.steered import SteeredCluster
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.delivery import extender_view
from thalweg_operator.planning.turns.namespaces import NamespaceTurns, TurnSelection
from thalweg_operator.reservations.effects import Nominate, RequestRound
from thalweg_operator.reservations.events import PlanAsked, PlanMade, PodsUnplaced, UnplacedPod
from thalweg_operator.reservations.steering.advise import awaits_help
from thalweg_operator.reservations.steering.nomination_events import ASKED_SECONDS

from flowcore.model.advice import ExtenderPod
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass

FULL = PodClass(requests=(("cpu", 300),))


class AskingCluster(SteeredCluster):
    """Remembers which rounds were asked for since a pod was planned in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[RequestRound] = []
        self.state.request_round = self.rounds.append


@pytest.fixture
def world() -> AskingCluster:
    """A running pod on node a; a pod that was planned in vain, and that kube-scheduler has tried."""
    full = AskingCluster()
    full.create_pod("running", "r", pod_class=FULL, node_name="a", usage=FULL.requests)
    full.pod()
    full.show()
    plan_in_vain(full)
    full.change_pod("ns/p", unschedulable_message="0/3 nodes are available", unschedulable_reason="Unschedulable")
    full.show()
    full.rounds.clear()
    return full


def waiting(world: SteeredCluster, key: str = "ns/p") -> Pod:
    return world.cluster.waiting[key]


def plan_in_vain(world: SteeredCluster, *keys: str) -> None:
    """A round that has no node for pods; p where none is named."""
    pods = [waiting(world, key) for key in keys or ("ns/p",)]
    governed = [(pod, world.policies[0]) for pod in pods]
    world.apply(PlanAsked(governed))
    world.apply(PlanMade(1, world.cluster.generation, (), ()))
    world.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable") for pod, policy in governed]))


def room_comes_free(world: SteeredCluster) -> None:
    world.remove_pod("ns/running")
    world.show()


def a_node_comes(world: SteeredCluster, name: str = "d") -> None:
    world.put_node(Node(name, allocatable=(("cpu", 300), ("pods", 10))))
    world.show()


HELP = {"room comes free": room_comes_free, "a node comes": a_node_comes}


def question(world: SteeredCluster, key: str = "ns/p") -> ExtenderPod:
    return asked(waiting(world, key))


async def asking(world: SteeredCluster, key: str = "ns/p") -> asyncio.Task[None]:
    task = asyncio.create_task(world.view.until_planned(question(world, key), ["a", "d"]))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def rounds_asked_for(world: AskingCluster) -> int:
    """How often a question asked for a round."""
    return sum(effect.helped for effect in world.rounds)


def nominations(world: SteeredCluster) -> int:
    return sum(isinstance(each, Nominate) for each in world.writes)


@pytest.mark.parametrize("kind", HELP)
async def test_the_question_waits_for_the_plan(world: AskingCluster, kind: str) -> None:
    """It is answered with the pod's node: one attempt, and nothing is written."""
    HELP[kind](world)
    task = await asking(world)
    assert not task.done()
    assert rounds_asked_for(world) == 1
    world.apply(PlanAsked([(waiting(world), world.policies[0])]))
    world.plan_pod("ns/p", "a" if kind == "room comes free" else "d")
    world.apply(PlanMade(2, world.cluster.generation, (), ()))
    await task
    assert world.ask("ns/p", ["a", "d"])[0] == FilterOutcome.STEERED
    assert not nominations(world)


async def test_nothing_helped(world: AskingCluster) -> None:
    """Whatever made kube-scheduler ask: the answer waits for nothing."""
    task = await asking(world)
    assert task.done()
    assert world.view.planned_at_once(question(world), ["a"]) is True
    assert world.ask("ns/p", ["a"]) == (FilterOutcome.HELD, [])
    assert not rounds_asked_for(world)


async def test_a_plan_that_knows_what_helped_is_under_way(world: AskingCluster) -> None:
    """The question waits for it, and asks for no other one."""
    room_comes_free(world)
    world.apply(PlanAsked([(waiting(world), world.policies[0])]))
    task = await asking(world)
    assert not task.done()
    assert not rounds_asked_for(world)
    world.plan_pod("ns/p", "a")
    world.apply(PlanMade(2, world.cluster.generation, (), ()))
    await task
    assert world.ask("ns/p", ["a"])[0] == FilterOutcome.STEERED


async def test_waits_in_vain_become_rare(world: AskingCluster) -> None:
    """After each of them twice as many rounds end until a question waits again, up to a limit."""

    async def rounds_without_a_wait() -> int:
        for passed in range(2 * extender_view.MOST_UNAWAITED):
            a_node_comes(world, f"n{len(world.nodes)}")
            task = await asking(world)
            assert task.done() == (world.view.planned_at_once(question(world), ["a"]) is True)
            waited = not task.done()
            plan_in_vain(world)
            await task
            if waited:
                return passed
        raise AssertionError("no answer waits any more")

    assert [await rounds_without_a_wait() for _ in range(7)] == [0, 1, 2, 4, 8, 16, 16]


async def test_waits_in_vain_of_others_keep_no_new_pod_waiting_in_vain(world: AskingCluster) -> None:
    """A new pod's question waits for its first round all the same."""
    a_node_comes(world)
    task = await asking(world)
    plan_in_vain(world)
    await task
    world.pod("new", "n")
    world.show()
    first = await asking(world, "ns/new")
    assert not first.done()
    world.plan_pod("ns/new", "b")
    world.apply(PlanMade(3, world.cluster.generation, (), ()))
    await first
    assert world.ask("ns/new", ["b"])[0] == FilterOutcome.STEERED


async def test_who_asked_and_went(world: AskingCluster) -> None:
    """kube-scheduler has closed the connection before the plan was there: then the nomination wakes the pod."""
    room_comes_free(world)
    task = await asking(world)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.plan_pod("ns/p", "a")
    assert not nominations(world)
    world.pass_time(ASKED_SECONDS)
    world.pass_time(1.0)
    assert nominations(world) == 1


async def test_a_plan_without_pods_is_never_made(world: AskingCluster) -> None:
    """No answer waits for it: all that wait rest, as nothing helped them."""
    room_comes_free(world)
    world.apply(PlanAsked([]))
    world.rounds.clear()
    task = await asking(world)
    assert task.done()
    assert not rounds_asked_for(world)


async def test_what_helped_is_used_up_by_turns(world: AskingCluster) -> None:
    """60 pods of which each takes 20 ms to plan: once all had a turn, nothing waits for what came free before."""
    for place in range(60):
        world.pod(f"big{place}", f"u{place}", pod_class=PodClass(requests=(("cpu", 1000 + place),)))
    world.show()
    policy, turns, now = world.policies[0], NamespaceTurns(lambda pod: pod.key), 1000.0

    def plan_in_turn() -> TurnSelection:
        helped = world.ledger.helped.total
        turn = turns.choose(list(world.cluster.waiting.values()), world.cluster.generation, helped, now)
        world.apply(PlanAsked([(pod, policy) for pod in turn.pods], False, set(), helped, turn.owes))
        turns.took({"ns": 0.02 * len(turn.pods)}, now + 0.3, {pod.uid for pod in turn.pods})
        if turn.pods:
            world.apply(PlanMade(1, world.cluster.generation, (), ()))
            world.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable") for pod in turn.pods]))
        return turn

    plan_in_turn()
    room_comes_free(world)
    planned, rounds = set[str](), 0
    while len(planned) < 61:
        now, rounds = now + 0.5, rounds + 1
        turn = plan_in_turn()
        planned |= {pod.uid for pod in turn.pods}
        assert rounds < 200
        if len(planned) < 61:
            assert turn.owes
            assert awaits_help(world.shell.state, question(world, "ns/big0"))
    assert rounds > 3
    now += 0.5
    assert plan_in_turn().deferred
    assert not awaits_help(world.shell.state, question(world, "ns/big0"))


async def test_an_answer_waits_once(world: AskingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new pod's first round has no node, and something came free meanwhile: what is left of the time is waited."""
    loop, ends = asyncio.get_running_loop(), list[float]()
    until = asyncio.timeout_at

    def noted(when: float) -> asyncio.Timeout:
        ends.append(when)
        return until(when)

    monkeypatch.setattr(asyncio, "timeout_at", noted)
    world.pod("new", "n")
    world.show()
    began = loop.time()
    task = await asking(world, "ns/new")
    pods = [(waiting(world, "ns/new"), world.policies[0])]
    world.apply(PlanAsked(pods))
    room_comes_free(world)
    world.apply(PlanMade(1, world.cluster.generation, (), ()))
    world.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable") for pod, policy in pods]))
    await task
    assert len(ends) > 1
    assert max(ends) - min(ends) == 0
    assert min(ends) >= began


async def test_another_pod_gets_the_room(world: AskingCluster) -> None:
    """It is nominated, as nobody asks about it now; the one in question is held."""
    world.pod("other", "o")
    world.show()
    plan_in_vain(world, "ns/p", "ns/other")
    world.change_pod("ns/other", unschedulable_message="0/3 nodes are available", unschedulable_reason="Unschedulable")
    world.show()
    room_comes_free(world)
    task = await asking(world)
    world.apply(PlanAsked([(waiting(world), world.policies[0])]))
    world.plan_pod("ns/other", "a")
    world.apply(PlanMade(2, world.cluster.generation, (), ()))
    await task
    assert world.ask("ns/p", ["a"]) == (FilterOutcome.HELD, [])
    assert world.write_kinds == ["nominate"]
