"""The shell: a step that fails is the last one."""

import pytest
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import Answer, NamespaceSet, WriteAnswered
from thalweg_operator.reservations.step.state import State
from thalweg_operator.shell import Shell

from flowcore.cluster.cluster import Cluster


def test_a_step_that_fails_is_the_last_one() -> None:
    """A ledger that may be half-changed decides nothing more, and whoever looks sees the error."""
    cluster = Cluster()
    shell = Shell(State(cluster), lambda _: None)
    shell.apply(NamespaceSet("before", ()))
    with pytest.raises(AttributeError):
        shell.apply(WriteAnswered(None, Answer.DONE))  # type: ignore[arg-type]
    assert isinstance(shell.failure, AttributeError)
    shell.apply(NamespaceSet("after", ()))
    assert cluster.namespaces == {"before": ()}


def test_a_handler_that_fails_is_the_last_one() -> None:
    """What it had to write would be lost otherwise, while the ledger waits for the answer."""
    cluster = Cluster()

    def fail(_: RequestRound) -> None:
        raise OSError("no room")

    shell = Shell(State(cluster), fail)
    with pytest.raises(OSError, match="no room"):
        shell.apply(NamespaceSet("before", ()))
    assert isinstance(shell.failure, OSError)
    shell.apply(NamespaceSet("after", ()))
    assert cluster.namespaces == {"before": ()}
