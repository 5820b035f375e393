"""What a gang needs, where its pods say it: the pods of one controller decide.

The controller of the oldest pod that says how many the gang needs. Pods without a controller decide together, and only
where no pod of a controller does. A pod of another controller that says something else is a stranger: it is no member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from flowcore.model.gang_terms import GANG_MIN_MEMBER, KOORDINATOR_LEAST, MOST_IN_GROUP, GangKey, Source, Terms
from flowcore.model.pods import Pod

#: The annotation that says how many a gang needs.
_LEAST = {Source.KOORDINATOR: KOORDINATOR_LEAST, Source.THALWEG: GANG_MIN_MEMBER}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a gang needs.

    Attributes:
        owner: the controller that decides, "" for pods without one; pods of others are guests.
        flaw: what is wrong with that, "" when nothing is.
        strangers: keys of pods that are no members though they name the gang, and why.
    """

    terms: Terms
    owner: str = ""
    flaw: str = ""
    strangers: Mapping[str, str] = field(default_factory=dict)


def agreed(key: GangKey, pods: Collection[Pod], done: Iterable[Pod] = ()) -> Agreement:
    """What the pods that name a gang come to.

    Args:
        pods: those that wait or have a node.
        done: those that succeeded: they say nothing any more, but count where they are no strangers.
    """
    said = {(pod.owner, pod.gang.terms) for pod in pods if pod.gang is not None}
    owner = next(iter(said))[0] if len(said) == 1 else deciding(pods)
    terms, flaw = _joined(key, {each for by, each in said if by == owner})
    strangers = {}
    for each in (pods if len(said) > 1 else (), done):
        for pod in each:
            if pod.owner != owner and pod.gang is not None and (other := _differs(key, pod.gang.terms, terms)):
                strangers[pod.key] = f"{key.shown} belongs to another controller, and this pod's {other}"
    return Agreement(terms, owner, flaw, strangers)


def deciding(pods: Collection[Pod]) -> str:
    """The controller that decides for a gang, "" where its pods have none."""
    owners = {pod.owner for pod in pods}
    return min(pods, key=_decides_first).owner if len(owners) > 1 else next(iter(owners), "")


def _decides_first(pod: Pod) -> tuple[bool, bool, float, str]:
    silent = pod.gang is None or pod.gang.terms.least is None
    return silent, not pod.owner, pod.created, pod.key


def _joined(key: GangKey, said: set[Terms]) -> tuple[Terms, str]:
    """The terms of pods that may say different things, and what is wrong with that."""
    if len(said) == 1:
        terms = next(iter(said))
    else:
        terms = Terms(
            least=max((each.least for each in said if each.least is not None), default=None),
            topology=min((each.topology for each in said if each.topology), default=""),
            group=tuple(sorted({other for each in said for other in each.group})),
            timeout=max((each.timeout for each in said if each.timeout is not None), default=None),
        )
    if terms.least is None:
        return terms, f"{key.shown}: none of its pods has the annotation {_LEAST[key.source]}"
    topologies = sorted({each.topology for each in said} - {""}) if len(said) > 1 else []
    if len(topologies) > 1:
        return terms, f"{key.shown}: its pods name different topologies: {', '.join(topologies)}"
    if len(terms.group) > MOST_IN_GROUP:
        problem = f"its pods name a group of {len(terms.group)} gangs, {MOST_IN_GROUP} are allowed"
        return Terms(terms.least, terms.topology, (), terms.timeout), f"{key.shown}: {problem}"
    return terms, ""


def _differs(key: GangKey, said: Terms, terms: Terms) -> str:
    """What a pod says that is not so, "" where it says nothing else."""
    if said.least is not None and said.least != terms.least:
        return f"{_LEAST[key.source]} is {said.least}, not {terms.least}"
    if said.topology and said.topology != terms.topology:
        return f"topology is {said.topology}, not {terms.topology or 'given'}"
    if said.group and said.group != terms.group:
        return "group of gangs is another one"
    if said.timeout is not None and said.timeout != terms.timeout:
        return f"time is {said.timeout} s, not {terms.timeout}"
    return ""
