"""The Secrets that hold the extender's certificates: read, brought up to date, written.

Several processes may do so at the same time: each Secret is written only as it was read, and read again where that
fails. The CA is written before what it signs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from thalweg_certificates import (
    CLIENT,
    SERVER,
    KeyPair,
    Leaf,
    UnreadableCertificate,
    moment,
    read_certificates,
    read_pair,
    to_pem,
)
from thalweg_operator.api.client import ApiClient

from thalweg.certificates.rotation import RENEWAL, Authorities, renew, rotate
from thalweg.certificates.secret_store import Secret, SecretProblem, read_own_secret, write_secret
from thalweg.option_types import NamespacedName

#: Keys of the Secrets, as in Secrets of cert-manager. The successor of a CA is in the CA's Secret alone.
CERTIFICATE, KEY, TRUSTED = "tls.crt", "tls.key", "ca.crt"
_NEXT_CERTIFICATE, _NEXT_KEY = "next.crt", "next.key"
_TYPE: Final = "kubernetes.io/tls"
#: Writers at the same time that each may be overtaken by.
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class WantedSecrets:
    """What the Secrets should hold.

    Attributes:
        authority, server, client: Secrets of the CA, of the extender's certificate and of kube-scheduler's.
        dns_names: names that the extender's certificate is valid for.
        authority_lifetime, server_lifetime, client_lifetime: lives of new certificates.
    """

    authority: NamespacedName
    server: NamespacedName
    client: NamespacedName
    dns_names: tuple[str, ...]
    authority_lifetime: timedelta
    server_lifetime: timedelta
    client_lifetime: timedelta


@dataclass(frozen=True, slots=True)
class SecretReport:
    """What became of one Secret.

    Attributes:
        secret: which one.
        why: why it was written; "": it was left as it is.
        expires: end of its certificate.
        renewal: when its certificate is made again; of a CA: when its successor is made, or begins to sign.
    """

    secret: NamespacedName
    why: str
    expires: datetime
    renewal: datetime


async def bring_up_to_date(
    api_client: ApiClient, wanted: WantedSecrets, clock: Callable[[], datetime]
) -> list[SecretReport]:
    """Makes the certificates that are missing, and renews those whose time has come.

    Raises:
        SecretProblem: a Secret is not ours, or its CA cannot be read.
        Refused, ConnectionLost: the API server cannot be asked.
    """
    authorities, outcome = await _bring_authorities(api_client, wanted, clock)
    server = Leaf("thalweg-extender", SERVER, wanted.server_lifetime, wanted.dns_names)
    client = Leaf("kube-scheduler", CLIENT, wanted.client_lifetime)
    return [
        outcome,
        await _bring_leaf(api_client, wanted.server, server, authorities, clock),
        await _bring_leaf(api_client, wanted.client, client, authorities, clock),
    ]


async def _bring_authorities(
    api_client: ApiClient, wanted: WantedSecrets, clock: Callable[[], datetime]
) -> tuple[Authorities, SecretReport]:
    name = wanted.authority
    for _ in range(_TRIES):
        secret = await read_own_secret(api_client, name)
        known, now = _read_authorities(secret), clock()
        authorities = rotate(known, f"thalweg-extender-ca {now:%Y-%m-%d}", wanted.authority_lifetime, now)
        why = _why_rotated(known, authorities)
        if not why or await write_secret(api_client, secret, _authority_data(authorities), _TYPE):
            expires = authorities.signing.certificate.not_valid_after_utc
            return authorities, SecretReport(name, why, expires, authorities.renewal())
    raise _busy(name)


async def _bring_leaf(
    api_client: ApiClient, name: NamespacedName, leaf: Leaf, authorities: Authorities, clock: Callable[[], datetime]
) -> SecretReport:
    trusted = to_pem(authorities.trusted)
    for _ in range(_TRIES):
        secret = await read_own_secret(api_client, name)
        pair, why = renew(_read_leaf(secret), leaf, authorities, clock())
        if not why and secret.data.get(TRUSTED) != trusted:
            why = "the trusted CAs changed"
        data = {**_pair_data(pair, CERTIFICATE, KEY), TRUSTED: trusted}
        if not why or await write_secret(api_client, secret, data, _TYPE):
            certificate = pair.certificate
            return SecretReport(name, why, certificate.not_valid_after_utc, moment(certificate, RENEWAL))
    raise _busy(name)


def _busy(name: NamespacedName) -> SecretProblem:
    return SecretProblem(f"Secret {name} was changed by somebody else at each of {_TRIES} tries; run this again")


def _read_leaf(secret: Secret) -> KeyPair | None:
    """Its certificate; None if it has none that can be read: then a new one is as good."""
    try:
        return read_pair(secret.data.get(CERTIFICATE, b""), secret.data.get(KEY, b""))
    except UnreadableCertificate:
        return None


def _read_authorities(secret: Secret) -> Authorities | None:
    if not any(secret.data.values()):
        return None
    try:
        return _to_authorities(secret.data)
    except UnreadableCertificate as error:
        raise SecretProblem(
            f"Secret {secret.name} holds no CA that can be read: {error}. Remove its data, and a new CA is made. The "
            "extender then refuses kube-scheduler until kube-scheduler has its new certificate"
        ) from error


def _to_authorities(data: Mapping[str, bytes]) -> Authorities:
    signing = read_pair(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    successor = read_pair(data[_NEXT_CERTIFICATE], data.get(_NEXT_KEY, b"")) if _NEXT_CERTIFICATE in data else None
    current = {signing.certificate} if successor is None else {signing.certificate, successor.certificate}
    retired = tuple(each for each in read_certificates(data.get(TRUSTED, b"")) if each not in current)
    return Authorities(signing, successor, retired)


def _authority_data(authorities: Authorities) -> dict[str, bytes]:
    data = {**_pair_data(authorities.signing, CERTIFICATE, KEY), TRUSTED: to_pem(authorities.trusted)}
    if authorities.successor is not None:
        data |= _pair_data(authorities.successor, _NEXT_CERTIFICATE, _NEXT_KEY)
    return data


def _pair_data(pair: KeyPair, certificate: str, key: str) -> dict[str, bytes]:
    return {certificate: to_pem([pair.certificate]), key: pair.key_pem}


def _why_rotated(known: Authorities | None, now: Authorities) -> str:
    if known is None:
        return "there was none"
    if known.signing != now.signing:
        return "the next CA signs from now on"
    if known.successor != now.successor:
        return "the next CA is trusted from now on"
    return "" if known is now else "a CA that has ended is no longer trusted"
