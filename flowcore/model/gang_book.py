"""Which gangs there are, and what a round is told of them; the same for the operator and ``simulate``.

Of a gang's pods those count toward what it needs that have a node and are not being deleted, those that are on their
way to one, and those that succeeded while it goes on (see ``_Members.done``). What failed, is being deleted or is gone
must be replaced. A pod that waits without being asked for (ungoverned, blocked, resting) exists, but is no help now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flowcore.model.gang_terms import GANG_MIN_MEMBER, KOORDINATOR_LEAST, GangKey, GangRef, PodGroup, Source, Terms
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery

#: The annotation that says how many a gang needs.
_LEAST = {Source.KOORDINATOR: KOORDINATOR_LEAST, Source.THALWEG: GANG_MIN_MEMBER}
#: A node's value of a label, "" where it has none.
DomainOf = Callable[[str, str], str]


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
class _View:
    """What a gang's pods and its PodGroup say, until one of them changes."""

    terms: Terms
    bound: int
    done: int
    flaw: str


class GangBook:
    """See the module."""

    def __init__(self) -> None:
        #: PodGroup objects.
        self.groups: dict[GangKey, PodGroup] = {}
        self._members: dict[GangKey, _Members] = {}
        self._pods: dict[str, Pod] = {}
        self._views: dict[GangKey, _View] = {}

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
        """What a round is told: for each pod the names of its gangs, and these gangs, by name.

        Args:
            asked: the pods that the round is to place, and how their plan is delivered.
            reserved: keys of pods that are on their way to a node, and the node.
        """
        names: list[tuple[str, ...]] = [()] * len(asked)
        places: dict[GangKey, list[int]] = {}
        for at, (pod, _) in enumerate(asked):
            now = self._pods.get(pod.key)  # it may have changed since the round was begun
            if now is not None and now.gang is not None and _place(now) == "waiting":
                places.setdefault(now.gang.key, []).append(at)
        if not places:
            return names, []
        looks = {key: _Look(self, key, [asked[at] for at in at_them], reserved) for key, at_them in places.items()}
        gangs: list[Gang] = []
        for key, at_them in places.items():
            gang = self._gang(looks, key, reserved, domain_of)
            if gang is not None:
                gangs.append(gang)
                for at in at_them:
                    names[at] = (gang.name,)
        return names, sorted(gangs, key=lambda gang: gang.name)

    def _gang(
        self, looks: dict[GangKey, _Look], key: GangKey, reserved: Mapping[str, str], domain_of: DomainOf
    ) -> Gang | None:
        look = looks[key]
        terms = look.view.terms
        flaw = look.flaw
        if not flaw and look.missing > 0:
            flaw = self._flaw_of_group(looks, key, terms.group, reserved)
        if not flaw and look.missing <= 0 and not terms.topology:
            return None
        return Gang(
            name=key.shown,
            least=max(0, look.missing),
            unit=_unit(terms.group) if look.missing > 0 else "",
            topology=terms.topology,
            domain=self._domain(key, terms.topology, reserved, domain_of) if terms.topology else "",
            flaw=flaw,
            started=look.missing > 0 and look.there > 0,
        )

    def _flaw_of_group(
        self, looks: dict[GangKey, _Look], key: GangKey, group: tuple[GangKey, ...], reserved: Mapping[str, str]
    ) -> str:
        """Why the others of its group keep a gang waiting; "" where they do not.

        Once it has begun, those of which none waits do not: they may have ended before it.
        """
        for other in group:
            members = self._members.get(other)
            if other == key or (looks[key].there > 0 and not (members and members.waiting)):
                continue
            if members is None:
                return f"{key.shown}: {other.shown} of its group has no pods"
            look = looks.get(other) or _Look(self, other, [], reserved)
            if look.view.terms.group != group:
                return f"{key.shown}: {other.shown} does not name the same group"
            if look.flaw and look.missing > 0:
                return f"{key.shown} waits for its group: {look.flaw}"
            if look.missing > 0 and look.deliveries != looks[key].deliveries:
                return f"{key.shown}: its group is not delivered the same way"
        return ""

    def _domain(self, key: GangKey, topology: str, reserved: Mapping[str, str], domain_of: DomainOf) -> str:
        """Where most of its pods are, should others have put them in several domains."""
        members = self._members[key]
        nodes = [pod.node_name for pod in members.bound.values()]
        nodes += [reserved[pod] for pod in members.waiting if pod in reserved]
        found = Counter(value for node in nodes if (value := domain_of(node, topology)))
        return min(found, key=lambda value: (-found[value], value), default="")

    def partial(self, reserved: Mapping[str, str]) -> list[Partial]:
        """Gangs of which some run, and fewer than needed even with those that are on their way.

        A gang that has what it needs is among them where another one of its group waits for pods that it lacks.
        """
        return [found for key in self._members if (found := self.in_part(key, reserved)) is not None]

    def in_part(self, key: GangKey, reserved: Mapping[str, str]) -> Partial | None:
        """A gang if it is there in part (see ``partial``)."""
        members = self._members.get(key)
        if members is None or not members.bound:
            return None
        view = self._view(key)
        if not self._short(key, reserved) and not any(
            self._short(other, reserved)
            for other in view.terms.group
            if other in self._members and self._members[other].waiting
        ):
            return None
        bound, waiting = tuple(members.bound.values()), tuple(members.waiting.values())
        return Partial(key, key.shown, bound, waiting, view.terms.least or 0, view.terms.timeout)

    def _short(self, key: GangKey, reserved: Mapping[str, str]) -> bool:
        """Whether it lacks pods that it needs, even with those that are on their way."""
        view, members = self._view(key), self._members[key]
        lacking = (view.terms.least or 0) - view.bound - view.done
        return lacking > 0 and lacking > sum(pod in reserved for pod in members.waiting)

    def _view(self, key: GangKey) -> _View:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._look_at(key)
        return view

    def _look_at(self, key: GangKey) -> _View:
        members = self._members[key]
        terms, flaw = self._terms(key, members)
        return _View(terms, len(members.bound), members.done, flaw)

    def _terms(self, key: GangKey, members: _Members) -> tuple[Terms, str]:
        """What the gang needs, and what is wrong with that."""
        if key.source.has_objects:
            group = self.groups.get(key)
            if group is None:
                return Terms(), f"{key.shown} does not exist"
            return group.terms, f"{key.shown}: {group.problem}" if group.problem else ""
        said = {pod.gang.terms for each in (members.waiting, members.bound) for pod in each.values() if pod.gang}
        topologies = sorted({each.topology for each in said} - {""})
        terms = Terms(
            least=max((each.least for each in said if each.least is not None), default=None),
            topology=topologies[0] if topologies else "",
            group=tuple(sorted({other for each in said for other in each.group})),
            timeout=max((each.timeout for each in said if each.timeout is not None), default=None),
        )
        if terms.least is None:
            return terms, f"{key.shown}: none of its pods has the annotation {_LEAST[key.source]}"
        if len(topologies) > 1:
            return terms, f"{key.shown}: its pods name different topologies: {', '.join(topologies)}"
        return terms, ""

    def members(self, key: GangKey) -> tuple[Mapping[str, Pod], Mapping[str, Pod]]:
        """Pods of a gang that wait, and those that have a node."""
        found = self._members.get(key) or _Members()
        return found.waiting, found.bound


