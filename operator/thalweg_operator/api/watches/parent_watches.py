"""Watches the controllers that make gangs, as far as policies follow them, or pods ask for it.

A kind that no policy follows and no pod asked for is not watched. A kind that the cluster does not serve, that the
account may not list, or whose first list fails for a minute has no gangs: its pods are planned one by one. The
reflector says so in the log. Neither has a parent that pods name for a minute and that is not seen, as after ``kubectl
delete --cascade=orphan``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from flowcore.api.gang_parents import kinds_of, parent_reader
from flowcore.api.kinds import VOLCANO_JOB, ObjectKind
from flowcore.api.parent_sizes import WireVolcanoJob, to_volcano_job
from flowcore.cluster.kinds import GANG_PARENTS, VOLCANO_JOBS, Store
from flowcore.model.gang_parents import GangController, GangParent, ParentKey, ParentRule
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.api.watches.sinks import ObjectSink
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.events import ParentsFollowed
from thalweg_operator.shell import Shell

#: Seconds between two looks at the policies and at what the API server answered.
_EVERY: Final = 0.5
#: Seconds that a start waits for the kinds to be listed.
_PATIENCE: Final = 15.0
#: Seconds that pods wait for the first list of a kind, as where its conversion webhook is down, or for their parent.
_LONGEST_WAIT: Final = 60.0


@dataclass(slots=True)
class _Watch:
    """The watch of one kind.

    Attributes:
        rule: of the policy that names the kind; None: a built-in one.
        began: the event loop's time.
    """

    rule: ParentRule | None
    began: float
    reflector: Reflector[Any]
    sink: ObjectSink[Any, Any]
    task: asyncio.Task[None]

    @property
    def is_followed(self) -> bool:
        """Whether its objects are known, or may be soon."""
        if self.reflector.absent or self.reflector.forbidden:
            return False
        return self.reflector.synced.is_set() or asyncio.get_running_loop().time() - self.began < _LONGEST_WAIT


class ParentWatches:
    """The reflectors of kinds that policies follow."""

    def __init__(self, shell: Shell, api_client: ApiClient, metrics: Metrics, bad_input: BadInput) -> None:
        self._shell, self._api_client, self._metrics, self._bad_input = shell, api_client, metrics, bad_input
        self._watches: dict[ObjectKind, _Watch] = {}
        #: Since when pods name each parent that is not known; the event loop's time.
        self._unseen_since: dict[ParentKey, float] = {}
        self._unseen_version = 0
        #: The earliest of these times of parents that are not gone yet.
        self._waits_since = float("inf")

    async def run(self) -> None:
        """Watches until cancelled."""
        try:
            while True:
                self.look()
                for watch in self._watches.values():
                    if watch.task.done():
                        watch.task.result()  # a reflector ends by a fault of ours only
                await asyncio.sleep(_EVERY)
        finally:
            for watch in self._watches.values():
                watch.task.cancel()

    async def listed(self) -> None:
        """Returns when the API server has answered for each kind that policies follow, or does not for a while.

        Then only pods of that kind wait.
        """
        self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(watch.reflector.answered.wait() for watch in self._watches.values()))
        self.look()

    def look(self) -> None:
        """Begins and ends watches as the policies say now, and tells the cluster which kinds are known."""
        wanted = self._wanted()
        for kind, watch in list(self._watches.items()):
            if kind not in wanted or watch.rule != wanted[kind]:
                watch.task.cancel()
                del self._watches[kind]
                for key in watch.sink.keys():  # noqa: SIM118 - a sink is not a mapping
                    watch.sink.delete(key)
        for kind, rule in wanted.items():
            if kind not in self._watches:
                self._watches[kind] = self._begin(kind, rule)
        followed = frozenset(kind.qualified for kind, watch in self._watches.items() if watch.is_followed)
        known, gone = self._shell.cluster.parent_gangs, self._gone()
        if (followed, gone) != (known.followed, known.gone):
            self._shell.apply(ParentsFollowed(followed, gone))

    def _gone(self) -> frozenset[ParentKey]:
        """Parents that pods name and that have not been seen for long enough."""
        now, since, known = asyncio.get_running_loop().time(), self._unseen_since, self._shell.cluster.parent_gangs
        if known.unseen_version != self._unseen_version:
            self._unseen_version = known.unseen_version
            self._unseen_since = {key: since.get(key, now) for key in known.unseen()}
        elif now - self._waits_since < _LONGEST_WAIT:
            return known.gone  # the same as at the last look; there may be very many
        waits = [began for began in self._unseen_since.values() if now - began < _LONGEST_WAIT]
        self._waits_since = min(waits, default=float("inf"))
        return frozenset(key for key, began in self._unseen_since.items() if now - began >= _LONGEST_WAIT)

    def _wanted(self) -> dict[ObjectKind, ParentRule | None]:
        policies = [policy.gangs for policy in self._shell.cluster.policies.ordered]
        wanted = dict.fromkeys(self._shell.cluster.parent_gangs.asked) | kinds_of(policies)
        if any(GangController.VOLCANO_JOB in policy.controllers for policy in policies):
            wanted[VOLCANO_JOB] = None
        return wanted

    def _begin(self, kind: ObjectKind, rule: ParentRule | None) -> _Watch:
        store: Store[Any, Any] = VOLCANO_JOBS if kind == VOLCANO_JOB else GANG_PARENTS
        sink = ObjectSink(self._shell, kind, store)
        name = f"{kind.plural}.{kind.group}"
        path, *older_paths = kind.paths
        reflector = Reflector(
            name,
            path,
            self._api_client,
            self._decoder(kind, rule, name),
            sink,
            self._metrics,
            self._bad_input,
            self._api_client.outages,
            may_be_absent=True,
            older=older_paths,
        )
        began = asyncio.get_running_loop().time()
        return _Watch(rule, began, reflector, sink, asyncio.create_task(reflector.run(), name=f"reflector {name}"))

    def _decoder(self, kind: ObjectKind, rule: ParentRule | None, name: str) -> Callable[[bytes | msgspec.Raw], Any]:
        if kind == VOLCANO_JOB:
            decode = msgspec.json.Decoder(WireVolcanoJob).decode
            return lambda raw: to_volcano_job(decode(raw))
        read = parent_reader(kind, rule)

        def read_and_report(raw: bytes | msgspec.Raw) -> GangParent:
            parent = read(raw)
            if parent.problem:
                self._bad_input.refuse(name, "size", f"{parent.key.namespace}/{parent.key.name}", parent.problem)
            return parent

        return read_and_report
