"""Events about pods, as ``kubectl describe pod`` shows them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from flowcore.model.pods import Pod
from thalweg_operator.connection import Connection, api_path
from thalweg_operator.names import COMPONENT

#: The API server takes no more.
_LONGEST = 1024


def timestamp() -> str:
    """Now, as Kubernetes' objects write times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def warn(connection: Connection, pod: Pod, reason: str, message: str) -> None:
    """Writes a warning about a pod.

    Raises:
        Refused, ConnectionLost: it was not written, or nobody knows.
    """
    now = timestamp()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
        "type": "Warning",
        "reason": reason,
        "message": message[:_LONGEST],
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        },
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    path = api_path("/api/v1/namespaces", pod.namespace, "events")
    await connection.request("POST", path, body=msgspec.json.encode(event))
