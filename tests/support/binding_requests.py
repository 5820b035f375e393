"""What the operators asked the API server to bind, as the proxy between them saw it.

The API server refuses to bind a pod twice, so the pods themselves cannot show that somebody tried.
"""

import json
from collections.abc import Iterable

from support.proxy import ProxiedRequest


def check_bindings(requests: Iterable[ProxiedRequest], since: float) -> set[tuple[str, str]]:
    """No pod was to be bound to a second node while the first binding was carried out, or may have been.

    Args:
        requests: what reached the API server, in order.
        since: when the operator was started, seconds of time.monotonic(). Bindings before that were another process's:
            those that were not answered may be unknown to this one.

    Returns:
        UID and node of all that reached the API server.
    """
    asked: set[tuple[str, str]] = set()
    standing: dict[str, str] = {}
    for request in requests:
        if request.method != "POST" or not request.path.endswith("/binding"):
            continue
        body = json.loads(request.body)
        uid, node = body["metadata"]["uid"], body["target"]["name"]
        asked.add((uid, node))
        before = standing.get(uid, node)
        assert before == node, f"{request.path}: bound to {before}, and then to be bound to {node}"
        accepted = 200 <= request.status < 300
        unknown = not request.status or request.status >= 500
        if accepted or (unknown and request.when >= since):
            standing[uid] = node
    return asked
