"""The extender's own errors; foreign ones are wrapped at the border."""

from __future__ import annotations


class ExtenderError(Exception):
    """Base of what the extender raises on purpose."""


class BadCertificate(ExtenderError):
    """A certificate, a key or a CA file that cannot be used."""


class CannotListen(ExtenderError):
    """The address cannot be listened on."""


class BadRequest(ExtenderError):
    """A request that cannot be answered; the message says what is wrong with it.

    Attributes:
        status: HTTP status of the answer.
        field: which part of it is wrong, in a word of ours.
    """

    def __init__(self, text: str, status: int = 400, field: str = "body") -> None:
        super().__init__(text)
        self.status, self.field = status, field
