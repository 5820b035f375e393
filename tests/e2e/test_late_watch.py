"""kube-scheduler asks about pods that the operator's own watch has yet to show: they wait, and none is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.cluster_checks import unschedulable_message
from support.cluster_scenario import install_crds, policy
from support.controlplane import running
from support.operator import Operator, free_address, running_operator, until
from support.rights import acting_account
from support.steering import DelayingProxy, count, scheduler_config
from thalweg_controlplane import Api, Binaries
from thalweg_controlplane.client.objects import collection_path, node, object_path, pod

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME


@asynccontextmanager
async def behind_a_relay(binaries: Binaries, folder: Path) -> AsyncIterator[tuple[Api, Operator, DelayingProxy]]:
    """A control plane, and an operator to which the API server's answers come by a relay."""
    async with DelayingProxy(free_address()) as asking:
        config = scheduler_config(asking)
        async with (
            running(binaries, controller_manager=False, kwok=False, scheduler_config=config, audit=True) as (
                plane,
                api,
            ),
            acting_account(plane, api, folder) as account,
            DelayingProxy(plane.url.removeprefix("https://")) as relay,
        ):
            await install_crds(api)
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(account.read_text().replace(plane.url, f"https://{relay.address}"))
            extender = ("--extender-listen", asking.to)
            async with running_operator(kubeconfig, folder / "operator.log", extender=extender) as operator:
                yield api, operator, relay


@pytest.mark.parametrize("delay", [0.0, 1.0], ids=["in time", "a second late"])
async def test_pods_that_our_watch_shows_late(binaries: Binaries, tmp_path: Path, delay: float) -> None:
    """Two nodes that three kinds of pods fill to the last: all are bound, and nothing is given away twice."""
    async with behind_a_relay(binaries, tmp_path) as (api, operator, relay):
        selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
        await api.create(policy("steered", selects=selects, delivery="Extender"))
        await api.create_many([node(name, cpu="3") for name in ("a", "b")])
        await until(lambda: count(operator, "thalweg_nodes"), 30, lambda: "the nodes to be seen")
        relay.delay = delay
        names = (STEERED_NAME, "default-scheduler", SCHEDULER_NAME)
        pods = [pod(f"p{number}", cpu="100m", scheduler=names[number % 3]) for number in range(60)]
        await api.create_many(pods, 8)
        where: list[str] = []

        async def all_bound() -> bool:
            # Where room was promised for a while, kube-scheduler tries again at the next event of any kind.
            await api.patch(object_path(node("a")), {"metadata": {"labels": {"now": str(time.monotonic())}}})
            found = (await api.get("/api/v1/namespaces/default/pods"))["items"]
            where[:] = [each["spec"].get("nodeName", "") for each in found]
            await asyncio.sleep(1)
            return all(where)

        await until(all_bound, 120, lambda: f"all to be bound: {Counter(where)}")
        relay.delay = 0.0
        assert Counter(where) == {"a": 30, "b": 30}
        unknown = await count(operator, "thalweg_extender_answers_total", "unknown")
        assert unknown if delay else unknown < 5


async def test_a_pod_that_was_bound_is_not_called_unschedulable(binaries: Binaries, tmp_path: Path) -> None:
    """Others bind pods while our watch still shows them waiting: no version of one has a node and waits for one."""
    async with behind_a_relay(binaries, tmp_path) as (api, operator, relay):
        await api.create(node("small", cpu="1"))
        await until(lambda: count(operator, "thalweg_nodes"), 30, lambda: "the node to be seen")
        relay.delay = 1.0
        pods = [pod(f"p{number}", cpu="2") for number in range(20)]
        since = (await api.get(collection_path(pods[0])))["metadata"]["resourceVersion"]
        for each in pods:
            await api.create(each)
            target = {"apiVersion": "v1", "kind": "Node", "name": "small"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": each["metadata"], "target": target}
            await api.request("POST", f"{object_path(each)}/binding", binding)
        mark = pod("mark", cpu="2")
        await api.create(mark)
        await api.wait_for(object_path(mark), lambda each: "Insufficient cpu" in unschedulable_message(each))
        versions = await api.versions(collection_path(mark), since)
        wrong = [
            each["metadata"]["name"] for each in versions if "nodeName" in each["spec"] and unschedulable_message(each)
        ]
        assert len(versions) >= 2 * len(pods)
        assert wrong == []
