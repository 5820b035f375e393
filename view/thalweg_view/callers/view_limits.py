"""Limits of a view: what one caller, and what all of them, may ask of it."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg_listener import ConnectionLimits


@dataclass(frozen=True, slots=True)
class ViewLimits(ConnectionLimits):
    """In seconds, bytes and numbers.

    Attributes:
        body: size of a request's body.
        read: time for a body to arrive.
        write: time for a caller to take a piece of a response.
        questions: questions that are answered or wait for their turn; and bodies that are arriving.
        questions_per_caller: of these, of one caller.
        answers: questions that are answered at once, of different callers.
        streams: open streams of events.
        streams_per_caller: of these, of one caller.
        reviews: questions to the API server that are under way: about known callers; a quarter as many about tokens
            that nobody has shown before, and about the namespaces of one caller.
        heartbeat: time between two signs of life of a stream; then the caller's token is checked again.
        state_age: least time between two states of a live source.
        namespaces: that are asked about for a caller who may not list pods in all namespaces.
    """

    connections: int = 256
    idle: float = 60.0
    replaces_idle: bool = True
    body: int = 4 * 2**20
    read: float = 10.0
    write: float = 10.0
    questions: int = 24
    questions_per_caller: int = 8
    answers: int = 4
    streams: int = 64
    streams_per_caller: int = 16
    reviews: int = 16
    heartbeat: float = 15.0
    state_age: float = 2.0
    namespaces: int = 500


DEFAULT_LIMITS = ViewLimits()
