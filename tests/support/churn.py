"""A cluster in which everything comes and goes under new names, in front of the operator's own parts.

``python -m support.churn COUNT`` (in the folder ``tests``) does so with a real worker process and prints the resident
bytes of both processes, before and after.
"""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import structlog
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches import sinks
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.delivery.nominator import PodWrite
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.round_loop import RoundLoop
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import (
    RoundReply,
    RoundRequest,
    reply_decoder,
    reply_encoder,
    request_decoder,
)
from thalweg_operator.planning.worker.messages import request_encoder as encoder
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import CACHE_GENERATION, Replica
from thalweg_operator.reservations.effects import Bind, Effect, Evict, RequestRound, WriteCondition
from thalweg_operator.reservations.events import Answer

from flowcore.api import Interner
from flowcore.model.policies import STEERED_NAME

ZONE = "topology.kubernetes.io/zone"
#: Nodes that stay.
STAYING = 20
#: Rounds after which nothing is remembered that none of them asked for.
QUIET_ROUNDS = 2 * CACHE_GENERATION + 2
#: Pods of the warm-up: libraries are loaded then, and what is remembered is as much as ever.
WARM_UP = 5_000


class InProcessWorker:
    """A worker without the process; requests and replies go through the wire format.

    No round takes any time: which pods have turns, and how long that is remembered, depends on the machine's speed.
    """

    alive = True

    def __init__(self) -> None:
        self.replica = Replica()

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def ask(self, request: RoundRequest) -> RoundReply:
        """The plan."""
        reply = run_request(self.replica, request_decoder.decode(encoder.encode(request)))
        reply.namespace_seconds = dict.fromkeys(reply.namespace_seconds, 0.0)
        return reply_decoder.decode(reply_encoder.encode(reply))


class ChurningCluster:
    """See the module.

    Attributes:
        parts: the operator's parts, by name.
    """

    def __init__(self, worker: Any) -> None:
        self.now, self.made, self.worker, self.metrics = 1000.0, 0, worker, Metrics()
        self.writes: list[PodWrite] = []
        self.bound: dict[str, str] = {}
        self.intern = Interner(max_new_bytes=2**18)
        bad_input = BadInput(self.metrics)
        self._node, self._pod = sinks.node_decoder(self.intern), sinks.pod_decoder(self.intern, bad_input)
        batcher = Batcher(0.001, 0.01)
        handlers: dict[type[Effect], Callable[[Any], object]] = {
            kind: lambda _effect: None for kind in get_args(Effect)
        }
        handlers |= dict.fromkeys(get_args(PodWrite), self.writes.append)
        handlers[Bind] = self._bind
        # Nobody is evicted.
        handlers[Evict] = lambda write: self.state.shell.answered(write, Answer.UNWANTED)
        handlers[WriteCondition] = lambda effect: self.conditions.put(effect)  # noqa: PLW0108 - made below
        self.state = DrivenLedger(lambda: self.now, self._request, handlers)
        self.policies = self.state.policies
        us: Any = self
        events: Any = SimpleNamespace(write=lambda *_arguments, **_options: None)
        self.conditions = ConditionWriter(us, self.state.shell, self.metrics, events, 100.0)
        self.loop = RoundLoop(self.state.shell, self.policies, worker, self.metrics, batcher, 60.0, 1e-6)
        self.parts = {
            "state": self.state,
            "metrics": self.metrics,
            "intern": self.intern,
            "told": self.conditions,
            "loop": self.loop,
            "bad input": bad_input,
        }
        if isinstance(worker, InProcessWorker):
            self.parts["worker"] = worker
        self.state.set_namespace("ns", ())
        selects = {"schedulerNames": [STEERED_NAME]}
        self.policies.offer("steered", "u", 1, {"selects": selects, "delivery": "Extender", "waiting": "Gate"})
        for at in range(STAYING):
            self.put_node(f"staying-{at}", {ZONE: f"z{at % 3}"})

    def _request(self, effect: RequestRound) -> None:
        self.loop.request(effect)

    def _bind(self, effect: Bind) -> None:
        self.bound[effect.pod.key] = effect.node

    # --- what comes and goes ---

    def put_node(self, name: str, labels: dict[str, str], **allocatable: str) -> None:
        """A node comes."""
        meta = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        given = {"cpu": "8", "memory": "32Gi", "pods": "110", **allocatable}
        images = [{"names": [f"registry/{name}:1"], "sizeBytes": 2**30}]
        node = {"metadata": meta, "status": {"allocatable": given, "images": images}}
        self.state.upsert_node(self._node(msgspec.json.encode(node)))

    def put_pod(self, manifest: dict[str, Any]) -> None:
        """A pod comes or changes."""
        self.state.upsert_pod(self._pod(msgspec.json.encode(manifest)))

    async def churn_once(self, pods: int, nodes: int) -> None:
        """So many nodes and pods come, are planned, bound where there is room, and go."""
        first = self.made
        self.made += pods
        names = [f"node-{first}-{at}" for at in range(nodes)]
        for name in names:
            self.put_node(name, {f"label-{name}": "x", ZONE: f"zone-{name}"}, **{f"offered.io/{name}": "100"})
        self.state.set_namespace(f"ns-{first}", ((f"label-{first}", "x"),))
        there = {}
        for at in range(first, self.made):
            there[f"ns-{first}/pod-{at}"] = manifest = _pod(at, f"ns-{first}", names[at % nodes])
            self.put_pod(manifest)
        await self.round()
        for key, manifest in there.items():
            reservation = self.state.reservations.get(key)
            if reservation is not None:
                manifest["spec"].pop("schedulingGates", None)
                manifest["spec"]["nodeName"] = reservation.node
                self.put_pod(manifest)
        await self.round()
        for key in there:
            self.state.delete_pod(key)
        for name in names:
            self.state.delete_node(name)
        self.state.set_namespace(f"ns-{first}", None)
        self.bound.clear()

    async def round(self) -> None:
        """One round, and what is due after it. All writes are refused: nothing comes of a nomination."""
        self.now += 1.0
        await self.loop._round()
        self.state.look_after()
        self.conditions._take_due(1)
        while self.writes:
            write = self.writes.pop()
            if self.state.shell.is_wanted(write):
                self.state.shell.answered(write, Answer.REFUSED, "refused")
            else:
                self.state.shell.answered(write, Answer.UNWANTED)

    async def settle(self) -> None:
        """Nothing happens for so many rounds that all is forgotten that nobody asks for."""
        for at in range(QUIET_ROUNDS):
            # An idle cluster has no rounds: a node that changes makes them.
            self.put_node("staying-0", {ZONE: "z0", "beat": str(at % 2)})
            await self.round()
        # Readers keep what they read of specs and images, within limits of their own.
        self._node = sinks.node_decoder(self.intern)
        self._pod = sinks.pod_decoder(self.intern, self.parts["bad input"])
        self.intern.drop_unused()
        self.intern.drop_unused()
        gc.collect()


