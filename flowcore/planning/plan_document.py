"""The plan of a round as it is sent, kept, shown and compared. Lists refer to each other by position.

The worker writes it, records keep it, the view draws it, and ``replay`` compares it. What there are thousands of is
written as arrays, so it takes little room as MessagePack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs.shares.shares import Shares
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import PodClass
from flowcore.model.policies import Delivery, Policy, ReschedulingMode
from flowcore.model.queues import QueueShare
from flowcore.model.resource_claims import AllocatedDevice, PlannedClaim
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import EvictionKind
from flowcore.model.selectors import Labels
from flowcore.model.volumes import VolumeChoice
from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.planning.problem.result import Bounded, Eviction, RoundResult
from flowcore.planning.saying import Say, unguarded
from flowcore.rules.filters.dynamic_resources import claimable_devices
from flowcore.rules.reasons import Reason

#: Taint of a cordoned node.
CORDONED: Final = "node.kubernetes.io/unschedulable"
_NO_SAVINGS: Mapping[str, Mapping[str, int]] = {}
#: Most pods whose devices are said: a search for those of one takes up to a millisecond.
_MOST_PODS_WITH_DEVICES: Final = 2000


class PlanClass(msgspec.Struct, array_like=True, frozen=True):
    """A pod class, as far as people read it.

    Attributes:
        requests: see ``flowcore.model.resources``.
    """

    requests: Amounts = ()
    priority: int = 0

    @classmethod
    def of(cls, pod_class: PodClass) -> PlanClass:
        """A pod class as people read it."""
        return cls(pod_class.requests, pod_class.priority)


class PlanPolicy(msgspec.Struct, array_like=True, frozen=True):
    """A policy in force. With delivery Observe, its plan is only shown."""

    name: str
    delivery: Delivery

    @classmethod
    def of(cls, policy: Policy) -> PlanPolicy:
        """A policy as people read it."""
        return cls(policy.name, policy.delivery)


class PlanGang(msgspec.Struct, array_like=True, frozen=True):
    """A gang of pending pods.

    Attributes:
        needed: waiting pods that must be placed at once; not above zero: the gang has what it needs.
    """

    name: str
    needed: int

    @classmethod
    def of(cls, gang: Gang) -> PlanGang:
        """A gang as people read it."""
        return cls(gang.name, gang.min_placed)


class PlanPod(msgspec.Struct, array_like=True):
    """A pod that the round planned.

    Attributes:
        key: ``namespace/name``.
        pod_class, policy: positions in the document's lists.
        created, since: seconds since the epoch: of the object, and since when it could be placed.
        gangs: names of its gangs.
        queue: name of its FlowQueue; "": none.
    """

    key: str
    pod_class: int
    policy: int
    created: float = 0.0
    since: float = 0.0
    gangs: tuple[str, ...] = ()
    queue: str = ""


class PlanDevice(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A device, or a share of one, that a planned pod has or gets.

    Attributes:
        claim: name of the ResourceClaim; "": it is yet to be made, for the pod's extended resources.
        request: of the claim: ``request`` or ``request/alternative``.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str

    @classmethod
    def of(cls, claim: PlannedClaim, allocated: AllocatedDevice) -> PlanDevice:
        """A device that a claim has or gets."""
        name, device = "" if claim.requests else claim.name, allocated.device
        return cls(name, allocated.request, device.driver, device.pool, device.device)


_NO_DEVICES: Mapping[str, tuple[PlanDevice, ...]] = {}


class PlanPlacement(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pod and its node (problem/result.py Placement).

    Attributes:
        pod: position in ``pending``.
        chain, wave: see topology/round_constraints/waves.py.
        atomic_group: position in ``atomic_groups``; -1: none.
        victims: positions in ``evictions``: the running pods that must leave before it comes.
        saving: by how much the cost falls if the pod leaves the node; None: not known.
        volumes: what each claim of it that waits for its first consumer is to get.
        devices: what its resource claims have or get, of a plan that answers a question; see ``planned_devices``.
    """

    pod: int
    node: str
    price: int
    chain: int = 0
    wave: int = 0
    atomic_group: int = -1
    optional: bool = False
    victims: tuple[int, ...] = ()
    saving: int | None = None
    volumes: tuple[VolumeChoice, ...] = ()
    devices: tuple[PlanDevice, ...] = ()


