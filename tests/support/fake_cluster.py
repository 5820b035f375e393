"""A small world for steering: an API server's pods, a watch that lags, writes in line, and a clock."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import msgspec
from support.driven_ledger import DrivenLedger
from support.pod_writes import QueuedWrite
from thalweg_extender.answers import Outcome, to_filter
from thalweg_operator.delivery.extender_view import ExtenderView
from thalweg_operator.delivery.nominator import PodWrite
from thalweg_operator.reservations.effects import (
    ClearNomination,
    CountNomination,
    Log,
    Nominate,
    OpenGate,
    WakePod,
    WriteCondition,
)
from thalweg_operator.reservations.events import GateUnneeded, PodsUnplaced, UnplacedPod
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering import plans as nomination_plans
from thalweg_operator.reservations.steering.nominations import PlannedPod
from thalweg_operator.reservations.steering.waves import UNORDERED

from flowcore.model.advice import Advice, ExtenderPod
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME

NODES = ("a", "b", "c")
CLASS = PodClass(requests=(("cpu", 100),))


class FakeCluster:
    """The API server's pods, what of them was seen, writes in line, and the operator's ledger.

    Attributes:
        rejected: pods, and nodes that kube-scheduler's filters refused them.
        refused: pods, and why the API server refuses a write to them.
        outcomes: how often each became of a nomination.
        put_write: takes writes, as the nominator does; this one leaves their order to the test.
    """

    def __init__(self, **policy: Any) -> None:
        self.now = 1000.0
        self.api: dict[str, Pod] = {}
        #: What the watch has yet to show: a key, and the pod or that it is gone.
        self.pending_events: deque[tuple[str, Pod | None]] = deque()
        self.policy = {"selects": {"podSelector": {}}, "delivery": "Extender", **policy}
        #: Policies beside it, known before anything else.
        self.other_policies: dict[str, dict[str, Any]] = {}
        self.start()

    def start(self, *, namespaces_last: bool = False) -> None:
        """As after a restart: all that is known is what the API server has, and pods are listed before policies."""
        self.writes: list[QueuedWrite] = []
        self.put_write = self._queue_write
        self.rejected: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.outcomes = Counter[str]()
        self.pending_events.clear()
        handlers = {
            **dict.fromkeys((Nominate, ClearNomination, OpenGate, WakePod), self._write),
            WriteCondition: lambda effect: self.refused.append((effect.pod.key, effect.reason)),
            CountNomination: lambda effect: self.outcomes.update([effect.outcome]),
            Log: self._log,
        }
        self.state = DrivenLedger(lambda: self.now, handlers=handlers)
        self.policies, self.ledger = self.state.policies, self.state.ledger
        self.view = ExtenderView(self.state.shell, lambda: "")
        for name, spec in self.other_policies.items():
            self.policies.offer(name, "u", 1, spec)
        if not namespaces_last:
            self.state.set_namespace("ns", (("team", "ml"),))
        for name in NODES:
            self.state.upsert_node(Node(name, allocatable=(("cpu", 300), ("pods", 10))))
        self.state.shell.state.nominations.node_changes.clear()  # kube-scheduler knows them as well
        for pod in self.api.values():
            self.state.upsert_pod(pod)
        self.state.set_namespace("ns", (("team", "ml"),))
        self.generation = 1
        self.policies.offer("steered", "u", self.generation, self.policy)
        self.look_after()
        self.state.sync()

    def _write(self, write: PodWrite) -> None:
        self.put_write(write)

    def _queue_write(self, write: PodWrite) -> None:
        self.writes.append(QueuedWrite(write, self.state.shell))

    def _log(self, line: Log) -> None:
        if line.event == "nomination refused":
            fields = dict(line.fields)
            self.rejected.append((fields["pod"], fields["node"]))

    def look_after(self) -> None:
        """What is due is done."""
        self.state.look_after()

    def set_policy(self, **policy: Any) -> None:
        """The policy changes."""
        self.generation += 1
        self.policy = {"selects": {"podSelector": {}}, **policy}
        self.policies.offer("steered", "u", self.generation, self.policy)

    # --- the API server ---

    def put_pod(self, key: str, pod: Pod | None) -> None:
        if pod is None:
            del self.api[key]
        else:
            self.api[key] = pod
        self.pending_events.append((key, pod))

    def pod(self, name: str = "p", uid: str = "u", **fields: Any) -> Pod:
        fields = {"pod_class": CLASS, "scheduler_name": STEERED_NAME, **fields}
        pod = Pod("ns", name, uid, **fields)
        self.put_pod(pod.key, pod)
        return pod

    def change(self, key: str, **fields: Any) -> None:
        changed = msgspec.structs.replace(self.api[key], **fields)
        if changed != self.api[key]:
            self.put_pod(key, changed)

    def deliver_watch(self, max_events: int = 1000) -> None:
        """The watch shows what happened."""
        while self.pending_events and max_events:
            key, pod = self.pending_events.popleft()
            max_events -= 1
            if pod is None:
                self.state.delete_pod(key)
            else:
                self.state.upsert_pod(pod)

    def send_write(self, at: int = 0, problem: str = "") -> QueuedWrite | None:
        """A write in line is sent, if it is wanted still; the write, if it was."""
        write = self.writes.pop(at)
        if not write.still_wanted():
            write.answer(None)
            return None
        pod = self.api.get(write.pod.key)
        if problem and pod is not None and pod.uid == write.pod.uid and write.kind in ("open", "clear"):
            write.refuse(problem)
            self.writes.append(write)  # it is needed, and tried again after a pause
            return write
        if problem or pod is None or pod.uid != write.pod.uid:
            write.answer(problem or "not found")
            return write
        match write.kind:
            case "nominate" | "clear":
                self.change(pod.key, nominated_node=write.node, planned_node=write.node)
            case "open":
                self.change(pod.key, gated=False)
        write.answer("")
        return write

    def settle(self) -> None:
        """All writes are carried out and seen."""
        while self.writes or self.pending_events:
            if self.writes:
                self.send_write()
            self.deliver_watch()

    def advance(self, seconds: float, step: float = 0.2) -> None:
        """Time passes, and nothing else but writes."""
        for _ in range(round(seconds / step)):
            self.now += step
            self.look_after()
            self.settle()

    # --- the rounds and kube-scheduler ---

    def plan(self, key: str, node: str, wave: int = 0) -> bool:
        pod = self.state.waiting.get(key)
        if pod is None or not self.state.reserve(pod, node, Owner.STEERING):
            return False
        self.add_plan([PlannedPod(pod, node, (1, wave) if wave else UNORDERED)])
        return True

    def add_plan(self, planned: Sequence[PlannedPod]) -> None:
        """Placements that have their reservations are handed on, as at the end of a plan."""
        state = self.state.shell.state
        state.now, state.effects = self.now, []
        nomination_plans.add_plan(state, planned)
        self.state.shell.carry_out(state.effects)

    def set_free(self, pod: Pod) -> None:
        """The plan has no node for a pod of ``Prefer``."""
        policy = self.state.cluster.policies.of(pod, self.state.cluster.namespaces)
        assert policy is not None
        self.state.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable")]))

    def open(self, pod: Pod) -> None:
        """Nothing would come of the pod's waiting behind our gate."""
        self.state.apply(GateUnneeded(pod))

    def bind(self, key: str, node: str) -> bool:
        """The binder takes room for a pod of its own, as a round that delivers does."""
        pod = self.state.waiting[key]
        return not self.state.conflicts_in_flight(pod, node) and self.state.reserve(pod, node)

    def extender_pod(self, key: str, pod: Pod | None = None) -> ExtenderPod:
        """A pod as kube-scheduler knows it; without one, as it is."""
        pod = pod or self.api[key]
        return ExtenderPod(pod.namespace, pod.name, pod.uid, dict(pod.labels), pod.scheduler_name, pod.nominated_node)

    def call_filter(self, extender_pod: ExtenderPod, nodes: Sequence[str]) -> tuple[Outcome, list[str]]:
        advice = self.view.advise(extender_pod, nodes)
        assert advice == self.view.advise(extender_pod, nodes)
        assert isinstance(advice, Advice)
        outcome, passed, _ = to_filter(advice, nodes)
        self.view.answered(extender_pod, advice, outcome, passed)
        return outcome, passed

    def schedule(self, key: str, fits: Sequence[str] = NODES) -> tuple[Outcome, list[str]]:
        """kube-scheduler tries a pod; its own filters pass these nodes. What it asked last, and what passed."""
        extender_pod, last = self.extender_pod(key), (Outcome.HELD, list[str]())
        if extender_pod.nominated in fits:
            last = self.call_filter(extender_pod, [extender_pod.nominated])
        if not last[1] and fits:
            last = self.call_filter(extender_pod, fits)
        return last

    def count(self, outcome: str) -> int:
        return self.outcomes[outcome]

    @property
    def write_kinds(self) -> list[str]:
        """Of the writes in line that are wanted."""
        return [write.kind for write in self.writes if write.still_wanted()]
