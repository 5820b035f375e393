"""What the API server's audit log says about the requests of an account."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg_controlplane import ControlPlane

ACCOUNT = "system:serviceaccount:thalweg-system:thalweg"


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One request.

    Attributes:
        resource: `pods/status`, or for a path without an object the path: `/version`.
        group: of the resource's API; "" for the core.
        name: of the object; "" for a list, a watch and most creations.
        status: of the answer, such as 403.
        words: what the API server said where it refused the request.
    """

    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    status: int
    words: str


def audited(plane: ControlPlane, user: str = ACCOUNT, since: int = 0) -> list[AuditedRequest]:
    """All requests of the account so far, in the order of their answers. The plane was started with `audit`.

    `since`: so many bytes of the log are of earlier requests.
    """
    return read(plane.audit_log, user, since)


def read(log: Path, user: str = ACCOUNT, since: int = 0) -> list[AuditedRequest]:
    """The same of an audit log; a last line that is only half written is left out."""
    lines = log.read_bytes()[since:].decode().split("\n")[:-1]
    events = [json.loads(line) for line in lines if user in line]
    return [_to_request(event) for event in events if event["user"]["username"] == user]


def writes_to_pods(plane: ControlPlane, namespace: str, since: int) -> list[str]:
    """What Thalweg wrote to pods of a namespace, such as "patch pods/status train-0"; `since` as for `audited`."""
    return [
        f"{request.verb} {request.resource} {request.name}"
        for request in audited(plane, since=since)
        if request.namespace == namespace
        and request.resource.partition("/")[0] == "pods"
        and request.verb not in ("get", "list", "watch")
    ]


def refused(requests: list[AuditedRequest]) -> list[AuditedRequest]:
    """Those that the account had no right to, or that an admission policy stopped (403, 422), and 401.

    Not what the object itself forbids: kube-scheduler may have bound a pod just before its nomination is written.
    """
    return [each for each in requests if each.status in (401, 403, 422) and " is invalid: " not in each.words]


def _to_request(event: dict[str, Any]) -> AuditedRequest:
    target = event.get("objectRef", {})
    parts = [target.get("resource", ""), target.get("subresource", "")]
    answer = event.get("responseStatus", {})
    return AuditedRequest(
        event["verb"],
        target.get("apiGroup", ""),
        "/".join(filter(None, parts)) or event["requestURI"].partition("?")[0],
        target.get("namespace", ""),
        target.get("name", ""),
        answer.get("code", 0),
        answer.get("message", ""),
    )
