"""The build of the package with and without npm: the page comes along, or the installation goes on without it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.browser import require_page
from support.cli import node
from support.repository import ROOT


def build(folder: Path, *, vendor: bool) -> Path:
    """A wheel of a copy of the sources, built where neither npm nor a package index can be reached."""
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "node_modules", *([] if vendor else ["vendor"]))
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, source]
    environment = {**os.environ, "PATH": str(folder), "PIP_NO_INDEX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_without_npm_all_but_the_page_is_installed(tmp_path: Path) -> None:
    """The wheel is built; `thalweg view` says in one sentence how to get the page, and other commands work."""
    wheel = build(tmp_path, vendor=False)
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "/vendor/" in name]
        archive.extractall(tmp_path / "installed")
    dump = tmp_path / "now.json"
    dump.write_text(json.dumps(node("n1")))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    told = {}
    for command in ("view", "plan"):
        run = [sys.executable, "-P", "-m", "thalweg", command, "-f", dump]
        told[command] = subprocess.run(run, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert told["plan"].returncode == 0, told["plan"].stderr
    assert told["view"].returncode == 1
    assert told["view"].stderr.count("\n") == 1
    assert "pip install" in told["view"].stderr


def test_the_wheel_has_the_page_with_its_licences(tmp_path: Path) -> None:
    """Modules of npm that were gathered are in the wheel, each with its licence; no import names a package."""
    require_page()
    with zipfile.ZipFile(build(tmp_path, vendor=True)) as archive:
        names = [name.partition("page/vendor/")[2] for name in archive.namelist() if "page/vendor/" in name]
        texts = [archive.read(f"thalweg_view/page/vendor/{name}").decode() for name in names if name.endswith(".js")]
    assert {"preact.js", "htm.js", "uplot.js", "d3-sankey/index.js"} <= set(names)
    packages = json.loads((ROOT / "view" / "package-lock.json").read_text())["packages"]
    assert {f"licences/{name.removeprefix('node_modules/')}.txt" for name in packages if name} <= set(names)
    assert not any("sourceMappingURL" in text for text in texts)


@pytest.mark.parametrize("name", ["package.json", "package-lock.json"])
def test_the_lock_names_no_host(name: str) -> None:
    """Any registry serves: versions and checksums say what is meant."""
    assert "://" not in (ROOT / "view" / name).read_text()


def test_the_page_names_every_module_at_once() -> None:
    """The browser need not read one module to know of the next: the first picture comes sooner."""
    require_page()
    page = ROOT / "view" / "thalweg_view" / "page"
    modules = {str(path.relative_to(page)) for path in page.rglob("*.js")} - {"main.js"}
    assert set(re.findall(r'rel="modulepreload" href="(.*?)"', (page / "index.html").read_text())) == modules
