"""What kube-scheduler does where nobody configures it, from its own code: the program's answer and its sources."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from thalweg_controlplane import Oracle
from thalweg_controlplane.building.build import KUBERNETES
from thalweg_controlplane.building.toolchain import find_go, go_environment

#: Where the sources are whose gates count.
_SCHEDULER = ("pkg/scheduler", "cmd/kube-scheduler")


def scheduler_defaults(oracle: Oracle) -> dict[str, Any]:
    """Plugins, arguments, other fields of the configuration, and the gates that the scheduler's code reads."""
    defaults = msgspec.json.decode(msgspec.json.encode(oracle.defaults()))
    read = gates_read(sources(KUBERNETES[oracle.minor_version]))
    gates = {name: gate for name, gate in sorted(defaults.pop("gates").items()) if name in read}
    return {"version": KUBERNETES[oracle.minor_version], **defaults, "gates": gates}


def gates_read(kubernetes: Path) -> set[str]:
    """Names of package features in the sources of the scheduler; all gates that they read are among them."""
    return {
        name
        for folder in _SCHEDULER
        for path in (kubernetes / folder).rglob("*.go")
        if not path.name.endswith("_test.go")
        for name in re.findall(r"\bfeatures\.([A-Z]\w*)", path.read_text())
    }


def sources(version: str) -> Path:
    """The folder of Kubernetes' sources of a version, such as v1.36.3; Go fetches them if they are not there."""
    told = subprocess.run(
        [find_go(), "mod", "download", "-json", f"k8s.io/kubernetes@{version}"],
        capture_output=True, text=True, env=go_environment(), cwd="/", check=True,
    )  # fmt: skip
    return Path(json.loads(told.stdout)["Dir"])
