"""Declared networks that take long have rounds of their own, so that nobody else waits for them more than they must.

A network cannot be planned in parts: its minimums and maximums count all pods of its policy. So its pods are in a round
together, or in none. While it takes at most ``BOUND`` seconds it is planned with all others. Beyond that:

- It is planned alone, after a round of all others that wait. These see no network but the one that runs when they come.
- After it nobody else's network is, and not this one, for ``_REST`` times as long as it took. So networks that take
  long have a quarter of the time together, however many there are. The one that was planned the longest time ago is
  first.
- It is planned again only once something has changed.

Pure: the caller passes the time (of a monotonic clock) and what each round took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flowcore.model.pods import Pod
from thalweg_operator.planning.turns.namespaces import BOUND, TOLD_AFTER, TurnSelection

#: How much longer than a round of a network others have the worker for themselves after it.
_REST = 3.0
#: A network that was dear once counts at least this part of that the next time.
_REMEMBERED = 0.5


@dataclass(slots=True)
class _Network:
    """A network that took long.

    Attributes:
        seconds: CPU seconds that it takes.
        planned_at: when its own round began last.
        generation, helped: of the cluster then.
    """

    seconds: float
    planned_at: float = float("-inf")
    generation: int = -1
    helped: int = -1


class NetworkTurns:
    """Selects whose networks a round has. Call ``choose``, then ``took`` if the round ended with a plan."""

    def __init__(self) -> None:
        #: By policy.
        self._networks: dict[str, _Network] = {}
        #: Since when pods wait for their first turn, and those that had one; by uid.
        self._waits_since: dict[str, float] = {}
        self._planned: set[str] = set()
        #: The policy whose round it is; "": one of all others. When it began, and until when others are undisturbed.
        self.own = ""
        self._began = 0.0
        self._rests_until = float("-inf")
        #: Whether the others had a round since a network was due.
        self._served_others = False
        self._next_at: float | None = None
        #: What the last round chose from.
        self._pods: Sequence[Pod] = ()
        self._policy_of: Callable[[Pod], str] = _no_policy
        self._changes = -1, -1

    @property
    def next_at(self) -> float | None:
        """When a round is due for a network that waits for its turn; None: there is none."""
        return self._next_at

    def choose(
        self,
        pods: Sequence[Pod],
        policy_of: Callable[[Pod], str],
        generation: int,
        helped: int,
        now: float,
        always: Collection[str] = frozenset(),
    ) -> TurnSelection:
        """Selects the pods of the next round: those of one network, or all but those of networks that take long.

        Args:
            pods: pods that may be planned.
            policy_of: name of the policy that governs a pod.
            generation: of the cluster.
            helped: rises with each change after which a pod that was planned in vain may have a node.
            now: seconds of a monotonic clock.
            always: uids of pods that the round has to plan, with their networks.
        """
        self._began, self._next_at, self._changes = now, None, (generation, helped)
        self._pods, self._policy_of = pods, policy_of
        dear = {name for name, network in self._networks.items() if network.seconds > BOUND}
        by_policy: dict[str, list[Pod]] = {}
        for pod in pods if dear else ():
            if (name := policy_of(pod)) in dear:
                by_policy.setdefault(name, []).append(pod)
        by_policy = {name: own for name, own in by_policy.items() if not any(pod.uid in always for pod in own)}
        if not by_policy:
            self.own, self._served_others, self._waits_since = "", False, {}
            return TurnSelection(pods)
        left_out = {pod.uid for own in by_policy.values() for pod in own}
        others = [pod for pod in pods if pod.uid not in left_out]
        changed = [name for name in by_policy if self._is_changed(name, by_policy[name], generation, helped)]
        due = changed if now >= self._rests_until else []
        if due and (self._served_others or not others):
            self.own = min(due, key=lambda name: (self._networks[name].planned_at, name))
            network = self._networks[self.own]
            network.planned_at, network.generation, network.helped = now, generation, helped
            self._served_others = False
            return self._selection(by_policy[self.own], pods, now, more=bool(others))
        self.own, self._served_others = "", bool(due)
        if changed and not due:
            self._next_at = self._rests_until
        return self._selection(others, pods, now, more=bool(due))

    def took(self, by_policy: Mapping[str, float], now: float) -> None:
        """The last chosen round ended with a plan.

        Args:
            by_policy: CPU seconds for the networks of the round.
            now: as above.
        """
        for name, seconds in by_policy.items():
            network = self._networks.get(name)
            if network is not None:
                network.seconds = max(seconds, network.seconds * _REMEMBERED)
            elif seconds > BOUND:
                self._networks[name] = _Network(seconds, self._began, *self._changes)
                self._planned |= {pod.uid for pod in self._pods if self._policy_of(pod) == name}
        if any(seconds > BOUND for seconds in by_policy.values()):
            # By the clock: on a busy machine others wait longer.
            self._rests_until = now + _REST * (now - self._began)

    def retain(self, pods: Iterable[Pod], policies: Collection[str]) -> None:
        """Forgets all other pods and policies."""
        self._networks = {name: network for name, network in self._networks.items() if name in policies}
        if self._planned:
            self._planned &= {pod.uid for pod in pods}

    def _is_changed(self, name: str, pods: Sequence[Pod], generation: int, helped: int) -> bool:
        network = self._networks[name]
        return (network.generation, network.helped) != (generation, helped) or any(
            pod.uid not in self._planned for pod in pods
        )

    def _selection(self, chosen: Sequence[Pod], pods: Sequence[Pod], now: float, *, more: bool) -> TurnSelection:
        picked = {pod.uid for pod in chosen}
        if self.own:
            self._planned |= picked
        deferred = [pod for pod in pods if pod.uid not in picked]
        # After the round of a network all others follow at once: nobody waits for long.
        new = [] if self.own else [pod for pod in deferred if pod.uid not in self._planned]
        if not self.own:
            self._waits_since = {pod.uid: self._waits_since.get(pod.uid, now) for pod in new}
        told = [pod for pod in new if now - self._waits_since[pod.uid] >= TOLD_AFTER]
        return TurnSelection(chosen, deferred, told, more)


def waits_for_network(policy: str) -> str:
    """Why a pod waits that no round has planned."""
    return f"It waits for its turn: the network of policy {policy} takes long, so it is planned in rounds of its own."


def _no_policy(_pod: Pod) -> str:
    return ""
