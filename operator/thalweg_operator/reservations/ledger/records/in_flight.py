"""What kube-scheduler and our binder may not know of each other yet.

Both place pods on the same nodes, each by what its own watch has shown it. The binder's pods are remembered for some
seconds after we saw them bound, since kube-scheduler may see that later; pods that kube-scheduler was let through with
are remembered until their binding is seen, on every node that it may have chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, KeysView, Mapping

import msgspec

from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels
from flowcore.rules.topology.drift import Drift


class LetThrough(msgspec.Struct, frozen=True, gc=False):
    """A pod that kube-scheduler was let through with, to one of these nodes; it does not say which one it chooses."""

    pod: Pod
    nodes: frozenset[str]
    until: float


class InFlight:
    """Pods on their way, with their nodes and times. Their room is counted in ``Occupancy``."""

    def __init__(self) -> None:
        self._ours = Drift()
        self._on: Counter[str] = Counter()
        #: The binder's pods that we saw bound, or given up, lately and a while ago.
        self._settling: list[tuple[PodSignature, str]] = []
        self._settled: list[tuple[PodSignature, str]] = []
        self._passing: dict[str, LetThrough] = {}
        #: Keys of these pods, by node.
        self._passing_to: dict[str, set[str]] = {}
        #: See ``_concerned``.
        self._newer: dict[bool, Drift | None] = {}
        self._namespaces: dict[str, Labels] = {}

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Takes a namespace's labels; None: it is gone."""
        self._ours.pods.set_namespace(name, labels)
        self._newer.clear()
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    # --- the binder's ---

    def binding_started(self, kind: PodSignature, node: str) -> None:
        """A binding of ours is on its way."""
        self._count(kind, node, 1)

    def binding_ended(self, kind: PodSignature, node: str) -> None:
        """It was seen, or it did not happen: here it counts for a while longer."""
        self._settling.append((kind, node))

    def _count(self, kind: PodSignature, node: str, by: int) -> None:
        self._ours.pods.change(kind, node, by)
        self._on[node] += by
        if not self._on[node]:
            del self._on[node]

    @property
    def nodes(self) -> KeysView[str]:
        """Where the binder's pods are that kube-scheduler may not know."""
        return self._on.keys()

    def infeasible_nodes(
        self, pod: Pod, among: Iterable[str], nodes: Mapping[str, Node], running: PodIndex
    ) -> list[str]:
        """Nodes that rules between pods keep a pod from for the sake of the binder's pods.

        There may be some on which the pod would do (``Drift``), for seconds.
        """
        if not self._on or (pod.constraints is None and not self._ours.pods.anti_affinity_terms_for(pod.signature)):
            return []
        known = [nodes[name] for name in among if name in nodes]
        return [node.name for node in known if self._ours.conflicts(pod.signature, node, nodes, running)]

    # --- kube-scheduler's ---

    def let_through(self, pod: Pod, nodes: frozenset[str], until: float) -> None:
        """kube-scheduler may be binding this pod to any of these nodes until its binding is seen, or that long.

        Without nodes: it is not binding it now.
        """
        self._drop(pod.key)
        if nodes:
            self._passing[pod.key] = LetThrough(pod, nodes, until)
            for node in nodes:
                self._passing_to.setdefault(node, set()).add(pod.key)
            self._newer.clear()

    def _drop(self, key: str) -> None:
        passing = self._passing.pop(key, None)
        if passing is None:
            return
        for node in passing.nodes:
            keys = self._passing_to[node]
            keys.discard(key)
            if not keys:
                del self._passing_to[node]
        self._newer.clear()

    @property
    def is_passing(self) -> bool:
        """Whether kube-scheduler may be binding any pod."""
        return bool(self._passing)

    def is_let_through(self, key: str) -> bool:
        """Whether kube-scheduler may be binding a pod."""
        return key in self._passing

    def seen(self, key: str, uid: str = "") -> None:
        """The pod of this name is bound, or gone, or another one than that of this uid."""
        passing = self._passing.get(key)
        if passing is not None and passing.pod.uid != uid:
            self._drop(key)

    def let_through_to(self, node: str) -> list[Pod]:
        """Pods that kube-scheduler may be binding to a node."""
        return [self._passing[key].pod for key in self._passing_to.get(node, ())]

    def conflicts(self, pod: Pod, node: Node, nodes: Mapping[str, Node], running: PodIndex) -> bool:
        """Whether by rules between pods one on its way, wherever of its nodes it went, might not do beside this one."""
        newer = self._concerned(ruled=pod.constraints is None)
        return newer is not None and newer.conflicts(pod.signature, node, nodes, running)

    def _concerned(self, *, ruled: bool) -> Drift | None:
        """Pods on their way, on each node that they may go to; where ``ruled``, those with rules of their own alone.

        Put together once for each change of what passes: a round delivers many placements between two changes.
        """
        if not self._passing:
            return None
        if ruled not in self._newer:
            newer = Drift(PodIndex(self._namespaces))
            concerned = [
                passing for passing in self._passing.values() if passing.pod.constraints is not None or not ruled
            ]
            for passing in concerned:
                for name in passing.nodes:
                    newer.pods.change(passing.pod.signature, name, 1)
            self._newer[ruled] = newer if concerned else None
        return self._newer[ruled]

    # --- time ---

    def settle(self, now: float) -> None:
        """Forgets what was seen long enough ago for all watches to show it. To be called every few seconds."""
        for kind, node in self._settled:
            self._count(kind, node, -1)
        self._settled, self._settling = self._settling, []
        self._ours.pods.age()
        for key in [key for key, passing in self._passing.items() if passing.until < now]:
            self._drop(key)
