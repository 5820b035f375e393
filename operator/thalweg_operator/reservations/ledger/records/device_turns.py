"""Nodes on which devices are being chosen: by kube-scheduler, or by a plan for pods that we bind.

kube-scheduler takes the first devices that are free as far as it knows, and does not look again when it writes the
claim. Whoever writes second gives a device away twice. So the two take turns on each node: the binder waits until
kube-scheduler's attempts there have ended, and no new one may choose that node until what the binder wrote is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, KeysView

import msgspec

from flowcore.model.pods import Pod

#: Seconds in which kube-scheduler writes a claim after our answer, or not at all.
_ATTEMPT_SECONDS = 10.0
#: Seconds in which the binder's claims are written once its turn has come.
TURN_SECONDS = 20.0
#: Seconds after which kube-scheduler knows what the watch has shown us, in attempts that may have begun before; and in
#: which it may still write the claim of a pod that is gone.
_SETTLING_SECONDS = 1.0
#: Seconds that a node is kube-scheduler's after a turn that kept one of its pods off.
_OPEN_SECONDS = 2.0
#: Turns at once. Pods beyond them wait without keeping anybody off their nodes.
_MOST_TURNS = 64


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """A pod that kube-scheduler was let through with to one of these nodes, and may be choosing devices for."""

    pod: Pod
    nodes: frozenset[str]
    until: float


class BinderTurn(msgspec.Struct, frozen=True, gc=False):
    """A turn of the binder on a node, for the claims of one of its pods.

    Attributes:
        reservation: number of the pod's reservation.
        until: when the reservation is given up.
    """

    pod: Pod
    node: str
    reservation: int
    until: float


class DeviceTurns:
    """Who chooses devices where.

    Attributes:
        line: keys of the binder's pods that wait for a turn, in their order.
        kept_off: keys of kube-scheduler's pods that a turn kept from nodes in their last attempt, and these nodes.
            While one of these nodes is closed no further turn begins there.
    """

    def __init__(self) -> None:
        self.line: dict[str, None] = {}
        self.kept_off: dict[str, frozenset[str]] = {}
        #: How many of these pods each node has.
        self._kept_off_at: Counter[str] = Counter()
        self._attempts: dict[str, Attempt] = {}
        #: Keys of these pods, by node.
        self._attempts_at: dict[str, set[str]] = {}
        self._turns: dict[str, BinderTurn] = {}
        #: How many of these each node has.
        self._turns_at: Counter[str] = Counter()
        #: Nodes where a turn ended -> until when they stay closed; infinity: until that long after the next ``forget``.
        self._settling: dict[str, float] = {}
        #: Nodes on which no turn may begin until then.
        self._open: dict[str, float] = {}

    # --- kube-scheduler's ---

    def let_through(self, pod: Pod, nodes: frozenset[str], now: float) -> None:
        """kube-scheduler may be choosing devices for this pod on one of these nodes; without nodes: on none."""
        self._drop_attempt(pod.key)
        if nodes and pod.pod_class.devices is not None:
            self._add_attempt(Attempt(pod, nodes, now + _ATTEMPT_SECONDS))

    def changed(self, pod: Pod, now: float) -> None:
        """A pod changed: the watch may show which node kube-scheduler chose, though not yet the devices there.

        kube-scheduler nominates the node before it writes claims (schedule_one.go bindingCycle, since 1.35).
        """
        key, attempt = pod.key, self._attempts.get(pod.key)
        if pod.node_name and key in self.kept_off:
            self.keep_off(key, frozenset())
        if attempt is None:
            return
        if attempt.pod.uid != pod.uid:
            self.gone(key, now)
            return
        is_nominated = pod.nominated_node in attempt.nodes and pod.nominated_node != attempt.pod.nominated_node
        node = pod.node_name or (pod.nominated_node if is_nominated else "")
        if node:
            self._drop_attempt(key)
            self._add_attempt(msgspec.structs.replace(attempt, nodes=frozenset((node,))))

    def keep_off(self, key: str, nodes: frozenset[str]) -> None:
        """A turn kept the pod of this name from these nodes; without nodes: from none."""
        self._kept_off_at.subtract(self.kept_off.pop(key, ()))
        if nodes:
            self.kept_off[key] = nodes
            self._kept_off_at.update(nodes)

    def gone(self, key: str, now: float) -> None:
        """The pod of this name is gone: its claim may just be written."""
        self.keep_off(key, frozenset())
        attempt = self._attempts.get(key)
        if attempt is not None:
            until = min(attempt.until, now + _SETTLING_SECONDS)
            self._attempts[key] = msgspec.structs.replace(attempt, until=until)

    def _add_attempt(self, attempt: Attempt) -> None:
        self._attempts[attempt.pod.key] = attempt
        for node in attempt.nodes:
            self._attempts_at.setdefault(node, set()).add(attempt.pod.key)

    def _drop_attempt(self, key: str) -> None:
        attempt = self._attempts.pop(key, None)
        if attempt is None:
            return
        for node in attempt.nodes:
            keys = self._attempts_at[node]
            keys.discard(key)
            if not keys:
                del self._attempts_at[node]

    def attempts_at(self, node: str) -> Iterator[Pod]:
        """Pods that kube-scheduler may be choosing devices for on a node."""
        return (self._attempts[key].pod for key in self._attempts_at.get(node, ()))

    # --- the binder's ---

    def may_begin(self, key: str, node: str) -> bool:
        """Whether a turn for a pod may begin on a node now: not too many are under way, and nobody waits longer."""
        is_its_place = key in self.line or not self.line
        is_wanted = self._kept_off_at[node] > 0 and self.is_binders(node)
        return is_its_place and not self.are_most and node not in self._open and not is_wanted

    @property
    def are_most(self) -> bool:
        """Whether no further turn may begin now."""
        return len(self._turns) >= _MOST_TURNS

    def begin(self, pod: Pod, node: str, reservation: int, now: float) -> None:
        """A turn begins, for the claims of one of the binder's pods, which has none."""
        self.line.pop(pod.key, None)
        self._turns[pod.key] = BinderTurn(pod, node, reservation, now + TURN_SECONDS)
        self._turns_at[node] += 1

    def write(self, key: str, now: float) -> None:
        """kube-scheduler's attempts have ended: the claims are being written."""
        self._turns[key] = msgspec.structs.replace(self._turns[key], until=now + TURN_SECONDS)

    def leave(self, key: str, reservation: int) -> None:
        """A reservation waits for no turn any more, and has none."""
        self.line.pop(key, None)
        turn = self._turns.get(key)
        if turn is not None and turn.reservation == reservation:
            self.end(key)

    def end(self, key: str) -> None:
        """The watch shows what was written for the claims of a pod, or they are given back."""
        turn = self._turns.pop(key, None)
        if turn is None:
            return
        self._settling[turn.node] = math.inf
        self._turns_at[turn.node] -= 1
        if not self._turns_at[turn.node]:
            del self._turns_at[turn.node]

    @property
    def pods(self) -> KeysView[str]:
        """Keys of the pods that have a turn."""
        return self._turns.keys()

    def turn(self, key: str) -> BinderTurn | None:
        """The turn for the claims of a pod; None: there is none."""
        return self._turns.get(key)

    def is_binders(self, node: str) -> bool:
        """Whether kube-scheduler must not choose devices on a node."""
        return node in self._turns_at or node in self._settling

    @property
    def is_any_binders(self) -> bool:
        """Whether there is such a node."""
        return bool(self._turns_at or self._settling)

    # --- time ---

    def forget(self, now: float) -> None:
        """Forgets what is known to everybody by now. To be called several times a second."""
        for key in [key for key, attempt in self._attempts.items() if attempt.until <= now]:
            self._drop_attempt(key)
        for node in [node for node, until in self._open.items() if until <= now]:
            del self._open[node]
        for node, until in list(self._settling.items()):
            if until == math.inf:
                self._settling[node] = now + _SETTLING_SECONDS
            elif until <= now:
                del self._settling[node]
                if self._kept_off_at[node] > 0:
                    self._open[node] = now + _OPEN_SECONDS
        for node in [node for node, number in self._kept_off_at.items() if not number]:
            del self._kept_off_at[node]

    def let_in(self) -> list[str]:
        """Keys of pods of which a node is open again, since the last call."""
        keys = [key for key, nodes in self.kept_off.items() if not all(map(self.is_binders, nodes))]
        for key in keys:
            self.keep_off(key, frozenset())
        return keys
