"""The view of ``thalweg run``: its options, and its connection to the operator."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final

import click
import structlog
from thalweg_certificates import SERVER, Leaf, issue, issue_authority, to_pem
from thalweg_extender import CertificateFiles, Certificates, ExtenderError
from thalweg_operator.api.client import connect
from thalweg_operator.api.leadership.endpoint_slice import LeaderEndpoint
from thalweg_operator.api.watches.catch_up import OwnPod
from thalweg_operator.app import Operator
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest, document_of
from thalweg_operator.planning.worker.process_limits import default_memory
from thalweg_view.callers.reviews import ReviewedAccess
from thalweg_view.errors import ReviewFailed
from thalweg_view.web.serving import serving

from flowcore.model.pods import Pod
from flowcore.planning.plan_document import PlanDocument
from thalweg.option_types import Address, NamespacedName
from thalweg.run.leader_endpoint import is_loopback, leader_endpoint

_log = structlog.get_logger()
#: Lines of the state between two turns of the event loop: less than a millisecond.
_LINES: Final = 100
#: Connections to the API server for reviews.
_CONNECTIONS: Final = 16
#: Of a certificate that the operator makes for itself at each start.
_LIFETIME: Final = timedelta(days=3650)
_PORT_NAME: Final = "https"


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The options --view-*, as given.

    Attributes:
        listen: address; None: no view.
        certificate, key: server certificate and its key (PEM); None: on an address that others reach, a new one that
            nobody signed.
        service: that is to lead to this process while it leads; None: it is left alone.
    """

    listen: Address | None = None
    certificate: Path | None = None
    key: Path | None = None
    service: NamespacedName | None = None


def view_endpoint(
    options: ViewOptions, environment: Mapping[str, str], own_pod: OwnPod | None
) -> LeaderEndpoint | None:
    """What the Service of --view-endpoints is to lead to; None without that option.

    Raises:
        click.UsageError: the option, or what the environment says of the pod, cannot be used.
    """
    if options.service is None:
        return None
    endpoint = leader_endpoint("view", options.service, options.listen, environment)
    if own_pod is None:
        raise click.UsageError(
            "--view-endpoints needs the environment variables POD_NAMESPACE and POD_NAME: the API server's proxy leads "
            "to pods only"
        )
    return replace(endpoint, port_name=_PORT_NAME, pod=own_pod)


def serve_view(options: ViewOptions) -> Callable[[Operator], AbstractAsyncContextManager[object]]:
    """A function that serves the view of an operator.

    Raises:
        click.UsageError: the options contradict each other.
    """
    if options.listen is None:
        if any((options.certificate, options.key, options.service)):
            raise click.UsageError("options --view-* need --view-listen: without it there is no view")
        return lambda _operator: nullcontext()
    if (options.certificate is None) != (options.key is None):
        raise click.UsageError("--view-cert and --view-key need each other")
    tls: Callable[[], ssl.SSLContext] | None = None
    if options.certificate is not None and options.key is not None:
        try:
            tls = Certificates(CertificateFiles(options.certificate, options.key)).context
        except ExtenderError as error:
            raise click.UsageError(f"the view's certificate: {error}") from error
    elif not is_loopback(options.listen.host):
        tls = partial(_same, _own_context())
    # Half of the container's limit is the worker's.
    return partial(_serve, address=options.listen, tls=tls, memory=default_memory() // 2)


class LiveSource:
    """A running operator as a ``ViewSource``."""

    kind = "live"

    def __init__(self, operator: Operator) -> None:
        self._operator, self.name, self.version = operator, operator.server, version("thalweg")

    def unavailable(self) -> str:
        """Why no question can be answered now; "": it can."""
        return self._operator.problem()

    async def state(self) -> AsyncIterator[bytes]:
        """The saved state in pieces of whole lines."""
        lines = self._operator.saved_lines(time.time())
        while piece := b"".join(islice(lines, _LINES)):
            yield piece
            await asyncio.sleep(0)

    def on_round(self, listener: Callable[[PlanDocument], None]) -> None:
        """Calls the listener with each round, known ones included."""
        self._operator.observers.append(_Rounds(listener))


class _Rounds:
    """Passes the operator's rounds on."""

    def __init__(self, listener: Callable[[PlanDocument], None]) -> None:
        self._listener = listener

    def round_planned(self, request: RoundRequest, _pods: Sequence[Pod], reply: RoundReply) -> None:
        """Passes on a round that was just planned."""
        if not request.pending:
            return  # it told the worker of changes and planned nothing
        try:
            self._listener(document_of(request, reply))
        except Exception:  # noqa: BLE001 - what is shown must not stop what is done
            _log.exception("round not shown", number=request.number)


@asynccontextmanager
async def _serve(
    operator: Operator, *, address: Address, tls: Callable[[], ssl.SSLContext] | None, memory: int
) -> AsyncIterator[None]:
    settings, metrics = operator.settings, operator.metrics

    def on_request(operation: str, status: int) -> None:
        metrics.view_requests.labels(operation or "unknown", str(status)).inc()

    # Connections of its own: questions about callers must not stand in line before the operator's writes.
    async with connect(settings.kubeconfig, _CONNECTIONS, context=settings.context) as reviewer:

        async def post(path: str, body: bytes) -> bytes:
            try:
                return await reviewer.request("POST", path, body=body)
            except (Refused, ConnectionLost, LeaseLost) as error:
                raise ReviewFailed(str(error)) from error

        async with serving(
            *address,
            LiveSource(operator),
            ReviewedAccess(post),
            tls=tls,
            memory=memory,
            on_request=on_request,
            on_refused=partial(operator.bad_input.refuse, "view request"),
        ):
            _log.info("view listening", host=address.host, port=address.port, tls=tls is not None)
            yield


def _own_context() -> ssl.SSLContext:
    """A TLS context with a new certificate.

    The API server's proxy of Services verifies no certificate, so one that nobody signed serves as well: what is sent
    is encrypted.
    """
    now = datetime.now(UTC)
    authority = issue_authority("thalweg-view", _LIFETIME, now)
    pair = issue(Leaf("thalweg-view", SERVER, _LIFETIME, ("thalweg-view",)), authority, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="thalweg-") as folder:  # OpenSSL reads keys from files only
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        key.touch(mode=0o600)
        certificate.write_bytes(to_pem([pair.certificate, authority.certificate]))
        key.write_bytes(pair.key_pem)
        context.load_cert_chain(certificate, key)
    return context


def _same(context: ssl.SSLContext) -> ssl.SSLContext:
    return context
