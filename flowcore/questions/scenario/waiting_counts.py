"""How many pods wait, what becomes of them, who leaves for them, and whose pods they are: sentences that all share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from flowcore.model.amount_text import counted
from flowcore.model.pods import Pod
from flowcore.model.policies import OBSERVED
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario


class WaitingCounts(msgspec.Struct, frozen=True, rename="camel"):
    """The pods that have no node now, each of them counted once.

    Attributes:
        waiting: all of them, the sum of the others.
        placed: a plan gives them a node.
        left: a plan gives them none.
        nominated: the room of their nominated node is kept until others have left it.
        gated: their scheduling gates are closed.
        deleting: they are being deleted.
        unplannable: no plan may place them for another reason, such as a claim that is not there.
        new: no round has looked at them yet.
        judged: an audit counts them, and gives nobody a node.
        sentence: all of that for people; no full stop.
    """

    waiting: int = 0
    placed: int = 0
    left: int = 0
    nominated: int = 0
    gated: int = 0
    deleting: int = 0
    unplannable: int = 0
    new: int = 0
    judged: int = 0
    sentence: str = "no pod waits"


class LeavingCounts(msgspec.Struct, frozen=True, rename="camel"):
    """The running pods that leave their node by a plan.

    Attributes:
        moved, evicted: with a new node, and without; Thalweg carries it out.
        would_move, would_be_evicted: the same of those that nobody evicts: they leave for pods that are only observed.
        sentence: all of that for people; "": nobody leaves.
    """

    moved: int = 0
    evicted: int = 0
    would_move: int = 0
    would_be_evicted: int = 0
    sentence: str = ""


def whose(namespace: str = "", policy: str = "") -> str:
    """Which pods are counted, for ``count_waiting``; "": all."""
    in_namespace = f" {'in' if policy else 'of'} namespace {namespace}" if namespace else ""
    return (f" of policy {policy}" if policy else "") + in_namespace


class Ungoverned(msgspec.Struct, frozen=True, rename="camel"):
    """Waiting pods that no policy governs and that do not name the scheduler ``thalweg``.

    Attributes:
        pods: how many.
        schedulers: the names that they have, sorted.
        sentence: who binds them; "": there are none.
    """

    pods: int = 0
    schedulers: list[str] = []
    sentence: str = ""


def count_waiting(
    pods: Mapping[str, Pod],
    *,
    placed: Iterable[str] = (),
    left: Iterable[str] = (),
    new: Iterable[str] = (),
    judged: Iterable[str] = (),
    unplanned: Iterable[str] = (),
    whose: str = "",
) -> WaitingCounts:
    """Counts waiting pods, given by their keys.

    Args:
        pods: of the cluster, by key; a pod that is not among them is counted, too.
        unplanned: those that no plan may place: their own state says why.
        whose: such as " of namespace shop", if only some pods are counted.
    """
    counts = {"placed": _number(placed), "left": _number(left), "new": _number(new), "judged": _number(judged)}
    counts |= dict.fromkeys(("nominated", "gated", "deleting", "unplannable"), 0)
    for key in unplanned:
        counts[_state(pods.get(key))] += 1
    waiting = sum(counts.values())
    return WaitingCounts(waiting=waiting, **counts, sentence=_waiting_sentence(waiting, counts, whose))


def _number(keys: Iterable[str]) -> int:
    return sum(1 for _ in keys)


def _state(pod: Pod | None) -> str:
    if pod is None:
        return "unplannable"
    if pod.deleting or pod.held_by_gates:
        return "deleting" if pod.deleting else "gated"
    return "nominated" if pod.nominated_node and not pod.skip_reason else "unplannable"


#: What is said of each count of more than one pod, and of one.
_SAID: Mapping[str, tuple[str, str]] = {
    "placed": ("get a node", "gets a node"),
    "judged": ("can be judged", "can be judged"),
    "left": ("have none", "has none"),
    "nominated": ("have room that is kept for them", "has room that is kept for it"),
    "new": ("wait for the next round", "waits for the next round"),
    "gated": ("are behind gates", "is behind gates"),
    "deleting": ("are being deleted", "is being deleted"),
    "unplannable": ("cannot be planned", "cannot be planned"),
}


def _waiting_sentence(waiting: int, counts: Mapping[str, int], whose: str) -> str:
    if not waiting:
        return f"no pod{whose} waits"
    said = {name: counts[name] for name in _SAID if counts[name]}
    if len(said) > 1:
        parts = [f"{number:,} {_SAID[name][number == 1]}" for name, number in said.items()]
        if not counts["placed"]:
            parts = [part.replace("have none", "have no node").replace("has none", "has no node") for part in parts]
    elif counts["left"]:
        parts = ["it has no node" if waiting == 1 else "none gets a node"]
    else:
        parts = [f"it {_SAID[name][1]}" if waiting == 1 else f"all {_SAID[name][0]}" for name in said]
    return f"{counted(waiting, 'pod')}{whose} {'waits' if waiting == 1 else 'wait'}: {', '.join(parts)}"


def count_leaving(leavers: Iterable[tuple[bool, bool]]) -> LeavingCounts:
    """Counts running pods that leave.

    Args:
        leavers: for each, whether it has a new node, and whether anybody carries that out.
    """
    fates = Counter(leavers)
    moved, evicted = fates[True, True], fates[False, True]
    would_move, would_be_evicted = fates[True, False], fates[False, False]
    sentences = [
        *_leaving_sentence(moved, evicted, "leaves", "leave"),
        *_leaving_sentence(would_move, would_be_evicted, "would leave", "would leave"),
    ]
    return LeavingCounts(moved, evicted, would_move, would_be_evicted, "; ".join(sentences))


def _leaving_sentence(moved: int, evicted: int, for_one: str, for_more: str) -> Iterator[str]:
    if not moved + evicted:
        return
    leaves = f"{counted(moved + evicted, 'running pod')} {for_one if moved + evicted == 1 else for_more}"
    if not evicted:
        yield f"{leaves}, {'each ' if moved > 1 else ''}with a new node"
    elif not moved:
        yield f"{leaves}, {'each ' if evicted > 1 else ''}without a new node"
    else:
        yield f"{leaves}: {moved:,} with a new node, {evicted:,} without"


def ungoverned_pods(scenario: Scenario, keys: Iterable[str]) -> Ungoverned:
    """The pods, of some that wait, that no policy governs; also where nobody acts for any pod.

    Args:
        keys: of waiting pods; those that the scenario does not know count as governed.
    """
    governed, pods = GovernedScenario(scenario), scenario.cluster.pods
    waiting = [*keys]
    known = (pods[key] for key in waiting if key in pods)
    others = [pod for pod in known if governed.policy_of(pod).name == OBSERVED.name]
    if not others:
        return Ungoverned()
    schedulers = sorted({pod.scheduler_name for pod in others})
    binds = f"{_listed(schedulers)} {'binds' if len(schedulers) == 1 else 'bind'}"
    them = "it" if len(others) == 1 else "them"
    whose, what = ("this pod" if len(waiting) == 1 else "these pods"), "nothing"
    if len(others) < len(waiting):
        whose, what = f"{len(others):,} of these pods", f"nothing for {them}"
    return Ungoverned(len(others), schedulers, f"No policy governs {whose}: {binds} {them}. Thalweg changes {what}.")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
