"""The oracle of the session, and the count of verdicts in the closing lines."""

from collections import Counter
from collections.abc import Iterator

import pytest
from support.controlplane import binaries
from thalweg_controlplane import Binaries, Oracle

__all__ = ["binaries"]

_COMPARED = pytest.StashKey[dict[str, Counter[str]]]()


@pytest.fixture(scope="session")
def oracle(binaries: Binaries) -> Iterator[Oracle]:
    """kube-scheduler's own filters, in a child process."""
    with Oracle(binaries) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> dict[str, Counter[str]]:
    """Filter -> how many verdicts were compared, shown when the run ends."""
    return pytestconfig.stash.setdefault(_COMPARED, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line per filter."""
    for name, counts in config.stash.get(_COMPARED, {}).items():
        terminalreporter.write_line(
            f"compared with kube-scheduler: {name}: {counts.total()} verdicts, "
            f"{counts['fits']} fit, {counts['rejected']} do not"
        )
