"""``thalweg uninstall``."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import click
from thalweg_operator.api.client import connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leader_election import LeaderElector, LeaseName
from thalweg_operator.errors import LeaseHeld, OperatorError
from thalweg_operator.policies.removal import Removed, remove

from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.option_types import NamespacedName
from thalweg.run import set_up_logging


def run_uninstall(
    kubeconfig: Path | None,
    context: str | None,
    lease: NamespacedName,
    output: str,
    *,
    policies: bool,
    force: bool,
    confirmed: bool,
) -> None:
    """Removes Thalweg's objects. Exit code 1: something could not be removed, or an operator runs."""
    set_up_logging("text", "error")
    name = LeaseName(*lease)
    kubeconfig, _ = resolve_kubeconfig(kubeconfig, context)
    try:
        done = asyncio.run(_uninstall(kubeconfig, context, name, policies=policies, force=force, confirmed=confirmed))
    except OperatorError as error:
        held = isinstance(error, LeaseHeld)
        hint = "\nStop the operator first (scale its Deployment to 0), or use --force." if held else ""
        click.echo(f"Error: {error}{hint}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the command again to continue.", err=True)
        sys.exit(130)
    if output == "json":
        summary = {
            "admissionObjectsRemoved": done.admission_objects,
            "gatesOpened": done.gates_opened,
            "policiesDeleted": done.policies,
            "problems": done.problems,
        }
        click.echo(json.dumps(summary, indent=2))
    else:
        click.echo(f"admission policies and bindings removed: {done.admission_objects}")
        click.echo(f"pods whose gate was opened: {done.gates_opened}")
        click.echo(f"policies deleted: {done.policies}")
        for problem in done.problems:
            click.echo(f"Error: {problem}", err=True)
    if done.problems:
        sys.exit(1)


async def _uninstall(
    kubeconfig: Path | None, context: str | None, lease: LeaseName, *, policies: bool, force: bool, confirmed: bool
) -> Removed:
    fence = Fence()
    async with connect(kubeconfig, 32, fence, context) as connection, connect(kubeconfig, 2, context=context) as aside:
        if not confirmed:
            what = "Remove Thalweg's admission policies and open its gates"
            click.confirm(f"{what} on {connection.server}?", abort=True, err=True)
        await connection.request("GET", "/version")  # fails at once if there is no API server
        click.echo(f"taking the lease {lease}; if an operator was killed, its lease must expire first", err=True)
        # While this process holds the lease, no operator creates new gates.
        elector = LeaderElector(aside, fence, lease, seizes=force)
        electing = asyncio.create_task(elector.run())
        try:
            held = asyncio.create_task(elector.held.wait())
            await asyncio.wait({electing, held}, return_when=asyncio.FIRST_COMPLETED)
            if electing.done():
                held.cancel()
                electing.result()
            return await remove(connection, lambda line: click.echo(line, err=True), policies=policies)
        finally:
            electing.cancel()
            with suppress(asyncio.CancelledError, OperatorError):
                await electing
            await elector.release()
