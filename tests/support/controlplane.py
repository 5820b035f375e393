"""Fixtures for tests that want a real control plane. Import them into a conftest.py by name."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from thalweg_controlplane import Api, Binaries, BuildError, ControlPlane, find_or_build


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The control plane's executables. Where none can be had these tests are skipped, but never in CI."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def report(line: str) -> None:
        # A first build takes minutes: say so even though pytest captures what tests print.
        with capture.global_and_fixture_disabled():
            print(f"\n[control plane] {line}", end="", flush=True)  # noqa: T201

    try:
        return find_or_build(report)
    except BuildError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no control plane to test against: {error}", pytrace=False)
        report(f"SKIPPING every test against a real control plane: {error}")
        pytest.skip(f"no control plane to test against: {error}")


@asynccontextmanager
async def running(binaries: Binaries, **options: Any) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """A control plane with these options, and a client of it, as a pair."""
    async with ControlPlane(binaries, **options) as plane, Api(plane.kubeconfig) as api:
        yield plane, api
