"""The round loop: what is planned, what is dropped because the cluster moved on, what a lost worker costs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support import virtual_time
from support.fake_cluster.driven_ledger import DrivenLedger
from support.leaks import grown_containers, tracked_objects
from support.operator import until
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches.sinks import pod_decoder
from thalweg_operator.errors import WorkerLost
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.round_loop import RoundLoop
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest, request_decoder, request_encoder
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.effects import Bind, CountPlacement, RequestRound, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.steering.lone_pods import PRICES_HOLD

from flowcore.api import Interner
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.nodes import Node, Report, Taint
from flowcore.model.pod_index import CONTROLLER, PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import Claim, ClaimVolume, CsiDriver, StorageClass

CLASS = PodClass(requests=(("cpu", 500),))


class InProcess:
    """A worker without the process: the real replica and the real rounds, and a moment in which things happen."""

    def __init__(self) -> None:
        self.alive = False
        self.replica = Replica()
        self.requests: list[RoundRequest] = []
        #: Run between the plan and its delivery, one a round.
        self.meanwhile: list[Callable[[], object]] = []
        #: Raised instead of a plan, one a round; and whenever one of the pods has such a key.
        self.fail: list[Exception] = []
        self.poison: set[str] = set()

    async def start(self) -> None:
        self.alive, self.replica = True, Replica()

    async def stop(self) -> None:
        self.alive = False

    async def ask(self, request: RoundRequest) -> RoundReply:
        # Through the wire format and back, as between processes.
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoundRequest)
        self.requests.append(request)
        plans = bool(request.pending)
        if plans and self.poison & {each.key for each in request.pending}:
            await self.stop()
            raise WorkerLost("no plan after 5 s", "timeout")
        if plans and self.fail:
            await self.stop()
            raise self.fail.pop(0)
        if request.reset:
            self.replica = Replica()
        reply = run_request(self.replica, request)
        if plans and self.meanwhile:
            self.meanwhile.pop(0)()
        return reply


class RecordingBinder:
    """Binder and condition writer, as far as the ledger speaks to them."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.told: dict[str, str] = {}
        #: Reasons of conditions.
        self.conditions: dict[str, str] = {}

    def bind(self, effect: Bind) -> None:
        assert effect.pod.key not in self.bound, "bound twice"
        self.bound[effect.pod.key] = effect.node

    def set_reason(self, effect: WriteCondition) -> None:
        self.told[effect.pod.key] = effect.reason
        self.conditions[effect.pod.key] = effect.condition


class Case:
    def __init__(self) -> None:
        self.worker, self.metrics, self.ear = InProcess(), Metrics(), RecordingBinder()
        self.batcher = Batcher(0.001, 0.01)
        self.now = 1000.0
        self.wall = 1_000_000.0
        self.state = DrivenLedger(
            lambda: self.now,
            lambda effect: self.loop.request(effect),  # noqa: PLW0108 - made below
            {
                Bind: self.ear.bind,
                WriteCondition: self.ear.set_reason,
                CountPlacement: lambda effect: self.metrics.placements.labels(effect.outcome).inc(),
            },
        )
        self.policies = self.state.policies
        self.loop = RoundLoop(
            self.state.shell,
            self.policies,
            self.worker,  # type: ignore[arg-type]
            self.metrics,
            self.batcher,
            0.05,
            0.3,
            lambda: self.wall,
            bindings_sent=self._bindings_sent,
            observers=[self],
        )
        #: Numbers of the rounds that were reported.
        self.reported: list[int] = []
        #: Cleared: the bindings of a plan do not leave.
        self.sent = asyncio.Event()
        self.sent.set()
        self.state.set_namespace("ns", ())

    async def _bindings_sent(self) -> None:
        await self.sent.wait()

    def round_planned(self, request: RoundRequest, _pods: object, _reply: object) -> None:
        self.reported.append(request.number)

    def node(self, name: str = "n", cpu: int = 1000, **changes: Any) -> None:
        self.state.upsert_node(Node(name, allocatable=(("cpu", cpu), ("pods", 1000)), **changes))

    def pod(self, name: str = "p", **changes: Any) -> Pod:
        defaults: dict[str, Any] = {
            "namespace": "ns",
            "uid": f"u-{name}",
            "pod_class": CLASS,
            "scheduler_name": "thalweg",
        }
        pod = Pod(name=name, **{**defaults, **changes})
        self.state.upsert_pod(pod)
        return pod


@asynccontextmanager
async def running() -> AsyncIterator[Case]:
    """A case with its rounds."""
    made = Case()
    task = asyncio.create_task(made.loop.run())
    yield made
    assert not task.done() or task.exception() is None, task.exception()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    async with running() as made:
        yield made


async def bound(case: Case, *keys: str) -> None:
    await until(lambda: set(keys) <= set(case.ear.bound), 10, lambda: f"{keys}; bound are {case.ear.bound}")


async def told(case: Case, key: str, words: str) -> None:
    await until(lambda: words in case.ear.told.get(key, ""), 10, lambda: f"{key}: {words}; told was {case.ear.told}")


async def test_what_fits_is_bound_and_the_rest_is_told(case: Case) -> None:
    """Two of three fit."""
    case.node()
    for name in "abc":
        case.pod(name)
    await until(lambda: len(case.ear.bound) == 2 and len(case.ear.told) == 1, 10, lambda: str(case.ear.bound))
    assert not set(case.ear.bound) & set(case.ear.told)


WEB, OF_WEB = LabelSelector((Requirement("app", "In", ("web",)),)), (("app", "web"),)


def ruled(**rules: Any) -> dict[str, Any]:
    """A pod with these rules about other pods."""
    return {"constraints": InterPodConstraints(**{name: (rule,) for name, rule in rules.items()}), "labels": OF_WEB}


def mounting(claim: str) -> dict[str, Any]:
    """A pod with a claim."""
    return {"pod_class": PodClass(volumes=(ClaimVolume("ns", claim),))}


