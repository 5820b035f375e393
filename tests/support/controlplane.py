"""Fixtures for tests that want a real control plane. Import them into a conftest.py by name."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from thalweg_controlplane import Api, Binaries, BuildError, ControlPlane, Oracle, find_or_build
from thalweg_controlplane.building.build import MINOR_VERSION


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The control plane's executables. Where none can be had these tests are skipped, but never in CI."""
    return executables(request.config)


def executables(config: pytest.Config, minor_version: str = MINOR_VERSION) -> Binaries:
    """The executables of a version of Kubernetes, with the same rule."""
    try:
        return find_or_build(lambda line: _show(config, line), minor_version)
    except BuildError as error:
        problem = f"no control plane {minor_version} to test against: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(problem, pytrace=False)
        _show(config, f"SKIPPING tests: {problem}")
        pytest.skip(problem)


@pytest.fixture(scope="session")
def oracle(binaries: Binaries) -> Iterator[Oracle]:
    """kube-scheduler's own filters, in a child process."""
    with Oracle(binaries) as oracle:
        yield oracle


def build_in_sight(config: pytest.Config) -> None:
    """Builds the executables if they are not there; that they cannot be had is the tests' to say."""
    with suppress(BuildError):
        find_or_build(lambda line: _show(config, line))


def _show(config: pytest.Config, line: str) -> None:
    """A first build takes minutes: says so even though pytest captures what tests print."""
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n[control plane] {line}", end="", flush=True)  # noqa: T201


class SharedPlane:
    """A control plane that users take one after the other, as long as they want the same of it.

    To start one takes as much time as many a test.
    """

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries
        self._plane: ControlPlane | None = None
        self._options: dict[str, Any] = {}

    async def take(self, **options: Any) -> ControlPlane:
        """The control plane that runs, if it was started with these options; otherwise a new one takes its place."""
        if options != self._options:
            await self.stop()
        if self._plane is None:
            self._plane = await ControlPlane(self._binaries, **options).__aenter__()
            self._options = options
        return self._plane

    async def stop(self) -> None:
        """Ends it: nobody can use it as it is now."""
        plane, self._plane = self._plane, None
        if plane is not None:
            await plane.stop()


@pytest.fixture(scope="session")
def shared_plane(binaries: Binaries) -> Iterator[SharedPlane]:
    """One for this process."""
    shared = SharedPlane(binaries)
    yield shared
    asyncio.run(shared.stop())


@asynccontextmanager
async def running(binaries: Binaries, **options: Any) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """A control plane with these options, and a client of it, as a pair."""
    async with ControlPlane(binaries, **options) as plane, Api(plane.kubeconfig) as api:
        yield plane, api
