"""Helm, built once, and one control plane a module."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.controlplane import binaries, running
from support.helm import Helm
from support.tools import tool
from thalweg_controlplane import Api, Binaries, ControlPlane

__all__ = ["binaries"]


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tool("helm", request.config), tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(binaries: Binaries) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """With the controllers: they aggregate roles, and remove what owners leave behind."""
    async with running(binaries, scheduler=False, kwok=False) as pair:
        yield pair
