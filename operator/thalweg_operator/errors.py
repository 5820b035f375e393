"""The operator's own errors; foreign ones are wrapped at the border."""

from __future__ import annotations


class OperatorError(Exception):
    """Base of what the operator raises on purpose."""


class ConnectionLost(OperatorError):
    """The API server could not be reached, or a request may or may not have been carried out."""


class LeaseLost(ConnectionLost):
    """A write was not sent, since this process does not hold the lease."""


class LeaseHeld(OperatorError):
    """Another process holds the lease and renews it."""


class Refused(OperatorError):
    """The API server answered with an error.

    Attributes:
        status: HTTP status.
        reason: message of the answer.
        retry_after: seconds it asks to wait, 0 when it does not say.
    """

    def __init__(self, status: int, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same request may well succeed a little later."""
        return self.status in (408, 429, 500, 502, 503, 504)


class WorkerLost(OperatorError):
    """The worker process died, failed or did not answer in time.

    Attributes:
        cause: timeout, memory, ended or error.
    """

    def __init__(self, problem: str, cause: str = "error") -> None:
        super().__init__(problem)
        self.cause = cause


class PolicyError(OperatorError):
    """A FlowSchedulingPolicy that cannot be put in force; the message names the field."""