@pytest.mark.parametrize(
    ("web", "asks", "says"),
    [
        ("n", {**ruled(affinity=AffinityTerm(HOSTNAME, WEB, ("ns",))), "labels": ()}, "Unschedulable"),
        ("", {**ruled(affinity=AffinityTerm("zone", WEB, ("ns",))), "labels": ()}, "Unschedulable"),
        ("nm", ruled(anti_affinity=AffinityTerm("zone", WEB, ("ns",))), "Unschedulable"),
        ("nm", ruled(spread=SpreadConstraint("zone", 1, WEB, 3)), "Unschedulable"),
        ("", mounting("made"), "Unschedulable"),
        ("", mounting("not-there"), "VolumeRestrictions"),
    ],
    ids=[
        "beside a DaemonSet's pod",
        "beside a pod that comes",
        "apart in zones",
        "spread over zones",
        "no node has the driver",
        "a claim is missing",
    ],
)
async def test_where_autoscalers_judge_whether_a_node_helps(
    case: Case, web: str, asks: dict[str, Any], says: str
) -> None:
    """A node may have a DaemonSet's pods or pods that wait too, be in a zone that has none, and have a driver.

    It does not make a claim.
    """
    case.state.upsert_storage(CsiDriver("csi", is_needed=True))
    case.state.upsert_storage(StorageClass("late", "csi", "WaitForFirstConsumer"))
    case.state.upsert_storage(Claim("ns", "made", storage_class="late"))
    for name in "nm":
        case.node(name, 500, labels=((HOSTNAME, name), ("zone", name)))
        labels = OF_WEB if name in web else ()
        case.pod(f"on-{name}", node_name=name, usage=(("cpu", 500),), labels=labels, permanent=True)
    case.pod(**{"pod_class": CLASS, **asks})
    await told(case, "ns/p", "0/2 nodes")
    assert case.ear.conditions["ns/p"] == says


async def test_no_autoscaler_is_asked_for_nodes_where_a_policy_lets_no_pod_in(case: Case) -> None:
    """It does not know `cost.defaultSpread`: it would take the pod for one that fits there, and add nodes in vain."""
    three_zones = {"topologyKey": "zone", "maxSkew": 1, "minDomains": 3, "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"selects": {"podSelector": {}}, "cost": {"defaultSpread": [three_zones]}}
    case.policies.offer("own", "u", 1, spec)
    for name in "nm":
        case.node(name, 500, labels=((HOSTNAME, name), ("zone", name)))
        case.pod(f"on-{name}", node_name=name, usage=(("cpu", 500),), labels=((CONTROLLER, "set"),))
    case.pod(labels=((CONTROLLER, "set"),))
    await told(case, "ns/p", "0/2 nodes")
    assert case.ear.conditions["ns/p"] != "Unschedulable"


def test_room_that_comes_free_is_given_without_a_window() -> None:
    """The window of other changes never ends here. Room that no pod fits starts no round."""

    async def give() -> None:
        async with running() as case:
            case.node()
            case.pod("large", node_name="n", usage=(("cpu", 800),), scheduler_name="x")
            case.pod("small", node_name="n", usage=(("cpu", 100),), scheduler_name="x")
            case.pod("p")
            await told(case, "ns/p", "0/1 nodes")
            case.batcher._idle_window = case.batcher._max_window = 1000.0
            await asyncio.sleep(0.1)  # a window that has begun ends
            planned = len(case.worker.requests)
            case.state.delete_pod("ns/small")
            await asyncio.sleep(0.1)
            assert len(case.worker.requests) == planned
            case.state.delete_pod("ns/large")
            await bound(case, "ns/p")

    virtual_time.run(give())


def test_questions_about_helped_pods_are_gathered_into_few_rounds() -> None:
    """kube-scheduler asks as each of 200 pods goes, and no round has a node. The window of other changes never ends."""

    async def ask() -> None:
        async with running() as case:
            case.node()
            for number in range(200):
                case.pod(f"running-{number}", node_name="n", usage=(("cpu", 4),), scheduler_name="x")
            apart = (AffinityTerm(HOSTNAME, LabelSelector((Requirement("app", "In", ("web",)),)), ("ns",)),)
            case.pod("web", node_name="n", usage=(("cpu", 4),), scheduler_name="x", labels=(("app", "web"),))
            case.pod(constraints=InterPodConstraints(anti_affinity=apart))
            await told(case, "ns/p", "0/1 nodes")
            case.batcher._idle_window = case.batcher._max_window = 1000.0
            await asyncio.sleep(0.1)  # a window that has begun ends
            planned = len(case.worker.requests)
            case.batcher._max_window = 0.2
            for number in range(200):
                case.state.delete_pod(f"ns/running-{number}")
                case.loop.request(RequestRound(helped=True))
                await asyncio.sleep(0.001)
            await asyncio.sleep(1.0)
            assert 1 <= len(case.worker.requests) - planned <= 3

    virtual_time.run(ask())


async def test_bindings_leave_before_reports(case: Case) -> None:
    """What people read of a round may come a little later."""
    case.sent.clear()
    case.node()
    case.pod()
    await bound(case, "ns/p")
    planned = case.worker.requests[-1].number
    for _ in range(20):
        await asyncio.sleep(0)
    assert planned not in case.reported
    case.sent.set()
    await until(lambda: planned in case.reported, 10, lambda: f"the report of round {planned}")


async def test_a_node_deleted_between_plan_and_bind(case: Case) -> None:
    """The placement is dropped, and the pod goes to another node."""
    case.node("n")
    case.worker.meanwhile = [lambda: (case.state.delete_node("n"), case.node("other"))]
    case.pod()
    await bound(case, "ns/p")
    assert case.ear.bound == {"ns/p": "other"}


@pytest.mark.parametrize(
    "change",
    [
        {"taints": (Taint("t", "", "NoSchedule"),)},
        {"unschedulable": True},
        {"uid": "made-again"},
        {"cpu": 100},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_node_changed_between_plan_and_bind(case: Case, change: dict[str, Any]) -> None:
    """A plan for the node as it was is not carried out on the node as it is."""
    case.node("n")
    case.worker.meanwhile = [lambda: case.node("n", **change)]
    case.pod()
    if "uid" in change:  # the same once more: planned again and bound there
        await bound(case, "ns/p")
    else:
        await told(case, "ns/p", "0/1 nodes")
        assert case.ear.bound == {}
    assert case.metrics.registry.get_sample_value("thalweg_placements_total", {"outcome": "dropped"}) == 1


async def test_a_pod_deleted_between_plan_and_bind(case: Case) -> None:
    """Its placement is dropped, and its room goes to the next."""
    case.node("n", cpu=500)
    case.worker.meanwhile = [lambda: (case.state.delete_pod("ns/p"), case.pod("q"))]
    case.pod()
    await bound(case, "ns/q")
    assert list(case.ear.bound) == ["ns/q"]


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "another"},
        {"deleting": True, "blocked_reason": "it is being deleted"},
        {"node_name": "elsewhere"},
        {"terminal": True},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_pod_changed_between_plan_and_bind(case: Case, change: dict[str, Any]) -> None:
    """Replaced, deleted, bound by another or ended: not bound by the old plan."""
    case.node("n")
    uids: list[str] = []
    case.worker.meanwhile = [lambda: case.pod("p", **change)]
    case.pod()
    case.pod("sentinel", pod_class=PodClass(node_selector=(("later", "yes"),)))
    await told(case, "ns/sentinel", "0/1")
    if "uid" in change:
        await bound(case, "ns/p")
        uids = [reservation.pod.uid for reservation in case.state.reservations.values()]
        assert uids == ["another"]
    else:
        assert case.ear.bound == {}


async def test_room_taken_between_plan_and_bind(case: Case) -> None:
    """Another scheduler was faster: not overcommitted, and the pod is told."""
    case.node("n", cpu=600)
    taken = (("cpu", 500),)
    case.worker.meanwhile = [lambda: case.pod("theirs", scheduler_name="other", node_name="n", usage=taken)]
    case.pod()
    await told(case, "ns/p", "Insufficient cpu")
    assert case.ear.bound == {}


async def test_a_policy_turned_to_observe_between_plan_and_bind(case: Case) -> None:
    """From then on nothing of its pods is bound."""
    case.node("n")
    everything = {"podSelector": {}}
    case.policies.offer("p", "u", 1, {"selects": everything, "delivery": "Binder"})
    case.worker.meanwhile = [lambda: case.policies.offer("p", "u", 2, {"selects": everything, "delivery": "Observe"})]
    case.pod()
    await until(lambda: len(case.worker.requests) >= 2, 10, lambda: "another round")
    assert case.ear.bound == {}


async def test_anti_affinity_that_appears_between_plan_and_bind(case: Case) -> None:
    """A pod of another scheduler that refuses ours was bound meanwhile: its zone is left alone."""
    case.node("n", labels=(("zone", "a"),))
    term = AffinityTerm("zone", LabelSelector((Requirement("app", "In", ("web",)),)), ("ns",))
    case.worker.meanwhile = [
        lambda: case.pod(
            "hermit", scheduler_name="other", node_name="n", constraints=InterPodConstraints(anti_affinity=(term,))
        )
    ]
    case.pod(labels=(("app", "web"),))
    await told(case, "ns/p", "anti-affinity")
    assert case.ear.bound == {}


async def test_anti_affinity_that_does_not_concern_the_plan(case: Case) -> None:
    """Pods bound meanwhile in another zone, or that refuse others than ours, drop nothing."""
    case.node("n", labels=(("zone", "a"),))
    case.node("m", labels=(("zone", "b"),), cpu=100)
    web, db = (LabelSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db"))

    def meanwhile() -> None:
        for name, node, selector in (("far", "m", web), ("near", "n", db)):
            rules = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selector, ("ns",)),))
            case.pod(name, scheduler_name="other", node_name=node, constraints=rules)

    case.worker.meanwhile = [meanwhile]
    case.pod(labels=(("app", "web"),))
    await bound(case, "ns/p")
    assert case.ear.bound == {"ns/p": "n"}
    assert case.metrics.registry.get_sample_value("thalweg_placements_total", {"outcome": "dropped"}) is None


