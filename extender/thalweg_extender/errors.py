"""Errors of the extender. Errors of libraries are wrapped where they are caught."""

from __future__ import annotations


class ExtenderError(Exception):
    """Base class of all errors of the extender."""


class BadCertificate(ExtenderError):
    """A certificate, key or CA file cannot be used."""


class ListenError(ExtenderError):
    """The listener cannot use the address."""


class BadRequest(ExtenderError):
    """A request is invalid; the message says what is wrong.

    Attributes:
        status: HTTP status of the response.
        field: name of the invalid part; a fixed set, because it is a label of a metric.
    """

    def __init__(self, text: str, status: int = 400, field: str = "body") -> None:
        super().__init__(text)
        self.status, self.field = status, field
