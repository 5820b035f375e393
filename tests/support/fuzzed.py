"""Random events against the operator's books: whatever happens, they add up, and nothing is left when all is gone."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from support.books import books, grown
from thalweg_extender.answers import to_filter
from thalweg_operator import sinks
from thalweg_operator.bad_input import BadInput
from thalweg_operator.metrics import Metrics
from thalweg_operator.nominator import Write
from thalweg_operator.partial import PartialGangs
from thalweg_operator.policies import PolicyStore
from thalweg_operator.replacing import Replacing
from thalweg_operator.state import By, ClusterState
from thalweg_operator.steering import Planned, PodSteering

from flowcore.model.guidance import Asked
from flowcore.model.pods import Pod
from flowcore.model.policies import STEERED_NAME, Delivery
from flowcore.model.wire import Interner

NODES = ["n0", "n1", "n2"]
PODS = [f"p{at}" for at in range(7)]
GATE = {"name": "scheduling.thalweg/plan"}
NOMINATED = "scheduling.thalweg/nominated"
REPLACES = "scheduling.thalweg/replaces"
LEAVES = "2026-01-01T00:00:00Z"
SELECTS = {"schedulerNames": [STEERED_NAME]}


class Evictions:
    """Evictions in line, by uid."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Pod, Callable[[], bool], Callable[[str], None]]] = {}

    def evict(
        self,
        pod: Pod,
        _why: str,
        wanted: Callable[[], bool] = lambda: True,
        refused: Callable[[str], None] = lambda _reason: None,
    ) -> bool:
        """See Evictor."""
        if pod.uid in self.asked:
            return False
        self.asked[pod.uid] = pod, wanted, refused
        return True

    def evicting(self, uid: str) -> bool:
        """See Evictor."""
        return uid in self.asked


