"""Pods as runs to learn from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from flowcore.cluster.learning.estimates import with_estimates
from flowcore.cluster.learning.run_history import Run, RunHistory
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels, value_of
from flowcore.model.workload_kinds import WorkloadKind, kind_of

#: Pods of a CronJob's Jobs: its name, the minute that the Job is for, and five random characters.
_OF_CRON_JOB = re.compile(r"(.+)-[0-9]{8,}-[a-z0-9]{5}")


class RunReader:
    """Reads pods as runs of some kinds of workload on some kinds of machines."""

    def __init__(self, kinds: Sequence[WorkloadKind], label: str, nodes: Mapping[str, Node]) -> None:
        """``label``: the node label with the kind of machine; "": machines are not told apart."""
        self._kinds, self._label, self._nodes = kinds, label, nodes
        self._known: dict[Labels, int] = {}

    def read(self, pod: Pod) -> Run | None:
        """What a pod does on its node; None: it has not started, has failed, or is of no kind."""
        kind = self._known.get(pod.labels)
        if kind is None:
            kind = self._known[pod.labels] = kind_of(pod.labels, self._kinds)
        start, end = pod.ran if pod.succeeded else (pod.started, 0.0)
        if kind < 0 or not pod.node_name or not start or (pod.terminal and not pod.succeeded):
            return None
        node = self._nodes.get(pod.node_name)
        machine = "" if node is None or not self._label else value_of(node.labels, self._label) or ""
        return Run(pod.uid, pod.node_name, kind, machine, work_of(pod), start, end, pod.succeeded)


def work_of(pod: Pod) -> str:
    """A text that is equal for pods of one controller, and for pods of all Jobs of a CronJob: they do the same work."""
    match = _OF_CRON_JOB.fullmatch(pod.name)
    if match is not None:
        return f"{pod.namespace}/{match[1]}"
    return pod.owner or pod.key


def machine_label(cost: CostPolicy) -> str:
    """The node label that tells a policy's kinds of machines; "": they cost nothing."""
    return "" if cost.machines is None else cost.machines.label


def learnt_costs(cost: CostPolicy, pods: Iterable[Pod], nodes: Mapping[str, Node], now: float) -> CostPolicy:
    """The costs of a policy that learns, from the pods that there are at one time.

    Args:
        now: seconds since the epoch.
    """
    reader, history = RunReader(cost.kinds, machine_label(cost), nodes), RunHistory(len(cost.kinds))
    history.update([run for pod in pods if (run := reader.read(pod)) is not None], now)
    return with_estimates(cost, history.estimates())
