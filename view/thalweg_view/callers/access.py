"""Who asks, and what the asker may read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from thalweg_view.compute_process.messages import Need
from thalweg_view.errors import RequestRefused

#: Audience of the tokens that are shown to the view. The API server takes no such token itself: a thief
#: can do nothing with them but look.
AUDIENCE: Final = "thalweg-view"
#: Begins the name of a service account; namespace and name follow.
_SERVICE_ACCOUNTS: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller whose token was checked.

    Attributes:
        name: for messages.
        identity: the user as the API server described it, as JSON.
    """

    name: str
    identity: bytes = b""

    @property
    def share(self) -> str:
        """Key of the share of places that the caller takes.

        The service accounts of a namespace share one: who may make one of them makes any number.
        """
        account = service_account(self.name)
        return self.name if account is None else f"{_SERVICE_ACCOUNTS}{account[0]}"


def service_account(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account with this user name; None: it is another kind of user."""
    namespace, _, name = username.removeprefix(_SERVICE_ACCOUNTS).partition(":")
    return (namespace, name) if username.startswith(_SERVICE_ACCOUNTS) and namespace and name else None


class Access(Protocol):
    """Checks callers."""

    async def caller(self, token: str) -> Caller:
        """Whose token this is.

        Raises:
            RequestRefused: an unknown token (401), or it cannot be checked now (429, 503).
        """

    async def may_list(self, caller: Caller, kind: Need) -> bool:
        """Whether a caller may list a kind in the whole cluster."""

    async def namespaces(self, caller: Caller, known: Collection[str]) -> list[str] | None:
        """The known namespaces whose pods a caller may list; None: all namespaces, known or not.

        Raises:
            RequestRefused: they cannot all be asked about (400), or not now (429, 503).
        """


class OneToken:
    """Lets the owner of one token read all: for a view of one's own files on one's own machine."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    async def caller(self, token: str) -> Caller:
        """Whose token this is."""
        if not hmac.compare_digest(_digest(token), self._digest):
            raise RequestRefused(401, "the token is not the one that `thalweg view` printed")
        return Caller("you")

    async def may_list(self, _caller: Caller, _kind: Need) -> bool:
        """Whether the caller may list this kind in the whole cluster."""
        return True

    async def namespaces(self, _caller: Caller, _known: Collection[str]) -> list[str] | None:
        """Namespaces whose pods the caller may list; None: all."""
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
