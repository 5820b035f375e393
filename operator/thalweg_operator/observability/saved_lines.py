"""The state of the cluster as the operator plans with it, as text (flowcore/cluster/saved_state.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowcore.cluster.saved_state import AwaitedRoom, BesideCluster, to_lines
from flowcore.model.regret import RegretRecord
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.policies import auto_waiting
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.shell import Shell
from thalweg_operator.usage.poller import UsagePoller


class SavedLines:
    """Gives the lines of the present state.

    Args:
        measured: what rounds plan with by measurement.
        usage: the samples.
        gate_admission: what ``waiting: Auto`` decided.
        regret: of the last audits.
    """

    def __init__(
        self,
        shell: Shell,
        measured: MeasuredUsageTracker,
        usage: UsagePoller,
        gate_admission: GateAdmission,
        regret: Sequence[RegretRecord],
    ) -> None:
        self._shell, self._measured, self._usage, self._gate_admission = shell, measured, usage, gate_admission
        self._regret = regret

    def __call__(self, now: float) -> Iterator[bytes]:
        """The lines; with the first one the objects are taken as they are then.

        Args:
            now: seconds since the epoch.
        """
        cluster, ledger = self._shell.cluster, self._shell.ledger
        loads, awaiting = self._measured.loads, ledger.awaiting
        waiting, store = cluster.waiting if loads else {}, self._usage.store
        beside = BesideCluster(
            # A pod that waits for another one to leave has no room yet: it is planned again.
            planned={key: each.node for key, each in ledger.reservations.items() if key not in awaiting},
            awaiting={
                key: AwaitedRoom(reservation.node, reservation.victims)
                for key in awaiting
                if (reservation := ledger.reservations.get(key)) is not None
            },
            loads=dict(loads),
            held={
                policy.name: auto_waiting.describe(policy, self._gate_admission.gating)[2]
                for policy in cluster.policies.ordered
                if auto_waiting.decides(policy)
            },
            regret=tuple(self._regret),
            foreseen={key: use for key, pod in waiting.items() if (use := store.foreseen(pod.usage_class)) is not None},
        )
        return to_lines(cluster, beside, now)
