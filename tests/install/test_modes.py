"""``helm install`` in the three modes: who binds, ``helm test``, renewal and upgrade while pods come, uninstall."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from support.cluster_scenario import policy
from support.helm import NAMESPACE, Manifest
from support.operator import until
from support.release import WITHIN, Release
from thalweg_certificates import CLIENT, SERVER, Leaf, issue, read_pair, to_pem
from thalweg_controlplane import Api
from thalweg_controlplane.client.objects import collection_path, pod
from thalweg_controlplane.components import DEFAULT_SCHEDULER_CONFIG, SCHEDULER

from flowcore.model.policies import GATE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

HOST: Final = f"thalweg-extender.{NAMESPACE}.svc"
STEERED: Final = policy("steered", delivery="Extender", selects={"podSelector": {}})
GATED: Final = policy("steered", delivery="Extender", waiting="Gate", selects={"podSelector": {}})


def steered(name: str, cpu: str = "100m", **spec: Any) -> Manifest:
    return pod(name, cpu=cpu, scheduler="thalweg-steered", **spec)


def many(make: Any, count: int, **options: Any) -> list[Manifest]:
    return [make(f"p{number}", **options) for number in range(count)]


async def gated(api: Api) -> int:
    """How many pods have our gate."""
    return sum(
        GATE in {gate["name"] for gate in each["spec"].get("schedulingGates", ())}
        for each in await api.list("/api/v1/pods")
    )


async def would_be_gated(api: Api) -> bool:
    """Whether the API server would gate a new pod."""
    probe = steered("probe")
    made = await api.request("POST", collection_path(probe), probe, params={"dryRun": "All"})
    return bool(made["spec"].get("schedulingGates"))


async def make_gated(release: Release, count: int) -> None:
    """So many pods wait behind our gate, since no node is large enough."""
    await release.api.apply(GATED)
    await until(lambda: would_be_gated(release.api), WITHIN, lambda: "new pods to be gated")
    await release.api.create_many(many(steered, count, cpu="1000"), 16)
    assert await gated(release.api) == count


@asynccontextmanager
async def kube_scheduler_asks(release: Release) -> AsyncIterator[None]:
    """The cluster's kube-scheduler runs with the stored configuration, as the chart's notes say."""

    async def stored() -> bool:
        return bool(await release.secret("thalweg-scheduler-config"))

    await until(stored, WITHIN, lambda: "the configuration to be stored")
    text = (await release.secret("thalweg-scheduler-config"))["scheduler.yaml"].decode()
    text = text.replace("/etc/kubernetes/scheduler.conf", "{kubeconfig}").replace("Elect: true", "Elect: false")
    release.plane.configure_scheduler(text)
    await release.plane.restart(SCHEDULER)
    try:
        yield
    finally:
        release.plane.configure_scheduler(DEFAULT_SCHEDULER_CONFIG)
        await release.plane.restart(SCHEDULER)


async def test_binder(release: Release) -> None:
    """Two operators from the image: Thalweg binds, `helm test` succeeds, and an upgrade loses no pod that comes."""
    async with release.installed():
        await release.place(many(pod, 20, cpu="100m"))
        assert await release.bound_by("p0") == "thalweg"
        await release.helm("test")
        async with release.arriving(lambda name: pod(name, cpu="100m")):
            await release.helm("upgrade", logLevel="warning")
        assert "kopf ended" not in release.kubelet.log("thalweg-"), "policies are watched, not only listed"
    await release.remove_pods()


async def test_extender(release: Release) -> None:
    """The cluster's kube-scheduler, strict and with the stored configuration, asks over mutual TLS and binds.

    Certificates of both sides are made again while pods come. kube-scheduler keeps its old one and is not refused.
    Uninstall opens a thousand gates although two operators run.
    """
    async with release.installed(mode="Extender", **{"extender.ignorable": False}):
        async with kube_scheduler_asks(release):
            await release.api.apply(STEERED)
            await release.place(many(steered, 20))
            assert await release.bound_by("p0") == "thalweg-steered"
            await release.helm("test")
            async with release.arriving(steered):
                await renew_both(release)
            await release.remove_pods()
            await make_gated(release, 1000)
            await release.helm("uninstall", "--wait")
            assert await gated(release.api) == 0
            assert not await would_be_gated(release.api)
        await release.remove_pods()


async def renew_both(release: Release) -> None:
    """Ages both certificates by two thirds of their life, and waits until new ones are in use."""
    authority = await release.secret("thalweg-extender-ca")
    signer = read_pair(authority["tls.crt"], authority["tls.key"])
    leaves = {
        "thalweg-extender-tls": Leaf("thalweg-extender", SERVER, timedelta(days=90), (HOST,)),
        "thalweg-extender-client-tls": Leaf("kube-scheduler", CLIENT, timedelta(days=365)),
    }
    stored = await release.secret("thalweg-scheduler-config")
    for secret, leaf in leaves.items():
        aged = issue(leaf, signer, datetime.now(UTC) - leaf.lifetime * 0.7)
        await release.replace_secret(secret, {"tls.crt": to_pem([aged.certificate]), "tls.key": aged.key_pem})
    await release.renew_certificates()
    assert await release.secret("thalweg-scheduler-config") != stored
    pair = read_pair(*[(await release.secret("thalweg-extender-tls"))[key] for key in ("tls.crt", "tls.key")])
    assert pair.certificate.not_valid_before_utc > datetime.now(UTC) - timedelta(hours=1)

    def reloaded() -> bool:
        return release.kubelet.log("thalweg-").count("certificates reloaded") >= 2

    await until(reloaded, WITHIN, lambda: "an operator to read the new certificates")


async def test_second_scheduler(release: Release) -> None:
    """A kube-scheduler of the release's own asks and binds; the cluster's own never hears of the pods.

    With Thalweg down new pods are not gated, and uninstall opens the gates of those that were.
    """
    async with release.installed(mode="SecondScheduler"):
        await release.api.apply(STEERED)
        await release.place(many(steered, 20))
        assert await release.bound_by("p0") == "thalweg-steered"
        await release.helm("test")
        await release.remove_pods()
        await make_gated(release, 100)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/thalweg"
        await release.api.patch(path, {"spec": {"replicas": 0}})

        async def nobody_gates() -> bool:
            return not await would_be_gated(release.api)

        await until(nobody_gates, WITHIN, lambda: "new pods to pass")
        assert await gated(release.api) == 100
        await release.helm("uninstall", "--wait")
        assert await gated(release.api) == 0
    await release.remove_pods()


async def test_change_to_binder(release: Release) -> None:
    """Mode Binder has no right to open gates: an upgrade and a rollback to it open them first, and pods are placed."""
    async with release.installed():
        await release.api.apply(GATED)
        for number, change in enumerate((("upgrade",), ("rollback", "1"))):
            await release.helm("upgrade", mode="SecondScheduler")
            await release.api.create_many(many(steered, 100, cpu="1000", schedulingGates=[{"name": GATE}]), 16)
            assert await gated(release.api) == 100
            await release.helm(*change)
            assert await gated(release.api) == 0
            assert not await would_be_gated(release.api)
            await release.place([pod(f"after-{number}", cpu="100m")])
            assert await release.bound_by(f"after-{number}") == "thalweg"
            await release.remove_pods()
