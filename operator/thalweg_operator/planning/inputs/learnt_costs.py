"""Costs of policies that learn: what pods that are done tell, in place of what the policies state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import msgspec
import structlog

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.learning import Estimates, Run, RunHistory, RunReader, machine_label, with_estimates
from flowcore.cluster.learning.saved_learning import SavedHistory, kinds_digest
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.policies import Policy
from flowcore.model.workload_kinds import WorkloadKind
from thalweg_operator.yielding import yielding

_log = structlog.get_logger()
#: Seconds between two looks at all pods. Pods that are deleted earlier after their end are not learnt from.
_INTERVAL = 30.0


@dataclass(slots=True)
class _Learner:
    """What is learnt for one policy, as long as its kinds and its kinds of machines stay."""

    policy: str
    kinds: tuple[WorkloadKind, ...]
    label: str
    history: RunHistory
    #: The policy's costs as it states them, and with what is learnt.
    stated: CostPolicy
    learnt: CostPolicy
    #: What was known of each kind at the last look, and what it is known from.
    estimates: tuple[Estimates, ...]
    saved: SavedHistory | None = None


class LearntCosts:
    """Looks at all pods now and then, while any policy learns. A new leader goes on with what is saved."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        """``clock``: seconds of a monotonic clock. ``wall_clock``: seconds since the epoch."""
        self._cluster, self._clock, self._wall_clock = cluster, clock, wall_clock
        self._learners: dict[str, _Learner] = {}
        self._looked_at = float("-inf")
        #: By policy: what an earlier leader learnt, until the policy is seen to learn the same.
        self._saved: dict[str, SavedHistory] = {}

    @property
    def saved(self) -> tuple[SavedHistory, ...]:
        """What was known at the last look, and what is not taken over yet, to be saved."""
        known = {name: learner.saved for name, learner in self._learners.items() if learner.saved is not None}
        return tuple((known | self._saved).values())

    def restore(self, saved: Iterable[SavedHistory]) -> None:
        """Takes over what an earlier leader learnt, policy by policy as far as they still tell the same pods apart."""
        self._saved = {history.policy: history for history in saved if any(history.observations)}
        self._looked_at = float("-inf")

    async def applied(self, policies: Sequence[Policy]) -> list[Policy]:
        """The policies, those that learn with the costs that are known by now."""
        learning = [policy for policy in policies if policy.cost.learn]
        if not learning:
            self._learners = {}
            return list(policies)
        self._learners = {policy.name: self._learner_of(policy) for policy in learning}
        if self._clock() - self._looked_at >= _INTERVAL:
            self._looked_at = self._clock()
            for learner in self._learners.values():
                await self._look(learner)
        return [
            msgspec.structs.replace(policy, cost=self._learners[policy.name].learnt) if policy.cost.learn else policy
            for policy in policies
        ]

    async def _look(self, learner: _Learner) -> None:
        """Takes in what has happened since the last look."""
        reader = RunReader(learner.kinds, learner.label, self._cluster.nodes)
        now, pods = self._wall_clock(), list(self._cluster.pods.values())
        runs = [run async for pod in yielding(pods) if (run := reader.read(pod)) is not None]
        # In a thread: with all pods of a large cluster it takes long enough for others to notice.
        earlier = saved = self._saved.get(learner.policy)
        digest = kinds_digest(learner.kinds, learner.label)
        if earlier is not None and (earlier.kinds, len(earlier.observations)) != (digest, len(learner.kinds)):
            _log.info("saved figures not used", policy=learner.policy, problem="its kinds of pods are others now")
            earlier = None
        learner.estimates = estimates = await asyncio.to_thread(_learn, learner.history, runs, now, earlier)
        observations = learner.history.all_observations()
        learner.saved = SavedHistory(learner.policy, digest, learner.history.learnt_at, observations)
        if self._saved.get(learner.policy) is saved:  # perhaps it was read meanwhile
            self._saved.pop(learner.policy, None)
        before, learner.learnt = learner.learnt, with_estimates(learner.stated, estimates)
        if learner.learnt != before:
            by_kind = {kind.name: asdict(known) for kind, known in zip(learner.kinds, estimates, strict=True)}
            _log.info("costs learnt", policy=learner.policy, pods=learner.history.learnt_from, kinds=by_kind)

    def _learner_of(self, policy: Policy) -> _Learner:
        cost = policy.cost
        label, known = machine_label(cost), self._learners.get(policy.name)
        if known is None or (known.kinds, known.label) != (cost.kinds, label):
            self._looked_at = float("-inf")
            return _Learner(policy.name, cost.kinds, label, RunHistory(len(cost.kinds)), cost, cost, _nothing(cost))
        if known.stated != cost:
            known.stated, known.learnt = cost, with_estimates(cost, known.estimates)
        return known


def _learn(history: RunHistory, runs: Sequence[Run], now: float, earlier: SavedHistory | None) -> tuple[Estimates, ...]:
    if earlier is not None:
        history.restore(earlier.observations, earlier.until)
    history.update(runs, now)
    return history.estimates()


def _nothing(cost: CostPolicy) -> tuple[Estimates, ...]:
    return tuple(Estimates() for _ in cost.kinds)
