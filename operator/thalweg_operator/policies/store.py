"""FlowSchedulingPolicy objects: which version of each is in force.

A policy that cannot be put in force keeps its last good version, and disturbs no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from flowcore.api.ignored_fields import ignored_in
from flowcore.api.policies import KIND, parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import PolicyError
from flowcore.model.policies import Policy

_log = structlog.get_logger()
#: Objects that went lately, of which a list that is under way may still speak.
_MOST_GONE = 1_000


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """One policy object.

    Attributes:
        generation: of the version that was looked at last.
        in_force: the version that rounds use; None where no version was ever good.
        in_force_generation: of that version.
        problem: why the last version was not accepted; "" where it was.
        ignored: a sentence about each field of the last version that is ignored.
    """

    name: str
    uid: str
    generation: int
    in_force: Policy | None
    in_force_generation: int
    problem: str
    ignored: tuple[str, ...] = ()


class PolicyStore:
    """All policy objects, and which version of each is accepted.

    Attributes:
        models: the cost models that policies may name; set before the first policy is offered.
        forgotten: how many objects are gone since the start.
    """

    def __init__(
        self,
        models: KnownModels = BUILT_IN_MODELS,
        put_in_force: Callable[[tuple[Policy, ...]], object] = lambda _accepted: None,
    ) -> None:
        """``put_in_force``: called with all accepted policies whenever one comes, changes or goes."""
        self.models, self._put_in_force = models, put_in_force
        self._records: dict[str, PolicyRecord] = {}
        self.forgotten = 0
        self._gone: deque[str] = deque(maxlen=_MOST_GONE)

    def offer(self, name: str, uid: str, generation: int, spec: Mapping[str, Any]) -> PolicyRecord:
        """Looks at a version of a policy object and puts it in force if it is good; if not, logs that once."""
        before = self._records.get(name)
        if before is not None and before.uid == uid and before.generation >= generation:
            return before  # known or older: events of the watch and of resyncs overtake each other
        if before is not None and before.uid != uid:
            before = None  # another object of the same name: nothing of the old one stays in force
        ignored = tuple(ignored_in(KIND, spec))
        try:
            record = PolicyRecord(name, uid, generation, parse_policy(name, spec, self.models), generation, "", ignored)
        except PolicyError as error:
            kept = (None, 0) if before is None else (before.in_force, before.in_force_generation)
            record = PolicyRecord(name, uid, generation, *kept, str(error), ignored)
            _log.warning("policy not accepted", policy=name, generation=generation, problem=record.problem)
        self._records[name] = record
        self._update()
        return record

    def forget(self, name: str, uid: str) -> None:
        """A policy object is gone; another object of the same name stays."""
        self.forgotten += 1
        self._gone.append(uid)
        record = self._records.get(name)
        if record is not None and record.uid == uid:
            del self._records[name]
            self._update()

    def gone_since(self, forgotten: int) -> set[str]:
        """Uids of objects that are gone since ``forgotten`` was this number; of the last ones, if there are many."""
        count = self.forgotten - forgotten
        return set(list(self._gone)[-count:]) if count else set()

    def _update(self) -> None:
        self._put_in_force(self.accepted)

    @property
    def accepted(self) -> tuple[Policy, ...]:
        """The versions in force, in no order, without the built-in default."""
        return tuple(record.in_force for record in self._records.values() if record.in_force is not None)

    @property
    def records(self) -> list[PolicyRecord]:
        """All policy objects, by name."""
        return [self._records[name] for name in sorted(self._records)]

    @property
    def uids(self) -> dict[str, str]:
        """Uids of the policy objects, by name."""
        return {name: record.uid for name, record in self._records.items()}
