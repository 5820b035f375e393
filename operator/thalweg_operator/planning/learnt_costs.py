"""Costs of policies that learn: what pods that are done tell, in place of what the policies state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from flowcore.cluster.cluster import Cluster
from flowcore.learning import Run, RunHistory, with_estimates
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels, value_of
from flowcore.model.workload_kinds import WorkloadKind, kind_of
from thalweg_operator.yielding import yielding

_log = structlog.get_logger()
#: Seconds between two looks at all pods. Pods that are deleted earlier after their end are not learnt from.
_INTERVAL = 30.0
#: Pods of a CronJob's Jobs: its name, the minute that the Job is for, and five random characters.
_OF_CRON_JOB = re.compile(r"(.+)-[0-9]{8,}-[a-z0-9]{5}")


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


class LearntCosts:
    """Looks at all pods now and then, while any policy learns. All is in memory: a new leader begins again."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        """``clock``: seconds of a monotonic clock. ``wall_clock``: seconds since the epoch."""
        self._cluster, self._clock, self._wall_clock = cluster, clock, wall_clock
        self._learners: dict[str, _Learner] = {}
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
        kinds: dict[Labels, int] = {}
        now, runs = self._wall_clock(), []
        async for pod in yielding(list(self._cluster.pods.values())):
            kind = kinds.get(pod.labels)
            if kind is None:
                kind = kinds[pod.labels] = kind_of(pod.labels, learner.kinds)
            run = self._run_of(pod, kind, learner.label)
            if run is not None:
                runs.append(run)
        learner.history.update(runs, now)
        before, learner.learnt = learner.learnt, with_estimates(learner.stated, learner.history.estimates())
        if learner.learnt != before:
            _log.info("costs learnt", policy=learner.policy, pods=learner.history.learnt_from)

    def _learner_of(self, policy: Policy) -> _Learner:
        cost = policy.cost
        label, known = "" if cost.machines is None else cost.machines.label, self._learners.get(policy.name)
        if known is None or (known.kinds, known.label) != (cost.kinds, label):
            self._looked_at = float("-inf")
            return _Learner(policy.name, cost.kinds, label, RunHistory(len(cost.kinds)), cost, cost)
        if known.stated != cost:
            known.stated, known.learnt = cost, with_estimates(cost, known.history.estimates())
        return known

    def _run_of(self, pod: Pod, kind: int, label: str) -> Run | None:
        """What a pod does on its node; None: it has not started, has failed, or is of no kind."""
        if kind < 0 or not pod.node_name or (pod.terminal and not pod.succeeded):
            return None
        start, end = pod.ran if pod.succeeded else (pod.started, 0.0)
        if not start:
            return None
        node = self._cluster.nodes.get(pod.node_name)
        machine = "" if node is None or not label else value_of(node.labels, label) or ""
        return Run(pod.uid, pod.node_name, kind, machine, work_of(pod), start, end, pod.succeeded)


def work_of(pod: Pod) -> str:
    """Equal for pods that do the same work: those of one controller, and those of all Jobs of a CronJob."""
    found = _OF_CRON_JOB.fullmatch(pod.name)
    if found is not None:
        return f"{pod.namespace}/{found[1]}"
    return pod.owner or pod.key
