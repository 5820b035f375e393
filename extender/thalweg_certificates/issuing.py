"""Signs certificates for mutual TLS, and reads them again. Pure but for the random keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH

#: A certificate is valid from this long before it is made, because clocks differ.
_SKEW: Final = timedelta(minutes=5)


class UnreadableCertificate(ValueError):
    """A text is no certificate with its private key."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def key_pem(self) -> bytes:
        """The private key, PKCS 8."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a certificate is for.

    Attributes:
        name: common name of its subject.
        purpose: SERVER or CLIENT.
        lifetime: how long it is valid.
        dns_names, addresses: how clients reach the server; none for a client.
    """

    name: str
    purpose: x509.ObjectIdentifier
    lifetime: timedelta
    dns_names: tuple[str, ...] = ()
    addresses: tuple[IPv4Address | IPv6Address, ...] = ()


def issue_authority(name: str, lifetime: timedelta, now: datetime) -> KeyPair:
    """A new CA, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, _subject(name), key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(leaf: Leaf, signer: KeyPair, now: datetime) -> KeyPair:
    """A new certificate. It ends with its CA at the latest."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + leaf.lifetime, signer.certificate.not_valid_after_utc)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder(leaf.name, signer.certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([leaf.purpose]), critical=False)
        .add_extension(authority, critical=False)
    )
    names = [*map(x509.DNSName, leaf.dns_names), *map(x509.IPAddress, leaf.addresses)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return KeyPair(builder.sign(signer.key, hashes.SHA256()), key)


def to_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """The certificates, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def read_pair(certificate: bytes, key: bytes) -> KeyPair:
    """A certificate and its key from PEM.

    Raises:
        UnreadableCertificate: one of them is not PEM, or they do not belong together.
    """
    try:
        read, private = x509.load_pem_x509_certificate(certificate), load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:  # TypeError: an encrypted key
        raise UnreadableCertificate(str(error)) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise UnreadableCertificate("the private key is not of an elliptic curve")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if read.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
        raise UnreadableCertificate("the private key belongs to another certificate")
    return KeyPair(read, private)


def read_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """All certificates of a PEM text.

    Raises:
        UnreadableCertificate: it has none, or is not PEM.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise UnreadableCertificate(str(error)) from error


def issued_at(certificate: x509.Certificate) -> datetime:
    """When a certificate of ours was made."""
    return certificate.not_valid_before_utc + _SKEW


def moment(certificate: x509.Certificate, share: float) -> datetime:
    """The moment at which this share (0 to 1) of a certificate's life is over."""
    start = issued_at(certificate)
    return start + (certificate.not_valid_after_utc - start) * share


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the CA signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_for(certificate: x509.Certificate, leaf: Leaf) -> bool:
    """Whether a certificate has the purpose and the names that a leaf wants."""
    extensions = certificate.extensions
    try:
        purposes = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return False
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    return purposes == {leaf.purpose} and set(names) == set(leaf.dns_names)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
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