ONE_A_ZONE = {
    "selects": {"podSelector": {"matchLabels": {"app": "web"}}},
    "constraints": [{"name": "az", "conflict": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}}],
}


async def test_a_cap_that_fills_between_plan_and_bind(case: Case) -> None:
    """Another scheduler was faster: the pod waits, with the constraint for a reason, until the other one leaves."""
    case.policies.offer("shop", "u", 1, ONE_A_ZONE)
    for name in ("n", "m"):
        case.node(name, labels=(("zone", "a"),))
    case.worker.meanwhile = [
        lambda: case.pod("theirs", scheduler_name="other", node_name="m", labels=(("app", "web"),)),
    ]
    case.pod(labels=(("app", "web"),))
    full = "2 node(s) are full by constraint az of policy shop (at most 1 per zone)"
    await told(case, "ns/p", full)
    assert case.ear.bound == {}
    case.state.delete_pod("ns/theirs")
    await bound(case, "ns/p")


async def test_a_cap_is_kept_over_rounds_and_zones(case: Case) -> None:
    """Reservations count; what the cap does not concern is bound beside them."""
    case.policies.offer("shop", "u", 1, ONE_A_ZONE)
    for name, zone in (("n", "a"), ("m", "a"), ("o", "b")):
        case.node(name, labels=(("zone", zone),))
    for name in ("p", "q"):
        case.pod(name, labels=(("app", "web"),))
    await bound(case, "ns/p", "ns/q")
    assert len({node == "o" for node in case.ear.bound.values()}) == 2
    case.pod("late", labels=(("app", "web"),))
    case.pod("other", labels=(("app", "db"),))
    await bound(case, "ns/other")
    await told(case, "ns/late", "node(s) are full by constraint az of policy shop (at most 1 per zone)")
    assert "ns/late" not in case.ear.bound


async def test_a_cap_that_is_lowered_between_plan_and_bind(case: Case) -> None:
    """What was planned by other constraints is planned again."""
    case.node("n", labels=(("zone", "a"),))
    case.policies.offer("shop", "u", 1, {"selects": ONE_A_ZONE["selects"]})
    case.worker.meanwhile = [lambda: case.policies.offer("shop", "u", 2, ONE_A_ZONE)]
    case.pod("p", labels=(("app", "web"),))
    case.pod("q", labels=(("app", "web"),))
    await until(lambda: len(case.ear.bound) == 1 and len(case.ear.told) == 1, 10, lambda: str(case.ear.bound))


async def test_contradictions_reach_the_policy(case: Case) -> None:
    """They are kept with the version of the policy that has them, and gone with it."""
    case.node("n")
    case.policies.offer("shop", "u", 1, ONE_A_ZONE)
    case.pod("p", labels=(("app", "web"),))
    case.pod("free")
    sentence = "constraint az of policy shop names zone, a label that no node has"
    await told(case, "ns/p", f"1 node(s) are ruled out by a contradiction: {sentence}")
    await bound(case, "ns/free")
    await until(lambda: bool(case.loop.reports.contradictions), 10, lambda: "reports follow what pods are told")
    asked, sentences = case.loop.reports.contradictions["u"]
    assert (asked, sentences) == (case.policies.records[0].in_force, [sentence])
    case.node("n", labels=(("zone", "a"),))
    await bound(case, "ns/p")
    await until(lambda: not case.loop.reports.contradictions, 10, lambda: "reports follow the bindings")