def _pod(at: int, namespace: str, node: str) -> dict[str, Any]:
    """A pod of a kind that no other is of."""
    unique = {f"label-{at}": f"value-{at}"}
    resource = f"offered.io/{node}" if at % 2 else f"nobody.io/resource-{at}"
    term = {"topologyKey": f"label-{node}" if at % 3 else ZONE, "labelSelector": {"matchLabels": unique}}
    spec: dict[str, Any] = {
        "schedulerName": STEERED_NAME if at % 4 == 1 else "thalweg",
        "containers": [
            {
                "name": "c",
                "image": f"registry/image-{at}",
                "resources": {"requests": {"cpu": f"{1 + at % 97}m", resource: "1"}},
            }
        ],
    }
    match at % 8:
        case 0:
            spec["nodeSelector"] = {f"label-{node}": "x", f"selected-{at}": "y"}
        case 1 | 3:
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 5:
            spec["topologySpreadConstraints"] = [{**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
        case 7:
            spec["affinity"] = {
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]
                }
            }
    if at % 4 == 1:
        spec["schedulingGates"] = [{"name": "scheduling.thalweg/plan"}]
    annotations = {}
    if at % 10 == 2:
        annotations = {"scheduling.thalweg/gang": f"gang-{at}", "scheduling.thalweg/gang-min-member": "2"}
    if at % 10 == 4:
        annotations = {"scheduling.thalweg/replaces": f"pod-{at - 1}"}
    meta = {"name": f"pod-{at}", "namespace": namespace, "uid": f"u-{at}", "labels": unique, "annotations": annotations}
    return {"metadata": meta, "spec": spec, "status": {}}


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def main(count: int, say: Callable[[str], object] = print) -> None:
    """Churns with a real worker; says what is resident after a warm-up, and in the end."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    worker = WorkerClient(60.0)
    churn = ChurningCluster(worker)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)

    async def until(made: int) -> None:
        while churn.made < made:
            await churn.churn_once(pods=50, nodes=25)
        await churn.settle()
        assert worker.pid is not None
        say(f"{resident(os.getpid())} {resident(worker.pid)}")

    try:
        await until(WARM_UP)
        await until(WARM_UP + count)
    finally:
        await worker.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
