"""Makes a release of the commit that is checked out, from a clean tag: ``python tools/release.py``.

Into dist/ go the wheel, the sdist, the image as an OCI archive, the chart's package, one YAML file for ``kubectl
apply``, a list of what the image contains (SBOM) and the checksums of all these. Everything is made from the commit's
files, never from those of the work tree. Two releases of one commit are equal, byte by byte, for as long as Debian's
archive does not change. docs/how-to/release.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import archives
import sbom
import yaml
from thalweg_controlplane import BuildError, find_or_build_tool
from thalweg_controlplane.building.build import KUBERNETES_VERSION

ROOT: Final = Path(__file__).resolve().parent.parent
NAMESPACE: Final = "thalweg-system"
#: The registry of the forge; the name of a repository follows.
_REGISTRY: Final = "ghcr.io"
_FORGE: Final = re.compile(r"(?:^|@|//)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PROJECT_VERSION: Final = re.compile(r'^version = ".*"$', re.MULTILINE)
_IMAGE_VALUE: Final = re.compile(r"^(image:\n(?:(?:  .*)?\n)*?  repository: )(\S+)$", re.MULTILINE)


class CannotRelease(Exception):
    """No release can be made; the message names what is wrong."""


@dataclass(frozen=True)
class Version:
    """The version of a release, as Python's packages and as charts and tags of images write it."""

    python: str
    chart: str