async def test_a_policy_made_again_under_its_name_has_no_report_of_the_old_one(case: Case) -> None:
    """Reports belong to the object, not to its name; a round that began with the old object reports to nobody."""
    case.node("n", labels=(("zone", "a"),))
    case.policies.offer("shop", "old", 1, ONE_A_ZONE)
    case.pod("p", labels=(("app", "web"),))
    await until(lambda: case.loop.reports.reports.get("old") is not None, 10, lambda: str(case.loop.reports))
    assert case.loop.reports.reports["old"].placed == 1

    def made_again() -> None:
        case.policies.forget("shop", "old")
        case.policies.offer("shop", "new", 1, {"selects": {"podSelector": {"matchLabels": {"app": "none"}}}})

    case.worker.meanwhile = [made_again]
    case.pod("q", labels=(("app", "web"),))
    await bound(case, "ns/q")
    await until(lambda: not case.loop.reports.reports, 10, lambda: str(case.loop.reports))


async def test_running_pods_that_refuse_ours_reach_the_worker(case: Case) -> None:
    """Those of before the first round, and those that come and go later; a lost worker learns them anew."""
    case.node("n", labels=(("zone", "a"),))
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    rules = InterPodConstraints(anti_affinity=(AffinityTerm("zone", web, ("ns",)),))
    case.pod("hermit", scheduler_name="other", node_name="n", constraints=rules)
    case.pod(labels=(("app", "web"),))
    await told(case, "ns/p", "anti-affinity")
    case.worker.alive = False
    case.ear.told.clear()
    case.pod("q", labels=(("app", "web"),))
    await told(case, "ns/q", "anti-affinity")
    assert case.ear.bound == {}
    case.state.delete_pod("ns/hermit")
    await bound(case, "ns/p", "ns/q")


async def test_a_dropped_placement_takes_those_that_counted_on_it_along(case: Case) -> None:
    """One pod's node changed meanwhile: a pod that was planned to be near it does not go there without it."""
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    near = InterPodConstraints(affinity=(AffinityTerm("zone", web, ("ns",)),))
    case.node("n", cpu=500, labels=(("zone", "a"),))
    case.node("m", cpu=800, labels=(("zone", "a"),))
    case.worker.meanwhile = [lambda: case.node("m", cpu=100, labels=(("zone", "a"),))]
    case.pod("web", labels=(("app", "web"),), pod_class=PodClass(requests=(("cpu", 700),)))
    case.pod("near", constraints=near)
    await told(case, "ns/web", "Insufficient cpu")
    await told(case, "ns/near", "pod affinity rules")
    assert case.ear.bound == {}
    assert case.metrics.registry.get_sample_value("thalweg_placements_total", {"outcome": "dropped"}) == 2


async def test_a_pod_that_others_wait_for_starts_a_round(case: Case) -> None:
    """Bound by another scheduler, it makes its zone good for a pod that wants to be near it."""
    case.loop._resync = 60.0
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    case.node("n", labels=(("zone", "a"),))
    case.pod("near", constraints=InterPodConstraints(affinity=(AffinityTerm("zone", web, ("ns",)),)))
    await told(case, "ns/near", "pod affinity rules")
    case.pod("theirs", scheduler_name="other", node_name="n", labels=(("app", "web"),))
    await bound(case, "ns/near")


async def test_reports_of_nodes_reach_the_worker(case: Case) -> None:
    """Those of before the first round and newer ones, with no pod to plan too; a lost worker learns them anew."""
    wanting = msgspec.structs.replace(CLASS, images=("big:v1",), containers=1)
    held = Report(images=(("big:v1", 2**30), ("other:v1", 5)))
    for name in ("a", "b", "c"):
        case.node(name, cpu=100_000)
    case.node("b", cpu=100_000, report=held)
    case.pod("first", pod_class=wanting)
    await bound(case, "ns/first")
    assert case.ear.bound["ns/first"] == "b"
    case.node("b", cpu=100_000)
    case.node("c", cpu=100_000, report=held)
    case.pod("second", pod_class=wanting)
    await bound(case, "ns/second")
    assert case.ear.bound["ns/second"] == "c"
    case.worker.alive = False
    case.pod("third", pod_class=wanting)
    await bound(case, "ns/third")
    assert case.ear.bound["ns/third"] == "c"


async def test_running_pods_that_attract_ours_reach_the_worker(case: Case) -> None:
    """What pods would rather have travels as what they demand does."""
    for zone in "abc":
        case.node(zone, cpu=100_000, labels=(("zone", zone),))
    case.pod("db", scheduler_name="other", node_name="b", labels=(("app", "db"),))
    near = AffinityTerm("zone", LabelSelector((Requirement("app", "In", ("db",)),)), ("ns",))
    case.pod(constraints=InterPodConstraints(preferred=(WeightedTerm(100, near),)))
    await bound(case, "ns/p")
    assert case.ear.bound["ns/p"] == "b"


@pytest.mark.parametrize(
    ("added", "asks"), [((), False), ((("topology.kubernetes.io/zone", "z"),), False), ((("other", "z"),), True)]
)
def test_labels_that_a_binding_adds_ask_for_no_round(*, added: tuple[tuple[str, str], ...], asks: bool) -> None:
    """The API server copies zone and region of the node to a pod that is bound."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    term = AffinityTerm("kubernetes.io/hostname", LabelSelector((Requirement("app", "In", ("a",)),)), ("ns",))
    rules = InterPodConstraints(affinity=(term,))
    labels = (("app", "a"),)
    fields: dict[str, Any] = {"pod_class": CLASS, "scheduler_name": "thalweg", "constraints": rules}
    waiting = Pod("ns", "p", "u", labels=labels, **fields)
    state.upsert_pod(waiting)
    state.upsert_pod(Pod("ns", "other", "v", labels=labels, **fields))
    assert state.reserve(waiting, "n")
    before = state.rounds_requested
    bound = msgspec.structs.replace(waiting, node_name="n", labels=(*labels, *added))
    state.upsert_pod(bound)
    assert (state.rounds_requested > before) is asks


def test_other_labels_of_a_running_pod_ask_for_a_round() -> None:
    """A pod that waits may have kept away from it. What a kubelet reports of it asks for none."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    fields: dict[str, Any] = {"pod_class": CLASS, "scheduler_name": "thalweg"}
    running = Pod("ns", "web", "v", node_name="n", labels=(("app", "a"),), **fields)
    state.upsert_pod(running)
    term = AffinityTerm("kubernetes.io/hostname", LabelSelector((Requirement("app", "In", ("a",)),)), ("ns",))
    state.upsert_pod(Pod("ns", "p", "u", constraints=InterPodConstraints(anti_affinity=(term,)), **fields))
    before = state.rounds_requested
    state.upsert_pod(msgspec.structs.replace(running, started=5.0))
    assert state.rounds_requested == before
    state.upsert_pod(msgspec.structs.replace(running, labels=(("app", "b"),)))
    assert state.rounds_requested > before


