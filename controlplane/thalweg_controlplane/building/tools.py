"""Tools that tests run against the control plane: found in the cache, or built there once."""

import hashlib
import platform
from pathlib import Path
from typing import Final

from thalweg_controlplane.building.build import KUBERNETES_VERSION
from thalweg_controlplane.building.cache import Report, build_once
from thalweg_controlplane.building.programs import GoProgram, build_program
from thalweg_controlplane.building.toolchain import find_go, go_environment

_PROMETHEUS = "v0.313.5"
_KUBERNETES = dict(zip(("Major", "Minor"), KUBERNETES_VERSION.removeprefix("v").split("."), strict=False))
#: As k8s.io/kubernetes/cmd/kubectl, whose module cannot be required by others.
_KUBECTL = """\
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
"""

TOOLS: Final = {
    "helm": GoProgram(
        name="helm",
        package="helm.sh/helm/v3/cmd/helm",
        version="v3.22.0",
        # `helm template` and `helm lint` ask no cluster. Without these flags they take it for Kubernetes 1.20.
        ldflags=" ".join(
            f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
            for package in ("chartutil", "lint/rules")
            for part, number in _KUBERNETES.items()
        ),
    ),
    # The tag leaves out the clients of the clouds that Prometheus can find its targets with.
    "prometheus": GoProgram(
        "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", _PROMETHEUS, tags="remove_all_sd"
    ),
    "promtool": GoProgram(
        "promtool", "github.com/prometheus/prometheus/cmd/promtool", _PROMETHEUS, tags="remove_all_sd"
    ),
    "metrics-server": GoProgram("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", "v0.9.0"),
    "kubectl": GoProgram(
        "kubectl", "k8s.io/kubectl/pkg/cmd", KUBERNETES_VERSION.replace("v1.", "v0.", 1), main=_KUBECTL
    ),
}
"""By name of the executable."""


def find_or_build_tool(name: str, report: Report) -> Path:
    """The executable of a tool of TOOLS; builds it first if it is missing (some minutes on two cores).

    Blocks; during a build `report` gets a line about every ten seconds. Raises BuildError, and KeyError if TOOLS has no
    such tool.
    """
    program = TOOLS[name]

    def build(output: Path, sources: Path) -> None:
        go = find_go()
        report(f"building {name} {program.version} from source with {go}: some minutes on two cores, the first time")
        build_program(go, program, output, sources, go_environment(), report)

    inputs = f"{platform.system()} {platform.machine()} {program}{program.main}"
    key = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    return build_once(f"{name}-{key}", name, build, report) / name
