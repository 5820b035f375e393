"""The oracle of the session, and the count of verdicts in the closing lines."""

from collections import Counter
from typing import Any

import pytest
from support.controlplane import binaries, oracle

__all__ = ["binaries", "oracle"]

_COMPARED = pytest.StashKey[dict[str, Counter[str]]]()


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> dict[str, Counter[str]]:
    """Filter -> how many verdicts were compared, shown when the run ends."""
    return pytestconfig.stash.setdefault(_COMPARED, {})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several tells the one that shows the closing lines."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["compared"] = {name: dict(counts) for name, counts in session.config.stash.get(_COMPARED, {}).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a process compared."""
    counted = node.config.stash.setdefault(_COMPARED, {})
    for name, counts in getattr(node, "workeroutput", {}).get("compared", {}).items():
        counted.setdefault(name, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line per filter."""
    for name, counts in config.stash.get(_COMPARED, {}).items():
        terminalreporter.write_line(
            f"compared with kube-scheduler: {name}: {counts.total()} verdicts, "
            f"{counts['fits']} fit, {counts['rejected']} do not"
        )
