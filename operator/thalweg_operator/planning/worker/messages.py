"""Messages between the operator and its worker process: length-prefixed MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import fields

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.arrays.snapshot import PendingPod, Victim
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.backfill_history import BackfillHistory
from flowcore.model.gangs import Gang
from flowcore.model.persistent_usage import PersistentUsage
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import DuringExecution, Policy
from flowcore.model.queues import Queue, QueueUsage
from flowcore.model.resource_claims import PlannedClaim
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import GangDisruption, HeldRoom, RecentMove, RunningPod
from flowcore.planning.plan_document import (
    PlanClass,
    PlanDocument,
    PlanGang,
    PlanNode,
    PlanPod,
    PlanPolicy,
)
from thalweg_operator.planning.reports.phases import RoundPhase

LENGTH: Final = struct.Struct(">Q")
#: Entries of each list of a request that go into one part.
_CHUNK_SIZE: Final = 1000


class PendingEntry(msgspec.Struct, array_like=True):
    """A pending pod; class, policy and signature as positions in the request's lists."""

    key: str
    pod_class: int
    policy: int
    created: float
    signature: int
    gangs: tuple[str, ...] = ()
    victim: Victim | None = None
    plannable_since: float = 0.0
    queue: str = ""
    preempts: bool = True
    foreseen: tuple[int, int] | None = None
    waits_for_leavers: bool = False


def to_pending_entry(
    pod: PendingPod, policy: int, classes: dict[PodClass, int], signatures: dict[PodSignature, int]
) -> PendingEntry:
    """A pending pod; a new class or signature gets the next position."""
    return PendingEntry(
        pod.key,
        classes.setdefault(pod.pod_class, len(classes)),
        policy,
        pod.created,
        signatures.setdefault(pod.signature, len(signatures)),
        pod.gangs,
        pod.victim,
        pod.plannable_since,
        pod.queue,
        pod.preempts,
        pod.foreseen,
        pod.waits_for_leavers,
    )


def to_pending_pod(entry: PendingEntry, request: RoundRequest) -> PendingPod:
    """The pending pod of an entry of a request; a round reads no uid of it."""
    return PendingPod(
        entry.key,
        "",
        request.classes[entry.pod_class],
        request.policies[entry.policy].name,
        entry.created,
        request.signatures[entry.signature],
        entry.gangs,
        entry.victim,
        entry.plannable_since,
        entry.preempts,
        entry.queue,
        entry.foreseen,
        entry.waits_for_leavers,
    )


class RunningEntry(msgspec.Struct, array_like=True):
    """A running pod (model/running_pods.py RunningPod); class and signature as positions in the request's lists."""

    key: str
    uid: str
    node: str
    pod_class: int
    usage: Amounts
    signature: int
    started: float
    policy: str
    owner: str
    gang: str
    budgets: tuple[str, ...]
    immovable_reason: str
    unevictable_reason: str
    queue: str
    during_execution: DuringExecution
    checkpointed: float = 0.0
    finite: bool = False


_CLASS_AT, _SIGNATURE_AT = (RunningEntry.__struct_fields__.index(name) for name in ("pod_class", "signature"))


def to_running_entry(
    pod: RunningPod, classes: dict[PodClass, int], signatures: dict[PodSignature, int]
) -> RunningEntry:
    """A running pod; a new class or signature gets the next position."""
    values = list(msgspec.structs.astuple(pod))
    values[_CLASS_AT] = classes.setdefault(pod.pod_class, len(classes))
    values[_SIGNATURE_AT] = signatures.setdefault(pod.signature, len(signatures))
    return RunningEntry(*values)


def to_running_pod(entry: RunningEntry, request: RoundRequest) -> RunningPod:
    """The running pod of an entry of a request."""
    values = list(msgspec.structs.astuple(entry))
    values[_CLASS_AT] = request.classes[entry.pod_class]
    values[_SIGNATURE_AT] = request.signatures[entry.signature]
    return RunningPod(*values)


def to_pod_changes(
    changes: ClusterChanges, signatures: dict[PodSignature, int]
) -> Iterator[tuple[int, dict[str, int]]]:
    """The pod changes of a request; a new signature gets the next position."""
    for signature, on in changes.pod_deltas:
        yield signatures.setdefault(signature, len(signatures)), on


def to_changes(request: RoundRequest) -> ClusterChanges:
    """All changes of a request."""
    pod_deltas = [(request.signatures[place], on) for place, on in request.pod_changes]
    return msgspec.structs.replace(request.changes, pod_deltas=pod_deltas)


