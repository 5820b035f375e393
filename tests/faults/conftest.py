"""One control plane a module, with one operator or two replicas behind a proxy, with the account of rights/."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support import jumping_clock
from support.cluster_scenario import install_crds
from support.controlplane import binaries, oracle, running
from support.fault_world import FaultWorld, FaultyCluster
from support.operator import free_address, running_operator
from support.operator_logs import pytest_runtest_makereport
from support.proxy import proxied
from support.replicas import running_replicas
from support.rights import acting_account, user_of
from support.soak import SteeringReplicas
from support.steering import DelayingProxy, scheduler_config
from thalweg_controlplane import Binaries

__all__ = ["binaries", "oracle", "pytest_runtest_makereport"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultyCluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    async with (
        DelayingProxy(free_address()) as relay,
        running(
            binaries, controller_manager=False, kwok=False, scheduler_config=scheduler_config(relay), audit=True
        ) as (plane, api),
        acting_account(plane, api, folder) as account,
        proxied(plane, api, folder, user_of(account)) as proxy,
    ):
        await install_crds(api)
        yield FaultyCluster(plane, api, proxy, relay)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(cluster: FaultyCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultWorld]:
    async with running_operator(
        cluster.proxy.kubeconfig,
        tmp_path_factory.mktemp("operator") / "operator.log",
        extender=("--extender-listen", cluster.relay.to),
        program=("-P", jumping_clock.__file__),  # -P: support/operator.py must not shadow Python's operator
    ) as operator:
        yield FaultWorld(cluster.plane, cluster.api, cluster.proxy, cluster.relay, operator)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(cluster: FaultyCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SteeringReplicas]:
    addresses = [free_address() for _ in range(2)]
    async with running_replicas(
        cluster.api,
        [cluster.proxy.kubeconfig] * 2,
        tmp_path_factory.mktemp("replicas"),
        [("--extender-listen", address) for address in addresses],
    ) as running_ones:
        found = SteeringReplicas(running_ones, cluster.relay, addresses)
        await found.follow()
        yield found
