"""Our certificate and the CA of the callers', read again whenever the files change."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from thalweg_extender.errors import BadCertificate

#: Seconds between two looks at the files.
_LOOK_EVERY: Final = 1.0

_log = structlog.get_logger()

#: What tells one version of the files from another: inode, time of change and size of each.
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Files:
    """Where the certificates are (PEM).

    Attributes:
        certificate: ours, with its chain.
        key: of ours.
        client_authority: certificates that a caller's must be signed by; None: callers need none.
    """

    certificate: Path
    key: Path
    client_authority: Path | None = None


class Certificates:
    """The TLS context for new connections.

    Files that cannot be used leave the last good context in place; that is logged once for each version of them.

    Raises:
        BadCertificate: the files cannot be used at the start.
    """

    def __init__(self, files: Files, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = files, clock
        self._looked, self._stamp = clock(), self._stamp_now()
        self._context = _context(files)

    def context(self) -> ssl.SSLContext:
        """The context of the files as they are now, or as they were when they were last good."""
        if self._clock() - self._looked >= _LOOK_EVERY:
            self._look()
        return self._context

    def _look(self) -> None:
        self._looked = self._clock()
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = _context(self._files)
        except BadCertificate as problem:
            _log.error("certificates not read again, the former ones stay in use", problem=str(problem))
        else:
            _log.info("certificates read again", certificate=str(self._files.certificate))

    def _stamp_now(self) -> _Stamp:
        found = []
        for path in (self._files.certificate, self._files.key, self._files.client_authority):
            try:
                status = None if path is None else path.stat()
            except OSError:
                status = None
            found.append((0, 0, 0) if status is None else (status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would outlive the certificates that it began with.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        # Without a password of its own OpenSSL would ask for one on the terminal.
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
