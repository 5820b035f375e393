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
from thalweg_operator.reservations.ledger.records.devices.scheduler_attempts import SchedulerAttempts
from thalweg_operator.reservations.ledger.records.devices.turn_line import TurnLine

#: Seconds in which the binder's claims are written once its turn has come.
TURN_SECONDS = 20.0
#: Seconds after which kube-scheduler knows what the watch has shown us, in attempts that may have begun before.
_SETTLING_SECONDS = 1.0
#: Seconds that a node is kube-scheduler's after a turn that kept one of its pods off. Twice as many each time that the
#: same pod is kept off again: its back-off may be longer. kube-scheduler's is 10 seconds at most.
_OPEN_SECONDS, _MOST_OPEN_SECONDS = 2.0, 12.0
#: Seconds that kube-scheduler may look for pods to evict after our answer.
_EVICTING_SECONDS = 1.0
#: Seconds after which it does not count any more that a pod was kept off.
_KEPT_OFF_SECONDS = 60.0
#: Turns at once. Pods beyond them wait without keeping anybody off their nodes.
_MOST_TURNS = 64


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


class KeptOff(msgspec.Struct):
    """A pod that turns kept from nodes in its last attempt.

    Attributes:
        nodes: these, until one of them is open; then none.
        times: how often in a row; it was let in each time between.
        since: when that attempt was answered.
        is_recent: whether the attempt may still go on.
    """

    nodes: frozenset[str]
    times: int
    since: float
    is_recent: bool = True


class DeviceTurns:
    """Who chooses devices where.

    Attributes:
        attempts: kube-scheduler's.
        line: the binder's pods that wait for a turn.
    """

    def __init__(self) -> None:
        self.attempts = SchedulerAttempts()
        self.line = TurnLine()
        #: By key. While a node that a pod was kept from is closed no further turn begins there.
        self._kept_off: dict[str, KeptOff] = {}
        #: How many of these pods each node has.
        self._kept_off_at: Counter[str] = Counter()
        self._turns: dict[str, BinderTurn] = {}
        #: How many of these each node has, and each namespace.
        self._turns_at: Counter[str] = Counter()
        self._turns_of: Counter[str] = Counter()
        #: Nodes where a turn ended -> until when they stay closed; infinity: until that long after the next ``forget``.
        self._settling: dict[str, float] = {}
        #: Nodes on which no turn may begin until then.
        self._open: dict[str, float] = {}

    # --- kube-scheduler's pods ---

    def changed(self, pod: Pod, before: Pod | None, now: float) -> None:
        """A pod came or changed; another one of its name may have been there before."""
        if before is not None and before.uid != pod.uid:
            self.gone(before, now)
        if pod.node_name:
            self.keep_off(pod.key, frozenset(), now)
        self.attempts.changed(pod)
        if pod.node_name and pod.terminal:
            self.attempts.gone(pod, now)  # its claim was written before it was bound; the watch may show that later

    def gone(self, pod: Pod, now: float) -> None:
        """A pod is gone."""
        self.keep_off(pod.key, frozenset(), now)
        self.attempts.gone(pod, now)

    def keep_off(self, key: str, nodes: frozenset[str], now: float) -> None:
        """In its last attempt a turn kept the pod of this name from these nodes; without nodes: from none."""
        before = self._kept_off.pop(key, None)
        if before is not None:
            self._kept_off_at.subtract(before.nodes)
        if nodes:
            times = 1 if before is None else before.times + (not before.nodes)
            self._kept_off[key] = KeptOff(nodes, times, now)
            self._kept_off_at.update(nodes)

    def let_in(self) -> list[str]:
        """Keys of pods of which a node is open again, since the last call."""
        keys = [
            key
            for key, kept in self._kept_off.items()
            # Whoever is woken amid an attempt might be spared in the next one too, and then nobody would wake it again.
            if kept.nodes and not kept.is_recent and not all(map(self.is_binders, kept.nodes))
        ]
        for kept in map(self._kept_off.__getitem__, keys):
            self._kept_off_at.subtract(kept.nodes)
            kept.nodes = frozenset()
        return keys

    def is_kept_off(self, key: str) -> bool:
        """Whether turns keep the pod of this name from nodes, or did in an attempt that may still go on."""
        kept = self._kept_off.get(key)
        return kept is not None and (kept.is_recent or bool(kept.nodes))

    # --- the binder's ---

    def may_begin(self, pod: Pod, node: str) -> bool:
        """Whether a turn for a pod may begin on a node: there is one left, and none of its namespace waits longer."""
        is_its_place = pod in self.line or pod.namespace not in self.line.namespaces
        is_wanted = self._kept_off_at[node] > 0 and self.is_binders(node)
        return is_its_place and self._has_turns_left(pod.namespace) and not (node in self._open or is_wanted)

    def next_in_line(self) -> Iterator[str]:
        """Keys of the pods in line, in their order, as long as turns of their namespaces may begin."""
        namespaces = filter(self._has_turns_left, self.line.namespaces)
        yield from (key for namespace, key in self.line.in_order(namespaces) if self._has_turns_left(namespace))

    def _has_turns_left(self, namespace: str) -> bool:
        """Whether a namespace may have a further turn: one alone never has all, but three quarters at most."""
        return len(self._turns) < _MOST_TURNS and self._turns_of[namespace] * 4 < _MOST_TURNS * 3

    def begin(self, pod: Pod, node: str, reservation: int, now: float) -> None:
        """A turn begins, for the claims of one of the binder's pods, which has none."""
        self.line.served(pod)
        self._turns[pod.key] = BinderTurn(pod, node, reservation, now + TURN_SECONDS)
        self._turns_at[node] += 1
        self._turns_of[pod.namespace] += 1

    def write(self, key: str, now: float) -> None:
        """kube-scheduler's attempts have ended: the claims are being written."""
        self._turns[key] = msgspec.structs.replace(self._turns[key], until=now + TURN_SECONDS)

    def leave(self, pod: Pod, reservation: int) -> None:
        """A reservation waits for no turn any more, and has none."""
        self.line.leave(pod)
        turn = self._turns.get(pod.key)
        if turn is not None and turn.reservation == reservation:
            self.end(pod.key)

    def end(self, key: str) -> None:
        """The watch shows what was written for the claims of a pod, or they are given back."""
        turn = self._turns.pop(key, None)
        if turn is None:
            return
        self._settling[turn.node] = math.inf
        _take_one(self._turns_at, turn.node)
        _take_one(self._turns_of, turn.pod.namespace)

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
        self.attempts.forget(now)
        for node in [node for node, until in self._open.items() if until <= now]:
            del self._open[node]
        for node, until in list(self._settling.items()):
            if until == math.inf:
                self._settling[node] = now + _SETTLING_SECONDS
            elif until <= now:
                del self._settling[node]
                if self._kept_off_at[node] > 0:
                    self._open[node] = now + self._open_seconds(node)
        for node in [node for node, number in self._kept_off_at.items() if not number]:
            del self._kept_off_at[node]
        for key, kept in list(self._kept_off.items()):
            kept.is_recent &= now < kept.since + _EVICTING_SECONDS
            if not kept.nodes and now >= kept.since + _KEPT_OFF_SECONDS:
                del self._kept_off[key]

    def _open_seconds(self, node: str) -> float:
        times = max(kept.times for kept in self._kept_off.values() if node in kept.nodes)
        return min(_OPEN_SECONDS * 2.0 ** min(times - 1, 3), _MOST_OPEN_SECONDS)


def _take_one(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
