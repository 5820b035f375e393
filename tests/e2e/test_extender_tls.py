"""The real kube-scheduler verifies the extender, and the extender verifies kube-scheduler."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster_scenario import install_crds
from support.controlplane import running
from support.operator import Operator, free_address, running_operator, until
from support.rights import acting_account
from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg_controlplane import Api, Binaries, ControlPlane
from thalweg_controlplane.certificates import Authority, Pair
from thalweg_controlplane.client.objects import node, object_path, pod

from flowcore.model.policies import STEERED_NAME

KUBE_SCHEDULER = "kube-scheduler"
POLICY = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "steered"},
    "spec": {"selects": {"podSelector": {}, "schedulerNames": [STEERED_NAME]}, "delivery": "Extender"},
}


@dataclass(frozen=True)
class Cluster:
    """A control plane whose kube-scheduler asks the operator by TLS."""

    plane: ControlPlane
    api: Api
    operator: Operator
    url: str
    folder: Path
    authority: Authority
    server: Pair
    client: Pair

    def config(self, authority: Path, client: Pair | None) -> str:
        """kube-scheduler's, with this CA for the extender and this certificate for itself."""
        return configuration(self.url, authority, client)

    async def configured(self, authority: Path, client: Pair | None) -> None:
        """kube-scheduler is restarted with it."""
        self.plane.configure_scheduler(self.config(authority, client))
        await self.plane.restart(KUBE_SCHEDULER)

    async def creates(self, name: str, scheduler: str) -> dict[str, Any]:
        made = pod(name, scheduler=scheduler)
        await self.api.create(made)
        return made

    async def bound(self, made: dict[str, Any]) -> str:
        seen = await self.api.wait_for(object_path(made), lambda each: each["spec"].get("nodeName"), within=60)
        found: str = seen["spec"]["nodeName"]
        return found

    async def not_scheduled(self, made: dict[str, Any]) -> str:
        """What kube-scheduler says of a pod that it could not ask about."""

        def failed(each: dict[str, Any]) -> object:
            return [c for c in each["status"].get("conditions", ()) if c.get("reason") == "SchedulerError"]

        seen = await self.api.wait_for(object_path(made), failed, within=60)
        assert "nodeName" not in seen["spec"]
        (condition,) = failed(seen)  # type: ignore[misc]
        return str(condition["message"])

    async def refused_handshakes(self) -> float:
        samples = (await self.operator.metrics()).items()
        return sum(
            value for name, value in samples if name.startswith("thalweg_refused_inputs_total ") and "TLS" in name
        )


def configuration(url: str, authority: Path, client: Pair | None) -> str:
    return str(
        SchedulerConfig(
            url=url,
            kubeconfig="{kubeconfig}",
            qps=5000,
            leader_elect=False,
            authority=authority.read_bytes(),
            client_certificate=str(client.certificate) if client else "",
            client_key=str(client.key) if client else "",
        )
    )


@asynccontextmanager
async def cluster(binaries: Binaries, folder: Path) -> AsyncIterator[Cluster]:
    authority = Authority(folder, "ca")
    server, client = authority.server("server", "127.0.0.1"), authority.client("client")
    address = free_address()
    url = f"https://{address}/extender"
    options = [
        *("--extender-listen", address, "--extender-cert", str(server.certificate), "--extender-key", str(server.key)),
        *("--extender-client-ca", str(authority.certificate)),
    ]
    config = configuration(url, authority.certificate, client)
    bare = {"controller_manager": False, "kwok": False}
    async with (
        running(binaries, **bare, scheduler_config=config, audit=True) as (plane, api),
        acting_account(plane, api, folder) as account,
    ):
        await install_crds(api)
        await api.create_many([node(name) for name in ("a", "b")])
        await api.create(POLICY)
        async with running_operator(account, folder / "operator.log", extender=options) as operator:
            yield Cluster(plane, api, operator, url, folder, authority, server, client)


def openssl(address: str, *words: str | Path) -> str:
    """What a TLS client gets to know of the server's certificate."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, *words], input="", capture_output=True, text=True, check=False
    )
    return done.stdout


async def test_each_verifies_the_other(binaries: Binaries, tmp_path: Path) -> None:
    """Right certificates: pods of both profiles are bound. A wrong one on either side: none is, and it is told."""
    async with cluster(binaries, tmp_path) as made:
        for scheduler in (STEERED_NAME, "default-scheduler"):
            await made.bound(await made.creates(f"first-{scheduler}", scheduler))
        samples = await made.operator.metrics()
        assert samples["thalweg_steered_total bound"] == 1
        assert samples["thalweg_extender_answers_total passed filter"] >= 1
        # Its own pages have an address of their own.
        assert (await made.operator.get("/extender/filter"))[0] == 404

        other = Authority(tmp_path, "other")
        wrong: list[tuple[str, Path, Pair | None]] = [
            ("server", other.certificate, made.client),
            ("client", made.authority.certificate, other.client("stranger")),
            ("no-client", made.authority.certificate, None),
        ]
        waiting = []
        for name, authority, client in wrong:
            before = await made.refused_handshakes()
            await made.configured(authority, client)
            for scheduler in (STEERED_NAME, "default-scheduler"):
                late = await made.creates(f"{name}-{scheduler}", scheduler)
                message = await made.not_scheduled(late)
                assert ("x509" if name == "server" else made.url) in message
                waiting.append(late)
            assert await made.refused_handshakes() > before
        await made.configured(made.authority.certificate, made.client)
        for late in waiting:
            await made.bound(late)


async def test_certificates_are_renewed_under_way(binaries: Binaries, tmp_path: Path) -> None:
    """Both ends read their files again: pods go on being scheduled, and no attempt at one fails."""
    async with cluster(binaries, tmp_path) as made:
        new_server, new_client = made.authority.server("new-server", "127.0.0.1"), made.authority.client("new-client")
        before = made.server.certificate.read_text()

        async def while_pods_come(renew: Callable[[], None] | None, done: Callable[[], Awaitable[object]]) -> None:
            if renew is not None:
                renew()
            number = 0

            async def one_more() -> object:
                nonlocal number
                number += 1
                await made.bound(await made.creates(f"p{number}-{'new' if renew else 'old'}", "default-scheduler"))
                return number > 10 and await done()

            await until(one_more, 60, lambda: "the new certificate to be served")

        def renew() -> None:
            for new, old in ((new_server, made.server), (new_client, made.client)):
                shutil.copy(new.certificate, old.certificate)
                shutil.copy(new.key, old.key)

        async def served() -> bool:
            address = made.url.removeprefix("https://").removesuffix("/extender")
            words = ("-cert", made.client.certificate, "-key", made.client.key)
            return "".join(new_server.certificate.read_text().split()) in "".join(openssl(address, *words).split())

        async def anyway() -> bool:
            return True

        await while_pods_come(None, anyway)
        await while_pods_come(renew, served)
        assert before != new_server.certificate.read_text()
        for each in (await made.api.get("/api/v1/namespaces/default/pods"))["items"]:
            assert each["spec"]["nodeName"]
        assert "SchedulerError" not in (made.plane.workdir / f"{KUBE_SCHEDULER}.log").read_text()
