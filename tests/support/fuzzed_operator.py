"""Random events against the operator's state: its sums add up, and nothing is left when all is gone."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec
from support.fake_cluster.driven_ledger import DrivenLedger
from support.leaks import grown_containers, tracked_objects
from support.pod_writes import QueuedWrite
from support.recount import check_recount
from thalweg_extender.answers import to_filter
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches import sinks
from thalweg_operator.delivery.nominator import PodWrite
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Effect, Evict
from thalweg_operator.reservations.events import Answer, PlanMade, PlannedPlacement, SchedulerAnswered
from thalweg_operator.reservations.steering.advise import advise

from flowcore.api import Interner
from flowcore.model.advice import ExtenderPod
from flowcore.model.policies import STEERED_NAME

NODES = ["n0", "n1", "n2"]
PODS = [f"p{at}" for at in range(7)]
GATE = {"name": "scheduling.thalweg/plan"}
NOMINATED = "scheduling.thalweg/nominated"
REPLACES = "scheduling.thalweg/replaces"
DELETION_TIMESTAMP = "2026-01-01T00:00:00Z"
SELECTS = {"schedulerNames": [STEERED_NAME]}


class FuzzedOperator:
    """The API server's pods, the operator's state in front of them, and all that may happen.

    Args:
        choose: makes every choice.
        nodes: those that are there in the beginning.
    """

    def __init__(self, choose: random.Random, nodes: Sequence[str] = NODES) -> None:
        self.choose, self.now, self.uid_count, self.versions = choose, 0.0, 0, 0
        self.plan_count = 0
        self.writes: list[QueuedWrite] = []
        #: Evictions in line, by uid.
        self.evictions: dict[str, Evict] = {}
        self.intern = Interner()
        self._read = sinks.pod_decoder(self.intern, BadInput(Metrics()))
        self._read_node = sinks.node_decoder(self.intern)
        handlers: dict[type[Effect], Callable[[Any], object]] = {
            kind: lambda _effect: None for kind in get_args(Effect)
        }
        handlers |= dict.fromkeys(get_args(PodWrite), self._put)
        handlers[Evict] = self._evict
        self.state = DrivenLedger(lambda: self.now, handlers=handlers)
        self.policies = self.state.policies
        self.api: dict[str, dict[str, Any]] = {}
        self.state.set_namespace("t", ())
        self._offer(steered=True)
        self.state.sync()
        for name in nodes:
            self._put_node(name, name, "3")

    def _put(self, write: PodWrite) -> None:
        """As the nominator does."""
        self.writes.append(QueuedWrite(write, self.state.shell))

    def _evict(self, write: Evict) -> None:
        """As the evictor does."""
        assert write.pod.uid not in self.evictions
        self.evictions[write.pod.uid] = write

    def step(self) -> str:
        """Something happens; its name."""
        name = self.choose.choice(EVENTS)
        key = self.choose.choice(PODS)
        getattr(self, name)(key)
        self.check()
        return name

    def check(self) -> None:
        """Nodes are charged for the pods bound there and for those on their way."""
        check_recount(self.state.cluster, self.state.ledger)

    def end(self) -> dict[str, tuple[int, int]]:
        """All pods and nodes go, and time passes; what is left beyond what there was in the beginning."""
        for name in list(self.api):
            self.deleted(name)
        for name in NODES:
            self.state.delete_node(name)
        while self.evictions:
            self.state.shell.answered(self.evictions.popitem()[1], Answer.DONE)
        self.policies.forget("x", "u")
        # It keeps what it read of specs, within a limit of its own.
        del self._read
        for _ in range(4):
            writes, self.writes = self.writes, []
            # No loop variable: it would hold the last pod and all its values.
            while writes:
                writes.pop(0).answer(None)
            self.now += 1000
            self._look_after()
            self.state.take_changes()
            self.state.shell.ledger.helped.take_freed()
            self.state.cluster.policies.age()
            self.state.pod_index.age()
            self.intern.drop_unused()
        empty = FuzzedOperator(random.Random(0), nodes=())
        empty.policies.forget("x", "u")
        empty.state.take_changes()
        assert len(self.intern) <= 4, "empty values and sentences of our own may stay, and nothing else"
        return grown_containers(empty.entries(), self.entries(), allowed=0.0, slack=0)

    def entries(self) -> Counter[str]:
        """Entries of all records; but for metrics, which count by a few words of our own, and for this test's own."""
        found = tracked_objects(state=self.state.shell.state, policies=self.policies)
        return Counter(found)

    # --- what may happen ---

    def created(self, name: str) -> None:
        """A pod comes; where one of its name is there, the watch shows the new one without a deletion."""
        choose = self.choose
        self.uid_count += 1
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
        meta = {"name": name, "namespace": "t", "uid": f"u{self.uid_count}", "annotations": annotations}
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
                meta["deletionTimestamp"] = DELETION_TIMESTAMP
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
        choose, cluster = self.choose, self.state.cluster
        placements: list[PlannedPlacement] = []
        for pod in self.state.plannable():
            policy = cluster.policies.of(pod, cluster.namespaces)
            if policy is None or choose.random() < 0.3:
                continue
            replaced = self.state.victim_of(pod)
            node = replaced.node if replaced and replaced.node else choose.choice(NODES)
            wave, group = choose.choice([(0, 0), (1, 0), (1, 1), (2, 0)]), choose.choice(["", "", "U"])
            placements.append(PlannedPlacement(pod, policy, node, wave, group, choose.random() < 0.2))
        self.plan_count += 1
        groups = ["U"] if any(each.atomic_group for each in placements) else []
        self.state.apply(PlanMade(self.plan_count, self.state.generation, placements, groups))

    def asked(self, name: str) -> None:
        """kube-scheduler asks about a pod, perhaps about one that is not there any more."""
        pod, choose = self.api.get(name), self.choose
        if pod is None:
            return
        asked = ExtenderPod(
            namespace="t",
            name=name,
            uid=pod["metadata"]["uid"] if choose.random() < 0.9 else "old",
            labels=pod["metadata"]["labels"],
            scheduler_name=pod["spec"]["schedulerName"],
            nominated=pod["status"].get("nominatedNodeName", "") if choose.random() < 0.7 else "",
        )
        nodes = choose.sample(NODES, choose.randint(1, 3))
        advice = advise(self.state.shell.state, asked, nodes)
        outcome, passed, _ = to_filter(advice, nodes)
        self.state.apply(SchedulerAnswered(asked, outcome, passed, advice))

    def later(self, _name: str) -> None:
        """Time passes."""
        self.now += self.choose.choice([0.05, 0.3, 2.5, 6, 30, 70])
        self._look_after()

    def wrote(self, _name: str) -> None:
        """Some writes are answered, in any order."""
        self.choose.shuffle(self.writes)
        for write in self.writes[: self.choose.randint(0, 4)]:
            self.writes.remove(write)
            if not write.still_wanted():
                write.answer(None)
            elif self.choose.random() < 0.2:
                write.answer("refused")
            elif self._uid(write.pod.name) != write.pod.uid:
                write.answer("404")
            else:
                self._carry_out(write)

    def evicted(self, _name: str) -> None:
        """An eviction is answered."""
        if not self.evictions:
            return
        uid = self.choose.choice(sorted(self.evictions))
        write, shell = self.evictions[uid], self.state.shell
        if not shell.is_wanted(write):
            del self.evictions[uid]
            shell.answered(write, Answer.UNWANTED)
        elif self.choose.random() < 0.4:
            shell.answered(write, Answer.RETRYING, "budget")
        else:
            del self.evictions[uid]
            shell.answered(write, Answer.DONE)
            if self._uid(write.pod.name) == uid:
                self.api[write.pod.name]["metadata"]["deletionTimestamp"] = DELETION_TIMESTAMP
                self._show(write.pod.name)

    def node(self, _name: str) -> None:
        """A node comes, changes or goes."""
        name, choose = self.choose.choice(NODES), self.choose
        if name in self.state.nodes and choose.random() < 0.4:
            self.state.delete_node(name)
        else:
            self.uid_count += 1
            self._put_node(name, f"{name}-{self.uid_count}", choose.choice("13"), unschedulable=choose.random() < 0.3)

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
                "waiting": self.choose.choice(["Auto", "Hold", "Gate"]),
                "gangs": {"onPartialBind": "Evict", "timeout": "5s"},
            }
        self.policies.offer("x", "u", self.versions, spec)

    def _carry_out(self, write: QueuedWrite) -> None:
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
        write.answer("")
        if not seen_first and write.pod.name in self.api:
            self._show(write.pod.name)

    def _look_after(self) -> None:
        self.state.look_after()


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
