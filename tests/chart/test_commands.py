"""The command lines of the chart are ones that the command takes."""

from pathlib import Path

import pytest
from support.helm import Helm, pod_templates
from thalweg.main import main

from flowcore.model.device_gates import ON_SINCE

#: Where pods have certificates, and kube-scheduler's configuration.
MOUNTED = ("/etc/thalweg/extender", "/config")
#: Values that are options of `thalweg run`.
GIVEN = {
    "workerMemory": "2Gi",
    "roundBudget": 0.5,
    "logLevel": "debug",
    "extender.ignorable": True,
    "featureGates": {gate: number % 2 == 0 for number, gate in enumerate(ON_SINCE)},
    "extraArgs": ["--record=/tmp/rounds"],
}


@pytest.mark.parametrize("given", [{}, GIVEN], ids=["defaults", "given"])
@pytest.mark.parametrize("mode", ["Binder", "Extender", "Observe", "SecondScheduler"])
def test_command_lines(helm: Helm, tmp_path: Path, mode: str, given: dict[str, object]) -> None:
    """Each container of our image runs a command that exists, with options and values that it takes."""
    for name in ("tls.crt", "tls.key", "ca.crt", "scheduler.yaml"):
        (tmp_path / name).touch()
    commands = set()
    for pod in pod_templates(helm.template({"mode": mode, **given})):
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            if "command" not in container:  # else it is not the image's entry point
                name, *words = container["args"]
                for folder in MOUNTED:
                    words = [word.replace(f"={folder}/", f"={tmp_path}/") for word in words]
                main.commands[name].make_context(name, words)
                commands.add(name)
    setup = {"certificates", "scheduler-config"} if mode in ("Extender", "SecondScheduler") else set()
    assert commands >= {"run", "uninstall"} | setup
