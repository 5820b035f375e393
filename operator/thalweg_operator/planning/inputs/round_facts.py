"""What the ledger and the clocks add to the input of a round (flowcore/planning/round_input.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from flowcore.cluster.arrays.snapshot import Victim
from flowcore.cluster.running import leaving_for
from flowcore.model.constraint_limits import all_or_none_constraints
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.planning.round_input import GovernedPod, OnTheWay, RoundInput
from thalweg_operator.reservations.ledger.backoff import rejected_nodes
from thalweg_operator.reservations.victims.replaced import victim_of
from thalweg_operator.reservations.victims.state import VictimsState
from thalweg_operator.yielding import yielding

#: Seconds that persistent usage stays valid: its computation visits all pods of the cluster.
_MAX_AGE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _LedgerFacts:
    """What an operator knows of waiting pods: ``now`` in seconds of the monotonic clock, ``time`` since the epoch."""

    state: VictimsState
    now: float
    time: float
    expected_use: Callable[[Pod], tuple[int, int] | None]

    def rejected_nodes(self, pod: Pod) -> list[str]:
        return rejected_nodes(self.state.cluster, self.state.ledger, pod, self.now)

    def victim_of(self, pod: Pod, policy: Policy) -> Victim | None:
        return victim_of(self.state.cluster, self.state.ledger, pod, policy)

    def plannable_since(self, pod: Pod) -> float:
        return self.state.ledger.plannable_since(pod, self.time)

    def preempts(self, pod: Pod) -> bool:
        return pod.preempts and not leaving_for(self.state.cluster, pod)

    def foreseen(self, pod: Pod) -> tuple[int, int] | None:
        return self.expected_use(pod)


def operator_round_input(
    state: VictimsState,
    waiting: Sequence[GovernedPod],
    now: float,
    time: float,
    foreseen: Callable[[Pod], tuple[int, int] | None],
    stays_above: int | None,
) -> RoundInput:
    """The input of the operator's next round; its steps are still to be taken.

    Args:
        now: seconds of the monotonic clock.
        time: seconds since the epoch.
        foreseen: what a pod is expected to use.
        stays_above: see ``RoundInput``.
    """
    cluster, ledger = state.cluster, state.ledger
    return RoundInput(
        cluster,
        waiting,
        _LedgerFacts(state, now, time, foreseen),
        lambda pod: cluster.policies.of(pod, cluster.namespaces),
        on_the_way=OnTheWay(ledger.gang_pods(), ledger.refused(now), lambda: _reserved(state)),
        stays_above=stays_above,
        now=time,
    )


def _reserved(state: VictimsState) -> Iterator[tuple[Pod, Sequence[Pod]]]:
    """Pods with a reservation, and those that leave before they come: victims, or the pod that is to move."""
    pods, moves = state.cluster.pods, state.moves.awaited
    for key, reservation in state.ledger.reservations.items():
        if reservation.pod.grows:
            continue  # it counts as it runs
        leave_first = [state.ledger.victims[victim].pod for victim in reservation.victims]
        if key in moves:
            leave_first.append(moves[key].victim)
        running = [(pods.get(leaver.key), leaver.uid) for leaver in leave_first]
        yield reservation.pod, [pod for pod, uid in running if pod is not None and pod.uid == uid]


class PersistentUsageTracker:
    """Says when the worker needs the persistent usage anew: only while a gang has waited long enough for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._min_priority: int | None = None
        self._computed_at = 0.0

    async def due(self, pods: Iterable[GovernedPod], now: float, *, fresh: bool) -> int | None:
        """Whether to compute it now: of pods above which priority; None: the worker has the newest, or no pod needs it.

        Args:
            pods: pods that the round plans.
            now: seconds since the epoch.
            fresh: whether the worker was restarted and has no state.
        """
        if fresh:
            self._min_priority = None
        overdue = [pod.pod_class.priority async for pod, policy, _ in yielding(pods) if is_overdue(pod, policy, now)]
        min_priority = min(overdue, default=None)
        if min_priority is None:
            return None
        if (
            self._min_priority is not None
            and self._min_priority <= min_priority
            and self._clock() - self._computed_at < _MAX_AGE_SECONDS
        ):
            return None
        self._min_priority, self._computed_at = min_priority, self._clock()
        return min_priority


def is_overdue(pod: Pod, policy: Policy, now: float) -> bool:
    """Whether the pod may belong to a gang that has waited long enough for a backfill reservation."""
    after = policy.gangs.hold_room_after
    if pod.gang is None and not policy.constraints:
        return False
    return 0 < after < now - pod.created and (
        pod.gang is not None or any(True for _ in all_or_none_constraints(policy))
    )
