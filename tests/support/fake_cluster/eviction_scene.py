"""Cluster and ledger, rounds in this process, and recorders of bindings, nominations, evictions and conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.round_loop import RoundLoop
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.effects import (
    Bind,
    ClearNomination,
    Evict,
    Nominate,
    OpenGate,
    WakePod,
    WriteCondition,
)
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME


def sized(cpu: int) -> PodClass:
    """A class of pods that ask for so much."""
    return PodClass(requests=(("cpu", cpu),))


@dataclass
class EvictionCall:
    """An eviction that was asked for."""

    write: Evict
    shell: Shell

    @property
    def pod(self) -> Pod:
        return self.write.pod

    def wanted(self) -> bool:
        return self.shell.is_wanted(self.write)

    def refused(self, why: str, answer: Answer = Answer.RETRYING) -> None:
        """A budget forbids it for now."""
        self.shell.answered(self.write, answer, why)

    def done(self) -> None:
        """The API server evicts the pod, or would."""
        self.shell.answered(self.write, Answer.DONE)


@dataclass
class EvictionScene:
    """Cluster and ledger, rounds in this process, and the ears of binder, nominator, evictor and condition writer."""

    now: float = 1000.0
    alive: bool = True
    bound: dict[str, str] = field(default_factory=dict)
    #: Pods that are nominated while they wait for victims.
    nominated: dict[str, str] = field(default_factory=dict)
    cleared: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    #: Seconds after which a pod is told.
    told_after: dict[str, float] = field(default_factory=dict)
    asked: list[EvictionCall] = field(default_factory=list)
    #: Run between the plan and its delivery.
    meanwhile: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        handlers: dict[Any, Callable[[Any], object]] = {
            Bind: self._bind, Nominate: self._bind, OpenGate: self._open, WakePod: self._open,
            WriteCondition: self._tell, Evict: self._evict, ClearNomination: self._clear,
        }  # fmt: skip
        self.state, self.replica = DrivenLedger(lambda: self.now, handlers=handlers), Replica()
        self.policies = self.state.policies
        selects = {"schedulerNames": [STEERED_NAME]}
        anybody = {"victims": "Governed"}
        self.policies.offer("steered", "u", 1, {"selects": selects, "delivery": "Extender", "replaces": anybody})
        self.policies.offer("own", "u", 1, {"selects": {"podSelector": {}}, "replaces": anybody})
        worker: Any = self
        self.metrics = Metrics()
        self.loop = RoundLoop(self.state.shell, self.policies, worker, self.metrics, Batcher(0.001, 0.01), 60.0, 0.1)
        self.state.set_namespace("ns", ())

    # --- the worker, binder, nominator, condition writer, evictor ---

    async def start(self) -> None:
        self.alive, self.replica = True, Replica()

    async def ask(self, request: RoundRequest) -> RoundReply:
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RoundRequest)
        reply = run_request(self.replica, request)
        self.meanwhile()
        # Which pods have a turn follows from the CPU time of rounds, and that from the machine.
        reply.namespace_seconds = dict.fromkeys(reply.namespace_seconds, 0.0)
        return reply

    def _bind(self, effect: Bind | Nominate) -> None:
        key = effect.pod.key
        if self.state.waits_for_victim(key):
            assert isinstance(effect, Nominate)
            self.nominated[key] = effect.node
            self.state.shell.answered(effect, Answer.DONE)
            return
        assert key not in self.bound, "bound twice"
        assert self.state.reservations[key].node == effect.node
        self.bound[key] = effect.node

    def _open(self, _effect: OpenGate | WakePod) -> None:
        raise AssertionError

    def _clear(self, effect: ClearNomination) -> None:
        self.cleared.append(effect.pod.name)

    def _tell(self, effect: WriteCondition) -> None:
        assert effect.steered == (effect.pod.scheduler_name == STEERED_NAME)
        name = effect.pod.name
        self.told[name], self.codes[name], self.told_after[name] = effect.reason, effect.condition, effect.after

    def _evict(self, effect: Evict) -> None:
        assert all((each.pod.uid, each.write.dry_run) != (effect.pod.uid, effect.dry_run) for each in self.asked)
        self.asked.append(EvictionCall(effect, self.state.shell))

    def end_evictions(self) -> None:
        """What was asked for comes to nothing."""
        asked, self.asked = self.asked, []
        for each in asked:
            each.shell.answered(each.write, Answer.DONE)

    # --- the cluster ---

    def node(self, name: str, cpu: int = 1000, **changes: Any) -> None:
        self.state.upsert_node(Node(name, allocatable=(("cpu", cpu), ("pods", 10)), **changes))

    def pod(self, name: str, cpu: int, **fields: Any) -> Pod:
        fields = {"uid": f"u-{name}", "scheduler_name": "thalweg", "usage": sized(cpu).requests, **fields}
        pod = Pod("ns", name, **{"pod_class": sized(cpu), **fields})
        self.state.upsert_pod(pod)
        return pod

    def change(self, name: str, **changes: Any) -> None:
        self.state.upsert_pod(msgspec.structs.replace(self.state.pods[f"ns/{name}"], **changes))

    def gone(self, name: str) -> None:
        self.state.delete_pod(f"ns/{name}")

    async def turn(self, rounds: int = 2) -> None:
        """Rounds, and what is due between them."""
        for _ in range(rounds):
            await self.loop._round()
            self.loop._seconds_to_next_round()  # so pauses that end by then count
            self.tick()

    def tick(self) -> None:
        """What is due is done, and what is due after that."""
        self.state.look_after()
        self.state.look_after()

    def answer_evictions(self) -> list[str]:
        """The API server allows and does all that it is asked for, one after the other; names of who is evicted."""
        evicted = []
        for each in self.asked:  # more come with the answers
            if each.wanted():
                each.done()
                evicted += [] if each.write.dry_run else [each.pod.name]
        return evicted

    def evictions(self) -> list[str]:
        """Names of the pods that are to be evicted now."""
        return [each.pod.name for each in self.asked if not each.write.dry_run and each.wanted()]

    def dry_runs(self) -> list[EvictionCall]:
        """Dry runs that are not answered yet."""
        return [each for each in self.asked if each.write.dry_run and each.wanted()]