@pytest.mark.parametrize("kind", ["affinity", "spread"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_pod_that_waits_for_a_zone_label_gets_its_round(*, kind: str, waits: bool) -> None:
    """Its rule selects pods by a label that they get when they are bound. Once it is gone, the label is no news."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    zone = LabelSelector((Requirement("topology.kubernetes.io/zone", "In", ("z",)),))
    rules = InterPodConstraints(
        affinity=(AffinityTerm("kubernetes.io/hostname", zone, ("ns",)),) if kind == "affinity" else (),
        spread=(SpreadConstraint("kubernetes.io/hostname", 1, zone),) if kind == "spread" else (),
    )
    other = LabelSelector((Requirement("app", "Exists"),))
    plain = InterPodConstraints(affinity=(AffinityTerm("kubernetes.io/hostname", other, ("ns",)),))
    fields: dict[str, Any] = {"pod_class": CLASS, "scheduler_name": "thalweg"}
    state.upsert_pod(Pod("ns", "late", "v", constraints=plain, **fields))
    state.upsert_pod(Pod("ns", "selects", "w", constraints=rules, **fields))
    pod = Pod("ns", "p", "u", **fields)
    state.upsert_pod(pod)
    assert state.reserve(pod, "n")
    if not waits:
        state.delete_pod("ns/selects")
    before = state.rounds_requested
    state.upsert_pod(msgspec.structs.replace(pod, node_name="n", labels=(("topology.kubernetes.io/zone", "z"),)))
    assert (state.rounds_requested > before) is waits


async def test_a_pod_whose_namespace_is_not_known_yet(case: Case) -> None:
    """Which policy governs it cannot be told without the namespace's labels: it waits for them."""
    case.node()
    spec = {"selects": {"namespaceSelector": {"matchLabels": {"kept": "back"}}}, "delivery": "Observe"}
    case.policies.offer("p", "u", 1, spec)
    case.pod("early", namespace="new")
    case.pod("sentinel")
    await bound(case, "ns/sentinel")
    assert set(case.ear.bound) == {"ns/sentinel"}
    case.state.set_namespace("new", (("kept", "back"),))
    case.pod("second")
    await bound(case, "ns/second")
    assert "new/early" not in case.ear.bound
    case.policies.forget("p", "u")
    await asyncio.sleep(0)
    case.state.delete_pod("ns/sentinel")
    case.state.delete_pod("ns/second")
    await bound(case, "new/early")


async def test_policies_that_change_while_a_large_request_is_put_together(case: Case) -> None:
    """The loop gives way every few hundred pods; a policy that comes in between is the next round's."""
    case.node(cpu=10_000_000)
    case.node("m", cpu=10_000_000)
    stop = asyncio.Event()

    async def change() -> None:
        for generation in range(1, 10_000):
            case.policies.offer("a", "u", generation, {"selects": {"podSelector": {}}, "precedence": generation % 7})
            if generation % 3 == 0:
                case.policies.forget("a", "u")
            await asyncio.sleep(0)
            if stop.is_set():
                return

    changing = asyncio.create_task(change())
    for number in range(900):
        case.pod(f"p{number}")
    try:
        await until(lambda: len(case.worker.requests) >= 3, 10, lambda: "rounds")
    finally:
        stop.set()
        await changing
    await bound(case, *(f"ns/p{number}" for number in range(900)))


async def test_a_node_tainted_while_a_large_request_is_put_together(case: Case) -> None:
    """It counts as changed since the plan, though the plan's request left after it."""
    case.node("n", cpu=10_000_000)
    original = case.state.ledger.plannable

    def plannable() -> list[Pod]:
        found = original()
        if len(found) > 300:
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: case.node("n", cpu=10_000_000, taints=(Taint("t", "", "NoSchedule"),)))
        return found

    case.state.ledger.plannable = plannable  # type: ignore[method-assign]
    for number in range(450):
        case.pod(f"p{number}")
    await until(lambda: len(case.ear.told) == 450, 10, lambda: "all to be told")
    assert case.ear.bound == {}


async def test_a_prepared_worker_is_told_only_what_changed_since() -> None:
    case = Case()
    case.node("n1")
    await case.loop.prepare()
    await case.loop.prepare()  # it is in sync already
    case.node("n2")
    case.pod("p")
    task = asyncio.create_task(case.loop.run())
    await bound(case, "ns/p")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    first, *later = case.worker.requests
    assert first.reset
    assert not first.pending
    assert [node.name for node in first.changes.nodes] == ["n1"]
    assert not any(request.reset for request in later)
    assert [node.name for request in later for node in request.changes.nodes] == ["n2"]


async def test_a_worker_is_told_everything_again_after_changes_were_discarded() -> None:
    case = Case()
    case.node("n1")
    await case.loop.prepare()
    case.node("n2")
    case.loop.discard_changes()
    await case.loop.prepare()
    assert [(each.reset, len(each.changes.nodes)) for each in case.worker.requests] == [(True, 1), (True, 2)]


def test_a_standby_keeps_nothing_of_namespaces_that_came_and_went() -> None:
    """It makes no rounds, after which the leader forgets."""
    case, term = Case(), AffinityTerm("zone", LabelSelector(), ("ns",))
    index = case.state.shell.state.cluster.occupancy.pod_index
    grown = tracked_objects(index=index)
    for number in range(20):
        signature = PodSignature(f"ci-{number}", constraints=InterPodConstraints(anti_affinity=(term,)))
        index.change(signature, "n", 1)
        index.change(signature, "n", -1)
    assert not index.has_terms
    case.loop.discard_changes()
    assert not grown_containers(grown, tracked_objects(index=index))


async def test_a_worker_that_cannot_be_prepared_is_told_by_the_first_round() -> None:
    case = Case()
    case.node("n1")
    start, attempts = case.worker.start, []

    async def fails_once() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise WorkerLost("no process")
        await start()

    case.worker.start = fails_once  # type: ignore[method-assign]
    await case.loop.prepare()
    case.pod("p")
    task = asyncio.create_task(case.loop.run())
    await bound(case, "ns/p")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert case.worker.requests[0].reset
    assert len(attempts) == 2


async def test_a_lost_worker_is_told_everything_again(case: Case) -> None:
    """It died with the changes it was told: the next one plans on the whole cluster."""
    case.node("n")
    case.pod("first")
    await bound(case, "ns/first")
    case.worker.fail = [WorkerLost("killed"), WorkerLost("killed again")]
    case.node("m", cpu=5000)
    case.pod("second", pod_class=PodClass(requests=(("cpu", 4000),)))
    case.pod("third")
    await bound(case, "ns/second", "ns/third")
    assert case.ear.bound["ns/second"] == "m"
    last = case.worker.requests[-1]
    assert {node.name for node in last.changes.nodes if last.reset} <= {"n", "m"}
    assert case.metrics.registry.get_sample_value("thalweg_worker_restarts_total") == 2


async def test_a_worker_that_died_between_rounds_is_counted(case: Case) -> None:
    """Nobody was asking when it died: it is replaced before the next question, and says so in the metrics."""
    case.node("n")
    case.pod("first")
    await bound(case, "ns/first")
    case.worker.alive = False
    case.now += PRICES_HOLD + 1
    case.pod("second")
    await bound(case, "ns/second")
    assert case.worker.requests[-1].reset or any(request.reset for request in case.worker.requests[1:])
    assert case.metrics.registry.get_sample_value("thalweg_worker_restarts_total") == 1


async def test_a_refused_pod_rests(case: Case) -> None:
    """What the API server would not bind is planned again, later each time, and disturbs no other pod."""
    case.node("n", cpu=100_000)
    refused = case.pod("refused")
    await bound(case, "ns/refused")
    case.ear.bound.clear()
    case.state.shell.answered(Bind(refused, "n", 0), Answer.REFUSED, "no")
    assert case.ear.told["ns/refused"] == "the API server refused to bind it to n: no"
    case.pod("other")
    await bound(case, "ns/other")
    assert set(case.ear.bound) == {"ns/other"}
    case.now += 1.0
    await bound(case, "ns/refused")


async def test_a_rest_that_ends_during_a_round(case: Case) -> None:
    """A pod that was still resting when the round began and is not any more when it ends is planned at once."""
    case.loop._resync = 60.0
    case.node("n", cpu=100_000)
    refused = case.pod("refused")
    await bound(case, "ns/refused")
    case.ear.bound.clear()
    case.state.shell.answered(Bind(refused, "n", 0), Answer.REFUSED, "no")

    def later() -> None:
        case.now += 5.0

    case.worker.meanwhile = [later]
    case.pod("other")
    await bound(case, "ns/other", "ns/refused")


async def test_a_pod_that_waits_for_a_cheaper_node_is_planned_again_when_waiting_is_as_dear(case: Case) -> None:
    """Its price grows with time alone: without any change, a round begins when it reaches the node's cost."""
    case.loop._resync = 3600.0
    unscheduled = {"base": 0, "perWaitingSecond": 100, "waitForCheaperNode": True}
    spec = {"selects": {"schedulerNames": ["thalweg"], "podSelector": {}}, "unscheduled": unscheduled}
    case.policies.offer("p", "u", 1, spec)
    case.node("n")
    case.pod("p", unschedulable_since=case.wall)
    await told(case, "ns/p", "It waits for a cheaper node.")
    assert not case.ear.bound
    case.wall += 3600.0
    # It is planned again after nine times what the round took: on a busy machine that is long.
    await until(lambda: "ns/p" in case.ear.bound, 120, lambda: f"ns/p; bound are {case.ear.bound}")
    # The loop began before the test, so its first pause, with the usual resync, may end in one more round before.
    assert len([each for each in case.worker.requests if each.pending and each.now == case.wall]) == 1


async def test_long_rounds_for_pods_that_wait_for_cheaper_nodes_leave_nine_tenths_of_the_time(case: Case) -> None:
    """A pod whose price is as dear in seconds is planned again nine times the length of the last round later."""
    case.loop._resync = 3600.0
    wait, pauses = case.batcher.wait, [0.0]

    async def recorded(resync: float) -> None:
        pauses.append(resync)
        await wait(resync)

    case.batcher.wait = recorded  # type: ignore[method-assign]
    unscheduled = {"base": 0, "perWaitingSecond": 100, "waitForCheaperNode": True}
    spec = {"selects": {"schedulerNames": ["thalweg"], "podSelector": {}}, "unscheduled": unscheduled}
    case.policies.offer("p", "u", 1, spec)
    case.node("n")
    case.pod("short", unschedulable_since=case.wall)
    await told(case, "ns/short", "It waits for a cheaper node.")
    seconds = 100.0
    await until(lambda: 0 < pauses[-1] < 9 * seconds, 10, lambda: f"a short pause after a short round: {pauses}")

    def later() -> None:
        case.now += seconds

    case.worker.meanwhile = [later]
    case.pod("long", unschedulable_since=case.wall)
    await until(lambda: 9 * seconds in pauses, 10, lambda: f"a long pause after a long round: {pauses}")


async def test_blocked_pods_are_told_and_never_planned(case: Case) -> None:
    """Except gated ones, to whom the API server speaks itself, and those that are being deleted."""
    case.node("n")
    case.pod("claiming", unsupported_reason="its extended resource x is backed by the DeviceClass y: ...")
    case.pod("gated", gates=("x",), blocked_reason="its scheduling gates are closed: x")
    case.pod("leaving", blocked_reason="it is being deleted", deleting=True)
    case.pod("plain")
    await bound(case, "ns/plain")
    await told(case, "ns/claiming", "its extended resource")
    assert set(case.ear.told) == {"ns/claiming"}
    assert set(case.ear.bound) == {"ns/plain"}


async def test_a_bound_pod_that_cannot_be_read_fills_its_node(case: Case) -> None:
    """Room that is not known to be free is not given away, and sums beyond uint64 still reach the worker."""
    decode = pod_decoder(Interner(), BadInput(Metrics()))
    for name in ("x", "y", "z"):
        raw = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"nodeName": "n", "tolerations": 7}}
        case.state.upsert_pod(decode(msgspec.json.encode(raw)))
    case.node()
    case.pod("p")
    await told(case, "ns/p", "Insufficient cpu")
    assert "tolerations" in case.state.pods["ns/x"].blocked_reason
    sent = request_decoder.decode(request_encoder.encode(case.worker.requests[-1]))
    assert sent.number == case.worker.requests[-1].number
    assert case.state.cluster.occupancy.usage["n"].amounts["cpu"] > 2**64