class RunningState(msgspec.Struct):
    """What a round reads beside the running pods (model/running_pods.py RunningPods)."""

    budgets: dict[str, int] = {}
    gangs: dict[str, GangDisruption] = {}
    moves: tuple[RecentMove, ...] = ()
    terminating: tuple[HeldRoom, ...] = ()
    places: tuple[str, ...] = ()


class RoundRequest(msgspec.Struct):
    """Changes since the last request, and the pods to plan.

    Attributes:
        reset: the worker drops all that it knows first.
        budget: seconds after which no further step of the round begins.
        deadline: seconds after which the round fails, even within a step; 0: none.
        record_in: folder for a record of the round; "": the worker's own folder, if it has one.
        steps: number of steps to take whatever the time, for a replay; 0: the budget decides.
        seed: of the random choices of the round.
        changes: of the cluster, without those of pods.
        pod_changes: signature as position, and by node name how many more (or fewer) such pods hold room there.
        classes, signatures: those of the pending and the running pods, signatures also those of ``pod_changes``: a pod
            that comes to a node is often in both, and its labels may be its own.
        gangs: all gangs of the pending pods.
        persistent_usage: usage that does not come free (model/persistent_usage.py); None: unchanged.
        backfill_history: how long room has been held for gangs, from the last reply.
        queues, queue_usage: accepted FlowQueues, and what their pods hold, by name.
        running, removed_running: new or changed running pods, and keys of the ones that are gone.
        running_state: None: no pod may be evicted in this round.
    """

    number: int
    generation: int
    now: float
    reset: bool
    changes: ClusterChanges
    policies: list[Policy]
    classes: list[PodClass]
    signatures: list[PodSignature]
    pending: list[PendingEntry]
    budget: float
    pod_changes: list[tuple[int, dict[str, int]]] = []
    steps: int = 0
    seed: int = 0
    gangs: list[Gang] = []
    persistent_usage: tuple[PersistentUsage, ...] | None = None
    backfill_history: BackfillHistory = BackfillHistory()
    queues: list[Queue] = []
    queue_usage: dict[str, QueueUsage] = {}
    deadline: float = 0.0
    record_in: str = ""
    running: list[RunningEntry] = []
    removed_running: list[str] = []
    running_state: RunningState | None = None
    #: Whether more parts follow (see ``split_request``).
    has_more: bool = False


#: The lists of a request and of its changes: each is cut into parts.
_LISTS: Final = {
    kind: tuple(field.name for field in fields(kind) if get_origin(field.type) is list)
    for kind in (RoundRequest, ClusterChanges)
}
#: What the first part has whole and the others lack.
_IN_FIRST_PART: Final[dict[type, dict[str, Any]]] = {
    kind: {
        field.name: None if NoneType in get_args(field.type) else {}
        for field in fields(kind)
        if get_origin(field.type) is dict or NoneType in get_args(field.type)
    }
    for kind in _LISTS
}
_Cut = TypeVar("_Cut", RoundRequest, ClusterChanges)


def split_request(request: RoundRequest) -> Iterator[RoundRequest]:
    """A request in parts; each is encoded quickly enough not to block the event loop."""
    longest = max(len(getattr(whole, name)) for whole in (request, request.changes) for name in _LISTS[type(whole)])
    for start in range(0, max(1, longest), _CHUNK_SIZE):
        changes = _part(request.changes, start)
        yield _part(request, start, changes=changes, has_more=start + _CHUNK_SIZE < longest)


def _part(whole: _Cut, start: int, **rest: Any) -> _Cut:
    part: dict[str, Any] = {name: getattr(whole, name)[start : start + _CHUNK_SIZE] for name in _LISTS[type(whole)]}
    if start:
        part |= _IN_FIRST_PART[type(whole)]
    return msgspec.structs.replace(whole, **part, **rest)


def join_request(parts: Sequence[RoundRequest]) -> RoundRequest:
    """The request that was split into these parts."""
    if len(parts) == 1:
        return parts[0]
    return _joined(parts, changes=_joined([part.changes for part in parts]), has_more=False)


def _joined(parts: Sequence[_Cut], **rest: Any) -> _Cut:
    lists = {name: [entry for part in parts for entry in getattr(part, name)] for name in _LISTS[type(parts[0])]}
    return msgspec.structs.replace(parts[0], **lists, **rest)


