"""Fixtures for tests that want a tool built from source. Import them into a conftest.py by name."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from thalweg_controlplane import BuildError, find_or_build_tool
from thalweg_controlplane.building.cache import Report

_T = TypeVar("_T")


def tool(name: str, config: pytest.Config) -> Path:
    """The executable of a tool."""
    return built(name, config, partial(find_or_build_tool, name))


def built(name: str, config: pytest.Config, build: Callable[[Report], _T]) -> _T:
    """What is found in the cache, or built. Where it cannot be had the test is skipped, but never in CI."""

    def show(line: str) -> None:
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n[{name}] {line}", end="", flush=True)  # noqa: T201

    try:
        return build(show)
    except BuildError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no {name}: {error}", pytrace=False)
        pytest.skip(f"no {name}: {error}")


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest) -> Path:
    return tool("kubectl", request.config)


@pytest.fixture(scope="session")
def prometheus(request: pytest.FixtureRequest) -> Path:
    return tool("prometheus", request.config)


@pytest.fixture(scope="session")
def promtool(request: pytest.FixtureRequest) -> Path:
    return tool("promtool", request.config)


@pytest.fixture(scope="session")
def metrics_server(request: pytest.FixtureRequest) -> Path:
    return tool("metrics-server", request.config)
