"""What was learnt as text, so that it outlives its process: finished pods, and what classes of pods use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec

from flowcore.cluster.learning.estimates import Observation
from flowcore.model.errors import ModelError
from flowcore.model.usage import MAX_USE, SavedClass
from flowcore.model.workload_kinds import WorkloadKind

VERSION = 1
#: Seconds after which a pod that is done, and a class without samples, tell nothing any more. A monthly job is known.
_MAX_AGE = 35 * 86_400.0
#: The logarithm of more seconds than any pod runs, and more neighbours than any node has.
_MOST_LOG_SECONDS, _MOST_BESIDE = 30.0, 1e5


class NewerLearning(Exception):
    """It was written by a later release; it must not be overwritten."""


class SavedHistory(msgspec.Struct, frozen=True):
    """Finished pods that one policy learns from.

    Attributes:
        kinds: ``kinds_digest`` of what they were told apart by.
        until: pods that ended later are not among them, seconds since the epoch.
        observations: of each kind, the oldest first.
    """

    policy: str
    kinds: str
    until: float
    observations: tuple[tuple[Observation, ...], ...]


class SavedLearning(msgspec.Struct, frozen=True):
    """All that is saved."""

    version: int = VERSION
    histories: tuple[SavedHistory, ...] = ()
    classes: tuple[SavedClass, ...] = ()


class _Versioned(msgspec.Struct):
    version: int


def kinds_digest(kinds: Sequence[WorkloadKind], label: str) -> str:
    """A short text that changes with the kinds of a policy and with the label of its machines."""
    return sha256(msgspec.json.encode((list(kinds), label))).hexdigest()[:16]


def to_text(learning: SavedLearning, limit: int) -> bytes:
    """The text, of at most ``limit`` bytes beside the names of policies: the oldest pods and classes are left out."""
    left = limit - len(msgspec.json.encode(_after(learning, math.inf)))
    for time, size in sorted(_sizes(learning), reverse=True):
        left -= size
        if left < 0:
            return msgspec.json.encode(_after(learning, time))
    return msgspec.json.encode(learning)


def _sizes(learning: SavedLearning) -> Iterator[tuple[float, int]]:
    """When each finished pod ended and each class was last measured, and its bytes with a comma."""
    for history in learning.histories:
        for observation in itertools.chain.from_iterable(history.observations):
            yield observation.end, len(msgspec.json.encode(observation)) + 1
    for saved in learning.classes:
        yield saved.newest, len(msgspec.json.encode(saved)) + 1


def _after(learning: SavedLearning, time: float) -> SavedLearning:
    """Without what is not newer."""
    histories = tuple(
        msgspec.structs.replace(
            history,
            observations=tuple(tuple(each for each in of_kind if each.end > time) for of_kind in history.observations),
        )
        for history in learning.histories
    )
    classes = tuple(saved for saved in learning.classes if saved.newest > time)
    return msgspec.structs.replace(learning, histories=histories, classes=classes)


def from_text(text: str, now: float) -> SavedLearning:
    """What a text says, without what is too old and what cannot be.

    The clock of its writer may have been ahead: a time that has not come yet counts as now.

    Args:
        now: seconds since the epoch.

    Raises:
        NewerLearning: a later release wrote it.
        ModelError: it is not what ``to_text`` writes.
    """
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version > VERSION:
            raise NewerLearning(f"it has version {version}, and this release reads version {VERSION}")
        learning = msgspec.json.decode(text, type=SavedLearning)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelError("", str(error)) from error
    histories = tuple(_plausible_history(history, now) for history in learning.histories)
    classes = tuple(
        msgspec.structs.replace(saved, newest=min(saved.newest, now))
        for saved in learning.classes
        if all(0 <= amount <= MAX_USE for pair in saved.amounts for amount in pair)
    )
    return _after(msgspec.structs.replace(learning, histories=histories, classes=classes), now - _MAX_AGE)


def _plausible_history(history: SavedHistory, now: float) -> SavedHistory:
    """Without pods that cannot be: nothing may make a regression fail or last for ever."""
    kinds = len(history.observations)
    observations = tuple(
        tuple(
            msgspec.structs.replace(observation, end=min(observation.end, now))
            for observation in of_kind
            if len(observation.beside) == kinds
            and all(0 <= pods <= _MOST_BESIDE for pods in observation.beside)
            and abs(observation.log_seconds) <= _MOST_LOG_SECONDS
        )
        for of_kind in history.observations
    )
    return msgspec.structs.replace(history, until=min(history.until, now), observations=observations)