class Greeting(msgspec.Struct):
    """The first message of a worker: its cost models, why others are not used, and which declare networks."""

    models: list[str]
    problems: dict[str, str]
    networks: list[str] = []


class NodePricesEntry(msgspec.Struct, frozen=True, array_like=True):
    """What each node costs one more pod of a class after the plan.

    Attributes:
        pod: one pod of the class and policy.
        base: the lowest price of a node that the pods may use.
        step: codes are in such steps above that.
        codes: uint16 for each node: steps above the base, 32768 and steps where the node has no room for one more, or
            65535 where the pods may not use it.
        tolerance: how much dearer a node may be than the planned one.
    """

    pod: int
    base: int
    step: int
    codes: bytes
    tolerance: int


class RoundReply(PlanDocument, msgspec.Struct):
    """A plan, and what only the operator reads of it. Pods are positions in the request's ``pending``.

    Attributes:
        costs: cost per policy, in the order of the request's policies.
        solves, arcs: see ``flowcore.planning.problem.result.RoundResult``.
        cache_tallies: per filter: hits, partly refreshed entries, misses, and rows computed.
        node_prices: what nodes cost one more pod of a class after the plan (worker/node_prices.py).
        node_names: of all nodes, in the order of ``node_prices``; None: as in the last reply that had prices.
        contradictions: position of a policy that rules some of its own pods out, and how.
        settles_in: seconds until waiting costs a pod as much as its cheapest node, or a search of devices goes on; 0:
            there is no such pod.
        phases: phases of the seconds that the round took, in order.
        namespace_seconds: CPU seconds by the namespaces of the pods (worker/meter.py).
        filter_seconds: how long these phases waited for filters.
        claims: positions of placed pods that we bind and that have claims, each with what its claims have or get. A pod
            whose claims do not all get devices is not in it.
        frees: positions of pods that we bind and that have no node, each with the claims that are to be freed for it.
        problem, cause: why there is no plan, and the kind of failure (errors.py WorkerLost).
    """

    costs: list[int] = []
    solves: int = 0
    arcs: int = 0
    phases: list[RoundPhase] = []
    filter_seconds: float = 0.0
    cache_tallies: list[tuple[str, int, int, int, int]] = []
    node_prices: list[NodePricesEntry] = []
    node_names: list[str] | None = None
    contradictions: list[tuple[int, str]] = []
    backfill_history: BackfillHistory = BackfillHistory()
    settles_in: float = 0.0
    namespace_seconds: dict[str, float] = {}
    claims: list[tuple[int, tuple[PlannedClaim, ...]]] = []
    frees: list[tuple[int, tuple[ClaimKey, ...]]] = []
    problem: str = ""
    cause: str = ""


def to_reply(plan: PlanDocument, **rest: Any) -> RoundReply:
    """The reply with a plan; ``rest``: its other fields."""
    return RoundReply(*msgspec.structs.astuple(plan), **rest)


def document_of(request: RoundRequest, reply: RoundReply, *, nodes: bool = False) -> PlanDocument:
    """The plan of a reply with the pods that its request has.

    Args:
        nodes: with the nodes before the round, of a complete request.
    """
    plan = PlanDocument(**{name: getattr(reply, name) for name in PlanDocument.__struct_fields__})
    plan.policies = [PlanPolicy.of(policy) for policy in request.policies]
    plan.classes = [PlanClass.of(pod_class) for pod_class in request.classes]
    plan.gangs = [PlanGang.of(gang) for gang in request.gangs]
    plan.pending = [
        PlanPod(
            pod.key,
            pod.pod_class,
            pod.policy,
            pod.created,
            pod.plannable_since or pod.created,
            pod.gangs,
            pod.queue,
        )
        for pod in request.pending
    ]
    if nodes:
        used = {usage.node: (usage.amounts, usage.pods) for usage in request.changes.usage}
        plan.nodes = [PlanNode.of(node, *used.get(node.name, ((), 0))) for node in request.changes.nodes]
    return plan


def failed_reply(request: RoundRequest, problem: str, cause: str = "error") -> RoundReply:
    """The reply to a request that could not be answered."""
    return RoundReply(
        request.number,
        request.now,
        seconds=0.0,
        cost=0,
        lower_bound=0,
        method="",
        steps=0,
        generation=request.generation,
        problem=problem,
        cause=cause,
    )


request_encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(RoundRequest)
greeting_decoder = msgspec.msgpack.Decoder(Greeting)
reply_encoder = msgspec.msgpack.Encoder()
reply_decoder = msgspec.msgpack.Decoder(RoundReply)
