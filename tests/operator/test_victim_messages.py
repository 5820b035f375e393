"""What victims and those who wait for them are told: no names of pods and budgets of other namespaces."""

from collections.abc import Sequence

import msgspec
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.reservations.events import Answer

from flowcore.model.pods import Pod, PodClass

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget secret needs 3 pods."


def full_node(namespaces: Sequence[str]) -> EvictionScene:
    """A node that is full of a pod of each of these namespaces."""
    scene = EvictionScene()
    scene.node("n0")
    for namespace in namespaces:
        scene.state.set_namespace(namespace, ())
        cpu = 1000 // len(namespaces)
        amounts = (("cpu", cpu),)
        victim = Pod(
            namespace, "low", f"uid-{namespace}", PodClass(requests=amounts), (), "thalweg", "n0", usage=amounts
        )
        scene.state.upsert_pod(victim)
    urgent = PodClass(requests=(("cpu", 900),), priority=1000)
    scene.state.upsert_pod(Pod("ns", "u", "uid-u", urgent, scheduler_name="thalweg"))
    return scene


async def test_a_victim_of_another_namespace() -> None:
    """The victim learns the UID of the preemptor, the preemptor that of the victim; the log has the names."""
    scene = full_node(["other"])
    await scene.turn(2)
    (eviction,) = scene.asked
    assert eviction.write.message == "Preempted by pod uid-u on node n0"
    assert eviction.write.condition == "thalweg: preempting to accommodate a higher priority pod"
    assert eviction.write.preemptors == "ns/u"
    assert scene.told["u"] == "Waiting for pod uid-other to terminate on n0."
    eviction.refused(REFUSED, Answer.REFUSED)
    assert scene.told["u"] == (
        "Waiting for pod uid-other to terminate on n0. "
        "It cannot be evicted now: pod uid-other: the API server refuses it"
    )


async def test_a_victim_of_the_same_namespace() -> None:
    """The preemptor learns the name, and why the API server refuses."""
    scene = full_node(["ns"])
    await scene.turn(2)
    (eviction,) = scene.asked
    assert eviction.write.message == "Preempted by pod uid-u on node n0"
    eviction.refused(REFUSED, Answer.REFUSED)
    assert scene.told["u"] == f"Waiting for ns/low to terminate on n0. It cannot be evicted now: ns/low: {REFUSED}"


async def test_victims_of_several_namespaces() -> None:
    """Each has its name, or its UID."""
    scene = full_node(["ns", "other"])
    await scene.turn(2)
    assert scene.told["u"] == "Waiting for 2 pods to terminate: ns/low, pod uid-other."
    scene.answer_evictions()
    messages = {each.pod.key: each.write.message for each in scene.asked if not each.write.dry_run}
    assert messages == dict.fromkeys(("ns/low", "other/low"), "Preempted by pod uid-u on node n0")


async def test_a_victim_of_another_namespace_that_does_not_terminate() -> None:
    """That is no secret."""
    scene = full_node(["other"])
    await scene.turn(2)
    victim = scene.state.pods["other/low"]
    scene.state.upsert_pod(msgspec.structs.replace(victim, deleting=True, grace_period=10.0))
    scene.tick()
    scene.now += 41.0
    scene.tick()
    assert scene.told["u"].endswith("pod uid-other: it did not terminate within 40 s")
