"""``thalweg run --observe``: every pod is planned, whatever policies say, and nothing is written but the Lease."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from support.leases import DirectLeaseClient, LeaseStore
from thalweg_operator import app
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.app import Operator
from thalweg_operator.delivery.observed import ObserveEvents
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.settings import Settings

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import OBSERVED, SCHEDULER_NAME, Delivery

NAMESPACES = {"ns": ()}


def operator_of(settings: Settings) -> Operator:
    client = cast("ApiClient", DirectLeaseClient(LeaseStore()))
    return Operator(settings, client, LeaderElector(client, Fence(), settings.lease))


@pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, "default-scheduler", "volcano"])
async def test_every_pod_is_observed(scheduler: str) -> None:
    """Also before a policy is known, and while none governs the pod; of a policy its delivery alone does not count."""
    operator = operator_of(Settings(observes=True))
    policies = operator._shell.cluster.policies
    pod = Pod("ns", "p", "u", PodClass(), scheduler_name=scheduler)
    assert policies.of(pod, NAMESPACES) is OBSERVED
    spec = {"selects": {"schedulerNames": [scheduler]}, "delivery": "Observe", "precedence": -1_000_000_000}
    if scheduler == SCHEDULER_NAME:
        spec["delivery"] = "Binder"
    operator._policies.offer("mine", "uid", 1, spec)
    policy = policies.of(pod, NAMESPACES)
    assert policy is not None
    assert (policy.name, policy.delivery) == ("mine", Delivery.OBSERVE)
    assert delivery_of(policy).owner is None
    operator._policies.forget("mine", "uid")
    assert policies.of(pod, NAMESPACES) is OBSERVED


async def test_an_operator_that_acts_governs_no_pod_of_others() -> None:
    """What only observes is no default of it."""
    policies = operator_of(Settings())._shell.cluster.policies
    assert policies.of(Pod("ns", "p", "u", PodClass(), scheduler_name="default-scheduler"), NAMESPACES) is None


async def started(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[Operator, set[str]]:
    """An operator that leads an empty cluster, and the names of its tasks."""
    operator = operator_of(settings)
    names = set[str]()

    def start(name: str, coroutine: Any) -> None:
        names.add(name)
        coroutine.close()

    async def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(operator, "_start_task", start)
    monkeypatch.setattr(operator._round_loop, "run", nothing)
    await operator._lead()
    return operator, names


async def test_nothing_that_writes_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds, the ledger's clock and measured usage go on; effects are carried out by nobody; no pod gets an Event."""
    acting, all_names = await started(Settings(), monkeypatch)
    observing, names = await started(Settings(observes=True), monkeypatch)
    assert names == {"progress", "ledger", "usage"}
    assert all_names > names
    assert acting._shell._handlers is not None
    assert observing._shell._handlers is None
    assert any(isinstance(each, ObserveEvents) for each in acting.observers)
    assert not any(isinstance(each, ObserveEvents) for each in observing.observers)


@pytest.mark.parametrize("observes", [False, True])
async def test_the_fence_stays_closed(monkeypatch: pytest.MonkeyPatch, observes: bool) -> None:  # noqa: FBT001
    """Were something to write all the same, the client would not send it. The Lease is held nevertheless."""
    fences: list[Fence | None] = []
    opened: list[tuple[bool, bool]] = []

    @asynccontextmanager
    async def connect(*arguments: Any, **_: Any) -> AsyncIterator[Any]:
        fences.append(arguments[2] if len(arguments) > 2 else None)
        client: Any = DirectLeaseClient(LeaseStore())
        client.server = "https://example.invalid"
        client.credentials = type("Credentials", (), {"context": ""})()
        yield client

    async def run(operator: Operator) -> None:
        await operator._elector.attempt()
        fence = fences[0]
        assert fence is not None
        opened.append((operator._elector.may_write, fence.open))

    monkeypatch.setattr(app, "connect", connect)
    monkeypatch.setattr(Operator, "run", run)
    await app.run(Settings(observes=observes))
    assert opened == [(True, not observes)]
    assert fences[1] is None
