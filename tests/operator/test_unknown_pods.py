"""Questions about pods that the watch does not show: they change nothing, and a real pod loses nothing by them."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import aiohttp
import msgspec
import pytest
from support.extender import UNPACED_LIMITS
from support.fake_cluster.steered import CLASS, NODES, SteeredCluster
from thalweg_extender import FilterOutcome, listening
from thalweg_operator.reservations.ledger.reservation import Owner

from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE, Advice
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME
from flowcore.model.volumes import ClaimVolume, Volumes

LARGE = PodClass(requests=(("cpu", 300),))


@pytest.fixture
def world() -> SteeredCluster:
    """A pod of the binder's beside what each test brings."""
    made = SteeredCluster()
    made.pod("ours", "u-ours", scheduler_name=SCHEDULER_NAME, pod_class=LARGE)
    made.show()
    return made


def unseen(world: SteeredCluster, name: str = "theirs", **fields: Any) -> Pod:
    """A pod of the API server's that kube-scheduler knows, and we do not yet."""
    return world.pod(name, f"u-{name}", **{"scheduler_name": "default-scheduler", **fields})


def body(name: str, uid: str = "x", labels: dict[str, str] | None = None, **more: Any) -> bytes:
    """A request about a pod of this name."""
    metadata = {"namespace": "ns", "name": name, "uid": uid, "labels": labels or {}}
    return json.dumps({"Pod": {"metadata": metadata, "spec": {}}, "NodeNames": list(NODES), **more}).encode()


async def post(http: aiohttp.ClientSession, port: int, verb: str, text: bytes) -> Any:
    async with http.post(f"http://127.0.0.1:{port}/extender/{verb}", data=text) as answer:
        assert answer.status == 200
        return await answer.json()


@pytest.mark.parametrize(("name", "uid"), [("ghost", "x"), ("ours", "x"), ("ours", ""), ("bound", "u-bound")])
async def test_a_forged_pod_blocks_nobody(world: SteeredCluster, name: str, uid: str) -> None:
    """No such pod, another uid, none, or one that is bound: no node passes, and the binder's room is its own."""
    world.pod("bound", "u-bound", node_name="c", usage=CLASS.requests)
    world.show()
    victims = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    async with (
        listening("127.0.0.1", 0, world.view, limits=UNPACED_LIMITS) as port,
        aiohttp.ClientSession() as http,
    ):
        answer = await post(http, port, "filter", body(name, uid))
        assert answer["NodeNames"] == []
        assert answer["FailedAndUnresolvableNodes"] == {"a": UNSEEN_MESSAGE}
        assert await post(http, port, "prioritize", body(name, uid)) == []
        await post(http, port, "preempt", body(name, uid, NodeNameToMetaVictims=victims))
    ours = world.state.pods["ns/ours"]
    assert not any(world.state.conflicts_in_flight(ours, node) for node in ("a", "b"))
    assert world.state.reserve(ours, "a")
    assert not world.writes


async def test_a_thousand_label_sets_leave_nothing_behind(world: SteeredCluster) -> None:
    """Of pods that do not exist, and of one that does: nothing that a caller sends is kept, so memory is flat."""
    real = unseen(world, "real")
    world.show()

    def sends(start: int, number: int) -> list[bytes]:
        return [
            body(f"ghost-{at}" if at % 2 else real.name, real.uid, {f"key-{at}-{n}": "v" * 40 for n in range(20)})
            for at in range(start, start + number)
        ]

    async with (
        listening("127.0.0.1", 0, world.view, limits=UNPACED_LIMITS) as port,
        aiohttp.ClientSession() as http,
    ):

        async def throw(start: int, number: int) -> int:
            for text in sends(start, number):
                await post(http, port, ("filter", "prioritize")[start % 2], text)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = await throw(0, 300)
            after = await throw(301, 1_000)
        finally:
            tracemalloc.stop()
    assert len(world.cluster.policies._matching) <= 2
    assert after - before < 50_000  # each set is 1 kB


def test_a_real_pod_that_our_watch_shows_a_moment_later(world: SteeredCluster) -> None:
    """Held under one constant text. kube-scheduler's own status write queues it again, and then it passes."""
    pod = unseen(world)
    assert world.schedule(pod.key) == (FilterOutcome.UNKNOWN, [])
    assert world.bind("ns/ours", "a")  # so it must not have been let through
    world.change_pod(pod.key, unschedulable_message=f"0/3 nodes are available: {UNSEEN_MESSAGE}")
    world.show()
    assert world.schedule(pod.key)[0] is FilterOutcome.PASSED
    world.wait(5)
    assert not world.writes
    assert "wake" not in world.write_kinds


def test_a_real_pod_that_our_watch_shows_late(world: SteeredCluster) -> None:
    """It was asked about twice and sleeps: once it is shown it is woken, and again with growing pauses."""
    pod = unseen(world)
    for _ in range(2):
        assert world.schedule(pod.key)[0] is FilterOutcome.UNKNOWN
    world.change_pod(pod.key, unschedulable_message=f"0/3 nodes are available: {UNSEEN_MESSAGE}")
    world.show()
    woken = []
    for _ in range(600):
        world.now += 0.1
        world.look_after()
        woken += [write.pod.key for write in world.writes]
        while world.writes:
            assert world.is_wanted(world.writes[0])
            world.send(0)
    assert 3 <= len(woken) <= 7
    assert set(woken) == {pod.key}
    assert world.schedule(pod.key)[0] is FilterOutcome.PASSED
    world.change_pod(pod.key, node_name="b", usage=CLASS.requests)
    world.show()
    world.wait(200, 1.0)
    assert not world.shell.state.nominations.unseen_wakes


