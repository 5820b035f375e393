"""What is remembered of running pods that leave."""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_spec import GangKey
from thalweg_operator.reservations.effects import Evict
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.records.devices.freed_devices import FreedDevices
from thalweg_operator.reservations.ledger.reservation import NEVER
from thalweg_operator.reservations.ledger.state import LedgerState
from thalweg_operator.reservations.victims.moves import Moves, PartialSince


class VictimsState(LedgerState):
    """Records of pods that leave. The ledger has which pods wait for them: their room depends on it.

    Attributes:
        moves: pods that leave and whose replacement has a place, and those of the last hour.
        freed_devices: what pods wait for whose victims have left.
        evicting, checking: UIDs of pods whose eviction, or its dry run, is under way.
        partial_gangs: gangs that are partially placed, and since when.
        victims_seen, gangs_seen: when all victims, and all partial gangs, were last looked at.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.moves = Moves()
        self.freed_devices = FreedDevices()
        self.evicting: set[str] = set()
        self.checking: set[str] = set()
        self.partial_gangs: dict[GangKey, PartialSince] = {}
        self.victims_seen = self.gangs_seen = NEVER

    def unevictable_reasons(self, now: float) -> Mapping[str, str]:
        """Why pods are not to be evicted now, by UID. Nobody leaves whose devices may not come free."""
        reasons = backoff.unevictable_reasons(self.ledger, now)
        if not self.freed_devices.late:
            return reasons
        names = ", ".join("/".join(key) for key in sorted(self.freed_devices.late))
        text = f"claims of pods that left have devices still, and nobody uses them: {names}"
        pods = (pod for pod in self.cluster.pods.values() if pod.node_name and pod.pod_class.devices is not None)
        return {**dict.fromkeys((pod.uid for pod in pods), text), **reasons}

    def evict(self, effect: Evict) -> None:
        """Asks for an eviction or its dry run, which is then under way until it is answered."""
        (self.checking if effect.dry_run else self.evicting).add(effect.pod.uid)
        self.effects.append(effect)
