"""The devices of a cluster beside those that planned pods take: each pod is checked exactly, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import msgspec

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.model.resource_claims import (
    EXTENDED_RESOURCES,
    MAX_CONSUMERS,
    ClaimAllocation,
    ClaimingPod,
    DeviceTaker,
    PlannedClaim,
    ResourceClaim,
    extended_claim_name,
)
from flowcore.model.resource_slices import DeviceId, PoolId
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import Pool
from flowcore.rules.devices.claim_users import ClaimUsers
from flowcore.rules.devices.claim_verdicts import DeviceState, alternatives_score, are_allocated, node_devices
from flowcore.rules.devices.nameless_claims import NamelessClaims, without_names
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.pod_claims import REASON_IN_USE, ClaimRejection, claims_of
from flowcore.rules.devices.search_effort import REASON_LATER, EffortSpentError, Spend, unlimited

#: The score of a node that has no devices for a pod.
NOTHING = -1
#: Answers that are kept of one state of a cluster.
_MOST_ANSWERS = 2**15
_LATER = ClaimRejection(REASON_LATER)


#: Number of a node's pools, numbers of the states of these, and what it offers itself in place of devices, or the node
#: if an allocation says which nodes reach it.
_Place = tuple[int, tuple[int, ...], ReachedNode | tuple[str, ...]]
#: What claims get on a node, or why they get nothing.
_Answer = tuple[ClaimAllocation, ...] | ClaimRejection


#: See ``ClaimableDevices.begin``.
Known = Callable[
    [NamelessClaims, tuple[int, ReachedNode | tuple[str, ...]], tuple[Pool, ...]],
    tuple[ClaimAllocation, ...] | ClaimRejection | None,
]


def _nothing_known(*_: object) -> None:
    return None


@dataclass(slots=True)
class _Memory:
    """Answers that all copies share.

    Attributes:
        versions: how many states of pools there were. Each has a number of its own, whichever copy made it.
        size: how many answers there are.
    """

    versions: int = 0
    size: int = 0
    _answers: dict[NamelessClaims, dict[_Place, _Answer]] = field(default_factory=dict)

    def of(self, claims: NamelessClaims) -> dict[_Place, _Answer]:
        """What places have for some claims."""
        if self.size >= _MOST_ANSWERS:
            self._answers.clear()
            self.size = 0
        return self._answers.setdefault(claims, {})


class ClaimableDevices:
    """What a cluster has, less what planned pods take.

    Args:
        state: what there is; it is read, not changed.
        claims: of the cluster, by namespace and name.
        extended: uid of a pod -> the claim that was made for its extended resources.

    Attributes:
        allocations: what claims get for planned pods that have nothing in the cluster.
        waiting: planned pods for which their nodes have no devices yet.
    """

    def __init__(
        self,
        state: DeviceState,
        claims: Mapping[ClaimKey, ResourceClaim],
        extended: Mapping[str, ClaimKey] = MappingProxyType({}),
    ) -> None:
        self._claims, self._extended = claims, extended
        self._state = replace(state, allocated=AllocatedDevices(state.allocated))
        self.allocations: dict[ClaimKey, ClaimAllocation] = {}
        self.waiting: dict[ClaimingPod, DeviceTaker] = {}
        #: Who uses each claim of planned pods, and which claims each of them uses, as which consumer.
        self._users = ClaimUsers()
        self._claims_of_pod: dict[ClaimingPod, tuple[tuple[ClaimKey, str], ...]] = {}
        self._versions: dict[PoolId, int] = {}
        self._memory = _Memory()
        self._known: Known = _nothing_known

    def copy(self) -> ClaimableDevices:
        """An independent copy, in which the same is taken."""
        copied = ClaimableDevices(self._state, self._claims, self._extended)
        copied._state = replace(self._state, allocated=self._state.allocated.copy())
        copied.allocations, copied.waiting = dict(self.allocations), dict(self.waiting)
        copied._users, copied._claims_of_pod = self._users.copy(), dict(self._claims_of_pod)
        copied._versions, copied._memory, copied._known = dict(self._versions), self._memory, self._known
        return copied

    def begin(self, known: Known) -> None:
        """What is taken so far is where plans begin.

        Args:
            known: what was searched there: for claims without names, a node's number with what it offers, and its
                pools; None: it was not.
        """
        self._versions, self._memory, self._known = {}, _Memory(self._memory.versions), known

    @property
    def version(self) -> int:
        """Another number after each change of this one or of a copy, that none of them had before."""
        return self._memory.versions

    # --- questions ---

    def claims_of(self, pod: ClaimingPod) -> tuple[ResourceClaim, ...] | ClaimRejection:
        """The claims of a pod as they are beside the planned pods, or why no node can take it."""
        claims = claims_of(pod, self._claims, self._state.classes, self._extended)
        if isinstance(claims, ClaimRejection) or not self._users:
            return claims
        for claim in claims:
            key, consumer = _key(claim), pod.consumer(claim.name)
            planned = self._users.consumers(key)
            is_counted = consumer in claim.reserved_for or self._users.has(key, consumer)
            if planned and not is_counted and len(claim.reserved_for) + planned >= MAX_CONSUMERS:
                return ClaimRejection(REASON_IN_USE)
        return tuple(map(self._as_planned, claims))

    def _as_planned(self, claim: ResourceClaim) -> ResourceClaim:
        allocation = self.allocations.get(_key(claim))
        return claim if allocation is None else msgspec.structs.replace(claim, allocation=allocation)

    def answer(
        self, claims: Sequence[ResourceClaim], node: ReachedNode, spend: Spend = unlimited
    ) -> tuple[ClaimAllocation, ...] | ClaimRejection:
        """What claims, as ``claims_of`` gives them, have on a node, or why it takes no pod with them.

        Args:
            spend: counts the work. Where nothing is left to spend, ``REASON_LATER`` is the reason.
        """
        try:
            return node_devices(claims, node, self._state, spend)
        except EffortSpentError:
            return _LATER

    def fitting(self, pod: ClaimingPod, nodes: Iterable[ReachedNode]) -> list[bool]:
        """Whether each of some nodes has devices for a pod."""
        claims = self.claims_of(pod)
        if isinstance(claims, ClaimRejection):
            return [False for _ in nodes]
        return [score != NOTHING for score in self.scores(claims, nodes)]

    def scores(self, claims: Sequence[ResourceClaim], nodes: Iterable[ReachedNode]) -> list[int]:
        """The score of what claims get on each of some nodes (``alternatives_score``); ``NOTHING`` where they do not.

        Args:
            claims: of a pod, as ``claims_of`` gives them.
        """
        if not claims:
            return [0 for _ in nodes]
        spend = self._state.effort.of(claims[0].namespace)
        searched: Iterable[_Answer]
        if are_allocated(claims):
            searched = (self.answer(claims, node, spend) for node in nodes)
        else:
            answers, is_allocated = self._memory.of(without_names(claims)), has_allocation(claims)
            searched = (self._remembered(claims, node, answers, spend, is_allocated=is_allocated) for node in nodes)
        return [
            NOTHING if isinstance(answer, ClaimRejection) else alternatives_score(claims, answer) for answer in searched
        ]

    def _remembered(
        self,
        claims: Sequence[ResourceClaim],
        node: ReachedNode,
        answers: dict[_Place, _Answer],
        spend: Spend,
        *,
        is_allocated: bool,
    ) -> _Answer:
        """``answer``, searched once for each state of a node's pools.

        Args:
            answers: to such claims.
            is_allocated: whether one of the claims has devices.
        """
        reached = self._state.slices.node_pools(node)
        versions = tuple(self._versions.get(pool.pool_id, 0) for pool in reached.pools)
        whose = node if is_allocated else node.offered
        place = reached.number, versions, whose
        if place in answers:
            return answers[place]
        answer = None if any(versions) else self._known(without_names(claims), (reached.number, whose), reached.pools)
        if answer is None:
            answer = self.answer(claims, node, spend)
        if answer != _LATER:
            answers[place] = answer
            self._memory.size += 1
        return answer

    def planned_claims(self, pod: ClaimingPod) -> tuple[PlannedClaim, ...] | None:
        """What each claim of a planned pod has or gets; None: one of them gets nothing.

        Where the node offers all extended resources of the pod, no claim is made for them.
        """
        claims = self.claims_of(pod)
        if isinstance(claims, ClaimRejection) or pod not in self._claims_of_pod:
            return None
        planned = list[PlannedClaim]()
        for claim in claims:
            if claim.allocation is None:
                continue
            if claim.name != EXTENDED_RESOURCES:
                group = pod.group_of(claim.name)
                planned.append(PlannedClaim(claim.namespace, claim.name, claim.uid, claim.allocation, group=group))
            elif claim.allocation.devices:
                planned.append(_to_make(pod, claim, claim.allocation))
        return tuple(planned)

    def has_planned_claim(self, pod: ClaimingPod) -> bool:
        """Whether a planned pod uses a claim of this pod too."""
        claims = claims_of(pod, self._claims, self._state.classes, self._extended)
        return not isinstance(claims, ClaimRejection) and any(_key(claim) in self._users for claim in claims)

    def is_taken(self, device: DeviceId) -> bool:
        """Whether a claim or a planned pod has a device, or a share of it."""
        return self._state.allocated.is_allocated(device)

    def is_local(self, pod: ClaimingPod, node: ReachedNode) -> bool:
        """Whether what a pod takes on a node changes nothing for pods on other nodes.

        It may if others may use one of its claims, or if other nodes reach something of the same pools.
        """
        return not pod.may_share and self.has_own_pools(node)

    def has_own_pools(self, node: ReachedNode) -> bool:
        """Whether no other node reaches anything of the pools that a node reaches."""
        slices = self._state.slices
        return all(slices.is_of_node(pool, node) for pool in slices.pools(node))

    # --- changes ---

    def take(self, taker: DeviceTaker, spend: Spend = unlimited) -> None:
        """A pod is planned to a node; nothing is taken if it does not fit there, or is planned already.

        Args:
            spend: counts the work. Where nothing is left to spend, the pod takes nothing, and waits.
        """
        if taker.claims:
            self._take_decided(taker)
            return
        claims = self.claims_of(taker.pod)
        if taker.pod in self._claims_of_pod or isinstance(claims, ClaimRejection):
            return
        node = ReachedNode(taker.node, taker.labels, taker.offered)
        answers = self._memory.of(without_names(claims))
        allocations = self._remembered(claims, node, answers, spend, is_allocated=has_allocation(claims))
        if isinstance(allocations, ClaimRejection):
            self.waiting[taker.pod] = taker
            return
        for claim, allocation in zip(claims, allocations, strict=True):
            if claim.allocation is None and _key(claim) not in self.allocations:
                self._allocate(_key(claim), allocation)
        self._use(taker.pod, [(_key(claim), taker.pod.consumer(claim.name)) for claim in claims])

    def _take_decided(self, taker: DeviceTaker) -> None:
        """It is decided what a pod gets, whether or not the cluster changed since then."""
        if taker.pod in self._claims_of_pod:
            return
        used = list[tuple[ClaimKey, str]]()
        for planned in taker.claims:
            key, claim = planned.key, self._claims.get(planned.key)
            if planned.requests:
                key = _key_of_extended(planned.namespace, taker.pod.uid)
            elif claim is None:
                continue
            if (claim is None or claim.allocation is None) and key not in self.allocations:
                self._allocate(key, planned.allocation)
            used.append((key, planned.consumer(taker.pod.uid)))
        self._use(taker.pod, used)

    def _use(self, pod: ClaimingPod, used: Sequence[tuple[ClaimKey, str]]) -> None:
        """A planned pod uses these claims, each as a consumer."""
        for key, consumer in used:
            self._users.add(key, consumer)
        self._claims_of_pod[pod] = tuple(used)

    def _allocate(self, claim: ClaimKey, allocation: ClaimAllocation) -> None:
        self.allocations[claim] = allocation
        self._state.allocated.add(allocation)
        self._note_change(allocation)

    def release(self, pod: ClaimingPod) -> None:
        """A pod is not planned any more; what it took and no other planned pod uses comes free."""
        self.waiting.pop(pod, None)
        for key, consumer in self._claims_of_pod.pop(pod, ()):
            self._users.remove(key, consumer)
            if key not in self._users:
                allocation = self.allocations.pop(key, None)
                if allocation is not None:
                    self._state.allocated.remove(allocation)
                    self._note_change(allocation)

    def _note_change(self, allocation: ClaimAllocation) -> None:
        self._memory.versions += 1
        for pool in pools_of((allocation,)):
            self._versions[pool] = self._memory.versions


def pools_of(allocations: Iterable[ClaimAllocation]) -> set[PoolId]:
    """The pools that some allocations take devices of."""
    return {PoolId(each.device.driver, each.device.pool) for allocation in allocations for each in allocation.devices}


def has_allocation(claims: Iterable[ResourceClaim]) -> bool:
    """Whether a claim has devices, which some nodes only may reach."""
    return any(claim.allocation is not None for claim in claims)


def _to_make(pod: ClaimingPod, claim: ResourceClaim, allocation: ClaimAllocation) -> PlannedClaim:
    """The claim for a pod's extended resources: it asks for those that the node does not offer."""
    served = {device.request for device in allocation.devices}
    requests = tuple(request for request in claim.requests if request.name in served)
    return PlannedClaim(claim.namespace, extended_claim_name(pod.name, pod.uid), "", allocation, requests)


def _key(claim: ResourceClaim) -> ClaimKey:
    if claim.name == EXTENDED_RESOURCES:
        return _key_of_extended(claim.namespace, claim.controller)
    return claim.namespace, claim.name


def _key_of_extended(namespace: str, pod: str) -> ClaimKey:
    """Of a claim that a plan makes; ``pod``: its uid."""
    return namespace, f"{EXTENDED_RESOURCES}/{pod}"
