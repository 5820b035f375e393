"""The server certificate and the client CA, reloaded when their files change."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from thalweg_extender.errors import BadCertificate

#: Seconds between two checks of the files.
_CHECK_INTERVAL: Final = 1.0

_log = structlog.get_logger()

#: Version of the files: inode, modification time and size of each.
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of the certificates (PEM).

    Attributes:
        certificate: server certificate with its chain.
        key: private key of the server certificate.
        client_authority: CA that must have signed the client certificate; None: clients need no certificate.
    """

    certificate: Path
    key: Path
    client_authority: Path | None = None


class Certificates:
    """The TLS context for new connections.

    If new files cannot be used, the last good context stays in use. This is logged once per version of the files.

    Raises:
        BadCertificate: the files cannot be used at start-up.
    """

    def __init__(self, files: CertificateFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = files, clock
        self._checked_at, self._stamp = clock(), self._current_stamp()
        self._context, self._expirations = _context(files), _expirations(files)

    def context(self) -> ssl.SSLContext:
        """The context of the present files, or of their last good version."""
        if self._clock() - self._checked_at >= _CHECK_INTERVAL:
            self._reload_if_changed()
        return self._context

    @property
    def files(self) -> list[str]:
        """Names of the files with certificates: certificate, client CA."""
        return list(self._expirations)

    def expiration(self, file: str) -> float:
        """When the first certificate of a file expires, in seconds since the epoch."""
        self.context()  # the files may have changed
        return self._expirations[file]

    def _reload_if_changed(self) -> None:
        self._checked_at = self._clock()
        stamp = self._current_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context, self._expirations = _context(self._files), _expirations(self._files)
        except BadCertificate as problem:
            _log.error("certificates not reloaded, old ones stay in use", problem=str(problem))
        else:
            _log.info("certificates reloaded", certificate=str(self._files.certificate))

    def _current_stamp(self) -> _Stamp:
        stamps = []
        for path in (self._files.certificate, self._files.key, self._files.client_authority):
            try:
                status = None if path is None else path.stat()
            except OSError:
                status = None
            stamps.append((0, 0, 0) if status is None else (status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)


def _expirations(files: CertificateFiles) -> dict[str, float]:
    paths = {"certificate": files.certificate, "client CA": files.client_authority}
    try:
        certificates = {
            name: x509.load_pem_x509_certificates(path.read_bytes()) for name, path in paths.items() if path is not None
        }
    except (OSError, ValueError) as error:
        raise BadCertificate(f"{files.certificate} or {files.client_authority} cannot be read: {error}") from error
    return {name: min(each.not_valid_after_utc.timestamp() for each in chain) for name, chain in certificates.items()}


def _context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No session resumption: a resumed session would outlive its certificates.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        # With an empty password OpenSSL does not prompt for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise BadCertificate(f"{files.certificate} and {files.key} cannot be used: {error}") from error
    if files.client_authority is not None:
        try:
            context.load_verify_locations(cafile=files.client_authority)
        except (OSError, ValueError) as error:
            raise BadCertificate(f"{files.client_authority} cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
