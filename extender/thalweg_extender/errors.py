"""The extender's own errors; foreign ones are wrapped at the border."""

from __future__ import annotations


class ExtenderError(Exception):
    """Base of what the extender raises on purpose."""


class BadRequest(ExtenderError):
    """A request that cannot be answered; the message says what is wrong with it.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
