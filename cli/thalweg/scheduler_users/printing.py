"""Prints who names a scheduler of Thalweg, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.console import Console

from thalweg.scheduler_users.reading import SchedulerUsers
from thalweg.scheduler_users.users import SchedulerUser, what_becomes
from thalweg.terminal.tables import print_table

_HEADER: Final = ("NAMESPACE", "KIND", "NAME", "SCHEDULER", "RUNNING", "WAITING", "GATED")
#: Lines of a warning.
_LINES: Final = 20


def as_json(users: SchedulerUsers) -> list[dict[str, Any]]:
    """The users with their fields."""
    return [_fields(user) for user in users.users]


def print_users(console: Console, users: SchedulerUsers) -> None:
    """Prints all of them, and what becomes of them."""
    if users.users:
        print_table(console, _HEADER, map(_row, users.users))
        console.print()
    for sentence in _sentences(users):
        console.print(sentence)


def warn(users: SchedulerUsers, say: Callable[[str], None]) -> None:
    """Says what becomes of them, and names the first of them."""
    for sentence in _sentences(users):
        say(sentence)
    for user in users.users[:_LINES]:
        say(f"  {user} ({user.scheduler}): {user.running} running, {user.waiting} waiting")
    if len(users.users) > _LINES:
        say(f"  and {len(users.users) - _LINES} more: thalweg uninstall --list")
    if users.users:
        say("How they get another scheduler: docs/how-to/remove-thalweg.md")


def _sentences(users: SchedulerUsers) -> Iterator[str]:
    yield from users.gaps
    if users.users:
        yield from what_becomes(users.users, users.served)
    else:
        yield f"Nothing names a scheduler of Thalweg ({', '.join(users.served)})."


def _row(user: SchedulerUser) -> tuple[str, ...]:
    counts = (str(number) for number in (user.running, user.waiting, user.gated))
    return (user.namespace, user.kind, user.name, user.scheduler, *counts)


def _fields(user: SchedulerUser) -> dict[str, Any]:
    return {
        "kind": user.kind,
        "namespace": user.namespace,
        "name": user.name,
        "schedulerName": user.scheduler,
        "template": user.template,
        "running": user.running,
        "waiting": user.waiting,
        "gated": user.gated,
    }