async def test_a_waiting_pod_that_cannot_be_read_is_told_so(case: Case) -> None:
    """It waits with the field named."""
    raw = {
        "metadata": {"name": "x", "namespace": "ns", "uid": "x"},
        "spec": {"schedulerName": "thalweg", "priority": "?"},
    }
    case.state.upsert_pod(pod_decoder(Interner(), BadInput(Metrics()))(msgspec.json.encode(raw)))
    case.node()
    await told(case, "ns/x", "spec.priority")


async def test_a_pod_beyond_a_limit_is_told_so_and_nobody_else_waits(case: Case) -> None:
    """No worker ever hears of its 2,000 constraints; the reason names the field, and a metric counts it."""
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "k"}
    raw = {
        "metadata": {"name": "x", "namespace": "ns", "uid": "x"},
        "spec": {"schedulerName": "thalweg", "topologySpreadConstraints": [spread] * 2000},
    }
    metrics = Metrics()
    case.state.upsert_pod(pod_decoder(Interner(), BadInput(metrics))(msgspec.json.encode(raw)))
    case.node()
    case.pod("plain")
    await bound(case, "ns/plain")
    await told(case, "ns/x", "spec.topologySpreadConstraints: 2000 entries, at most 64 are planned")
    assert not any(each.key == "ns/x" for request in case.worker.requests for each in request.pending)
    labels = {"kind": "pod", "field": "spec.topologySpreadConstraints"}
    assert metrics.registry.get_sample_value("thalweg_refused_inputs_total", labels) == 1


