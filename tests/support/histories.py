"""Histories of a cluster, drawn by hypothesis: small changes, told to a worker's replica as the operator tells them.

What is drawn are two cases: the cluster as it is at first, and another from which parts are taken over one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import msgspec
from hypothesis import strategies as st
from support import draw_volumes
from support.draw import Case, Drawn, Manifest, cases
from support.fake_cluster.driven_ledger import DrivenLedger
from support.verdicts import read_pods, storage_objects
from thalweg_operator.planning.worker.messages import RoundRequest, to_pod_changes
from thalweg_operator.planning.worker.replica import Replica

from flowcore.api import Interner, WireNamespace, WireNode, to_labels, to_node
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict, Exclusive, Global
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, Policy, Selects
from flowcore.model.selectors import LabelSelector, Requirement

CHANGES = (
    "labels", "taints", "unschedulable", "allocatable", "images", "node goes", "node comes",
    "pod comes", "pod goes", "pod ends", "pod changes", "pod labels", "namespace", "reserve", "release",
)  # fmt: skip
WEB, DB = (LabelSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db"))
CONSTRAINT_POLICY = Policy(
    "shop",
    selects=Selects(namespaces=LabelSelector((Requirement("team", "Exists"),))),
    constraints=(
        Conflict("az", LabelSelector(), "zone", 1),
        Exclusive("x", (WEB, DB), "disk", max_placed=2),
        Global("g", WEB, LabelSelector((Requirement("zone", "Exists"),))),
    ),
)
STORAGE_CHANGES = ("storage comes", "storage comes", "storage goes")
#: What happens, and numbers that choose to whom and how.
Change = tuple[str, int, int]


@dataclass(frozen=True)
class History:
    """A cluster, another to take from, and what happens, in steps: nobody is asked between changes of one step."""

    first: Case
    other: Case
    steps: list[list[Change]]


@cache
def histories(aspects: frozenset[str]) -> Drawn[History]:
    """Histories of clusters in which each object has what the aspects read."""
    # There are many storage objects, and a change of one is seen by few pods.
    what = CHANGES + 6 * STORAGE_CHANGES if aspects & set(draw_volumes.ASPECTS) else CHANGES
    change = st.tuples(st.sampled_from(what), st.integers(0, 7), st.integers(0, 7))
    steps = st.lists(st.lists(change, min_size=1, max_size=2), min_size=1, max_size=6)
    return st.builds(History, cases(aspects), cases(aspects), steps)


class ReplicatedCluster:
    """A cluster that changes, and what a worker is told of it."""

    def __init__(self, history: History) -> None:
        self._history = copy.deepcopy(history)  # parts of manifests are exchanged below
        self.state = DrivenLedger()
        self.nodes: dict[str, Manifest] = {}
        self.pods: dict[str, Manifest] = {}
        self._pending = read_pods([*history.first.pending, *_renamed(history.other.pending)])
        for manifest in self._history.first.namespaces:
            self._name(manifest)
        for manifest in self._history.first.nodes:
            self._put_node(manifest)
        for manifest in self._history.first.pods:
            self._put_pod(manifest)
        for each in storage_objects(self._history.first):
            self.state.upsert_storage(each)
        for pod in self._pending:
            self.state.upsert_pod(msgspec.structs.replace(pod, node_name="", blocked_reason=""))

    @property
    def probes(self) -> list[tuple[PodClass, PodSignature]]:
        """All classes and kinds that are asked about, as they are and under a policy with constraints."""
        plain = [(pod.pod_class, pod.signature) for pod in self._pending]
        return plain + [(pod_class, with_policy_constraints(kind, CONSTRAINT_POLICY)) for pod_class, kind in plain]

    def steps(self) -> Iterator[None]:
        """Lets each step happen in turn."""
        for changes in self._history.steps:
            for change in changes:
                self._apply(*change)
            yield

    def send_changes(self, replica: Replica, *, everything: bool = False) -> Snapshot:
        """What the replica makes of all that changed, or of everything."""
        if everything:
            self.state.mark_all_dirty()
        return send_changes(self.state, replica, [pod.pod_class for pod in self._pending], self._waiting())

    def _waiting(self) -> tuple[PendingPod, ...]:
        return tuple(
            PendingPod(pod.key, pod.uid, pod.pod_class, BUILT_IN.name, pod.created, pod.signature)
            for pod in self._pending
            if not pod.blocked_reason and pod.key not in self.state.reservations
        )

    # --- changes ---

    def _apply(self, what: str, at: int, which: int) -> None:
        nodes, pods = sorted(self.nodes), sorted(self.pods)
        node, pod = (each[at % len(each)] if each else "" for each in (nodes, pods))
        other = self._history.other
        donor = other.nodes[which % len(other.nodes)]
        match what:
            case "labels" if node:
                self._put_node({**self.nodes[node], "metadata": {"name": node, "labels": donor["metadata"]["labels"]}})
            case "taints" | "unschedulable" if node:
                spec = {**self.nodes[node]["spec"], what: donor["spec"].get(what)}
                self._put_node({**self.nodes[node], "spec": spec})
            case "allocatable" if node:
                self._put_node({**self.nodes[node], "status": donor["status"]})
            case "images" if node:
                status = {**self.nodes[node]["status"], "images": donor["status"].get("images")}
                self._put_node({**self.nodes[node], "status": status})
            case "node goes" if node:
                del self.nodes[node]
                self.state.delete_node(node)
            case "node comes":
                self._put_node({**donor, "metadata": {**donor["metadata"], "name": f"n{at}"}})
            case "pod comes" if other.pods:
                found = other.pods[which % len(other.pods)]
                spec = {**found["spec"], "nodeName": f"n{at}"}
                self._put_pod({**found, "metadata": {**found["metadata"], "name": f"s{which}"}, "spec": spec})
            case "pod goes" if pod:
                del self.pods[pod]
                self.state.delete_pod(pod)
            case "pod ends" if pod:
                self._put_pod({**self.pods[pod], "status": {"phase": "Succeeded"}})
            case "pod changes" | "pod labels" if pod and other.pods:
                found = other.pods[which % len(other.pods)]
                old = self.pods[pod]
                if what == "pod labels":
                    labels = {**old["metadata"], "labels": found["metadata"]["labels"]}
                    self._put_pod({**old, "metadata": labels})
                else:
                    self._put_pod({**old, "spec": {**found["spec"], "nodeName": old["spec"]["nodeName"]}})
            case "namespace":
                self._change_namespace(at, which)
            case "storage comes" if found := storage_objects(other):
                self.state.upsert_storage(found[(8 * at + which) % len(found)])
            case "storage goes" if found := sorted(self.state.storage.objects):
                self.state.delete_storage(found[(8 * at + which) % len(found)])
            case "reserve" if node:
                waiting = self._pending[which % len(self._pending)]
                self.state.reserve(msgspec.structs.replace(waiting, node_name="", blocked_reason=""), node)
            case "release" if self.state.reservations:
                held = sorted(self.state.reservations.items())
                key, reservation = held[at % len(held)]
                self.state.release(key, reservation.pod.uid)

    def _change_namespace(self, at: int, which: int) -> None:
        names = ("default", "red", "blue")
        labels = (None, (), (("team", "one"),), (("team", "two"),))[which % 4]
        name = names[at % len(names)]
        if labels is not None or name in self.state.namespaces:
            self.state.set_namespace(name, labels)

    def _put_node(self, manifest: Manifest) -> None:
        node = to_node(msgspec.convert(manifest, WireNode), Interner())
        self.nodes[node.name] = manifest
        self.state.upsert_node(node)

    def _put_pod(self, manifest: Manifest) -> None:
        pod: Pod = read_pods([manifest])[0]
        self.pods[pod.key] = manifest
        self.state.upsert_pod(pod)

    def _name(self, manifest: Manifest) -> None:
        wire = msgspec.convert(manifest, WireNamespace)
        self.state.set_namespace(wire.metadata.name, to_labels(wire.metadata.labels))


def _renamed(manifests: list[Manifest]) -> list[Manifest]:
    return [{**each, "metadata": {**each["metadata"], "name": f"q{at}"}} for at, each in enumerate(manifests)]


def send_changes(
    state: DrivenLedger,
    replica: Replica,
    classes: list[PodClass],
    pending: tuple[PendingPod, ...] = (),
    now: float = 0.0,
) -> Snapshot:
    """Tells a replica what changed in a state since it was last asked."""
    changes = state.take_changes()
    # A table that knows nothing is told everything.
    changes.numa, changes.removed_numa = state.numa.update(now, fresh=not replica.tables.table.nodes)
    changes.takers = state.device_takers.update((), fresh=not replica.tables.table.nodes)
    kinds: dict[PodSignature, int] = {}
    pod_changes = list(to_pod_changes(changes, kinds))
    request = RoundRequest(
        number=1, generation=1, now=0.0, reset=False, changes=changes, policies=[BUILT_IN],
        classes=classes, signatures=list(kinds), pod_changes=pod_changes, pending=[], budget=0.0,
    )  # fmt: skip
    replica.apply(request)
    return replica.to_snapshot(request, pending)
