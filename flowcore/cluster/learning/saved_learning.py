"""What was learnt as text, so that it outlives its process: finished pods, and what classes of pods use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256

import msgspec

from flowcore.cluster.learning.estimates import Observation
from flowcore.cluster.learning.fair_order import SizedEntry, fair_order, newest_first
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
    """The text, of at most ``limit`` bytes beside the names of policies.

    Where that is too little, pods and classes have half of it each, as far as they need it. So have policies of the
    pods, kinds of their policy, and namespaces of the classes. Of each the oldest are left out.
    """
    left = limit - len(msgspec.json.encode(_where(learning, lambda _key, _time: False)))
    kept = set[Hashable]()
    for entry in _order(learning):
        left -= entry.size
        if left < 0:
            break
        kept.add(entry.key)
    return msgspec.json.encode(_where(learning, lambda key, _time: key in kept))


def _order(learning: SavedLearning) -> list[SizedEntry]:
    """All pods and classes, what is kept longest first; their sizes are with a comma."""
    pods = fair_order(
        fair_order(
            newest_first(
                SizedEntry(observation.end, len(msgspec.json.encode(observation)) + 1, (number, kind, position))
                for position, observation in enumerate(of_kind)
            )
            for kind, of_kind in enumerate(history.observations)
        )
        for number, history in enumerate(learning.histories)
    )
    by_namespace: dict[str, list[SizedEntry]] = {}
    for position, saved in enumerate(learning.classes):
        entry = SizedEntry(saved.newest, len(msgspec.json.encode(saved)) + 1, position)
        by_namespace.setdefault(saved.usage_class.namespace, []).append(entry)
    return fair_order([pods, fair_order(map(newest_first, by_namespace.values()))])


def _where(learning: SavedLearning, keeps: Callable[[Hashable, float], bool]) -> SavedLearning:
    """The pods and classes that are kept.

    Args:
        keeps: is asked with the key of each (number of the history, kind, position; position of a class) and its time.
    """
    histories = tuple(
        msgspec.structs.replace(
            history,
            observations=tuple(
                tuple(pod for position, pod in enumerate(of_kind) if keeps((number, kind, position), pod.end))
                for kind, of_kind in enumerate(history.observations)
            ),
        )
        for number, history in enumerate(learning.histories)
    )
    classes = tuple(saved for position, saved in enumerate(learning.classes) if keeps(position, saved.newest))
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
    plausible = msgspec.structs.replace(learning, histories=histories, classes=classes)
    return _where(plausible, lambda _key, time: time > now - _MAX_AGE)


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
