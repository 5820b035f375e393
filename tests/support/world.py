"""A small world for steering: an API server's pods, a watch that lags, writes in line, and a clock."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from thalweg_extender.answers import Outcome, to_filter
from thalweg_operator.metrics import Metrics
from thalweg_operator.nominator import Write
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import By, ClusterState
from thalweg_operator.steering import Planned, PodSteering
from thalweg_operator.turns import WHENEVER

from flowcore.model.guidance import Asked, Guidance
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME

NODES = ("a", "b", "c")
CLASS = PodClass(requests=(("cpu", 100),))


class World:
    """The API server's pods, what of them was seen, writes in line, and the steering that lives there."""

    def __init__(self, **policy: Any) -> None:
        self.now = 1000.0
        self.api: dict[str, Pod] = {}
        #: What the watch has yet to show: a key, and the pod or that it is gone.
        self.watch: deque[tuple[str, Pod | None]] = deque()
        self.policy = {"selects": {"podSelector": {}}, "delivery": "Extender", **policy}
        #: Policies beside it, known before anything else.
        self.others: dict[str, dict[str, Any]] = {}
        self.start()

    def start(self, *, namespaces_last: bool = False) -> None:
        """As after a restart: all that is known is what the API server has, and pods are listed before policies."""
        self.writes: list[Write] = []
        self.rejected: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.watch.clear()
        self.state, self.policies, self.metrics = ClusterState(), PolicyStore(), Metrics()
        self.steering = PodSteering(
            self.state,
            self.policies,
            self,  # type: ignore[arg-type]
            self.metrics,
            lambda: True,
            lambda: self.now,
        )
        self.steering.on_rejected = lambda pod, node: self.rejected.append((pod.key, node))
        self.steering.on_refused = lambda pod, reason: self.refused.append((pod.key, reason))
        self.state.on_steered = self.steering.follow
        for name, spec in self.others.items():
            self.policies.offer(name, "u", 1, spec)
        if not namespaces_last:
            self.state.set_namespace("ns", (("team", "ml"),))
        for name in NODES:
            self.state.upsert_node(Node(name, allocatable=(("cpu", 300), ("pods", 10))))
        for pod in self.api.values():
            self.state.upsert_pod(pod)
        self.state.set_namespace("ns", (("team", "ml"),))
        self.generation = 1
        self.policies.offer("steered", "u", self.generation, self.policy)
        self.steering.look_after()
        self.steering.adopt_all()

    def put(self, write: Write) -> None:
        """As the nominator does; the order is the test's to choose."""
        self.writes.append(write)

    def says(self, **policy: Any) -> None:
        """The policy changes."""
        self.generation += 1
        self.policy = {"selects": {"podSelector": {}}, **policy}
        self.policies.offer("steered", "u", self.generation, self.policy)

    # --- the API server ---

    def store(self, key: str, pod: Pod | None) -> None:
        if pod is None:
            del self.api[key]
        else:
            self.api[key] = pod
        self.watch.append((key, pod))

    def pod(self, name: str = "p", uid: str = "u", **fields: Any) -> Pod:
        fields = {"pod_class": CLASS, "scheduler_name": STEERED_NAME, **fields}
        pod = Pod("ns", name, uid, **fields)
        self.store(pod.key, pod)
        return pod

    def change(self, key: str, **fields: Any) -> None:
        changed = msgspec.structs.replace(self.api[key], **fields)
        if changed != self.api[key]:
            self.store(key, changed)

    def see(self, most: int = 1000) -> None:
        """The watch shows what happened."""
        while self.watch and most:
            key, pod = self.watch.popleft()
            most -= 1
            if pod is None:
                self.state.delete_pod(key)
            else:
                self.state.upsert_pod(pod)

    def carry_out(self, at: int = 0, problem: str = "") -> Write | None:
        """A write in line is sent, if it is wanted still; the write, if it was."""
        write = self.writes.pop(at)
        if not write.wanted():
            write.done(None)
            return None
        pod = self.api.get(write.pod.key)
        if problem and pod is not None and pod.uid == write.pod.uid and write.kind in ("open", "clear"):
            write.refused(problem)
            self.writes.append(write)  # it is needed, and tried again after a pause
            return write
        if problem or pod is None or pod.uid != write.pod.uid:
            write.done(problem or "not found")
            return write
        match write.kind:
            case "nominate" | "clear":
                self.change(pod.key, nominated=write.node, planned=write.node)
            case "open":
                self.change(pod.key, gated=False)
        write.done("")
        return write

    def calm(self) -> None:
        """All writes are carried out and seen."""
        while self.writes or self.watch:
            if self.writes:
                self.carry_out()
            self.see()

    def later(self, seconds: float, step: float = 0.2) -> None:
        """Time passes, and nothing else but writes."""
        for _ in range(round(seconds / step)):
            self.now += step
            self.steering.look_after()
            self.calm()

    # --- the rounds and kube-scheduler ---

    def plan(self, key: str, node: str, wave: int = 0) -> bool:
        pod = self.state.waiting.get(key)
        if pod is None or not self.state.reserve(pod, node, By.STEERING):
            return False
        self.steering.send([Planned(pod, node, (1, wave) if wave else WHENEVER)])
        return True

    def bind(self, key: str, node: str) -> bool:
        """The binder takes room for a pod of its own, as a round that delivers does."""
        pod = self.state.waiting[key]
        return not self.state.contended(pod, node) and self.state.reserve(pod, node)

    def asked(self, key: str, pod: Pod | None = None) -> Asked:
        """A pod as kube-scheduler knows it; without one, as it is."""
        pod = pod or self.api[key]
        return Asked(pod.namespace, pod.name, pod.uid, dict(pod.labels), pod.scheduler_name, pod.nominated)

    def ask(self, asked: Asked, nodes: Sequence[str]) -> tuple[Outcome, list[str]]:
        guidance = self.steering.guidance(asked, nodes)
        assert isinstance(guidance, Guidance)
        outcome, passed, _ = to_filter(guidance, nodes)
        self.steering.answered(asked, outcome, passed)
        return outcome, passed

    def attempt(self, key: str, fits: Sequence[str] = NODES) -> tuple[Outcome, list[str]]:
        """kube-scheduler tries a pod; its own filters pass these nodes. What it asked last, and what passed."""
        asked, last = self.asked(key), (Outcome.HELD, list[str]())
        if asked.nominated in fits:
            last = self.ask(asked, [asked.nominated])
        if not last[1] and fits:
            last = self.ask(asked, fits)
        return last

    def count(self, outcome: str) -> float:
        value = self.metrics.registry.get_sample_value("thalweg_steered_total", {"outcome": outcome})
        return value or 0.0

    @property
    def kinds(self) -> list[str]:
        """Of the writes in line that are wanted."""
        return [write.kind for write in self.writes if write.wanted()]
