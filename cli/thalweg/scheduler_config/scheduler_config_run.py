"""What ``thalweg scheduler-config`` does: checks the options, asks the cluster if it must, and writes the text."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import click
from thalweg_operator.api.client import connect
from thalweg_operator.errors import OperatorError

from thalweg.certificates.secret_store import SecretProblem
from thalweg.certificates.secrets import CERTIFICATE, KEY, TRUSTED
from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.option_types import NamespacedName
from thalweg.scheduler_config.scheduler_config import SchedulerConfig, holds_certificate
from thalweg.scheduler_config.scheduler_config_objects import ServiceProblem, client_certificates, service_url, store
from thalweg.terminal.logs import set_up_logging
from thalweg.terminal.telling import tell_error


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the URL and the certificates come from.

    Attributes:
        service: Service whose cluster IP makes the URL; None: the URL is given.
        certificates: Secret with all certificates.
        ca_file: file of the CA.
        ca_path: path of the CA where kube-scheduler runs; "": not given.
    """

    service: NamespacedName | None
    certificates: NamespacedName | None
    ca_file: Path | None
    ca_path: str


def run_scheduler_config(
    config: SchedulerConfig,
    sources: Sources,
    stored_in: NamespacedName | None,
    output: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Prints, stores or writes the configuration. Exit code 1: the cluster lacks something that it needs.

    Raises:
        click.UsageError: the options contradict each other.
    """
    _check(config, sources)
    if stored_in and output:
        raise click.UsageError("--store and --output exclude each other")
    if sources.ca_file:
        config = replace(config, authority=_authority(sources.ca_file))
    elif sources.ca_path:
        config = replace(config, authority=sources.ca_path)
    if sources.service or sources.certificates or stored_in:
        set_up_logging("text", "error")
        kubeconfig, _ = resolve_kubeconfig(kubeconfig, context)
        try:
            config = asyncio.run(_with_cluster(config, sources, stored_in, kubeconfig, context))
        except (OperatorError, SecretProblem, ServiceProblem) as error:
            tell_error(error)
            sys.exit(1)
    if output:
        _write(output, str(config))
    elif not stored_in:
        click.echo(str(config), nl=False)


def _check(config: SchedulerConfig, sources: Sources) -> None:
    scheme = "https" if sources.service else config.url.partition("://")[0]
    if scheme not in ("http", "https"):
        raise click.BadParameter(f'"{config.url}" is not an http or https URL', param_hint="--url")
    if bool(config.client_certificate) != bool(config.client_key):
        raise click.UsageError("--client-cert-file and --client-key-file need each other")
    given = {
        "--ca-file": sources.ca_file,
        "--ca-path": sources.ca_path,
        "--certificates": sources.certificates,
    }
    authorities = [option for option, value in given.items() if value]
    if scheme == "http":
        for option in (*authorities, *(["--client-cert-file"] if config.client_certificate else [])):
            raise click.UsageError(f"{option} needs an https --url")
    elif not authorities:
        raise click.UsageError(
            "an https --url needs --ca-file, --ca-path or --certificates: kube-scheduler verifies the extender by this "
            "CA only"
        )
    if len(authorities) > 1:
        raise click.UsageError(f"{' and '.join(authorities)} exclude each other")
    if sources.certificates and config.client_certificate:
        raise click.UsageError("--certificates and --client-cert-file exclude each other")


def _authority(path: Path) -> bytes:
    authority = path.read_bytes()
    if not holds_certificate(authority):
        raise click.BadParameter(f'"{path}" contains no certificate in PEM', param_hint="--ca-file")
    return authority


async def _with_cluster(
    config: SchedulerConfig,
    sources: Sources,
    stored_in: NamespacedName | None,
    kubeconfig: Path | None,
    context: str | None,
) -> SchedulerConfig:
    """The configuration with what the cluster knows, stored if that is asked for."""
    async with connect(kubeconfig, 1, context=context) as api_client:
        if sources.service:
            config = replace(config, url=await service_url(api_client, sources.service))
        if sources.certificates:
            data = await client_certificates(api_client, sources.certificates)
            config = replace(
                config, authority=data[TRUSTED], client_certificate=data[CERTIFICATE], client_key=data[KEY]
            )
        if stored_in:
            changed = await store(api_client, stored_in, str(config))
            click.echo(f"Secret {stored_in} {'written' if changed else 'is up to date'}", err=True)
    return config


def _write(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, from its creation on."""
    try:
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            os.fchmod(file.fileno(), 0o600)  # it may exist
            file.write(text)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--output") from error
