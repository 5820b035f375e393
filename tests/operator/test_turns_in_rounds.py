"""Rounds ask those who take turns with what the worker is told, no less and no more."""

import asyncio

from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest


async def test_a_node_that_comes_while_pods_are_gathered_helps_in_the_next_round() -> None:
    """The worker is told of it with that round. Else it would count for this one, and hundreds would wait on."""
    scene = EvictionScene()
    scene.node("full", 1)
    for number in range(300):
        scene.pod(f"p{number:03}", 1000 + number)
    await scene.loop._round()
    scene.loop._turns.took({"ns": 0.2}, scene.now)  # on a slower machine
    scene.now += 1.0
    asyncio.get_running_loop().call_soon(scene.node, "n", 1000)
    await scene.loop._round()
    assert not scene.bound, "it came too late for this round"
    scene.loop._turns.took({"ns": 0.2}, scene.now)
    scene.now += 0.01
    await scene.loop._round()
    assert scene.bound == {"ns/p000": "n"}


async def test_a_price_that_pods_wait_for_is_not_forgotten_while_others_have_their_turn() -> None:
    """The next round that time alone asks for is due when the first round said, though the second one left pods out."""
    scene, settles_in = EvictionScene(), [20.0, 0.0]
    scene.node("n", 100)
    for number in range(10):
        scene.pod(f"p{number}", 1000 + number)
    ask = scene.ask

    async def settling(request: RoundRequest) -> RoundReply:
        reply = await ask(request)
        if request.pending:
            reply.settles_in = settles_in.pop(0)
        return reply

    scene.ask = settling  # type: ignore[method-assign]
    await scene.loop._round()
    scene.loop._turns.took({"ns": 0.2}, scene.now)  # on a slower machine
    scene.now += 0.5
    scene.pod("small", 100)
    await scene.loop._round()
    assert scene.bound == {"ns/small": "n"}
    assert not settles_in, "both rounds planned pods"
    scene.loop._seconds_to_next_round()
    assert scene.loop._due_at == 1020.0
    scene.now = 1020.0
    settles_in.append(0.0)
    await scene.loop._round()
    scene.loop._seconds_to_next_round()
    assert scene.loop._due_at == 1080.0, "once, and then at the regular time"
