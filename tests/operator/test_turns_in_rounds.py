"""Rounds ask those who take turns with what the worker is told, no less and no more."""

import asyncio

from support.fake_cluster.eviction_scene import EvictionScene


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