class Fuzzed:
    """The API server's pods, the operator's books in front of them, and all that may happen.

    Args:
        choose: makes every choice.
        nodes: those that are there in the beginning.
    """

    def __init__(self, choose: random.Random, nodes: Sequence[str] = NODES) -> None:
        self.choose, self.now, self.uids, self.versions = choose, 0.0, 0, 0
        self.state, self.policies, self.metrics = ClusterState(), PolicyStore(), Metrics()
        self.writes: list[Write] = []
        self.evictions, self.intern = Evictions(), Interner()
        us: Any = self
        evictions: Any = self.evictions
        decode = sinks.pod_decoder(self.intern, BadInput(self.metrics))
        self._read, self._read_node = decode, sinks.node_decoder(self.intern)

        def clock() -> float:
            return self.now

        self.steering = PodSteering(self.state, self.policies, us, self.metrics, lambda: True, clock)
        self.state.on_steered = self.steering.follow
        self.replacing = Replacing(self.state, self.policies, evictions, lambda *_, **__: None, lambda *_: None, clock)
        self.partial = PartialGangs(self.state, self.policies, evictions, clock)
        self.api: dict[str, dict[str, Any]] = {}
        self.state.set_namespace("t", ())
        self._offer(steered=True)
        self.steering.adopt_all()
        for name in nodes:
            self._put_node(name, name, "3")

    def put(self, write: Write) -> None:
        """As the nominator does."""
        self.writes.append(write)

    def step(self) -> str:
        """Something happens; its name."""
        name = self.choose.choice(EVENTS)
        key = self.choose.choice(PODS)
        getattr(self, name)(key)
        self.check()
        return name

    def check(self) -> None:
        """The pods that nodes are charged for are those bound there and those on their way."""
        want: Counter[str] = Counter()
        for pod in self.state.pods.values():
            if pod.node_name and not pod.terminal:
                want[pod.node_name] += 1
        want.update(each.node for each in self.state.reservations.values() if each.awaits is None)
        assert {node: use.pods for node, use in self.state._uses.items()} == dict(want)

    def end(self) -> dict[str, tuple[int, int]]:
        """All pods and nodes go, and time passes; what is left beyond what there was in the beginning."""
        for name in list(self.api):
            self.deleted(name)
        for name in NODES:
            self.state.delete_node(name)
        self.evictions.asked.clear()
        self.policies.forget("x", "u")
        for _ in range(4):
            writes, self.writes = self.writes, []
            for write in writes:
                write.done(None)
            self.now += 1000
            self._tick()
            self.state.take_changes()
            self.policies.age()
            self.state.neighbours.age()
            self.intern.drop_unused()
        empty = Fuzzed(random.Random(0), nodes=())
        empty.policies.forget("x", "u")
        empty.state.take_changes()
        assert len(self.intern) < 10, "sentences of our own stay, whoever reads them, and nothing else"
        return grown(empty.books(), self.books(), allowed=0.0, slack=0)

    def books(self) -> Counter[str]:
        """Entries of all books; but for metrics, which count by a few words of our own, and for this test's own."""
        found = books(state=self.state, steering=self.steering, replacing=self.replacing, partial=self.partial)
        return Counter(
            {path: count for path, count in found.items() if not {"_metrics", "_nominator"} & set(path.split("."))}
        )

    # --- what may happen ---

    def created(self, name: str) -> None:
        """A pod comes; where one of its name is there, the watch shows the new one without a deletion."""
        choose = self.choose
        self.uids += 1
        annotations = {}
        if choose.random() < 0.35:
            annotations[REPLACES] = choose.choice(PODS)
        if choose.random() < 0.3:
            annotations["scheduling.thalweg/gang"] = choose.choice("gh")
            annotations["scheduling.thalweg/gang-min-member"] = choose.choice("123")
        if choose.random() < 0.1:
            annotations[NOMINATED] = choose.choice(NODES)
        requests = {"cpu": choose.choice(["100m", "1"])}
        spec: dict[str, Any] = {
            "schedulerName": choose.choice(["thalweg", STEERED_NAME]),
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        }
        if choose.random() < 0.3:
            spec["schedulingGates"] = [GATE]
        meta = {"name": name, "namespace": "t", "uid": f"u{self.uids}", "annotations": annotations}
        self.api[name] = {"metadata": meta | {"labels": {"a": choose.choice("xy")}}, "spec": spec, "status": {}}
        self._show(name)

    def deleted(self, name: str) -> None:
        """A pod goes."""
        if self.api.pop(name, None) is not None:
            self.state.delete_pod(f"t/{name}")

    def bound(self, name: str) -> None:
        """Somebody binds a pod, to a node that may not be there."""
        pod = self.api.get(name)
        if pod is not None and "nodeName" not in pod["spec"]:
            pod["spec"]["nodeName"] = self.choose.choice([*NODES, "gone"])
            if self.choose.random() < 0.5:
                pod["status"].pop("nominatedNodeName", None)
            pod["spec"].pop("schedulingGates", None)
            self._show(name)

    def changed(self, name: str) -> None:
        """Somebody changes a pod."""
        pod, choose = self.api.get(name), self.choose
        if pod is None:
            return
        meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
        match choose.choice(["nominated", "denominated", "ended", "deleting", "labels", "annotation", "told", "gate"]):
            case "nominated":
                status["nominatedNodeName"] = choose.choice(NODES)
            case "denominated":
                status.pop("nominatedNodeName", None)
            case "ended":
                status["phase"] = choose.choice(["Failed", "Succeeded"])
            case "deleting":
                meta["deletionTimestamp"] = LEAVES
            case "labels":
                meta["labels"] = {"a": choose.choice("xyz")}
            case "annotation" if choose.random() < 0.5:
                meta["annotations"].pop(REPLACES, None)
            case "annotation":
                meta["annotations"][REPLACES] = choose.choice(PODS)
            case "told":
                message = choose.choice(["a", "waiting for Thalweg's plan"])
                status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
            case _:
                spec.pop("schedulingGates", None)
        self._show(name)

    def planned(self, _name: str) -> None:
        """A plan is carried out."""
        choose, planned = self.choose, []
        for pod in self.state.plannable():
            policy = self.policies.of(pod, self.state.namespaces)
            if policy is None or policy.delivery is Delivery.OBSERVE or choose.random() < 0.3:
                continue
            by = By.BINDER if policy.delivery is Delivery.BINDER else By.STEERING
            replaced = self.state.replaced(pod)
            node = replaced.node if replaced and replaced.node else choose.choice(NODES)
            if self.state.reserve(pod, node, by) and by is By.STEERING and not self.state.awaits(pod.key):
                turn, unit = choose.choice([(0, 0), (1, 0), (1, 1), (2, 0)]), choose.choice(["", "", "U"])
                planned.append(Planned(self.state.waiting[pod.key], node, turn, unit, choose.random() < 0.2))
        self.steering.send(planned)

    def asked(self, name: str) -> None:
        """kube-scheduler asks about a pod, perhaps about one that is not there any more."""
        pod, choose = self.api.get(name), self.choose
        if pod is None:
            return
        asked = Asked(
            namespace="t",
            name=name,
            uid=pod["metadata"]["uid"] if choose.random() < 0.9 else "old",
            labels=pod["metadata"]["labels"],
            scheduler_name=pod["spec"]["schedulerName"],
            nominated=pod["status"].get("nominatedNodeName", "") if choose.random() < 0.7 else "",
        )
        nodes = choose.sample(NODES, choose.randint(1, 3))
        guidance = self.steering.guidance(asked, nodes)
        if not isinstance(guidance, str):
            outcome, passed, _ = to_filter(guidance, nodes)
            self.steering.answered(asked, outcome, passed)

    def later(self, _name: str) -> None:
        """Time passes."""
        self.now += self.choose.choice([0.05, 0.3, 2.5, 6, 30, 70])
        self._tick()

    def wrote(self, _name: str) -> None:
        """Some writes are answered, in any order."""
        self.choose.shuffle(self.writes)
        for write in self.writes[: self.choose.randint(0, 4)]:
            self.writes.remove(write)
            if not write.wanted():
                write.done(None)
            elif self.choose.random() < 0.2:
                write.done("refused")
            elif self._uid(write.pod.name) != write.pod.uid:
                write.done("404")
            else:
                self._carry_out(write)

    def evicted(self, _name: str) -> None:
        """An eviction is answered."""
        if not self.evictions.asked:
            return
        uid = self.choose.choice(sorted(self.evictions.asked))
        pod, wanted, refused = self.evictions.asked[uid]
        if not wanted():
            del self.evictions.asked[uid]
        elif self.choose.random() < 0.4:
            refused("budget")
        else:
            del self.evictions.asked[uid]
            if self._uid(pod.name) == uid:
                self.api[pod.name]["metadata"]["deletionTimestamp"] = LEAVES
                self._show(pod.name)

    def node(self, _name: str) -> None:
        """A node comes, changes or goes."""
        name, choose = self.choose.choice(NODES), self.choose
        if name in self.state.nodes and choose.random() < 0.4:
            self.state.delete_node(name)
        else:
            self.uids += 1
            self._put_node(name, f"{name}-{self.uids}", choose.choice("13"), unschedulable=choose.random() < 0.3)

    def policy(self, _name: str) -> None:
        """A policy comes, changes or goes."""
        if self.choose.random() < 0.6:
            self._offer(steered=self.choose.random() < 0.7)
        else:
            self.policies.forget("x", "u")

    def told(self, _name: str) -> None:
        """A worker is told of the changes."""
        self.state.take_changes()

    # --- how ---

    def _uid(self, name: str) -> str:
        return str(self.api[name]["metadata"]["uid"]) if name in self.api else ""

    def _show(self, name: str) -> None:
        self.state.upsert_pod(self._read(msgspec.json.encode(self.api[name])))

    def _put_node(self, name: str, uid: str, cpu: str, *, unschedulable: bool = False) -> None:
        allocatable = {"cpu": cpu, "memory": "32Gi", "pods": "5"}
        meta, spec = {"name": name, "uid": uid}, {"unschedulable": unschedulable}
        manifest = {"metadata": meta, "spec": spec, "status": {"allocatable": allocatable}}
        self.state.upsert_node(self._read_node(msgspec.json.encode(manifest)))

    def _offer(self, *, steered: bool) -> None:
        self.versions += 1
        spec: dict[str, Any] = {"selects": SELECTS, "delivery": "Observe"}
        if steered:
            spec = {
                "selects": SELECTS,
                "delivery": "Extender",
                "steering": self.choose.choice(["Require", "Prefer"]),
                "waiting": self.choose.choice(["Hold", "Gate"]),
                "gangs": {"onPartialBind": "Evict", "timeout": "5s"},
            }
        self.policies.offer("x", "u", self.versions, spec)

    def _carry_out(self, write: Write) -> None:
        pod = self.api[write.pod.name]
        meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
        match write.kind:
            case "open":
                spec.pop("schedulingGates", None)
            case "nominate" | "clear" if write.node:
                status["nominatedNodeName"] = meta["annotations"][NOMINATED] = write.node
            case "nominate" | "clear":
                status.pop("nominatedNodeName", None)
                meta["annotations"].pop(NOMINATED, None)
        seen_first = self.choose.random() < 0.5
        if seen_first:
            self._show(write.pod.name)
        write.done("")
        if not seen_first and write.pod.name in self.api:
            self._show(write.pod.name)

    def _tick(self) -> None:
        self.steering.look_after()
        self.replacing.look_after()
        self.partial.look()


#: What may happen, the frequent more than once.
EVENTS = (
    *("created",) * 3,
    "deleted",
    *("bound",) * 2,
    *("changed",) * 8,
    *("planned",) * 4,
    *("asked",) * 2,
    *("later",) * 2,
    *("wrote",) * 2,
    "evicted",
    "node",
    "policy",
    "told",
)