class _Look:
    """A gang as one round meets it.

    Attributes:
        there: how many of its pods have a node or are on their way to one.
        missing: how many more it needs; not above zero where it has them.
        deliveries: how the plans of its pods in this round are delivered.
        flaw: why it cannot be placed in this round whatever room there is, by itself; "" when it can.
    """

    def __init__(
        self, book: GangBook, key: GangKey, asked: Sequence[tuple[Pod, Delivery]], reserved: Mapping[str, str]
    ) -> None:
        self.view = view = book._view(key)  # noqa: SLF001 - one module
        waiting, bound = book.members(key)
        self.there = len(bound) + sum(pod in reserved for pod in waiting)
        needed = view.terms.least or 0
        self.missing = needed - self.there - view.done
        self.deliveries = {delivery for _, delivery in asked}
        self.flaw = view.flaw
        if self.flaw:
            self.missing = max(1, self.missing)
        elif self.missing > 0:
            self.flaw = self._flaw(key, asked, waiting, reserved, needed)

    def _flaw(
        self,
        key: GangKey,
        asked: Sequence[tuple[Pod, Delivery]],
        waiting: Mapping[str, Pod],
        reserved: Mapping[str, str],
        needed: int,
    ) -> str:
        exist = self.view.bound + self.view.done + len(waiting)
        if exist < needed:
            return f"{key.shown}: {exist} of {needed} pods exist"
        if len(asked) < self.missing:
            now = {pod.key for pod, _ in asked}
            others = [pod for name, pod in sorted(waiting.items()) if name not in now and name not in reserved]
            why = next((f"; {pod.key}: {pod.blocked or pod.unjudged}" for pod in others if _hindered(pod)), "")
            return f"{key.shown}: it needs {self.missing} pods at once, {len(asked)} can be planned now{why}"
        if len(self.deliveries) > 1:
            ways = ", ".join(sorted(each.value for each in self.deliveries))
            return f"{key.shown}: its pods are not delivered the same way: {ways}"
        return ""


def _hindered(pod: Pod) -> bool:
    return bool(pod.blocked or pod.unjudged)


def _place(pod: Pod) -> str:
    """Where it is filed; "": nowhere, it does not count."""
    if pod.succeeded:
        return "succeeded"
    if pod.terminal or pod.deleting:
        return ""
    return "bound" if pod.node_name else "waiting"


def _counted(pod: Pod) -> tuple[object, ...]:
    return pod.uid, pod.gang, _place(pod), pod.node_name, pod.owner, bool(pod.blocked)


def _unit(group: tuple[GangKey, ...]) -> str:
    return ", ".join(each.shown for each in group)