async def test_after_a_lost_worker_less_is_asked_for_and_all_are_placed_all_the_same(case: Case) -> None:
    """A round too large to finish in time must not be asked for again unchanged, for ever."""
    case.worker.fail = [WorkerLost("too slow"), WorkerLost("still too slow")]
    case.node(cpu=1_000_000)
    names = [f"p{at:02}" for at in range(40)]
    for at, name in enumerate(names):
        case.pod(name, pod_class=PodClass(requests=(("cpu", 100 + at),)))
    await bound(case, *(f"ns/{name}" for name in names))
    asked = [len(request.pending) for request in case.worker.requests if request.pending]
    assert asked[:5] == [40, 20, 20, 10, 10], "halves form a queue"


async def test_poison_pods_are_named_and_all_others_are_bound(case: Case) -> None:
    """Two pods with which no round ends: they wait with the reason, and are left out of all rounds from then on."""
    case.worker.poison = {"ns/bad1", "ns/bad2"}
    case.node(cpu=1_000_000)
    names = [f"p{at:02}" for at in range(20)]
    for at, name in enumerate(["bad1", *names, "bad2"]):
        case.pod(name, pod_class=PodClass(requests=(("cpu", 100 + at),)))
    await bound(case, *(f"ns/{name}" for name in names))
    for name in ("bad1", "bad2"):
        await told(case, f"ns/{name}", "planning this pod failed: no plan after 5 s; next try in")
    assert any("rounds with pods of namespace ns failed" in why for why in case.ear.told.values()), "while they wait"
    read = case.metrics.registry.get_sample_value
    failed = read("thalweg_rounds_failed_total", {"cause": "timeout"})
    assert read("thalweg_quarantined") == 2
    for at in range(5):
        case.pod(f"late{at}")
        await bound(case, f"ns/late{at}")
    assert read("thalweg_rounds_failed_total", {"cause": "timeout"}) == failed
    case.worker.poison = set()
    case.now += 4000.0
    case.batcher.trigger()
    await bound(case, "ns/bad1")


async def test_a_pod_in_quarantine_gives_way_where_its_policy_prefers_the_plan(case: Case) -> None:
    """kube-scheduler looks for a node itself, as for any pod of Prefer without a plan; under Require it waits."""
    case.worker.poison = {"ns/prefer", "ns/require"}
    case.node(cpu=1_000_000)
    for steering in ("Prefer", "Require"):
        spec = {"selects": {"schedulerNames": [steering.lower()]}, "delivery": "Extender", "steering": steering}
        assert not case.policies.offer(steering.lower(), f"u-{steering}", 1, spec).problem
    for at, name in enumerate(("prefer", "require")):
        case.pod(name, scheduler_name=name, pod_class=PodClass(requests=(("cpu", 100 + at),)))
    for name in ("prefer", "require"):
        await told(case, f"ns/{name}", "planning this pod failed")
    pending = case.state.ledger.pending
    assert {key for key, record in pending.items() if record.may_choose} == {"ns/prefer"}


async def test_a_worker_that_fails_before_it_plans_is_no_pods_fault(case: Case) -> None:
    """What the worker is told of the cluster comes first, without pods: a failure there puts nobody in quarantine."""
    ask, failures = case.worker.ask, [WorkerLost("no memory", "memory")] * 3

    async def failing(request: RoundRequest) -> RoundReply:
        if request.reset and failures:
            await case.worker.stop()
            raise failures.pop()
        return await ask(request)

    case.worker.ask = failing  # type: ignore[method-assign]
    case.node()
    case.pod("p")
    await bound(case, "ns/p")
    read = case.metrics.registry.get_sample_value
    assert read("thalweg_rounds_failed_total", {"cause": "memory"}) == 3
    assert not read("thalweg_quarantined")


async def test_age_counts_from_when_a_pod_could_first_be_planned(case: Case) -> None:
    """Not from its creation, nor from before its gate opened; what is written on it is all that a restart leaves."""
    nowhere = PodClass(node_selector=(("no", "such"),))
    case.node()
    for name, changes in {
        "new": {},
        "behind its gate": {"gates": ("x",), "blocked_reason": "its scheduling gates are closed: x"},
        "tried before": {"unschedulable_since": 5_000.0},
    }.items():
        case.pod(name, pod_class=nowhere, created=1000.0, **changes)
    await told(case, "ns/new", "0/1 nodes")
    case.wall += 500.0
    case.pod("behind its gate", pod_class=nowhere, created=1000.0)
    await told(case, "ns/behind its gate", "0/1 nodes")
    since = {each.key: each.plannable_since for request in case.worker.requests for each in request.pending}
    assert since == {"ns/new": 1_000_000.0, "ns/behind its gate": 1_000_500.0, "ns/tried before": 5_000.0}


@pytest.mark.parametrize("hours", [-1, 1])
async def test_pauses_do_not_follow_the_wall_clock(case: Case, hours: int) -> None:
    """Somebody sets the clock: a pod that rests rests neither longer nor shorter."""
    case.node("n")
    pod = case.pod("p", blocked_reason="not yet")
    case.state.shell.answered(Bind(pod, "n", 0), Answer.REFUSED, "no")
    backoff.node_rejected(case.state.cluster, case.state.ledger, pod, "n", case.now)
    case.wall += 3600.0 * hours
    case.pod("p")
    case.pod("other")
    await bound(case, "ns/other")
    assert "ns/p" not in case.ear.bound
    case.now += 2.5
    case.batcher.trigger()
    await bound(case, "ns/p")