class PlanEviction(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A running pod that leaves its node.

    Attributes:
        for_pods: positions in ``pending``: the pods that it leaves for.
        to: the node where room for its replacement is free now and reserved; "": none.
        reason: a sentence for people beyond the kind; "": none.
        by_controller: another controller evicts it; only the room for its replacement is ours to reserve.
        gain: of a move for gain: by how much it costs less on ``to``; 0: it leaves for others.
        price: what it costs that the pod leaves, by its policy.
    """

    key: str
    uid: str
    node: str
    kind: EvictionKind
    for_pods: tuple[int, ...] = ()
    to: str = ""
    reason: str = ""
    by_controller: bool = False
    gain: int = 0
    price: int = 0

    @classmethod
    def of(cls, eviction: Eviction, positions: Mapping[str, int]) -> PlanEviction:
        """An eviction; ``positions``: of the pending pods, by key."""
        return cls(
            eviction.pod.key,
            eviction.pod.uid,
            eviction.pod.node,
            eviction.kind,
            tuple(positions[key] for key in eviction.for_pods),
            eviction.to,
            eviction.reason,
            eviction.by_controller,
            eviction.gain,
            eviction.price,
        )


class PlanNode(msgspec.Struct, array_like=True):
    """A node before the round.

    Attributes:
        used: what its pods request, without their number.
        pods: their number.
        taints: those that keep pods away, as kubectl writes them: "dedicated=memory:NoSchedule".
    """

    name: str
    labels: Labels = ()
    unschedulable: bool = False
    allocatable: Amounts = ()
    used: Amounts = ()
    pods: int = 0
    taints: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Node, used: Amounts, pods: int) -> PlanNode:
        """A node, what its pods request, and their number."""
        taints = taint_texts(node.taints)
        return cls(node.name, node.labels, node.unschedulable, node.allocatable, used, pods, taints)


class PlanDocument(msgspec.Struct, Bounded):
    """What one round decided.

    Attributes:
        time: when it began, seconds since the epoch.
        seconds: how long it took.
        cost, lower_bound, method, steps, left_at_least: see ``flowcore.planning.problem.result.RoundResult``. They tell
            of the pods whose policy acts.
        policies, classes, pending, gangs: the pods that it planned, and what is said of them. The worker's reply leaves
            them out: they are in the request.
        placements: in commit order.
        unplaced: position in ``pending``, position in ``reasons``.
        codes: the code of each of ``reasons`` (flowcore/rules/reasons/codes.py).
        skipped: pods that no round may plan, and the reason, by key.
        queue_shares: shares of the queues once the plan is carried out.
        nodes: the nodes before the round, of a round that is shown without the cluster's state; None: the state has
            them.
        proposals: moves that policies only propose: position of the policy, and the pod that would leave; by pod.
        gaps: sentences about missing objects that may change the plan.
        warnings: other sentences about the cluster that it was made from.
        generation: of the cluster's state that it was made from.
        more_nodes_help: for each of ``reasons``, whether another node may take the pod.
        atomic_groups: names of the groups that are placed as a whole.
        bound_notes: what the lower bound does not count in full (problem/bounds/bound_notes.py).
        lacks: of a plan that answers a question: what pods lack that room keeps out, in words and by key
            (``flowcore.rules.reasons.shortage.lacks_by_pod``); rounds of an operator do not compute it.
    """

    number: int
    time: float
    seconds: float
    cost: int
    lower_bound: int
    method: str
    steps: int
    policies: list[PlanPolicy] = []
    classes: list[PlanClass] = []
    pending: list[PlanPod] = []
    placements: list[PlanPlacement] = []
    unplaced: list[tuple[int, int]] = []
    reasons: list[str] = []
    codes: list[str] = []
    gangs: list[PlanGang] = []
    skipped: dict[str, str] = {}
    evictions: list[PlanEviction] = []
    proposals: list[tuple[int, PlanEviction]] = []
    queue_shares: list[QueueShare] = []
    nodes: list[PlanNode] | None = None
    gaps: list[str] = []
    warnings: list[str] = []
    generation: int = 0
    more_nodes_help: list[bool] = []
    atomic_groups: list[str] = []
    left_at_least: LeftAtLeast | None = None
    bound_notes: list[str] = []
    lacks: dict[str, str] = {}

    @property
    def certified(self) -> bool:
        """Whether no plan costs less, and no object is missing that may change the plan."""
        return super().certified and not self.gaps

    def keys(self, positions: Iterable[int]) -> list[str]:
        """The keys of pending pods."""
        return [self.pending[place].key for place in positions]

    def nodes_by_pod(self) -> dict[str, str]:
        """The node of each pod that is placed, by the pod's key."""
        return {self.pending[each.pod].key: each.node for each in self.placements}

    def reasons_by_pod(self) -> dict[str, str]:
        """Why each other pod stays pending, by the pod's key; of pods that no round may plan, too."""
        return self.skipped | {self.pending[pod].key: self.reasons[reason] for pod, reason in self.unplaced}

    def order(self) -> list[int]:
        """Positions of all pending pods in the planner's order: by priority, then those that wait the longest first.

        Pods that are alike are placed in this order, and so are the pods of a queue (flowcore/costs/shares), but for
        those that wait since the same moment: here they are by name, there by when they came (``PendingPod.came``).
        """
        classes, pending = self.classes, self.pending

        def rank(place: int) -> tuple[int, float, str]:
            pod = pending[place]
            return -classes[pod.pod_class].priority, pod.since or pod.created, pod.key

        return sorted(range(len(pending)), key=rank)

    def waiting_by_code(self) -> dict[str, int]:
        """How many pods stay pending, by the code of their reason, the most first."""
        counts = Counter(self.codes[reason] for _, reason in self.unplaced)
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def taint_texts(taints: Iterable[Taint]) -> tuple[str, ...]:
    """Taints that keep pods away, as kubectl writes them. That of a cordoned node is left out: it says it itself."""
    return tuple(taint.text for taint in taints if taint.keeps_out and taint.key != CORDONED)


def to_plan_document(
    results: Sequence[RoundResult],
    positions: Mapping[str, int],
    policies: Iterable[Policy],
    *,
    number: int = 1,
    seconds: float = 0.0,
    savings: Mapping[str, Mapping[str, int]] = _NO_SAVINGS,
    devices: Mapping[str, tuple[PlanDevice, ...]] = _NO_DEVICES,
    say: Say = unguarded,
) -> PlanDocument:
    """The document of a plan, without what is said of the pods themselves.

    Args:
        results: the plan of the pods that are bound, then that of pods that are only observed, for which no pod leaves.
        positions: of the pending pods, by key.
        policies: in the order of the document's.
        savings: by how much the cost falls if a pod leaves a node, by the pod's key and the node's name.
        devices: of placed pods, by key.
        say: computes each part that is not the plan itself.
    """
    first = results[0]
    reasons: dict[Reason, int] = {}
    atomic_groups: dict[str, int] = {}
    victims = {eviction.pod.key: place for place, eviction in enumerate(first.evictions)}
    placements: list[PlanPlacement] = []
    unplaced: list[tuple[int, int]] = []
    for result in results:
        for placement in result.placements:
            group = (
                atomic_groups.setdefault(placement.atomic_group, len(atomic_groups)) if placement.atomic_group else -1
            )
            placements.append(
                PlanPlacement(
                    positions[placement.pod.key],
                    placement.node,
                    placement.price,
                    placement.chain,
                    placement.wave,
                    group,
                    placement.optional,
                    tuple(victims[key] for key in placement.victims),
                    savings.get(placement.pod.key, {}).get(placement.node),
                    placement.volumes,
                    devices.get(placement.pod.key, ()),
                )
            )
        for out in result.unplaced:
            reason = Reason(out.reason, out.code, out.more_nodes_help)
            unplaced.append((positions[out.pod.key], reasons.setdefault(reason, len(reasons))))
    return PlanDocument(
        number,
        first.after.now,
        seconds,
        first.cost,
        first.lower_bound,
        first.method,
        first.steps,
        placements=placements,
        unplaced=unplaced,
        reasons=[each.text for each in reasons],
        codes=[each.code for each in reasons],
        evictions=[PlanEviction.of(each, positions) for each in first.evictions],
        proposals=say("What policies propose", lambda: _proposals(first, positions, policies), []),
        queue_shares=say("The shares of queues", lambda: _queue_shares(first), []),
        generation=first.generation,
        more_nodes_help=[each.more_nodes_help for each in reasons],
        atomic_groups=list(atomic_groups),
        left_at_least=first.left_at_least,
        bound_notes=[note.value for note in first.bound_notes],
    )


def planned_devices(result: RoundResult) -> dict[str, tuple[PlanDevice, ...]]:
    """The devices of the first 2,000 placed pods that have claims, by the pod's key.

    A pod that waits until others have left may lack some: their claims have the devices still.
    """
    claiming = [each.pod for each in result.placements if each.pod.pod_class.devices is not None]
    if not claiming:
        return {}
    claimable = claimable_devices(replace(result.after, takers=result.after.takers[:_MOST_PODS_WITH_DEVICES]))
    planned = ((pod.key, claimable.planned_claims(pod.pod_class.devices)) for pod in claiming if pod.pod_class.devices)
    return {
        key: tuple(PlanDevice.of(claim, each) for claim in claims for each in claim.allocation.devices)
        for key, claims in planned
        if claims
    }


def devices_left_out(result: RoundResult) -> int:
    """How many placed pods with claims come after those whose devices ``planned_devices`` has."""
    claiming = sum(each.pod.pod_class.devices is not None for each in result.placements)
    return max(0, claiming - _MOST_PODS_WITH_DEVICES)


def whole_plan_document(
    result: RoundResult, policies: Mapping[str, Policy], seconds: float, say: Say = unguarded
) -> PlanDocument:
    """The document of a plan with all that is said of its pods.

    Args:
        policies: in force, by name.
        seconds: how long it took.
        say: computes each part that is not the plan itself.
    """
    pods: list[PendingPod] = [*(each.pod for each in result.placements), *(each.pod for each in result.unplaced)]
    positions = {pod.key: place for place, pod in enumerate(pods)}
    devices = say("The devices of placed pods", lambda: planned_devices(result), dict(_NO_DEVICES))
    document = to_plan_document([result], positions, policies.values(), seconds=seconds, devices=devices, say=say)
    classes: dict[PodClass, int] = {}
    places = {name: place for place, name in enumerate(policies)}
    document.pending = [
        PlanPod(
            pod.key,
            classes.setdefault(pod.pod_class, len(classes)),
            places[pod.policy],
            pod.created,
            pod.waiting_since,
            pod.gangs,
            pod.queue,
        )
        for pod in pods
    ]
    document.classes = [PlanClass.of(each) for each in classes]
    document.policies = [PlanPolicy.of(policy) for policy in policies.values()]
    gangs = result.after.gangs
    names = sorted({name for pod in pods for name in pod.gangs if name in gangs})
    document.gangs = [PlanGang.of(gangs[name]) for name in names]
    return document


def _proposals(
    result: RoundResult, positions: Mapping[str, int], policies: Iterable[Policy]
) -> list[tuple[int, PlanEviction]]:
    """Each with the policy that proposes it: that of the pod that would leave, or of a pod that it would leave for."""
    if not result.proposals:
        return []
    proposing = {
        policy.name: place
        for place, policy in enumerate(policies)
        if policy.rescheduling.mode is ReschedulingMode.PROPOSE
    }
    pods = [*(each.pod for each in result.placements), *(each.pod for each in result.unplaced)]
    policy_of = {pod.key: pod.policy for pod in pods}
    proposals: list[tuple[int, PlanEviction]] = []
    for eviction in sorted(result.proposals, key=lambda proposal: proposal.pod.key):
        names = (eviction.pod.policy, *(policy_of[key] for key in eviction.for_pods))
        place = next((proposing[name] for name in names if name in proposing), None)
        if place is not None:
            proposals.append((place, PlanEviction.of(eviction, positions)))
    return proposals


def _queue_shares(result: RoundResult) -> list[QueueShare]:
    if result.after.queues is None:
        return []
    waiting = tuple(each.pod for each in result.unplaced)
    return list(Shares(replace(result.after, pending=waiting)).report())
