"""A short-lived certificate authority for a local control plane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
        self._folder, self._name = folder, _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _certificate_builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._certificate = signed
        self.certificate = folder / f"{name}.crt"
        self.certificate.write_bytes(signed.public_bytes(Encoding.PEM))

    def server(self, name: str, *addresses: str) -> Pair:
        """A server certificate for these IP addresses."""
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address)) for address in addresses])
        return self._issue(name, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str) -> Pair:
        """A client certificate."""
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(self, name: str, purpose: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate_builder(_name(name), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return pair


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
