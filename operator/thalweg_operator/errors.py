"""Errors of the operator. Errors of libraries are wrapped where they are caught."""

from __future__ import annotations


class OperatorError(Exception):
    """Base class of all errors of the operator."""


class ConnectionLost(OperatorError):
    """The API server did not answer. It may have carried the request out all the same."""


class LeaseLost(ConnectionLost):
    """A write was not sent because this process does not hold the lease."""


class LeaseHeld(OperatorError):
    """Another process holds the lease and renews it."""


class Refused(OperatorError):
    """The API server answered with an error.

    Attributes:
        status: HTTP status.
        reason: message of the answer.
        retry_after: seconds of the Retry-After header; 0 without one.
        starting: whether the server may refuse all requests of this account, because it has just started.
        answer: body of the answer.
    """

    def __init__(
        self, status: int, reason: str, retry_after: float = 0.0, *, starting: bool = False, answer: bytes = b""
    ) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.starting = starting
        self.answer = answer

    @property
    def transient(self) -> bool:
        """Whether a retry of the same request may succeed."""
        return self.starting or self.status in (408, 429, 500, 502, 503, 504)


class WorkerLost(OperatorError):
    """The worker process died, failed or did not answer in time.

    Attributes:
        cause: timeout, memory, ended or error; label of the metric thalweg_rounds_failed.
    """

    def __init__(self, problem: str, cause: str = "error") -> None:
        super().__init__(problem)
        self.cause = cause
