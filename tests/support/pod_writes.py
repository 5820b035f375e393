"""Writes to pods that wait in line, for a test to answer in any order."""

from dataclasses import dataclass

from thalweg_operator.delivery.nominator import PodWrite, write_kind
from thalweg_operator.reservations.effects import Nominate
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

from flowcore.model.pods import Pod


@dataclass(slots=True)
class QueuedWrite:
    """A write in line, and the shell that decided about it."""

    write: PodWrite
    shell: Shell

    @property
    def pod(self) -> Pod:
        """The pod that it is for."""
        return self.write.pod

    @property
    def kind(self) -> str:
        """As metrics call it."""
        return write_kind(self.write)

    @property
    def node(self) -> str:
        """The node that it nominates; "" for any other write."""
        return self.write.node if isinstance(self.write, Nominate) else ""

    def still_wanted(self) -> bool:
        """Whether it is to be sent."""
        return self.shell.is_wanted(self.write)

    def answer(self, problem: str | None) -> None:
        """It is over: "" if it was carried out, None if it was not sent, otherwise why it never will be."""
        if problem is None:
            self.shell.answered(self.write, Answer.UNWANTED)
        else:
            self.shell.answered(self.write, Answer.REFUSED if problem else Answer.DONE, problem)

    def refuse(self, reason: str) -> None:
        """The API server refuses it, and it will be tried again."""
        self.shell.answered(self.write, Answer.RETRYING, reason)
