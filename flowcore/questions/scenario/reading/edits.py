"""Changes of a scenario in place that are undone exactly.

A copy of a large cluster costs more than its plan. So objects are changed where they are, what they were is noted, and
the end puts all of it back, the order of pods and nodes too: a plan may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flowcore.api.priority_classes import PriorityClass
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.kinds import K, Store, V
from flowcore.model.gang_parents import GangParent
from flowcore.model.gang_spec import GangKey
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.selectors import Labels
from flowcore.model.usage import UsageSample
from flowcore.questions.scenario.scenario import Scenario


class Edits:
    """Changes the objects of a scenario until ``undo``."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._cluster = scenario.cluster
        #: What puts each changed object back, by kind and key, in the order of the first changes.
        self._before: dict[tuple[object, object], Callable[[], object]] = {}
        self._order = _Order(self._cluster)
        self._gangs: dict[GangKey, list[str]] = {}
        self._governing = self._cluster.parent_gangs.policies
        #: The parts of the scenario beside the cluster, and what they were.
        parts: tuple[dict[Any, Any], ...] = (
            scenario.policies,
            scenario.priority_classes,
            scenario.node_samples,
            scenario.pod_samples,
            scenario.named,
            scenario.names,
            scenario.claim_templates,
        )
        self._parts: list[tuple[dict[Any, Any], dict[Any, Any]]] = [(table, dict(table)) for table in parts]

    def put_node(self, node: Node) -> None:
        """Adds or replaces a node."""
        self._note_node(node.name)
        self._cluster.put_node(node)

    def remove_node(self, name: str) -> None:
        """Removes a node; its pods stay as they are."""
        self._note_node(name)
        self._cluster.remove_node(name)

    def _note_node(self, name: str) -> None:
        cluster, before = self._cluster, self._cluster.nodes.get(name)
        self._note("node", name, lambda: cluster.remove_node(name) if before is None else cluster.put_node(before))

    def put_pod(self, pod: Pod, *, as_given: bool = False) -> None:
        """Adds or replaces a pod; ``as_given`` as for ``Cluster.put_pod``."""
        self._note_pod(pod.key)
        self._note_gang(pod)
        self._cluster.put_pod(pod, as_given=as_given)

    def remove_pod(self, key: str) -> None:
        """Removes a pod."""
        self._note_pod(key)
        self._cluster.remove_pod(key)

    def _note_pod(self, key: str) -> None:
        cluster, before = self._cluster, self._cluster.as_written(key)
        if before is not None:
            self._note_gang(before)
        self._note("pod", key, lambda: cluster.remove_pod(key) if before is None else cluster.put_pod(before))

    def _note_gang(self, pod: Pod) -> None:
        if pod.gang is not None:
            self._note_order([pod.gang.key])
        for parent in self._cluster.parent_gangs.possible_parents(pod):
            self._note_order(self._cluster.gangs.parts(parent))  # it may make gangs no longer with such a pod

    def _note_gangs_of(self, pods: Iterable[str]) -> None:
        gangs = (self._cluster.pods[key].gang for key in pods)
        self._note_order(gang.key for gang in gangs if gang is not None)

    def _note_order(self, gangs: Iterable[GangKey]) -> None:
        for key in gangs:
            if key not in self._gangs:
                self._gangs[key] = self._cluster.gangs.order(key)

    def put_namespace(self, name: str, labels: Labels) -> None:
        """Adds or replaces a namespace."""
        cluster, before = self._cluster, self._cluster.namespaces.get(name)
        self._note_gangs_of(cluster.parent_gangs.candidates(name))  # other policies may govern them
        self._note("namespace", name, lambda: cluster.set_namespace(name, before))
        cluster.set_namespace(name, labels)

    def put_object(self, store: Store[K, V], value: V) -> None:
        """Adds or replaces an object of a kind that has a row (``flowcore.cluster.kinds``)."""
        cluster, key = self._cluster, store.key_of(value)
        before = store.objects(cluster).get(key)
        if isinstance(value, GangParent):
            self._note_order(cluster.gangs.parts(value.key))
            if not cluster.parent_gangs.is_followed(value.key.kind):
                self._note_gangs_of(cluster.parent_gangs.naming([value.key.kind]))  # they may leave their gangs
        self._note(store, key, lambda: store.put(cluster, key, before))
        store.put(cluster, key, value)

    def is_changed(self, store: Store[K, V], value: V) -> bool:
        """Whether such an object was added or replaced before."""
        return (store, store.key_of(value)) in self._before

    def put_policy(self, policy: Policy) -> None:
        """Adds or replaces a policy."""
        self._note_order(self._cluster.gangs.of_controllers())  # it may break up gangs
        self.scenario.policies[policy.name] = policy

    def put_named(self, kind: str, namespace: str, name: str) -> None:
        """Adds an object that counts for its existence alone."""
        self.scenario.named[kind, namespace, name] = None

    def put_claim_template(self, claim: ResourceClaim) -> None:
        """Adds or replaces a template, as a claim of its name; it counts for pods that are put from now on."""
        self.scenario.claim_templates[claim.namespace, claim.name] = claim

    def set_names(self, key: str, names: tuple[tuple[str, str, str], ...]) -> None:
        """Says which of these objects a pod names, by kind, namespace and name."""
        if names:
            self.scenario.names[key] = names
        else:
            self.scenario.names.pop(key, None)

    def put_priority_class(self, priority_class: PriorityClass) -> None:
        """Adds or replaces a PriorityClass; it counts for pods that are put from now on."""
        self.scenario.priority_classes[priority_class.metadata.name] = priority_class

    def put_node_sample(self, name: str, sample: UsageSample) -> None:
        """Adds or replaces the measured usage of a node."""
        self.scenario.node_samples[name] = sample

    def put_pod_sample(self, key: str, sample: UsageSample) -> None:
        """Adds or replaces the measured usage of a pod."""
        self.scenario.pod_samples[key] = sample

    def _note(self, kind: object, key: object, undo: Callable[[], object]) -> None:
        self._before.setdefault((kind, key), undo)

    def undo(self) -> None:
        """Puts everything back."""
        for put_back in self._before.values():
            put_back()
        self._cluster.govern_gangs(self._governing)  # a plan of other policies may have broken up gangs
        self._order.restore()
        for gang, keys in self._gangs.items():
            if self._cluster.gangs.exists(gang):  # else a change had made it
                self._cluster.gangs.restore_order(gang, keys)
        for table, before in self._parts:
            _refill(table, before)


class _Order:
    """The order in which a cluster has its nodes, pods and waiting pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._kept: list[tuple[dict[str, Any], list[str]]] = [
            (mapping, list(mapping)) for mapping in (cluster.nodes, cluster.pods, cluster.waiting)
        ]

    def restore(self) -> None:
        """Puts the objects, which are the same as then, in the order of then."""
        for objects, keys in self._kept:
            if list(objects) != keys:
                _refill(objects, {key: objects[key] for key in keys})


def _refill(kept: dict[str, Any], content: dict[str, Any]) -> None:
    kept.clear()
    kept.update(content)
