"""Decides which certificates are kept and which are made again. Pure: the moment is given.

A certificate is made again when two thirds of its life are over. A CA needs more care, because those that trust it
learn of a new one only when they read their files again. At two thirds of its life its successor is made, and trusted
beside it. A sixth of its life later the successor begins to sign. The old CA stays trusted until it ends. A leaf lives
at most a sixth of its CA's life, so every leaf of the old CA is replaced before the old CA ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from thalweg_certificates import KeyPair, Leaf, is_for, is_signed_by, issue, issue_authority, issued_at, moment

#: The share of its life after which a certificate is made again, or a CA gets a successor.
RENEWAL: Final = 2 / 3
#: The share of a CA's life for which its successor is trusted before it signs; also the longest life of a leaf.
OVERLAP: Final = 1 / 6


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CAs that are trusted.

    Attributes:
        signing: signs new certificates.
        successor: signs later; None: it is not time yet.
        retired: signed earlier, and have not ended.
    """

    signing: KeyPair
    successor: KeyPair | None = None
    retired: tuple[x509.Certificate, ...] = ()

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """All of them, the signing one first."""
        successor = () if self.successor is None else (self.successor.certificate,)
        return (self.signing.certificate, *successor, *self.retired)

    def renewal(self) -> datetime:
        """When something of them changes next."""
        if self.successor is None:
            return moment(self.signing.certificate, RENEWAL)
        return _takes_over(self.signing, self.successor)


def rotate(known: Authorities | None, name: str, lifetime: timedelta, now: datetime) -> Authorities:
    """The CAs as they should be now: ``known`` itself if nothing changes.

    Args:
        known: the CAs so far; None: there are none.
        name: common name of a new CA.
        lifetime: life of a new CA.
    """
    if known is None:
        return Authorities(issue_authority(name, lifetime, now))
    signing, successor, retired = known.signing, known.successor, known.retired
    if successor is not None and now >= _takes_over(signing, successor):
        retired = (signing.certificate, *retired)
        signing, successor = successor, None
    if now >= signing.certificate.not_valid_after_utc:
        signing, successor = issue_authority(name, lifetime, now), None
    if successor is None and now >= moment(signing.certificate, RENEWAL):
        successor = issue_authority(name, lifetime, now)
    retired = tuple(each for each in retired if each.not_valid_after_utc > now)
    rotated = Authorities(signing, successor, retired)
    return known if rotated == known else rotated


def _takes_over(signing: KeyPair, successor: KeyPair) -> datetime:
    """When the successor begins to sign: after the overlap, but before its predecessor has ended."""
    life = signing.certificate.not_valid_after_utc - issued_at(signing.certificate)
    return min(issued_at(successor.certificate) + life * OVERLAP, signing.certificate.not_valid_after_utc)


def renew(known: KeyPair | None, leaf: Leaf, authorities: Authorities, now: datetime) -> tuple[KeyPair, str]:
    """A leaf's certificate as it should be now, and why it was made; "": it is the known one."""
    why = _why_renewed(known, leaf, authorities, now)
    if known is not None and not why:
        return known, ""
    return issue(leaf, authorities.signing, now), why


def _why_renewed(known: KeyPair | None, leaf: Leaf, authorities: Authorities, now: datetime) -> str:
    if known is None:
        return "there was none"
    if not any(is_signed_by(known.certificate, authority) for authority in authorities.trusted):
        return "its CA is no longer trusted"
    if not is_for(known.certificate, leaf):
        return "other names or another purpose are wanted"
    if now >= moment(known.certificate, RENEWAL):
        return "two thirds of its life are over"
    return ""
