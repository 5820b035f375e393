"""The image itself: what is in it and what is not, who runs, that it is the same each time, and its pinned packages."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.browser import require_page
from support.image import Image, blob, build_image, run_build
from support.repository import ROOT

REQUIREMENTS = ROOT / "image" / "requirements.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def builder() -> ModuleType:
    """image/build.py."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "image" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned() -> dict[str, str]:
    """Name and version of each package that image/requirements.txt pins."""
    found = re.findall(r"^([\w.-]+)==([^ ;]+)", REQUIREMENTS.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_every_dependency_is_pinned_as_the_project_wants_it() -> None:
    """Else write image/requirements.txt again: docs/how-to/build-the-image.md."""
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["traces"]]
    versions = pinned()
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_every_pin_has_hashes_and_no_place() -> None:
    """Pip takes no other file for a pinned package; where it comes from is the builder's choice."""
    for name in ("requirements.txt", "build-requirements.txt"):
        text = (ROOT / "image" / name).read_text()
        for entry in re.split(r"\n(?=\S)", text.strip()):
            assert "--hash=sha256:" in entry, entry
        assert "://" not in text


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_pinned_package_has_a_wheel(machine: str, tmp_path: Path) -> None:
    """For both architectures, so that no compiler is needed."""
    command = builder().download(REQUIREMENTS, tmp_path, machine)
    subprocess.run(command, check=True)
    assert len(list(tmp_path.glob("*.whl"))) >= len(pinned()) - 1  # tzdata may be for Windows alone


def paths(image: Image) -> set[str]:
    """All files of the image, without those that a layer removes."""
    found: set[str] = set()
    for layer in image.layers:
        for path in layer.rglob("*"):
            name = f"/{path.relative_to(layer)}"
            if path.is_char_device():
                found.discard(name)
            elif not path.is_dir():
                found.add(name)
    return found


def test_what_is_in_it(image: Image) -> None:
    """Thalweg with its byte code; no pip, no compiler, no header, no package list, no test."""
    found = paths(image)
    assert "/opt/thalweg/bin/thalweg" in found
    for name in ("flowcore", "thalweg_operator", "thalweg"):
        assert any(re.search(rf"/site-packages/{name}/__pycache__/__init__.*pyc$", path) for path in found)
    programs = {Path(path).name for path in found if re.search(r"/(s?bin|libexec)/", path)}
    assert not programs & {"pip", "pip3", "gcc", "cc", "make", "go", "git", "curl", "wget"}
    assert not any(path.startswith(("/usr/include/", "/var/lib/apt/lists/d", "/build/")) for path in found)
    assert not any("/site-packages/pip/" in path or "/dist-packages/pip/" in path for path in found)


def test_the_page_is_in_it(image: Image) -> None:
    """The modules from npm too, wherever npm can be reached."""
    require_page()
    found = paths(image)
    for name in ("main.js", "vendor/preact.js", "vendor/licences/preact.txt"):
        assert any(path.endswith(f"/site-packages/thalweg_view/page/{name}") for path in found), name


def test_how_it_runs(image: Image) -> None:
    """As a user without rights and without a name, whose command is `thalweg`; times are 1970, the version is ours."""
    manifest = blob(build_image())
    whole = blob(manifest["config"]["digest"])
    assert whole["config"]["User"] == "65532:65532"
    assert image.entrypoint == ("thalweg",)
    assert "USER=thalweg" in image.environment
    assert whole["created"].startswith("1970-01-01T00:00:00")
    assert whole["config"]["Labels"]["org.opencontainers.image.version"] == PROJECT["version"]


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("image")
def test_two_builds_give_the_same_digest(tmp_path: Path) -> None:
    """From Debian's packages on, with nothing kept of other builds but the wheels: Debian may have updates since."""
    assert run_build(tmp_path / "first", "--fresh") == run_build(tmp_path / "second", "--fresh")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """Without its programs the builder says what to install."""
    done = subprocess.run(
        [sys.executable, ROOT / "image" / "build.py", tmp_path],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "Error: buildah and mmdebstrap not found: apt-get install buildah mmdebstrap\n"
