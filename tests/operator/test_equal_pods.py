"""Equal pods of one round, and room for one of them: the one that came first gets it, as in kube-scheduler's queue."""

import pytest
from support.fake_cluster.eviction_scene import EvictionScene


def scene_with_room_for_one() -> EvictionScene:
    scene = EvictionScene()
    scene.node("a")
    scene.state.sync()
    return scene


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_of_one_second(names: str) -> None:
    """The API server's times are whole seconds: within one the order of the watch says it, not the names."""
    scene = scene_with_room_for_one()
    for name in names:
        scene.pod(name, 600, created=900.0)
    await scene.turn()
    assert scene.bound == {f"ns/{names[0]}": "a"}


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_after_a_restart(names: str) -> None:
    """The first list is by name, and all pods that were never told why they wait count as new."""
    scene = scene_with_room_for_one()
    for name in sorted(names):
        scene.pod(name, 600, created=900.0 + names.index(name))
    await scene.turn()
    assert scene.bound == {f"ns/{names[0]}": "a"}
