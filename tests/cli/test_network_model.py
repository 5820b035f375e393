"""A cost model with a network, in a package of its own: installed as users do it, and as the tutorial tells it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli import by_pod, thalweg_from_nothing
from support.repository import ROOT

EXAMPLE = ROOT / "examples" / "rack-budget-model"
TUTORIAL = (ROOT / "docs/tutorial/write-a-network-model.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's package, installed by pip from its pyproject.toml."""
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "package")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def plan_of(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `thalweg plan` says of the tutorial's cluster."""
    (cluster,) = blocks("yaml")
    (tmp_path / "cluster.yaml").write_text(cluster)
    monkeypatch.setenv("PYTHONPATH", str(site))
    done = thalweg_from_nothing("plan", "-f", tmp_path / "cluster.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = by_pod(done.stdout)
    assert not answer["warnings"]
    return answer


def racks(answer: dict[str, Any]) -> dict[str, list[str]]:
    """The pods that go to each rack."""
    found: dict[str, list[str]] = {}
    for key, node in sorted(answer["placements"].items()):
        found.setdefault(node[0], []).append(key.removeprefix("shop/"))
    return found


def test_the_package_works_as_installed(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pods in a rack with those that run, on its emptiest machine; pairs whole; what waits is told why."""
    answer = plan_of(site, tmp_path, monkeypatch)
    found = racks(answer)
    assert {rack: len(pods) for rack, pods in found.items()} == {"a": 2, "b": 3}
    assert {node for node in answer["placements"].values() if node[0] == "a"} == {"a2"}
    for pods in found.values():
        pairs = Counter(name.partition("-")[0] for name in pods if "-" in name)
        assert set(pairs.values()) <= {2}
    assert len(answer["pending"]) == 2
    full = "are full by budget.arcs[0] to rack of the network of policy racks (at most 3 per rack)"
    assert all(full in each["reason"] for each in answer["pending"].values())


def test_the_package_is_small() -> None:
    """Racks, budgets, costs and pairs in under 50 lines, its pyproject.toml among them."""
    assert sum(len(path.read_text().splitlines()) for path in EXAMPLE.iterdir() if path.is_file()) < 50


def test_the_tutorial_shows_the_package() -> None:
    """Its pyproject.toml is the package's, and so is each piece of code after the first step's."""
    assert blocks("toml") == [(EXAMPLE / "pyproject.toml").read_text()]
    code = (EXAMPLE / "rack_budget.py").read_text()
    assert [block for block in blocks("python")[1:] if block not in code] == []


def test_the_first_step_works(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial's first model: three pods in each rack with the one that runs, on the emptiest machines."""
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / "rack_budget.py").write_text(blocks("python")[0])
    answer = plan_of(copy, tmp_path, monkeypatch)
    assert {rack: len(pods) for rack, pods in racks(answer).items()} == {"a": 2, "b": 3}
    assert {node for node in answer["placements"].values() if node[0] == "a"} == {"a2"}
    assert all(
        "of the network of policy racks (at most 3 per rack)" in each["reason"] for each in answer["pending"].values()
    )


def test_the_sentence_at_the_end(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minimum above the maximum: the pods wait, with the words of the tutorial."""
    copy = shutil.copytree(site, tmp_path / "site")
    code = (EXAMPLE / "rack_budget.py").read_text()
    (copy / "rack_budget.py").write_text(code.replace("minimum=2", "minimum=2, maximum=1"))
    answer = plan_of(copy, tmp_path, monkeypatch)
    assert answer["placements"] == {}
    (told,) = {each["reason"] for each in answer["pending"].values()}
    assert f"\n{told}\n" in TUTORIAL
