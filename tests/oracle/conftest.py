"""The oracle of each version, and the count of verdicts in the closing lines.

A test that is marked ``minor_versions`` asks kube-scheduler of each of these; others ask that of the default one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from support.controlplane import executables
from support.kubernetes_rules import rules_of
from thalweg_controlplane import Oracle
from thalweg_controlplane.building.build import MINOR_VERSION

_COMPARED = pytest.StashKey[dict[str, Counter[str]]]()
_FIGURES = pytest.StashKey[dict[str, str]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each version that it is marked with."""
    marker = metafunc.definition.get_closest_marker("minor_versions")
    if marker is not None:
        metafunc.parametrize("oracle", marker.args, indirect=True, scope="session")


@pytest.fixture(scope="session")
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """kube-scheduler's own filters of a version, in a child process, with whose rules objects are read."""
    minor_version = getattr(request, "param", MINOR_VERSION)
    with Oracle(executables(request.config, minor_version)) as oracle, rules_of(minor_version):
        yield oracle


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> dict[str, Counter[str]]:
    """Filter -> how many verdicts were compared, shown when the run ends."""
    return pytestconfig.stash.setdefault(_COMPARED, {})


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> dict[str, str]:
    """What a lone pod has -> how its nodes compare with kube-scheduler's, shown when the run ends."""
    return pytestconfig.stash.setdefault(_FIGURES, {})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several tells the one that shows the closing lines."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["compared"] = {name: dict(counts) for name, counts in session.config.stash.get(_COMPARED, {}).items()}
        output["figures"] = session.config.stash.get(_FIGURES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a process compared."""
    counted = node.config.stash.setdefault(_COMPARED, {})
    for name, counts in getattr(node, "workeroutput", {}).get("compared", {}).items():
        counted.setdefault(name, Counter()).update(counts)
    node.config.stash.setdefault(_FIGURES, {}).update(getattr(node, "workeroutput", {}).get("figures", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line per filter."""
    for name, counts in config.stash.get(_COMPARED, {}).items():
        terminalreporter.write_line(
            f"compared with kube-scheduler: {name}: {counts.total()} verdicts, "
            f"{counts['fits']} fit, {counts['rejected']} do not"
        )
    for name, figures in config.stash.get(_FIGURES, {}).items():
        terminalreporter.write_line(f"beside kube-scheduler: lone pods with {name}: {figures}")