def test_room_of_a_reserved_pod_that_goes_wakes_the_rounds() -> None:
    """Deleted, replaced or bound elsewhere: what it had reserved is free, and somebody may be waiting for it."""
    state = DrivenLedger()
    state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    pod = Pod(namespace="ns", name="p", uid="u", pod_class=CLASS, scheduler_name="thalweg")
    for change in (
        lambda: state.delete_pod("ns/p"),
        lambda: state.upsert_pod(msgspec.structs.replace(pod, node_name="elsewhere")),
    ):
        state.upsert_pod(pod)
        assert state.reserve(pod, "n")
        requested = state.rounds_requested
        change()
        assert state.rounds_requested > requested
        state.delete_pod("ns/p")


async def test_hits_of_the_verdict_cache_are_counted(case: Case) -> None:
    """By filter and outcome; what a binding changes is one row."""

    def count(outcome: str) -> float:
        return case.metrics.verdicts.labels("NodeResourcesFit", outcome)._value.get()

    for name in "abcd":
        case.node(name)
    case.pod("first")
    await bound(case, "ns/first")
    # Metrics are made after the bindings have left.
    await until(lambda: count("miss") >= 1, 10, lambda: "the metrics of the first round")
    missed = count("miss")
    rows = case.metrics.verdict_rows.labels("NodeResourcesFit")._value.get()
    case.now += PRICES_HOLD + 1
    case.pod("second")
    await bound(case, "ns/second")
    await until(lambda: count("refreshed") >= 1, 10, lambda: "the metrics of the second round")
    assert count("miss") == missed
    assert case.metrics.verdict_rows.labels("NodeResourcesFit")._value.get() == rows + count("refreshed")


async def test_a_round_is_told_of_gangs(case: Case) -> None:
    """Each pod names its own; one whose annotation cannot be read is told that, whoever is to bind it."""
    spec = {"selects": {"schedulerNames": ["steered"], "podSelector": {}}, "delivery": "Extender"}
    case.policies.offer("steered", "u", 1, spec)
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    case.node()
    case.pod("a", gang=gang)
    case.pod("b", gang=gang, scheduler_name="steered", blocked_reason="annotation x: no")
    case.pod("c")
    await told(case, "ns/b", "annotation x: no")
    request = next(each for each in case.worker.requests if each.gangs)
    assert {each.key: each.gangs for each in request.pending}["ns/a"] == ("gang ns/g",)
    (found,) = request.gangs
    assert (
        found.unschedulable_reason == "gang ns/g: it needs 2 pods at once, 1 can be planned now; ns/b: annotation x: no"
    )


def dear(case: Case, seconds: float) -> None:
    """From now on the pods of a round are said to have cost so much together."""
    plan = case.worker.ask

    async def ask(request: RoundRequest) -> RoundReply:
        reply = await plan(request)
        return msgspec.structs.replace(reply, namespace_seconds={"ns": seconds if len(request.pending) > 1 else 0.001})

    case.worker.ask = ask  # type: ignore[method-assign]


async def test_what_nothing_helped_is_not_planned_beside_each_new_pod(case: Case) -> None:
    """Its reason and its code stay. Room that comes free is for all that wait, whoever comes at the same time."""
    dear(case, 0.1)
    case.node("n", cpu=2000)
    case.pod("runs", node_name="n", usage=(("cpu", 1500),))
    for at in range(8):
        case.pod(f"large-{at}", pod_class=PodClass(requests=(("cpu", 1000 + at),)))
    await told(case, "ns/large-7", "Insufficient cpu")
    assert [len(request.pending) for request in case.worker.requests if request.pending] == [8]
    before = len(case.worker.requests)
    case.pod("small", pod_class=PodClass(requests=(("cpu", 10),)))
    await bound(case, "ns/small")
    # A round that only tells the worker where it went may have followed already.
    planned = [[pod.key for pod in request.pending] for request in case.worker.requests[before:] if request.pending]
    assert planned == [["ns/small"]]
    await asyncio.sleep(0)
    waiting = case.metrics.registry.get_sample_value("thalweg_waiting_pods", {"reason": "NodeResourcesFit"})
    assert waiting == 8
    case.state.delete_pod("ns/runs")
    # They came together: that one fills the room best.
    await bound(case, "ns/large-7")


def test_a_pod_that_waits_for_another_follows_it() -> None:
    """Nothing came free when the other one was bound; the pod has its turn soon all the same.

    The loop's clock jumps: the case's clock goes on only while nothing is left to do.
    """

    async def follow() -> None:
        async with running() as case:
            dear(case, 0.1)
            case.node("n", cpu=100_000, labels=(("zone", "a"),))
            term = AffinityTerm("zone", LabelSelector((Requirement("app", "In", ("db",)),)), ("ns",))
            case.pod("follows", constraints=InterPodConstraints(affinity=(term,)))
            for at in range(8):
                case.pod(f"large-{at}", pod_class=PodClass(requests=(("cpu", 1_000_000 + at),)))
            await told(case, "ns/follows", "didn't match pod affinity")
            case.pod("db", labels=(("app", "db"),))
            await bound(case, "ns/db")
            began = case.now
            while "ns/follows" not in case.ear.bound and case.now < began + 60.0:
                case.now += 0.5
                await asyncio.sleep(0.02)
            assert case.now - began <= 4.0

    virtual_time.run(follow())


@pytest.mark.unsaid
async def test_reports_that_fail_are_logged_once_and_counted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the worker says of a round nor what the operator makes of it ends the loop."""

    def fails(*_arguments: object, **_named: object) -> None:
        raise ValueError("cannot reshape")

    monkeypatch.setattr("flowcore.planning.round.round.left_at_least", fails)
    monkeypatch.setattr(case.loop.reports, "round_ended", fails)
    with capture_logs() as logs:
        case.node()
        for name in "abc":
            case.pod(name)
        await told(case, "ns/c", "0/1 nodes")
        case.node("other")
        await bound(case, "ns/a", "ns/b", "ns/c")

        def count() -> float:
            return case.metrics.registry.get_sample_value("thalweg_unsaid_total") or 0.0

        # The reports of a round come after its bindings.
        await until(lambda: count() >= 3, 10, lambda: f"three that are missing; there are {count()}")
    problems = [each["problem"] for each in logs if each["log_level"] == "error"]
    assert [each.partition(" could")[0] for each in problems] == ["What every plan leaves", "The status of policies"]
