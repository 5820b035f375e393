"""Two replicas that steer kube-scheduler: it asks the leader, and gangs are whole whenever the leader is killed.

They run as the account of rights/.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.cluster_scenario import ClusterScenario
from support.gang_scenarios import members, whole
from support.operator import Operator, free_address, until
from support.proxy import ApiProxy, ProxiedRequest, proxied
from support.replicas import Replicas, running_replicas
from support.rights import user_of
from support.steering import DelayingProxy, gates_in_effect, mutual_tls
from thalweg_controlplane import Api, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, object] = {"gangs": {"timeout": "30s"}, "waiting": "Gate"}
#: The one whose EndpointSlice the account may write.
NAMESPACE, SERVICE = "thalweg-system", "thalweg-extender"
#: The API server wants an address that others reach. Here the port tells the replicas apart.
ADDRESS = "10.9.8.7"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"


async def endpoint(api: Api) -> dict[str, Any]:
    """The EndpointSlices of the Service, as kube-proxy finds them: there is one."""
    (found,) = await api.list(SLICES, labelSelector=f"kubernetes.io/service-name={SERVICE}")
    return found


class SteeredReplicas:
    """Replicas behind a Service. ``follow`` does kube-proxy's part."""

    def __init__(self, scene: ClusterScenario, relay: DelayingProxy, replicas: Replicas, ports: list[int]) -> None:
        self.replicas, self._scene, self._relay, self._ports = replicas, scene, relay, ports

    def port(self, operator: Operator) -> int:
        """Where a replica's extender listens."""
        return self._ports[self.replicas.operators.index(operator)]

    async def follow(self) -> Operator:
        """Waits until the Service leads to the leader, and leads kube-scheduler there; the leader."""
        leader = await self.replicas.leader()

        async def there() -> bool:
            found = await endpoint(self._scene.api)
            return bool(found["ports"][0]["port"] == self.port(leader))

        await until(there, 30, lambda: "the EndpointSlice to name the leader")
        self._relay.to = f"127.0.0.1:{self.port(leader)}"
        return leader


@asynccontextmanager
async def steered_replicas(
    scene: ClusterScenario, relay: DelayingProxy, folder: Path, *kubeconfigs: Path
) -> AsyncIterator[SteeredReplicas]:
    """Two of them, one of which leads, and the Service leads to it."""
    tls = mutual_tls(folder)
    before = relay.to
    await scene.operator.stop()
    relay.tls = tls.caller
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    ports = [{"name": "extender", "port": 8443}]
    await scene.api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    listen = [int(free_address().partition(":")[2]) for _ in range(2)]
    service = f"{NAMESPACE}/{SERVICE}"
    extenders = [("--extender-listen", f":{port}", *tls.options, "--extender-endpoints", service) for port in listen]
    async with running_replicas(scene.api, kubeconfigs, folder, extenders, POD_IP=ADDRESS) as replicas:
        steered = SteeredReplicas(scene, relay, replicas, listen)
        await steered.follow()
        yield steered
    await scene.api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")
    relay.to, relay.tls = before, None
    await scene.operator.start()


async def test_the_service_leads_to_the_leader(
    scene: ClusterScenario, account: Path, relay: DelayingProxy, tmp_path: Path
) -> None:
    """Before and after SIGTERM, and when somebody changed it; the standby answers 503 to each verb."""
    await scene.nodes("a", "b", cpu="4")
    async with steered_replicas(scene, relay, tmp_path, account, account) as steered:
        found = await endpoint(scene.api)
        assert found["addressType"] == "IPv4"
        assert [each["addresses"] for each in found["endpoints"]] == [[ADDRESS]]
        assert found["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "thalweg"
        assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Service"]
        leader, standby = await steered.replicas.leader(), await steered.replicas.standby()
        async with aiohttp.ClientSession() as session:
            for verb in ("filter", "prioritize", "preempt"):
                url = f"https://127.0.0.1:{steered.port(standby)}/extender/{verb}"
                async with session.post(url, data=b"{}", ssl=relay.tls) as answer:
                    assert (answer.status, await answer.text()) == (
                        503, f"lease: standby, {await steered.replicas.holder()} leads\n"
                    )  # fmt: skip
        await scene.create("before")
        await scene.node_of("before")
        await leader.stop()
        assert await steered.follow() is standby
        await scene.create("after")
        await scene.node_of("after")
        # The type of the addresses cannot be changed: it is made anew.
        await scene.api.delete(f"{SLICES}/{SERVICE}-leader")
        metadata = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
        kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
        other = {
            **found,
            **kind,
            "addressType": "IPv6",
            "endpoints": [{"addresses": ["fd00::7"]}],
            "metadata": metadata,
        }
        await scene.api.apply(other)
        await until(lambda: _addresses(scene, [ADDRESS]), 60, lambda: "the slice to be written again")


async def _addresses(scene: ClusterScenario, expected: list[str]) -> bool:
    found = await scene.api.list(SLICES)
    return [each["endpoints"][0]["addresses"] for each in found] == [expected]


#: Where the leader is killed: before or after the request of this number to open a gate, or when kube-scheduler asks
#: about pods of the gang for the time of this number, so that others were let through.
PHASES = [(place, number) for place in ("before", "after", "asked") for number in (1, 2, 3, 4, 5, 6)]


@pytest.mark.timeout(1800)
async def test_killed_while_a_gang_is_handed_on(
    scene: ClusterScenario,
    plane: tuple[ControlPlane, Api],
    account: Path,
    relay: DelayingProxy,
    tmp_path: Path,
) -> None:
    """Before and after each of the first openings of gates, and at each question: the other replica makes it whole."""
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="32")
    await gates_in_effect(scene, members(scene, "gated", 1)[0])
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    async with (
        proxied(*plane, tmp_path / "first", user_of(account)) as first,
        proxied(*plane, tmp_path / "second", user_of(account)) as second,
        steered_replicas(scene, relay, tmp_path, first.kubeconfig, second.kubeconfig) as steered,
    ):
        replicas = steered.replicas
        ways: dict[Operator, ApiProxy] = dict(zip(replicas.operators, (first, second), strict=True))
        gangs: list[str] = []
        for place, number in PHASES:
            await replicas.standby()
            leader = await steered.follow()
            gang = f"{place}{number}"
            way, seen = ways[leader], 0

            def goes_on(leader: Operator = leader, number: int = number) -> bool:
                nonlocal seen
                seen += 1
                if seen >= number and leader.runs:
                    os.kill(leader.pid, signal.SIGKILL)
                return seen < number

            def opens(
                request: ProxiedRequest,
                leader: Operator = leader,
                gang: str = gang,
                goes_on: Callable[[], bool] = goes_on,
            ) -> bool:
                is_meant = f"/{gang}-" in request.path and b"schedulingGates" in request.body
                return goes_on() if is_meant else leader.runs

            def asked(part: bytes, gang: str = gang, goes_on: Callable[[], bool] = goes_on) -> None:
                if f'"{gang}-'.encode() in part:
                    goes_on()

            if place == "asked":
                relay.asked = asked
            else:
                setattr(way, place, opens)
            await scene.api.create_many(members(scene, gang, 6))
            await leader.ended(120)
            relay.asked = lambda _part: None
            way.before = way.after = lambda _request: True
            await replicas.give_away()
            assert await steered.follow() is not leader
            leader.begin()
            gangs.append(gang)
            await whole(scene, *gangs, size=6)
