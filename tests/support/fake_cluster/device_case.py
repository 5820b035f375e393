"""A cluster whose nodes have devices, and pods that claim them in delivery Binder."""

from __future__ import annotations

import msgspec
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.claims import claiming
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.machine import room, sized
from thalweg_operator.reservations.effects import Allocate, Bind, ReleaseClaims, WriteCondition
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.model.gang_spec import GangRef
from flowcore.model.policies import SCHEDULER_NAME, Policy
from flowcore.model.resource_slices import DeviceId


class DeviceCase(FakeCluster):
    """Nodes "a" and "b" with so many devices each."""

    def __init__(self, a: int = 1, b: int = 0, *, later: bool = False) -> None:
        super().__init__([room("a", 1000), room("b", 1000)], [Policy("bound")])
        for name, count in (("a", a), ("b", b)):
            self.devices.publish_devices(name, count, later=later)
        self.start()

    def pod(self, name: str, *, of: GangRef | None = None, shares: str = "", priority: int = 0) -> None:
        """A pod with a claim of its own, or with one that it shares; its uid is its name."""
        claim = shares or f"{name}-gpu"
        if (NAMESPACE, claim) not in self.devices.claims:
            self.devices.make(NAMESPACE, claim, claim, owner="" if shares else name)
        devices = claiming(NAMESPACE, name, name, claim, template=not shares)
        pod_class = msgspec.structs.replace(sized(100), devices=devices, priority=priority)
        self.create_pod(name, name, pod_class=pod_class, scheduler_name=SCHEDULER_NAME, gang=of)
        self.show()

    def round(self) -> None:
        """All that waits is planned, and the plan is carried out."""
        self.make_plan()
        self.deliver(100)

    def answer(
        self, kind: type[Allocate | Bind | ReleaseClaims], answer: Answer = Answer.DONE, reason: str = "no"
    ) -> None:
        """The first write of a kind is sent, and answered so."""
        self.send(next(at for at, write in enumerate(self.writes) if isinstance(write, kind)), answer, reason=reason)

    def kinds(self) -> list[str]:
        return sorted(type(write).__name__ for write in self.writes)

    def phase(self, name: str) -> Phase | None:
        reservation = self.ledger.reservations.get(f"{NAMESPACE}/{name}")
        return None if reservation is None else reservation.phase

    def device(self, claim: str) -> DeviceId | None:
        allocation = self.devices.claims[NAMESPACE, claim].allocation
        return None if allocation is None else allocation.devices[0].device

    def told(self) -> list[str]:
        reasons = [effect.reason for effect in self.effects if isinstance(effect, WriteCondition)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, WriteCondition)]
        return reasons
