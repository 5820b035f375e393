"""Helm, built once, and one control plane a module."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.controlplane import binaries, running
from support.helm import Helm
from thalweg_controlplane import Api, Binaries, BuildError, ControlPlane, find_or_build_tool

__all__ = ["binaries"]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real Helm. Where it cannot be built these tests are skipped, but never in CI."""
    try:
        executable = find_or_build_tool("helm", print)
    except BuildError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no Helm to test with: {error}", pytrace=False)
        pytest.skip(f"no Helm to test with: {error}")
    return Helm(executable, tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(binaries: Binaries) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """With the controllers: they aggregate roles, and remove what owners leave behind."""
    async with running(binaries, scheduler=False, kwok=False) as pair:
        yield pair
