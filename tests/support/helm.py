"""The real Helm, and what it renders of the chart."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.repository import ROOT
from support.tools import tool

CHART = ROOT / "charts" / "thalweg"
NAMESPACE = "thalweg-system"
Manifest = dict[str, Any]


class HelmError(Exception):
    """Helm refused; the message is what it said."""


@dataclass(frozen=True)
class Helm:
    """The executable, and a folder for its own files."""

    executable: Path
    folder: Path
    _rendered: dict[tuple[str | Path, ...], str] = field(default_factory=dict)

    def run(self, *words: str | Path, kubeconfig: Path | None = None, timeout: float = 120.0) -> str:
        """Standard output of a helm command. Raises HelmError."""
        environment = {
            **os.environ,
            **{f"HELM_{name}_HOME": str(self.folder / name) for name in ("CACHE", "CONFIG", "DATA")},
            "KUBECONFIG": str(kubeconfig or self.folder / "none"),
        }
        done = subprocess.run(
            [self.executable, *words], capture_output=True, text=True, env=environment, timeout=timeout, check=False
        )
        if done.returncode != 0:
            # Helm warns about each symbolic link of the chart's folder first.
            lines = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
            raise HelmError("\n".join(lines) + done.stdout)
        return done.stdout

    def template(
        self, values: Mapping[str, Any], *words: str | Path, release: str = "thalweg", chart: Path = CHART
    ) -> list[Manifest]:
        """All objects of the chart with these values, hooks too. Raises HelmError."""
        words = ("template", release, chart, "--namespace", NAMESPACE, *self.values(values), *words)
        if words not in self._rendered:
            self._rendered[words] = self.run(*words)
        text = self._rendered[words]
        return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]

    def values(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The options that give these values."""
        return tuple(word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}"))


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tool("helm", request.config), tmp_path_factory.mktemp("helm"))


def one(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """The object of this kind and name."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_templates(objects: list[Manifest]) -> list[Manifest]:
    """The pods that these objects make, and the pods among them."""
    found = []
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if each["kind"] == "Pod":
            found.append({"metadata": each["metadata"], "spec": spec})
        elif "template" in spec:
            found.append(spec["template"])
    return found