def test_another_pod_of_the_same_name_is_woken_no_more_often(world: SteeredCluster) -> None:
    """The pod before it, of a StatefulSet say, was still to be woken when it went."""
    for uid in ("one", "two"):
        pod = world.pod("p", uid, unschedulable_message=f"0/3 nodes are available: {UNSEEN_MESSAGE}")
        world.show()
        world.writes.clear()
        for _ in range(200):
            world.now += 0.05
            world.look_after()
        assert 2 <= len(world.writes) <= 3
    world.remove_pod(pod.key)
    world.show()
    assert not world.shell.state.nominations.unseen_wakes


def test_a_steered_pod_that_was_asked_about_before_we_knew_it(world: SteeredCluster) -> None:
    """That attempt ends after the nomination and erases it: written again, and the node is not to blame."""
    pod = unseen(world, scheduler_name=STEERED_NAME)
    assert world.schedule(pod.key)[0] is FilterOutcome.UNKNOWN
    world.show()
    assert world.plan_pod(pod.key, "a")
    world.now += 1
    world.look_after()
    world.settle()
    assert world.api[pod.key].nominated_node == "a"
    world.change_pod(pod.key, nominated_node="", unschedulable_message=f"0/3 nodes are available: {UNSEEN_MESSAGE}")
    world.show()
    world.wait(0.5)
    assert world.rejected == []
    assert world.api[pod.key].nominated_node == "a"
    assert world.schedule(pod.key) == (FilterOutcome.STEERED, ["a"])


@pytest.mark.parametrize(
    ("scheduler", "policy", "managed"),
    [
        (STEERED_NAME, {}, True),
        ("default-scheduler", {}, False),
        (
            STEERED_NAME,
            {"delivery": "Observe", "selects": {"podSelector": {}, "schedulerNames": [STEERED_NAME]}},
            False,
        ),
    ],
)
def test_preemption_for_a_pod_that_is_not_known(scheduler: str, policy: dict[str, Any], managed: bool) -> None:  # noqa: FBT001
    """Nobody is evicted for one that a policy would steer; for others kube-scheduler does as ever."""
    world = SteeredCluster(**policy)
    pod = unseen(world, scheduler_name=scheduler)
    assert world.view.advise(world.extender_pod(pod.key), NODES) == Advice(known=False, managed=managed)


def test_a_namespace_that_is_not_known(world: SteeredCluster) -> None:
    """Whether a policy selects it cannot be said: the pod waits, and nobody is evicted for it."""
    pod = unseen(world)
    world.show()
    world.state.set_namespace("ns", None)
    assert world.view.advise(world.extender_pod(pod.key), NODES) == Advice(known=False, managed=True)
    world.state.set_namespace("ns", ())
    assert world.schedule(pod.key)[0] is FilterOutcome.PASSED


def test_the_labels_of_a_request_count_for_nothing() -> None:
    """What governs a pod that is known is what the watch shows of it."""
    selects = {"podSelector": {"matchLabels": {"app": "x"}}, "schedulerNames": ["default-scheduler"]}
    world = SteeredCluster(selects=selects)
    pod = unseen(world)
    world.show()
    asked = world.extender_pod(pod.key)
    forged = type(asked)(asked.namespace, asked.name, asked.uid, {"app": "x"}, asked.scheduler_name, "")
    assert world.filter(forged, NODES)[0] is FilterOutcome.PASSED


@pytest.mark.parametrize(("volumes", "seconds"), [((), 10), ((ClaimVolume("ns", "data"),), 660)])
def test_how_long_a_pod_may_be_on_its_way(world: SteeredCluster, volumes: Volumes, seconds: int) -> None:
    """kube-scheduler provisions volumes for ten minutes: until then the binder leaves room for such a pod."""
    pod = unseen(world, pod_class=msgspec.structs.replace(CLASS, volumes=volumes))
    world.show()
    assert world.schedule(pod.key)[0] is FilterOutcome.PASSED
    world.wait(seconds - 5, 1.0)
    assert world.state.conflicts_in_flight(world.state.pods["ns/ours"], "a")
    world.wait(20, 1.0)
    assert not world.state.conflicts_in_flight(world.state.pods["ns/ours"], "a")


def test_held_as_before_once_it_is_known(world: SteeredCluster) -> None:
    """A steered pod without a plan is held under the text of the plan, not of the watch."""
    pod = unseen(world, scheduler_name=STEERED_NAME)
    world.show()
    assert world.schedule(pod.key) == (FilterOutcome.HELD, [])
    assert HELD_MESSAGE != UNSEEN_MESSAGE
    assert world.state.reserve(world.state.pods["ns/ours"], "a", Owner.BINDER)
