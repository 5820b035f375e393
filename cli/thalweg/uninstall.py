"""``thalweg uninstall``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import click
import msgspec
from thalweg_operator.api.client import ApiClient, api_path, connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.api.leader_election import LeaderElector, LeaseName
from thalweg_operator.errors import LeaseHeld, OperatorError, Refused
from thalweg_operator.policies.removal import Removed, remove

from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.logs import set_up_logging
from thalweg.option_types import NamespacedName

_API: Final = "/apis/coordination.k8s.io/v1"
_LEASES: Final = f"{_API}/leases"
#: Not that of the kube-scheduler that the chart may start.
_OF_OPERATORS: Final = "app.kubernetes.io/name=thalweg,app.kubernetes.io/component!=kube-scheduler"


class _Meta(msgspec.Struct):
    name: str
    namespace: str


class _Lease(msgspec.Struct):
    metadata: _Meta


class _Leases(msgspec.Struct):
    items: list[_Lease]


def run_uninstall(
    kubeconfig: Path | None,
    context: str | None,
    lease: NamespacedName | None,
    output: str,
    *,
    policies: bool,
    force: bool,
    confirmed: bool,
) -> None:
    """Removes Thalweg's objects. Exit code 1: something could not be removed, or an operator runs."""
    set_up_logging("text", "error")
    kubeconfig, _ = resolve_kubeconfig(kubeconfig, context)
    try:
        done = asyncio.run(_uninstall(kubeconfig, context, lease, policies=policies, force=force, confirmed=confirmed))
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
    kubeconfig: Path | None,
    context: str | None,
    lease: NamespacedName | None,
    *,
    policies: bool,
    force: bool,
    confirmed: bool,
) -> Removed:
    fence = Fence()
    async with connect(kubeconfig, 32, fence, context) as connection, connect(kubeconfig, 2, context=context) as aside:
        if not confirmed:
            what = "Remove Thalweg's admission policies and open its gates"
            click.confirm(f"{what} on {connection.server}?", abort=True, err=True)
        await connection.request("GET", "/version")  # fails at once if there is no API server
        leases = [LeaseName(*lease)] if lease else await _leases(aside)
        names = " and ".join(map(str, leases))
        click.echo(f"taking the lease {names}; if an operator was killed, its lease must expire first", err=True)
        # While this process holds the leases, no operator creates new gates. The fence is that of the first one.
        fences = [fence, *(Fence() for _ in leases[1:])]
        electors = [LeaderElector(aside, *each, seizes=force) for each in zip(fences, leases, strict=True)]
        try:
            async with asyncio.TaskGroup() as group:
                electing = [group.create_task(each.run()) for each in electors]
                for each in electors:
                    await each.held.wait()
                done = await remove(connection, lambda line: click.echo(line, err=True), policies=policies)
                for task in electing:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await asyncio.gather(*(each.release() for each in electors))
        return done


async def _leases(api_client: ApiClient) -> list[LeaseName]:
    """The Leases of all operators that there may be: that of rights/lease.yaml, and those of charts.

    Raises:
        OperatorError: they cannot be listed, or there is none. Then an operator may have a Lease without the label, so
            no Lease that is made here would stop it.
    """
    try:
        raw = await api_client.request("GET", _LEASES, params={"labelSelector": _OF_OPERATORS})
    except Refused as error:
        raise OperatorError(f"cannot look for the operator's Lease: {error}; name it with --lease") from error
    found = {LeaseName(each.metadata.namespace, each.metadata.name) for each in JsonReader(_Leases).read(raw).items}
    default = LeaseName()
    try:
        await api_client.request("GET", api_path(f"{_API}/namespaces", default.namespace, "leases", default.name))
        found.add(default)
    except Refused as error:
        if error.status != 404:
            raise
    if not found:
        raise OperatorError(
            "there is no Lease with the label app.kubernetes.io/name=thalweg, and no kube-system/thalweg. Name the "
            "Lease of your operator with --lease NAMESPACE/NAME; if no operator runs, use --lease kube-system/thalweg"
        )
    return sorted(found, key=str)
