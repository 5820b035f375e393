"""``thalweg uninstall``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from thalweg_operator.api.client import ApiClient, api_path, connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.leadership.leader_election import LeaderElector, LeaseName
from thalweg_operator.errors import LeaseHeld, OperatorError, Refused
from thalweg_operator.policies.removal import Removed, remove

from thalweg.kubeconfig import resolve_kubeconfig
from thalweg.option_types import NamespacedName
from thalweg.scheduler_users.printing import as_json, print_users, warn
from thalweg.scheduler_users.reading import SchedulerUsers, read_scheduler_users
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.documents import print_document
from thalweg.terminal.logs import set_up_logging
from thalweg.terminal.telling import tell_error, tell_warning
from thalweg.uninstall.patches import patches as patches_of

_T = TypeVar("_T")

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

    def uninstall(kubeconfig: Path | None) -> Coroutine[Any, Any, Removed]:
        return _uninstall(kubeconfig, context, lease, policies=policies, force=force, confirmed=confirmed)

    done = _run(kubeconfig, context, uninstall)
    if output != "table":
        summary = {
            "admissionObjectsRemoved": done.admission_objects,
            "gatesOpened": done.gates_opened,
            "policiesDeleted": done.policies,
            "problems": done.problems,
        }
        print_document(summary, output)
    else:
        click.echo(f"admission policies and bindings removed: {done.admission_objects}")
        click.echo(f"pods whose gate was opened: {done.gates_opened}")
        click.echo(f"policies deleted: {done.policies}")
        for problem in done.problems:
            tell_error(problem)
    if done.problems:
        sys.exit(1)


def run_list(kubeconfig: Path | None, context: str | None, output: str) -> None:
    """Prints who names a scheduler of Thalweg. Exit code 1: that cannot be read."""
    users = _run(kubeconfig, context, lambda resolved: _users(resolved, context))
    if output != "table":
        print_document({"users": as_json(users), "warnings": users.gaps}, output)
    else:
        print_users(stdout_console(), users)


def run_patches(kubeconfig: Path | None, context: str | None, scheduler: str) -> None:
    """Prints the commands that give them another scheduler. Exit code 1: who they are cannot be read."""
    users = _run(kubeconfig, context, lambda resolved: _users(resolved, context))
    for gap in users.gaps:
        tell_warning(gap)
    for line in patches_of(users.users, scheduler):
        click.echo(line)


async def _users(kubeconfig: Path | None, context: str | None) -> SchedulerUsers:
    async with connect(kubeconfig, 2, context=context) as api_client:
        return await read_scheduler_users(api_client)


def _run(kubeconfig: Path | None, context: str | None, action: Callable[[Path | None], Coroutine[Any, Any, _T]]) -> _T:
    """The result. An error gives one line and exit code 1, Ctrl-C exit code 130."""
    set_up_logging("text", "error")
    resolved, _ = resolve_kubeconfig(kubeconfig, context)
    try:
        return asyncio.run(action(resolved))
    except (OperatorError, UnreadableJson) as error:
        held = isinstance(error, LeaseHeld)
        tell_error(error)
        if held:
            click.echo("Stop the operator first (scale its Deployment to 0), or use --force.", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the command again to continue.", err=True)
        sys.exit(130)


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
        await connection.request("GET", "/version")  # fails at once if there is no API server
        await _warn(aside)
        if not confirmed:
            what = "Remove Thalweg's admission policies and open its gates"
            click.confirm(f"{what} on {connection.server}?", abort=True, err=True)
        leases = [LeaseName(*lease)] if lease else await _leases(aside)
        names = " and ".join(map(str, leases))
        click.echo(f"taking the lease {names}; if an operator was killed, its lease must expire first", err=True)
        # While this process holds the leases, no operator creates new gates. The fence is that of the first one.
        fences = [fence, *(Fence() for _ in leases[1:])]
        electors = [LeaderElector(aside, *each, seizes=force) for each in zip(fences, leases, strict=True)]
        try:
            async with asyncio.TaskGroup() as group:
                electing = [group.create_task(each.run()) for each in electors]
                for elector in electors:
                    await elector.held.wait()
                done = await remove(connection, lambda line: click.echo(line, err=True), policies=policies)
                for task in electing:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await asyncio.gather(*(each.release() for each in electors))
        return done


async def _warn(api_client: ApiClient) -> None:
    """Says who names a scheduler of Thalweg. That this cannot be read is no reason not to open gates."""
    try:
        warn(await read_scheduler_users(api_client), lambda line: click.echo(line, err=True))
    except (Refused, UnreadableJson) as error:
        click.echo(f"What names a scheduler of Thalweg cannot be read: {error}", err=True)


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
    names = {LeaseName(each.metadata.namespace, each.metadata.name) for each in JsonReader(_Leases).read(raw).items}
    default = LeaseName()
    try:
        await api_client.request("GET", api_path(f"{_API}/namespaces", default.namespace, "leases", default.name))
        names.add(default)
    except Refused as error:
        if error.status != 404:
            raise
    if not names:
        raise OperatorError(
            "there is no Lease with the label app.kubernetes.io/name=thalweg, and no kube-system/thalweg. Name the "
            "Lease of your operator with --lease NAMESPACE/NAME; if no operator runs, use --lease kube-system/thalweg"
        )
    return sorted(names, key=str)
