"""Limits per listener. A request beyond a limit is refused and leaves no state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener, in seconds and bytes.

    kube-scheduler sends one request at a time over one connection, so a few replicas need a few of each.

    Attributes:
        body: largest request body. A pod has at most 1.5 MiB, and 5,000 node names have 0.3 MiB.
        connections: open connections, including those in the TLS handshake.
        in_flight: requests between the end of their head and their response. At the limit, a new request aborts the
            oldest request whose body is incomplete.
        handshake: time from the connection to the end of the TLS handshake.
        head: time from the end of the handshake to the end of the first request's head.
        read: time from the end of a request's head to the end of its body.
        idle: longest time without a request. kube-scheduler keeps an idle connection for 90 s, and does not repeat a
            POST on a closed connection.
        unhelpful_interval: interval between two unhelpful responses to all clients: refusals, and responses about pods
            that the watch has not delivered. Requests about known pods are answered at once.
    """

    body: int = 4 * 1024 * 1024
    connections: int = 128
    in_flight: int = 64
    handshake: float = 5.0
    head: float = 5.0
    read: float = 5.0
    idle: float = 120.0
    unhelpful_interval: float = 0.02


DEFAULT_LIMITS = Limits()
