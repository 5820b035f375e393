"""Carries a plan out: what still holds is reserved, then handed to the binder or to the steering.

The cluster moves on while a plan is made. What no longer holds is dropped, for the next round to plan again. Placements
of one unit (a gang, or gangs that depend on each other) are handed on together or not at all: once each of those that
it needs has its reservation, no earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from flowcore.model.constrained import constrained
from flowcore.model.neighbours import Kind
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery, Policy
from thalweg_operator.binder import Binder
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import By, ClusterState
from thalweg_operator.steering import Planned, PodSteering
from thalweg_operator.turns import Turn
from thalweg_operator.wire import RoundReply, RoundRequest

_T = TypeVar("_T")
#: Pods handled between two turns of the event loop.
_BURST = 200


@dataclass(slots=True)
class _Placed:
    """A placement with its reservation; ``kind`` as rules between pods see the pod."""

    pod: Pod
    node: str
    kind: Kind
    turn: Turn
    unit: int
    spare: bool
    by: By


class Dispatch:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        policies: PolicyStore,
        binder: Binder,
        steering: PodSteering,
        metrics: Metrics,
        rest: Callable[[Pod], None],
    ) -> None:
        """``rest`` is told of pods that are to be planned again a little later: kube-scheduler is at their node."""
        self._state, self._policies, self._binder, self._steering = state, policies, binder, steering
        self._metrics, self._rest = metrics, rest

    async def carry_out(self, request: RoundRequest, pods: Sequence[Pod], reply: RoundReply) -> bool:
        """Carries out all placements; whether something was dropped that is to be planned again at once.

        Args:
            pods: those of ``request.waiting``, as they were then.
        """
        placed: list[_Placed] = []
        steered: list[_Placed] = []
        #: Units that are not whole any more, and whether because kube-scheduler is at a node.
        broken = {at: True for at, unit in enumerate(reply.units) if self._steering.withdraws(unit)}
        dropped = False
        async for at, node, _price, turn, unit, spare in in_bursts(reply.placements):
            pod, policy = pods[at], request.policies[request.waiting[at].policy]
            if policy.delivery is Delivery.OBSERVE:
                self._metrics.placements.labels("observed").inc()
                continue
            found = None if unit in broken else self._reserved(pod, node, policy, reply.generation)
            if found is None:
                contended = self._drop(pod, node, policy) or broken.get(unit, False)
                if broken.get(unit):
                    self._rest(pod)
                dropped |= not contended
                if unit >= 0 and not spare:
                    broken.setdefault(unit, contended)
                continue
            this = _Placed(found, node, constrained(found.kind, policy), turn, unit, spare, _by(policy))
            if reply.units:
                placed.append(this)
            else:
                self._hand_on(this, steered)
        if reply.units:
            placed, given_back = self._whole(placed, broken, reply.generation)
            dropped |= given_back
            for each in placed:
                self._hand_on(each, steered)
        names = (*reply.units, "")
        self._steering.send([Planned(each.pod, each.node, each.turn, names[each.unit], each.spare) for each in steered])
        return dropped

    def _reserved(self, pod: Pod, node: str, planned: Policy, generation: int) -> Pod | None:
        """The pod as it is now, with its room reserved; None where the placement does not hold any more.

        Args:
            planned: the policy that it was planned by.
        """
        state = self._state
        current = state.waiting.get(pod.key)
        policy = None if current is None else self._policies.of(current, state.namespaces)
        if (
            current is None
            or policy is None
            or (policy.delivery, policy.constraints) != (planned.delivery, planned.constraints)
            or (current.pod_class, current.kind) != (pod.pod_class, pod.kind)
            or state.node_changed_since(node, generation)
            or self._breaks(constrained(current.kind, policy), node, reserved=current.key in state.kept)
            or not state.reserve(pod, node, _by(policy))
        ):
            return None
        return current

    def _breaks(self, kind: Kind, node: str, *, reserved: bool = False) -> bool:
        state = self._state
        return state.newer.breaks(kind, state.nodes[node], state.nodes, state.neighbours, counted=reserved)

    def _drop(self, pod: Pod, node: str, policy: Policy) -> bool:
        """Others of the plan may have counted on it. Whether it rests, since kube-scheduler is at the node."""
        self._state.drop(pod, node)
        current = self._state.waiting.get(pod.key)
        if policy.delivery is Delivery.BINDER and current is not None and self._state.contended(current, node):
            self._metrics.placements.labels("contended").inc()
            self._rest(pod)
            return True
        self._metrics.placements.labels("dropped").inc()
        return False

    def _whole(self, placed: list[_Placed], broken: dict[int, bool], generation: int) -> tuple[list[_Placed], bool]:
        """Those whose unit is whole; whether any reservation was given back.

        What is given back others may have counted on, so it is asked again until all that is left stands.
        """
        given_back = False
        while True:
            kept = []
            for each in placed:
                if each.unit not in broken and self._stands(each, generation):
                    kept.append(each)
                    continue
                if each.unit >= 0 and not each.spare:
                    broken.setdefault(each.unit, False)
                if self._is_ours(each):
                    self._state.release(each.pod.key, each.pod.uid)
                self._metrics.placements.labels("dropped").inc()
                if broken.get(each.unit):
                    self._rest(each.pod)
            if len(kept) == len(placed):
                return kept, given_back
            placed, given_back = kept, True

    def _stands(self, each: _Placed, generation: int) -> bool:
        """Whether its reservation is there, its node as planned, and no rule is broken without what was dropped."""
        if not self._is_ours(each) or self._state.node_changed_since(each.node, generation):
            return False
        return not self._breaks(each.kind, each.node, reserved=True)

    def _is_ours(self, each: _Placed) -> bool:
        """Whether its reservation is still the one that was made for it: somebody else may have nominated it since."""
        held = self._state.reservations.get(each.pod.key)
        return held is not None and (held.pod.uid, held.node, held.by) == (each.pod.uid, each.node, each.by)

    def _hand_on(self, each: _Placed, steered: list[_Placed]) -> None:
        self._metrics.placements.labels("reserved").inc()
        if self._state.awaits(each.pod.key):
            return  # another must leave its place first (replacing.py)
        if each.by is By.BINDER:
            self._binder.bind(each.pod, each.node)
        else:
            steered.append(each)


def _by(policy: Policy) -> By:
    return By.BINDER if policy.delivery is Delivery.BINDER else By.STEERING


async def in_bursts(things: Iterable[_T]) -> AsyncIterator[_T]:
    """Gives the event loop a turn now and then: nothing else waits for the whole of a long list."""
    for count, thing in enumerate(things):
        if count % _BURST == _BURST - 1:
            await asyncio.sleep(0)
        yield thing
