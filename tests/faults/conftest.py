"""One control plane, one operator with the account of rights/ behind a proxy, and one world for all faults."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support import jumping_clock
from support.cluster_scenario import install_crds
from support.controlplane import binaries, oracle, running
from support.fault_world import FaultWorld
from support.operator import free_address, running_operator
from support.operator_logs import pytest_runtest_makereport
from support.proxy import proxied
from support.rights import acting_account, user_of
from support.steering import DelayingProxy, scheduler_config
from thalweg_controlplane import Binaries

__all__ = ["binaries", "oracle", "pytest_runtest_makereport"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultWorld]:
    folder: Path = tmp_path_factory.mktemp("faults")
    async with (
        DelayingProxy(free_address()) as relay,
        running(
            binaries, controller_manager=False, kwok=False, scheduler_config=scheduler_config(relay), audit=True
        ) as (plane, api),
        acting_account(plane, api, folder) as account,
        proxied(plane, api, folder, user_of(account)) as proxy,
    ):
        await install_crds(api)
        async with running_operator(
            proxy.kubeconfig,
            folder / "operator.log",
            extender=("--extender-listen", relay.to),
            program=("-P", jumping_clock.__file__),  # -P: support/operator.py must not shadow Python's operator
        ) as operator:
            yield FaultWorld(plane, api, proxy, relay, operator)