def version_of(root: Path, *, snapshot: bool) -> Version:
    """The version that the checked out commit is released as.

    Args:
        root: a clone of the repository.
        snapshot: whether the commit needs no tag. The version then names the commit.

    Raises:
        CannotRelease: files are changed, the versions in the repository differ, or the tag is missing.
    """
    if changed := _git(root, "status", "--porcelain").splitlines():
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise CannotRelease(f"the tree is not clean: {changed[0].strip()}{more}")
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    chart = yaml.safe_load((root / "charts" / "thalweg" / "Chart.yaml").read_text())
    for name in ("version", "appVersion"):
        if str(chart[name]) != version:
            raise CannotRelease(f"Chart.yaml has the {name} {chart[name]}, pyproject.toml has the version {version}")
    if snapshot:
        commit = f"g{_git(root, 'rev-parse', '--short=12', 'HEAD')}"
        return Version(f"{version}.dev0+{commit}", f"{version}-dev.{commit}")
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        others = [tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
        has = f"HEAD has the tag {others[0]}" if others else f"HEAD has no tag v{version}"
        raise CannotRelease(f"{has}, and pyproject.toml has the version {version}")
    return Version(version, version)


def image_name(environment: Mapping[str, str], origin: str, given: str) -> str:
    """The image's name in the registry of the repository that releases.

    Args:
        environment: of the process; the forge's workflows set GITHUB_REPOSITORY.
        origin: address of the remote ``origin``, or "".
        given: the name that the chart has, for where neither names a repository.
    """
    match = _FORGE.search(origin)
    repository = environment.get("GITHUB_REPOSITORY") or (match[1] if match else "")
    return f"{_REGISTRY}/{repository.lower()}" if repository else given


def chart_image(root: Path) -> str:
    """The image's name in the values of the chart."""
    match = _IMAGE_VALUE.search((root / "charts" / "thalweg" / "values.yaml").read_text())
    if match is None:
        raise CannotRelease("values.yaml of the chart has no image.repository")
    return match[2]


def make(output: Path, *, image: str | None, snapshot: bool) -> None:
    """Makes all files of a release.

    Args:
        output: folder of the files; made if it is missing, and must be empty.
        image: name of the image; None: that of the repository.
        snapshot: whether the commit needs no tag.

    Raises:
        CannotRelease: the message names what is wrong.
    """
    version = version_of(ROOT, snapshot=snapshot)
    if output.exists() and any(output.iterdir()):
        raise CannotRelease(f"{output} is not empty. Remove it first")
    remotes = _git(ROOT, "remote").split()
    origin = _git(ROOT, "remote", "get-url", "origin") if "origin" in remotes else ""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "dist"
        made.mkdir()
        maker = _Maker(
            scratch=Path(scratch),
            source=_checkout(Path(scratch) / "source", version),
            made=made,
            version=version,
            image=image or image_name(os.environ, origin, chart_image(ROOT)),
            moment=int(_git(ROOT, "log", "-1", "--format=%ct")),
        )
        maker.python_packages()
        maker.image_archive()
        maker.chart()
        maker.manifest()
        maker.bill_of_materials()
        archives.write_sums(made)
        output.mkdir(parents=True, exist_ok=True)
        for path in sorted(made.iterdir()):
            shutil.move(path, output / path.name)


def _checkout(folder: Path, version: Version) -> Path:
    """The commit's files, with the version that is released."""
    archive = folder.with_suffix(".tar")
    _git(ROOT, "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    project = folder / "pyproject.toml"
    project.write_text(_PROJECT_VERSION.sub(f'version = "{version.python}"', project.read_text(), count=1))
    return folder


@dataclass(frozen=True)
class _Maker:
    """Makes one file after the other.

    Attributes:
        scratch: folder for what does not last.
        source: the commit's files.
        made: folder of the files of the release.
        version: of the release.
        image: name of the image, without its tag.
        moment: time of the commit, seconds since 1970.
    """

    scratch: Path
    source: Path
    made: Path
    version: Version
    image: str
    moment: int

    def python_packages(self) -> None:
        """Wheel and sdist, by the build tools that image/build-requirements.txt pins."""
        _say("wheel and sdist")
        tools = self.scratch / "tools"
        _run(sys.executable, "-m", "venv", tools)
        python = tools / "bin" / "python"
        pins = self.source / "image" / "build-requirements.txt"
        _run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--require-hashes", "-r", pins)
        _run(python, "view/build_page.py", folder=self.source)
        build = (python, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist", "--directory", self.made)
        _run(*build, folder=self.source, environment={"SOURCE_DATE_EPOCH": str(self.moment)})

    def image_archive(self) -> None:
        """The image for this machine's architecture, as an OCI archive."""
        machine = os.uname().machine
        _say(f"image for {machine}: some minutes, the first time")
        named = ("--name", f"{self.image}:{self.version.chart}")
        _run(sys.executable, "image/build.py", *named, self._layout, folder=self.source)
        name = f"thalweg-{self.version.chart}-image-{_MACHINES.get(machine, machine)}.tar"
        archives.write_tar(self._layout, self.made / name, self.moment)

    def chart(self) -> None:
        """The chart's package. Its default image is the one of this release."""
        _say("chart")
        folder = self.scratch / "chart" / "thalweg"
        shutil.copytree(self.source / "charts" / "thalweg", folder)  # what links name, not the links
        values = folder / "values.yaml"
        values.write_text(_IMAGE_VALUE.sub(rf"\g<1>{self.image}", values.read_text()))
        versions = ("--version", self.version.chart, "--app-version", self.version.chart)
        self._helm("package", folder, *versions, "--destination", self.scratch)
        unpacked = self.scratch / "package"
        with tarfile.open(self.scratch / self._package.name) as tar:
            tar.extractall(unpacked, filter="data")
        archives.write_tar(unpacked, self._package, self.moment, compressed=True)
        self._helm("lint", self._package, "--quiet")

    def manifest(self) -> None:
        """What the chart installs by default, with the namespace, as one file for ``kubectl apply``."""
        place = ("--namespace", NAMESPACE, "--kube-version", KUBERNETES_VERSION)
        objects = self._helm("template", "thalweg", self._package, *place, "--no-hooks", "--skip-tests")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
        path = self.made / f"thalweg-{self.version.chart}.yaml"
        first = f"# Thalweg {self.version.chart}, as its chart installs it by default: kubectl apply --server-side -f "
        path.write_text(f"{first}{path.name}\n---\n{yaml.safe_dump(namespace)}{objects}")

    def bill_of_materials(self) -> None:
        """What the image contains, in CycloneDX."""
        (wheel,) = self.made.glob("*.whl")
        text = sbom.to_bom(
            sbom.read_contents(self._layout),
            f"{self.image}:{self.version.chart}",
            archives.sha256(wheel),
            json.loads((self.source / "view" / "package-lock.json").read_text()),
            self.moment,
        )
        (self.made / f"thalweg-{self.version.chart}.cdx.json").write_text(text)

    @property
    def _layout(self) -> Path:
        return self.scratch / "layout"

    @property
    def _package(self) -> Path:
        return self.made / f"thalweg-{self.version.chart}.tgz"

    def _helm(self, *words: str | Path) -> str:
        homes = {f"HELM_{name}_HOME": str(self.scratch / "helm" / name) for name in ("CACHE", "CONFIG", "DATA")}
        return _run(find_or_build_tool("helm", _say), *words, environment=homes)


def _git(root: Path, *words: str) -> str:
    return _run("git", "-C", root, *words).strip()


def _run(
    *command: str | Path, folder: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    done = subprocess.run(  # noqa: S603 - our own argument list, no shell
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise CannotRelease(f"`{words}` ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR", help="folder of the files")
    parser.add_argument("--image", metavar="NAME", help="the image's name, such as ghcr.io/acme/thalweg")
    parser.add_argument("--snapshot", action="store_true", help="release a commit without a tag; the version names it")
    arguments = parser.parse_args()
    try:
        make(arguments.output, image=arguments.image, snapshot=arguments.snapshot)
    except (CannotRelease, BuildError, sbom.Unlisted) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
