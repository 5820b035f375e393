"""Which gangs there are, and which pods they have; what a round is told of them is in ``gang_telling``.

Of a gang's pods those count toward what it needs that have a node and are not being deleted, those that are on their
way to one, and those that succeeded while it goes on (see ``_Members.done``). What failed, is being deleted or is gone
must be replaced. A pod that waits without being asked for (ungoverned, blocked, resting) exists, but is no help now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flowcore.model.gang_agreement import Agreement, agreed, deciding
from flowcore.model.gang_telling import DomainOf, Telling
from flowcore.model.gang_terms import GangKey, GangRef, PodGroup, Terms
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery


@dataclass(frozen=True, slots=True)
class Partial:
    """A gang that is there in part (see GangBook.partial).

    Attributes:
        name: as its users know it.
        bound: those that have a node.
        waiting: those that have none.
        needed: how many it needs in all.
        timeout: seconds that it may be so, in place of its policy's; None: not said.
    """

    key: GangKey
    name: str
    bound: tuple[Pod, ...]
    waiting: tuple[Pod, ...]
    needed: int
    timeout: int | None


@dataclass(slots=True)
class _Members:
    """Pods of one gang, by their keys."""

    waiting: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    succeeded: dict[str, Pod] = field(default_factory=dict)

    def without(self, strangers: Collection[str]) -> _Members:
        """The same without some pods."""
        if not strangers:
            return self
        kept = ({k: pod for k, pod in each.items() if k not in strangers} for each in self.each)
        return _Members(*kept)

    @property
    def each(self) -> tuple[dict[str, Pod], ...]:
        """By where they are."""
        return self.waiting, self.bound, self.succeeded

    @property
    def done(self) -> int:
        """How many of those that succeeded count.

        All, as long as one runs. Then those whose controller has a pod that waits: what is left of a Job goes on, and
        the next Job of a CronJob, whose pods name the same gang, begins anew.
        """
        if self.bound or not self.succeeded:
            return len(self.succeeded)
        owners = {pod.owner for pod in self.waiting.values()}
        return sum(pod.owner in owners for pod in self.succeeded.values())


@dataclass(frozen=True, slots=True)
class View:
    """What a gang's pods and its PodGroup say, until one of them changes.

    Attributes:
        bound, done: how many of its pods have a node, and how many of those that succeeded count.
        flaw: what is wrong with what they say, "" when nothing is.
        owner: the controller whose pods decide; those of others are guests.
        strangers: keys of pods that name the gang and are no members, and why.
    """

    terms: Terms
    bound: int
    done: int
    flaw: str
    owner: str
    strangers: Mapping[str, str]


class GangBook:
    """See the module."""

    def __init__(self) -> None:
        #: PodGroup objects.
        self.groups: dict[GangKey, PodGroup] = {}
        self._members: dict[GangKey, _Members] = {}
        self._pods: dict[str, Pod] = {}
        self._views: dict[GangKey, View] = {}

    # --- what there is ---

    def put(self, pod: Pod) -> bool:
        """Takes a new or changed pod; whether others of its gang may be placed now that could not, or the other way."""
        before = self._pods.get(pod.key)
        if before is None and (pod.gang is None or _place(pod) == ""):
            return False
        if before is not None and _counted(before) == _counted(pod):
            self._file(pod)
            return False
        changed = self.drop(pod.key)
        if pod.gang is not None and _place(pod):
            self._file(pod)
            self._views.pop(pod.gang.key, None)
            changed |= self._matters(pod.gang)
        return changed

    def drop(self, key: str) -> bool:
        """A pod is gone."""
        pod = self._pods.pop(key, None)
        if pod is None or pod.gang is None:
            return False
        gang = pod.gang.key
        members = self._members[gang]
        matters = self._matters(pod.gang)
        del getattr(members, _place(pod))[key]
        if not (members.waiting or members.bound or members.succeeded):
            del self._members[gang]
        self._views.pop(gang, None)
        return matters

    def _file(self, pod: Pod) -> None:
        if pod.gang is None:
            return
        self._pods[pod.key] = pod
        getattr(self._members.setdefault(pod.gang.key, _Members()), _place(pod))[pod.key] = pod

    def put_group(self, group: PodGroup) -> bool:
        """Takes a new or changed PodGroup; whether pods wait for it."""
        if self.groups.get(group.key) == group:
            return False
        self.groups[group.key] = group
        self._views.pop(group.key, None)
        return self._matters(GangRef(group.key, group.terms))

    def drop_group(self, key: GangKey) -> bool:
        """A PodGroup is gone."""
        before = self.groups.pop(key, None)
        if before is None:
            return False
        self._views.pop(key, None)
        return self._matters(GangRef(key, before.terms))

    def _matters(self, gang: GangRef) -> bool:
        """Whether pods may wait for what changes about a gang: its own, or those of its group."""
        members = self._members.get(gang.key)
        if members is None:
            return False
        group = self.groups.get(gang.key)
        return bool(members.waiting or gang.terms.group or (group is not None and group.terms.group))

    # --- what it comes to ---

    def of_waiting(
        self, asked: Sequence[tuple[Pod, Delivery]], reserved: Mapping[str, str], domain_of: DomainOf
    ) -> tuple[list[tuple[str, ...]], list[Gang]]:
        """All steps of a ``Telling`` in one go: for each pod the names of its gangs, and these gangs, by name."""
        telling = Telling(self, asked, reserved, domain_of)
        for _ in telling.steps():
            pass
        return telling.names, telling.gangs

    def waits(self, key: str) -> Pod | None:
        """A pod of a gang as it is now, if it waits."""
        pod = self._pods.get(key)
        return pod if pod is not None and _place(pod) == "waiting" else None

    def partial(self, reserved: Mapping[str, str]) -> list[Partial]:
        """Gangs of which some run, and fewer than needed even with those that are on their way.

        A gang that has what it needs is among them where another one of its group waits for pods that it lacks.
        """
        # Each gang is looked at once, however many others name it.
        short = {key for key in self._members if self._short(key, reserved)}
        lacking = {key for key in short if self.members(key)[0]}
        return [
            self._as_partial(key)
            for key in self._members
            if self.members(key)[1] and (key in short or not lacking.isdisjoint(self.view(key).terms.group))
        ]

    def in_part(self, key: GangKey, reserved: Mapping[str, str]) -> Partial | None:
        """A gang if it is there in part (see ``partial``)."""
        if not self.members(key)[1]:
            return None
        group = self.view(key).terms.group
        lacks = self._short(key, reserved) or any(
            self._short(other, reserved) for other in group if self.members(other)[0]
        )
        return self._as_partial(key) if lacks else None

    def _as_partial(self, key: GangKey) -> Partial:
        terms, (waiting, bound) = self.view(key).terms, self.members(key)
        return Partial(key, key.shown, tuple(bound.values()), tuple(waiting.values()), terms.least or 0, terms.timeout)

    def _short(self, key: GangKey, reserved: Mapping[str, str]) -> bool:
        """Whether it lacks pods that it needs, even with those that are on their way."""
        view = self.view(key)
        lacking = (view.terms.least or 0) - view.bound - view.done
        return lacking > 0 and lacking > sum(pod in reserved for pod in self.members(key)[0])

    def view(self, key: GangKey) -> View:
        """What its pods and its PodGroup say now; of a gang without pods, that it has none."""
        view = self._views.get(key)
        if view is None:
            view = self._look_at(key)
            if key in self._members:
                self._views[key] = view
        return view

    def _look_at(self, key: GangKey) -> View:
        found = self._members.get(key) or _Members()
        pods = [*found.waiting.values(), *found.bound.values()]
        if key.source.has_objects:
            group = self.groups.get(key)
            if group is None:
                said = Agreement(Terms(), flaw=f"{key.shown} does not exist")
            else:
                flaw = f"{key.shown}: {group.problem}" if group.problem else ""
                said = Agreement(group.terms, deciding(pods), flaw)
        else:
            said = agreed(key, pods, found.succeeded.values())
        members = found.without(said.strangers)
        return View(said.terms, len(members.bound), members.done, said.flaw, said.owner, said.strangers)

    def members(self, key: GangKey) -> tuple[Mapping[str, Pod], Mapping[str, Pod]]:
        """Pods of a gang that wait, and those that have a node."""
        found = (self._members.get(key) or _Members()).without(self.view(key).strangers)
        return found.waiting, found.bound

    def first_of(self, key: GangKey) -> GangKey:
        """The first gang of its group, itself where it is by itself or the first one does not name the same group."""
        group = self.view(key).terms.group
        return group[0] if group and self.view(group[0]).terms.group == group else key

    def exists(self, key: GangKey) -> bool:
        """Whether any pod names it."""
        return key in self._members


def _place(pod: Pod) -> str:
    """Where it is filed; "": nowhere, it does not count."""
    if pod.succeeded:
        return "succeeded"
    if pod.terminal or pod.deleting:
        return ""
    return "bound" if pod.node_name else "waiting"


def _counted(pod: Pod) -> tuple[object, ...]:
    return pod.uid, pod.gang, _place(pod), pod.node_name, pod.owner, bool(pod.blocked)
