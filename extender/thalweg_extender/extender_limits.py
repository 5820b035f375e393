"""Limits per listener. A request beyond a limit is refused and leaves no state."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg_listener import ConnectionLimits


@dataclass(frozen=True, slots=True)
class ExtenderLimits(ConnectionLimits):
    """Limits of one listener, in seconds and bytes, those of its connections among them.

    kube-scheduler sends one request at a time over one connection, so a few replicas need a few of each. It keeps an
    idle connection for 90 s, and does not repeat a POST on a closed connection.

    Attributes:
        body: largest request body. A pod has at most 1.5 MiB, and 5,000 node names have 0.3 MiB.
        in_flight: requests between the end of their head and their response. At the limit, a new request aborts the
            oldest request whose body is incomplete.
        read: time from the end of a request's head to the end of its body.
        unhelpful_interval: interval between two unhelpful responses to all clients: refusals, and responses about pods
            that the watch has not delivered. Requests about known pods are answered at once.
    """

    body: int = 4 * 1024 * 1024
    in_flight: int = 64
    read: float = 5.0
    unhelpful_interval: float = 0.02


DEFAULT_LIMITS = ExtenderLimits()
