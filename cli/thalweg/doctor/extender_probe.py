"""Asks the extender as kube-scheduler does: same URL, same CA, same client certificate.

The request is the verb prioritize for a pod that does not exist: it changes nothing.
Source of the TLS rules: kube-scheduler 1.36 ``pkg/scheduler/extender.go`` (``makeTransport``).
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import aiohttp
from thalweg_extender import wire

from thalweg.doctor.scheduler_file import ConfiguredExtender, TLSConfig

#: Characters of an answer that are shown.
_SHOWN = 200


class ProbeOutcome(StrEnum):
    """What became of the request."""

    ANSWERED = "answered"
    #: No connection, or no answer in time.
    UNREACHABLE = "unreachable"
    #: The extender's certificate does not belong to the CA or to the host of the URL.
    UNTRUSTED = "untrusted"
    #: The extender ended the TLS handshake: it does not accept the client certificate.
    CLIENT_REFUSED = "client refused"
    #: A certificate of the configuration cannot be used here.
    NO_CERTIFICATE = "no certificate"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What one extender answered.

    Attributes:
        status: HTTP status; 0 without an answer.
        text: the beginning of the answer, or the error.
    """

    extender: ConfiguredExtender
    outcome: ProbeOutcome
    status: int = 0
    text: str = ""


async def ask(extender: ConfiguredExtender, seconds: float) -> ProbeAnswer:
    """The answer of an extender within ``seconds``; it never raises."""
    try:
        context = _tls(extender.tls_config) if extender.url_prefix.startswith("https:") else None
    except (OSError, ValueError, binascii.Error) as error:
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, FileNotFoundError) else str(error)
        return ProbeAnswer(extender, ProbeOutcome.NO_CERTIFICATE, text=problem)
    pod = wire.Pod(wire.PodMeta(namespace="default", name="thalweg-doctor", uid="thalweg-doctor"))
    body = wire.encode(wire.ExtenderArgs(pod=pod, node_names=[]))
    server_name = extender.tls_config.server_name if extender.tls_config else ""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.post(
                f"{extender.url_prefix.rstrip('/')}/prioritize",
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=context or True,
                server_hostname=server_name or None,
                allow_redirects=False,
            ) as response,
        ):
            text = (await response.content.read(_SHOWN)).decode(errors="replace").strip()
            return ProbeAnswer(extender, ProbeOutcome.ANSWERED, response.status, text)
    except aiohttp.ClientConnectorCertificateError as error:
        return ProbeAnswer(extender, ProbeOutcome.UNTRUSTED, text=_certificate_problem(error.certificate_error))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        if context is not None and _ended_by_peer(error):
            return ProbeAnswer(extender, ProbeOutcome.CLIENT_REFUSED, text=str(error))
        problem = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
        return ProbeAnswer(extender, ProbeOutcome.UNREACHABLE, text=problem or type(error).__name__)


def _ended_by_peer(error: BaseException) -> bool:
    """Whether the connection was made and the peer ended it.

    With TLS 1.3 a server refuses a client certificate after the client's handshake is complete: by an alert, or by
    closing the connection.
    """
    if isinstance(error, aiohttp.ClientConnectorError):
        return isinstance(error.os_error, ssl.SSLError | ConnectionResetError)
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ssl.SSLError)


def _certificate_problem(error: Exception) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)


def _tls(config: TLSConfig | None) -> ssl.SSLContext:
    """kube-scheduler's TLS context. Without a CA kube-scheduler verifies nothing.

    Raises:
        OSError, ValueError: a file or its content cannot be used.
    """
    config = config or TLSConfig()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.insecure or not (config.ca_data or config.ca_file):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.ca_data:
        context.load_verify_locations(cadata=base64.b64decode(config.ca_data).decode("ascii"))
    else:
        context.load_verify_locations(cafile=config.ca_file)
    with tempfile.TemporaryDirectory(prefix="thalweg-doctor-") as folder:  # ssl reads certificates from files only
        certificate = _file(config.cert_data, config.cert_file, Path(folder, "tls.crt"))
        key = _file(config.key_data, config.key_file, Path(folder, "tls.key"))
        if certificate:
            context.load_cert_chain(certificate, key or None)
    return context


def _file(data: str, path: str, temporary: Path) -> str:
    """A file with a value of the configuration: data counts before the path, as in client-go."""
    if not data:
        return path
    temporary.touch(mode=0o600)
    temporary.write_bytes(base64.b64decode(data))
    return str(temporary)
