"""Metrics of waiting pods: how many wait, and for how long, by the code of their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from flowcore.explain.codes import CODES
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.metrics import Metrics

#: The pod is being deleted.
TERMINATING: Final = "Terminating"
#: Scheduling gates are closed that are not ours.
GATED: Final = "Gated"
#: A field or an annotation of the pod cannot be read.
INVALID: Final = "Invalid"
#: This engine does not plan such pods.
UNSUPPORTED: Final = "Unsupported"
#: Only kube-scheduler can bind the pod, and its policy has delivery Binder.
NEEDS_KUBE_SCHEDULER: Final = "NeedsKubeScheduler"
#: The binder may not bind a pod behind our gate: the gate is being opened.
GATE_OPENING: Final = "GateOpening"
#: A write for the pod was refused, or kube-scheduler is at its node: it pauses.
BACKING_OFF: Final = "BackingOff"
#: Rounds with the pod failed.
QUARANTINED: Final = "Quarantined"

ALL_CODES: Final = CODES | {
    TERMINATING, GATED, INVALID, UNSUPPORTED, NEEDS_KUBE_SCHEDULER, GATE_OPENING, BACKING_OFF, QUARANTINED,
}  # fmt: skip
"""All values of the label ``reason`` of the metrics."""


def blocked_code(pod: Pod, policy: Policy) -> str:
    """The code of a pod that no round may plan."""
    if pod.deleting:
        return TERMINATING
    if pod.blocked_reason:
        return GATED if "scheduling gates" in pod.blocked_reason else INVALID
    if pod.unsupported_reason:
        return UNSUPPORTED
    return NEEDS_KUBE_SCHEDULER if pod.skip_reason(policy.delivery) else GATE_OPENING


class WaitingMetrics:
    """What the last round left pending."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """``clock``: seconds of a monotonic clock."""
        self._metrics, self._clock = metrics, clock
        #: Code of each waiting pod by UID, and since when it has this code.
        self._waiting: dict[str, tuple[str, float]] = {}
        self._oldest: dict[str, float] = {}
        for code in ALL_CODES:
            metrics.waiting.labels(code).set(0)
            metrics.longest_wait.labels(code).set_function(partial(self._longest, code))

    def round_ended(self, waiting: Iterable[tuple[Pod, str]]) -> None:
        """Takes over all pods that wait now, each with its code."""
        now, before = self._clock(), self._waiting
        self._waiting, self._oldest = {}, {}
        for pod, code in waiting:
            known = before.get(pod.uid)
            since = now if known is None or known[0] != code else known[1]
            self._waiting[pod.uid] = (code, since)
            self._oldest[code] = min(since, self._oldest.get(code, since))
        counts = Counter(code for code, _ in self._waiting.values())
        for code in ALL_CODES:
            self._metrics.waiting.labels(code).set(counts[code])

    def _longest(self, code: str) -> float:
        since = self._oldest.get(code)
        return 0.0 if since is None else self._clock() - since
