"""Rounds ask those who take turns with what the worker is told, no less and no more."""

import asyncio

import msgspec
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.errors import WorkerLost
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.planning.worker.planner import run_request

from flowcore.costs import MODELS
from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.backfill_history import BackfillHistory, BackfillRecord
from flowcore.model.cost_policy import KnownModels
from flowcore.model.networks import NODES, NetworkSpec


def _took(scene: EvictionScene, seconds: float) -> None:
    """The last round took so long, and placed no pod that waits."""
    scene.loop._turns.took({"ns": seconds}, scene.now, {pod.uid for pod in scene.state.waiting.values()})


async def test_a_node_that_comes_while_pods_are_gathered_helps_in_the_next_round() -> None:
    """The worker is told of it with that round. Else it would count for this one, and hundreds would wait on."""
    scene = EvictionScene()
    scene.node("full", 1)
    for number in range(300):
        scene.pod(f"p{number:03}", 1000 + number)
    await scene.loop._round()
    scene.loop._turns.took(
        {"ns": 0.2}, scene.now, {pod.uid for pod in scene.state.cluster.waiting.values()}
    )  # on a slower machine
    scene.now += 1.0
    asyncio.get_running_loop().call_soon(scene.node, "n", 1000)
    await scene.loop._round()
    assert not scene.bound, "it came too late for this round"
    _took(scene, 0.2)
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
    scene.loop._turns.took(
        {"ns": 0.2}, scene.now, {pod.uid for pod in scene.state.cluster.waiting.values()}
    )  # on a slower machine
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


class Counted(NetworkCostModel):
    """All pods together or none: it notes how many it was asked about."""

    name = "Counted"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def network(self, view: NetworkView) -> NetworkSpec:
        count = sum(alike.count for alike in view.pods)
        self.asked += [count] * bool(count)
        return NetworkSpec(arcs=(from_pods({}, arc_to(NODES, minimum=3)),))


class NetworkScene(EvictionScene):
    """A scene with a policy whose cost model draws a network, and the pods of each round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model = Counted()
        self.policies.models = KnownModels((*MODELS, "Counted"), networks=frozenset({"Counted"}))
        selects = {"podSelector": {"matchLabels": {"net": "yes"}}}
        self.policies.offer("net", "u", 1, {"selects": selects, "cost": {"model": "Counted"}, "precedence": 5})
        self.rounds: list[set[str]] = []

    async def ask(self, request: RoundRequest) -> RoundReply:
        self.rounds.append({entry.key.removeprefix("ns/") for entry in request.pending})
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoundRequest)
        return run_request(self.replica, request, {**MODELS, "Counted": self.model})


async def test_turns_of_namespaces_do_not_cut_a_network() -> None:
    """Its pods are of three kinds; whatever its namespace costs, they are planned together."""
    scene = NetworkScene()
    scene.node("n", 10_000)
    for number in range(3):
        scene.pod(f"big{number}", 20_000 + number)
    await scene.loop._round()
    _took(scene, 30.0)
    for number in range(3):
        scene.pod(f"net{number}", 100 + number, labels=(("net", "yes"),))
    for _ in range(12):
        scene.now += 20.0
        _took(scene, 30.0)
        await scene.loop._round()
    assert set(scene.model.asked) == {3}
    assert set(scene.bound) == {"ns/net0", "ns/net1", "ns/net2"}


async def test_rounds_pause_while_room_is_kept_and_rounds_have_few_pods() -> None:
    """Room that is kept for a gang is no change: who was planned beside it in vain is not planned anew without end."""
    scene = EvictionScene()
    ask, parts = scene.ask, list[int]()

    async def kept(request: RoundRequest) -> RoundReply:
        parts.append(len(request.pending))
        if len(request.pending) > 10:
            raise WorkerLost("no plan", "timeout")
        reply = await ask(request)
        reply.backfill_history = BackfillHistory(scene.now, (BackfillRecord("gang", scene.now + 600.0, 0.0, 60.0),))
        return reply

    scene.ask = kept  # type: ignore[method-assign]
    scene.node("full", 1)
    for number in range(20):
        scene.pod(f"p{number:02}", 1000 + number)
    more, rounds = True, 0
    while more and rounds < 100:
        try:
            await scene.loop._round()
        except WorkerLost:
            continue
        finally:
            rounds += 1
        more = scene.loop._batcher._changed.is_set()
        scene.loop._batcher._changed.clear()
    assert not more
    assert sum(parts) > 20, "each was planned, and the rounds had few pods"
    assert max(parts[-3:]) <= 10
