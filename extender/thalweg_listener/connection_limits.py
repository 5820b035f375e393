"""Limits of the connections of one listener."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """In seconds and numbers.

    Attributes:
        connections: open connections, including those in the TLS handshake.
        silent: of these, connections of one address that have sent nothing yet. A proxy may open some at once.
        accepts: new connections of one address for each second, in the long run.
        burst: new connections of one address at once.
        handshake: time from the first byte to the end of the TLS handshake.
        head: time from the end of the handshake to the end of the first request's head. A silent connection has
            ``handshake``, without TLS ``head``.
        idle: longest time without a request. 0: a connection has one request only.
        replaces_idle: whether at the limit a new connection also replaces one whose request has been answered.
    """

    connections: int = 128
    silent: int = 32
    accepts: float = 50.0
    burst: int = 200
    handshake: float = 5.0
    head: float = 5.0
    idle: float = 120.0
    replaces_idle: bool = False
