"""What goes wrong in a view."""

from __future__ import annotations


class ViewError(Exception):
    """The view cannot be served."""


class RequestRefused(Exception):
    """A request is answered with an error.

    Attributes:
        status: of the response.
        retry_after: seconds after which the caller may ask again; 0: the header is not set.
    """

    def __init__(self, status: int, problem: str, retry_after: int = 0) -> None:
        super().__init__(problem)
        self.status, self.retry_after = status, retry_after


class ReviewFailed(Exception):
    """The API server did not say who a caller is or what the caller may read."""


class ComputeLost(Exception):
    """The compute process ended before it answered."""
