"""What ``thalweg certificates`` does and prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from thalweg_operator.api.client import connect
from thalweg_operator.errors import OperatorError

from thalweg.certificates.rotation import OVERLAP
from thalweg.certificates.secret_store import SecretProblem
from thalweg.certificates.secrets import SecretReport, WantedSecrets, bring_up_to_date
from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.documents import print_document
from thalweg.terminal.logs import set_up_logging
from thalweg.terminal.tables import print_table
from thalweg.terminal.telling import tell_error


def run_certificates(kubeconfig: Path | None, context: str | None, wanted: WantedSecrets, output: str) -> None:
    """Makes and renews the certificates. Exit code 1: a Secret could not be read or written.

    Raises:
        click.UsageError: a certificate would outlive the change of its CA.
    """
    longest = wanted.authority_lifetime * OVERLAP
    lives = (("--valid-days", wanted.server_lifetime), ("--client-valid-days", wanted.client_lifetime))
    for option, lifetime in lives:
        if lifetime > longest:
            raise click.UsageError(
                f"{option} {lifetime.days} is more than a sixth of --ca-valid-days {wanted.authority_lifetime.days}: "
                "certificates of the old CA would still be in use when it ends"
            )
    set_up_logging("text", "error")
    kubeconfig, _ = resolve_kubeconfig(kubeconfig, context)
    try:
        outcomes = asyncio.run(_run(kubeconfig, context, wanted))
    except (OperatorError, SecretProblem) as error:
        tell_error(error)
        sys.exit(1)
    if output != "table":
        print_document({"secrets": [_to_json(outcome) for outcome in outcomes]}, output)
    else:
        _print(outcomes)


async def _run(kubeconfig: Path | None, context: str | None, wanted: WantedSecrets) -> list[SecretReport]:
    async with connect(kubeconfig, 1, context=context) as api_client:
        return await bring_up_to_date(api_client, wanted, lambda: datetime.now(UTC))


def _to_json(outcome: SecretReport) -> dict[str, object]:
    return {
        "secret": str(outcome.secret),
        "written": bool(outcome.why),
        "reason": outcome.why,
        "expires": outcome.expires.isoformat(),
        "renewal": outcome.renewal.isoformat(),
    }


def _print(outcomes: Sequence[SecretReport]) -> None:
    rows = (
        (
            str(outcome.secret),
            f"yes: {outcome.why}" if outcome.why else "no",
            f"{outcome.expires:%Y-%m-%d %H:%M}",
            f"{outcome.renewal:%Y-%m-%d %H:%M}",
        )
        for outcome in outcomes
    )
    print_table(stdout_console(), ("SECRET", "WRITTEN", "EXPIRES", "NEXT CHANGE"), rows)
