"""The token that the operator's view is shown: one for the view alone, and never the login's own.

What stands behind the view's Service sees it. A token for the API server would be all that its owner may do.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from pathlib import Path
from typing import Final

import msgspec
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import Refused
from thalweg_view.callers.access import AUDIENCE, service_account

from thalweg.option_types import NamespacedName
from thalweg.sources.operator_view.live_service import ServiceAddress
from thalweg.sources.source import SourceError, SourceOptions

#: Ends of the names that the chart gives the Service, and the service account for users without one.
_SERVICE_END, _VIEWER_END = "-view", "-viewer"
#: Seconds that a token is valid: the least that the API server grants.
_LIFE: Final = 600
_SELF: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: A JSON web token in its compact form: three parts in base64url.
_TOKEN: Final = re.compile(r"[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+")
_MAKE: Final = f"`kubectl create token ACCOUNT --audience {AUDIENCE}` makes one"


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


class _UserInfo(msgspec.Struct):
    username: str = ""


class _SelfStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfReview(msgspec.Struct):
    status: _SelfStatus


class _Claims(msgspec.Struct):
    """What a service account's token says of itself (RFC 7519)."""

    aud: list[str] | str = []


_tokens, _selves = JsonReader(_TokenRequest), JsonReader(_SelfReview)


class ViewToken:
    """Tokens for the view of one cluster, made by the API server for some minutes each."""

    def __init__(self, client: ApiClient, options: SourceOptions) -> None:
        self._client, self._options = client, options
        #: The last one, and until when it is shown, by the clock of time.monotonic().
        self._lent: tuple[str, float] = ("", 0.0)

    async def get(self, service: ServiceAddress) -> str:
        """A token to show to what stands behind a Service.

        It is that of --token-file; else one of the account of --service-account; else of the login, if it is a service
        account that may make tokens of itself; else of the account that the chart makes for this.

        Raises:
            SourceError: none can be had, or the file's is not for the view alone.
            ConnectionLost: the API server does not answer.
        """
        if self._options.token_file is not None:
            return _of_file(self._options.token_file)
        token, until = self._lent
        if time.monotonic() >= until:
            token, until = await self._make(service), time.monotonic() + _LIFE / 2
            self._lent = token, until
        return token

    async def _make(self, service: ServiceAddress) -> str:
        account = self._options.service_account
        if account is None:
            own = await self._own_account()
            if own is not None:
                try:
                    return await self._of_account(own)
                except (Refused, UnreadableJson):
                    pass  # few accounts may make tokens of themselves
            release = service.name.removesuffix(_SERVICE_END)
            account = NamespacedName(service.namespace, f"{release}{_VIEWER_END}")
        try:
            return await self._of_account(account)
        except (Refused, UnreadableJson) as error:
            raise SourceError(
                f"you may not ask the operator: it wants a token for the audience {AUDIENCE}, and you may not make "
                f"one of service account {account} ({error}). Name an account of yours with --service-account, or a "
                f"token with --token-file: {_MAKE}. To plan here without the operator: --direct"
            ) from error

    async def _own_account(self) -> NamespacedName | None:
        """The service account that the login is; None: it is another kind of user, or the API server does not say."""
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = await self._client.request("POST", _SELF, body=msgspec.json.encode(wanted))
            account = service_account(_selves.read(answer).status.user_info.username)
        except (Refused, UnreadableJson):
            return None
        return None if account is None else NamespacedName(*account)

    async def _of_account(self, account: NamespacedName) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [AUDIENCE], "expirationSeconds": _LIFE},
        }
        path = api_path("/api/v1/namespaces", account.namespace, "serviceaccounts", account.name, "token")
        return _tokens.read(await self._client.request("POST", path, body=msgspec.json.encode(wanted))).status.token


def _of_file(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"--token-file {file} cannot be read: {error}") from error
    if not _TOKEN.fullmatch(token) or _audiences(token) != [AUDIENCE]:
        raise SourceError(
            f"--token-file {file}: the token is not for the audience {AUDIENCE} alone, so it is not shown to the "
            f"operator: {_MAKE}"
        )
    return token


def _audiences(token: str) -> list[str]:
    """Whom a token is for, by its own word; []: it does not say."""
    parts = token.split(".")
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=_Claims)
    except (IndexError, binascii.Error, ValueError, msgspec.DecodeError):
        return []
    return [claims.aud] if isinstance(claims.aud, str) else claims.aud
