"""The commands of kubectl that give workloads another scheduler. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final

from thalweg.scheduler_users.users import SchedulerUser

#: Kinds whose template can change: they replace their pods afterwards.
_PATCHED: Final = ("Deployment", "StatefulSet", "DaemonSet")


def patches(users: Iterable[SchedulerUser], scheduler: str) -> Iterator[str]:
    """Lines of a shell script; what no command can change is a comment that says what to do.

    Args:
        scheduler: the scheduler that the pods are to name.
    """
    for user in users:
        yield from _of(user, scheduler)


def _of(user: SchedulerUser, scheduler: str) -> Iterator[str]:
    if user.kind in _PATCHED and user.template:
        yield _patch(user, {"spec": {"template": _template(scheduler)}})
        if user.kind == "StatefulSet":  # it waits for a pod that waits, and does not replace it
            yield from (_delete(user.namespace, name) for name in user.waiting_names)
    elif user.kind == "CronJob" and user.template:
        yield _patch(user, {"spec": {"jobTemplate": {"spec": {"template": _template(scheduler)}}}})
        if user.waiting:
            yield f"# {user}: its Jobs keep their scheduler. {user.waiting} of their pods wait: delete those Jobs."
    elif user.kind in _PATCHED:  # it names another scheduler already, its older pods do not
        yield from (_delete(user.namespace, name) for name in user.waiting_names)
    elif user.kind == "Pod":
        if user.waiting:
            yield f"# {user}: a pod cannot change its scheduler. Make it anew with schedulerName: {scheduler}."
    elif user.kind == "Job":
        yield f"# {user}: its template cannot change. If pods of it wait, make it anew with schedulerName: {scheduler}."
    else:
        yield f"# {user}: change schedulerName to {scheduler} where its pods are described."


def _template(scheduler: str) -> dict[str, Any]:
    return {"spec": {"schedulerName": scheduler}}


def _patch(user: SchedulerUser, patch: dict[str, Any]) -> str:
    text = json.dumps(patch, separators=(",", ":"))
    return shlex.join(["kubectl", "-n", user.namespace, "patch", user.kind.lower(), user.name, "-p", text])


def _delete(namespace: str, pod: str) -> str:
    # Its controller may have replaced it by then. Without --wait=false kubectl sometimes takes the new pod of a
    # StatefulSet, which has the same name, for the old one, and waits for its end for ever.
    return shlex.join(["kubectl", "-n", namespace, "delete", "pod", pod, "--ignore-not-found", "--wait=false"])
