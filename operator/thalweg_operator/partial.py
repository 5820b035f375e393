"""Gangs that are there in part for too long: what has a node is evicted, where the policy says so.

A gang is handed on whole, and yet may come to be there in part: a binding fails, a node dies, a pod is evicted. What is
missing is planned again; this is for when that does not help. The time counts from when it is first seen so; a restart
of the operator begins it anew.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable

from flowcore.model.gang_book import Partial
from flowcore.model.gang_terms import GangKey
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery, PartialBind, Policy
from thalweg_operator.evictions import Evictor
from thalweg_operator.policies import PolicyStore
from thalweg_operator.state import ClusterState

#: Seconds between two looks.
_LOOK = 1.0


class PartialGangs:
    """See the module."""

    def __init__(
        self,
        state: ClusterState,
        policies: PolicyStore,
        evictor: Evictor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._policies, self._evictor, self._clock = state, policies, evictor, clock
        #: Since when each gang is there in part, and uids of its pods whose eviction was asked for, for that.
        self._since: dict[GangKey, tuple[float, set[str]]] = {}

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK)

    def look(self) -> None:
        """Evicts what has been there in part for too long."""
        now = self._clock()
        found = self._state.gangs.partial(self._state.coming())
        self._since = {each.key: self._since.get(each.key) or (now, set()) for each in found}
        for each in found:
            why = self._over(each)
            asked = self._since[each.key][1]
            for pod in each.bound if why else ():
                # Once is enough: the evictor asks again where that helps.
                if pod.uid not in asked and self._evictor.evict(
                    pod, why, functools.partial(self._still, pod, each.key)
                ):
                    asked.add(pod.uid)

    def _over(self, gang: Partial) -> str:
        """Why it is to end, a sentence; "": it is not, or not yet."""
        policies = self._governing(gang)
        if policies is None or any(policy.gangs.on_partial_bind is not PartialBind.EVICT for policy in policies):
            return ""
        timeout = gang.timeout if gang.timeout is not None else max(policy.gangs.timeout for policy in policies)
        if self._clock() - self._since[gang.key][0] < timeout:
            return ""
        return (
            f"{gang.name} has been there in part for {timeout} s: {len(gang.bound)} of its pods have a node, "
            f"and it needs more (gangs.onPartialBind of policy {policies[0].name})."
        )

    def _governing(self, gang: Partial) -> list[Policy] | None:
        """Policies of all of its pods; None where one is not for us to place: then the gang is not ours to end."""
        found: dict[str, Policy] = {}
        for pod in (*gang.bound, *gang.waiting):
            policy = self._policies.of(pod, self._state.namespaces)
            if policy is None or policy.delivery is Delivery.OBSERVE:
                return None
            found[policy.name] = policy
        return list(found.values())

    def _still(self, pod: Pod, key: GangKey) -> bool:
        """Whether a pod is still to be evicted, for the same time in part; if not, it may be asked for anew."""
        if key not in self._since or pod.uid not in self._since[key][1]:
            return False  # its gang was whole meanwhile
        gang = self._state.gangs.in_part(key, self._state.coming())
        if gang is not None and any(each.uid == pod.uid for each in gang.bound) and self._over(gang):
            return True
        self._since[key][1].discard(pod.uid)
        return False
