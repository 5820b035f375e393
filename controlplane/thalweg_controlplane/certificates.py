"""A short-lived certificate authority for a local control plane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from thalweg_certificates import CLIENT, SERVER, Leaf, issue, issue_authority, to_pem

_LIFETIME: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its private key (PEM)."""

    certificate: Path
    key: Path


class Authority:
    """Signs server and client certificates, and writes them into one folder.

    Args:
        folder: where the files go.
        name: name of the authority and of its certificate's file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._signer = issue_authority(name, _LIFETIME, datetime.now(UTC))
        self.certificate = folder / f"{name}.crt"
        self.certificate.write_bytes(to_pem([self._signer.certificate]))

    def server(self, name: str, *addresses: str) -> Pair:
        """A server certificate for these IP addresses."""
        return self._issue(Leaf(name, SERVER, _LIFETIME, addresses=tuple(ip_address(each) for each in addresses)))

    def client(self, name: str) -> Pair:
        """A client certificate."""
        return self._issue(Leaf(name, CLIENT, _LIFETIME))

    def _issue(self, leaf: Leaf) -> Pair:
        issued = issue(leaf, self._signer, datetime.now(UTC))
        pair = Pair(self._folder / f"{leaf.name}.crt", self._folder / f"{leaf.name}.key")
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(issued.key_pem)
        pair.certificate.write_bytes(to_pem([issued.certificate]))
        return pair
