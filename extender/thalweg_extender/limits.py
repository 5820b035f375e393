"""How much a caller may ask of us at a time; beyond it is refused, and nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener; seconds and bytes.

    kube-scheduler asks about one pod at a time over one connection, so a few replicas of it need a few of each.

    Attributes:
        body: of the largest request body. A pod is at most 1.5 MiB, and 5,000 node names are 0.3 MiB.
        connections: open at a time, TLS handshakes under way among them.
        in_flight: requests between their head and their answer. One more ends the oldest whose body is still under way.
        handshake: from a connection's beginning to the end of the TLS handshake.
        head: from there to the end of the first request's head.
        read: from the end of a request's head to the end of its body.
        idle: without a request. kube-scheduler keeps an idle connection for 90 s, and does not repeat a POST that meets
            a closed one.
        pace: between two answers that are of no use, to all callers together: refusals, and answers about pods that the
            watch does not show. Known pods are answered at once.
    """

    body: int = 4 * 1024 * 1024
    connections: int = 128
    in_flight: int = 64
    handshake: float = 5.0
    head: float = 5.0
    read: float = 5.0
    idle: float = 120.0
    pace: float = 0.02


DEFAULT = Limits()
