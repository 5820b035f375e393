"""The extender of ``thalweg run``: its options, and its connection to the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import structlog
from thalweg_extender import CertificateFiles, Certificates, ExtenderError, listening
from thalweg_operator.api.leadership.endpoint_slice import LeaderEndpoint
from thalweg_operator.app import Operator

from thalweg.option_types import Address, NamespacedName
from thalweg.run.leader_endpoint import is_loopback, leader_endpoint

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """The options --extender-*, as given.

    Attributes:
        listen: address; None: no extender.
        certificate, key: server certificate and its key (PEM).
        client_authority: CA of the client certificates (PEM).
        service: that is to lead to this process while it leads; None: it is left alone.
    """

    listen: Address | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    service: NamespacedName | None = None


def extender_endpoint(options: ExtenderOptions, environment: Mapping[str, str]) -> LeaderEndpoint | None:
    """What the Service of --extender-endpoints is to lead to; None without that option.

    Raises:
        click.UsageError: the option, or the address of the pod in POD_IP, cannot be used.
    """
    if options.service is None:
        return None
    return leader_endpoint("extender", options.service, options.listen, environment)


def serve_extender(options: ExtenderOptions) -> Callable[[Operator], AbstractAsyncContextManager[object]]:
    """A function that serves the extender for an operator.

    Raises:
        click.UsageError: the options contradict each other, or leave the extender open to every client.
    """
    if options.listen is None:
        if any((options.certificate, options.key, options.client_authority, options.service)):
            raise click.UsageError("options --extender-* need --extender-listen: without it no extender runs")
        return lambda _operator: nullcontext()
    host, port = options.listen
    certificates = _certificates(options)
    if options.client_authority is None and not is_loopback(host):
        raise click.UsageError(
            f"--extender-listen {options.listen}: any client could steer kube-scheduler. Give --extender-cert, "
            "--extender-key and --extender-client-ca, or listen on loopback"
        )
    return partial(_listen, host=host, port=port, certificates=certificates)


def _certificates(options: ExtenderOptions) -> Certificates | None:
    if (options.certificate is None) != (options.key is None):
        raise click.UsageError("--extender-cert and --extender-key need each other")
    if options.certificate is None or options.key is None:
        if options.client_authority is not None:
            raise click.UsageError(
                "--extender-client-ca needs --extender-cert and --extender-key: client certificates need TLS"
            )
        return None
    try:
        return Certificates(CertificateFiles(options.certificate, options.key, options.client_authority))
    except ExtenderError as error:
        raise click.UsageError(f"the extender's certificates: {error}") from error


def _listen(
    operator: Operator, *, host: str, port: int, certificates: Certificates | None
) -> AbstractAsyncContextManager[object]:
    metrics = operator.metrics
    _log.info("extender listening", host=host, port=port, tls=certificates is not None)

    def on_answer(verb: str, outcome: str, seconds: float) -> None:
        metrics.extender_answers.labels(verb, outcome).inc()
        metrics.extender_seconds.labels(verb, outcome).observe(seconds)

    if certificates is not None:
        for file in certificates.files:
            metrics.certificate_expiration.labels(file).set_function(partial(certificates.expiration, file))
    return listening(
        host,
        port,
        operator.plan_view,
        certificates=certificates,
        on_answer=on_answer,
        on_client=metrics.client_certificate_expiration.set,
        on_refused=partial(operator.bad_input.refuse, "extender request"),
    )
