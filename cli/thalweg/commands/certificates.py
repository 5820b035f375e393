"""The command ``thalweg certificates``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from thalweg import options
from thalweg.option_types import DNS_NAME, NamespacedName

#: Days of a certificate's life.
_DAYS = click.IntRange(1, 36500)


@click.command()
@options.kubeconfig
@options.context
@click.option("--namespace", "-n", default="thalweg-system", show_default=True, metavar="NAMESPACE",
              help="Where the three Secrets are.")  # fmt: skip
@click.option("--ca-secret", default="thalweg-extender-ca", show_default=True, metavar="NAME",
              help="Secret of the CA and its private key.")  # fmt: skip
@click.option("--server-secret", default="thalweg-extender-tls", show_default=True, metavar="NAME",
              help="Secret of the extender's certificate, for `thalweg run`.")  # fmt: skip
@click.option("--client-secret", default="thalweg-extender-client-tls", show_default=True, metavar="NAME",
              help="Secret of kube-scheduler's certificate.")  # fmt: skip
@click.option("--dns-name", "dns_names", type=DNS_NAME, multiple=True, required=True,
              help="Name that kube-scheduler calls the extender by. May be given several times.")  # fmt: skip
@click.option("--valid-days", type=_DAYS, default=90, show_default=True, metavar="DAYS",
              help="Life of the extender's certificate.")  # fmt: skip
@click.option("--client-valid-days", type=_DAYS, default=365, show_default=True, metavar="DAYS",
              help="Life of kube-scheduler's certificate.")  # fmt: skip
@click.option("--ca-valid-days", type=_DAYS, default=3650, show_default=True, metavar="DAYS",
              help="Life of the CA; at least six times that of the others.")  # fmt: skip
@options.output
def certificates(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    ca_secret: str,
    server_secret: str,
    client_secret: str,
    dns_names: tuple[str, ...],
    valid_days: int,
    client_valid_days: int,
    ca_valid_days: int,
    output: str,
) -> None:
    """Make the extender's certificates and renew them.

    kube-scheduler and Thalweg show each other a certificate. Run this once to make them, and then every day to renew
    them. A certificate is renewed when two thirds of its life are over. A new CA is trusted for a sixth of its
    predecessor's life before it signs, so that nobody is refused. What need not change is left as it is.

    Each Secret has the keys tls.crt, tls.key and ca.crt; it is created if it is missing. A Secret that somebody else
    filled is not overwritten.

    Exit code 1: such a Secret is there, or the API server cannot be used.

    \b
    Examples:
      thalweg certificates --dns-name thalweg-extender.thalweg-system.svc
      thalweg certificates --kubeconfig ~/.kube/config --dns-name extender.example.com --valid-days 30 -o json
      thalweg certificates -n scheduling --dns-name thalweg-extender.scheduling.svc --client-valid-days 90
    """  # noqa: D301
    from thalweg.certificates.certificates_run import run_certificates
    from thalweg.certificates.secrets import WantedSecrets

    wanted = WantedSecrets(
        authority=NamespacedName(namespace, ca_secret),
        server=NamespacedName(namespace, server_secret),
        client=NamespacedName(namespace, client_secret),
        dns_names=dns_names,
        authority_lifetime=timedelta(days=ca_valid_days),
        server_lifetime=timedelta(days=valid_days),
        client_lifetime=timedelta(days=client_valid_days),
    )
    run_certificates(kubeconfig, context, wanted, output)
