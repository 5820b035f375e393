"""Helm, a control plane, a registry on this machine, and a release that was made of a tagged clone."""

import os
import tomllib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from release import chart_image
from support.controlplane import binaries, running
from support.helm import helm
from support.image import NoImage, require_packages
from support.made_release import Made, NoRegistry, make_release, require_programs, running_registry, tagged_clone
from support.repository import ROOT
from thalweg_controlplane import Api, Binaries

__all__ = ["binaries", "helm"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A release, and the registry that its image is named for. Skipped where a program is missing, never in CI."""
    try:
        require_packages()
        require_programs()
    except (NoImage, NoRegistry) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no release to test: {error}", pytrace=False)
        pytest.skip(f"no release to test: {error}")
    folder = tmp_path_factory.mktemp("release")
    with running_registry(tmp_path_factory.mktemp("registry")) as address:
        image = f"{address}/acme/thalweg"
        assert chart_image(ROOT) != image
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        clone = tagged_clone(folder / "clone", f"v{version}")
        yield Made(clone, make_release(clone, folder / "dist", image), image, version)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(binaries: Binaries) -> AsyncIterator[Api]:
    async with running(binaries, scheduler=False, controller_manager=False, kwok=False) as (_, api):
        yield api
