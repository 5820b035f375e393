"""Helm, built once, and one control plane a module."""

from collections.abc import AsyncIterator

import pytest_asyncio
from support.controlplane import binaries, running
from support.helm import helm
from thalweg_controlplane import Api, Binaries, ControlPlane

__all__ = ["binaries", "helm"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(binaries: Binaries) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """With the controllers: they aggregate roles, and remove what owners leave behind."""
    async with running(binaries, scheduler=False, kwok=False) as pair:
        yield pair
