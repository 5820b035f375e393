"""The state of a cluster as files give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.gang_book import GangBook
from flowcore.model.gang_terms import GangKey, PodGroup
from flowcore.model.gangs import Gang
from flowcore.model.lasting import Lasting, LastingSums
from flowcore.model.neighbours import Neighbours
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, governing, in_order
from flowcore.model.replacing import forbidden, named_by, replaced_by
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import Replaced
from flowcore.model.volumes import StorageKey, StorageObject

#: Command that dumps all that a plan reads and every cluster serves.
COMMAND = (
    "kubectl get nodes,pods,namespaces,pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments -A -o json"
)


@dataclass(slots=True)
class Dump:
    """The objects of all files; of an object that is in several files the last one counts.

    Attributes:
        warnings: what was not read, and what a later file replaced, in sentences.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    namespaces: dict[str, Labels] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    storage: dict[StorageKey, StorageObject] = field(default_factory=dict)
    device_classes: dict[str, DeviceClass] = field(default_factory=dict)
    pod_groups: dict[GangKey, PodGroup] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def running(self) -> list[Pod]:
        """Pods that hold room on a node, known or not."""
        return [pod for pod in self.pods.values() if pod.node_name and not pod.terminal]

    def waiting(self) -> list[Pod]:
        """Pods without a node, those too that may not be placed."""
        backed = device_resources(self.device_classes.values())
        return [with_devices(pod, backed) for pod in self.pods.values() if not pod.node_name and not pod.terminal]

    def replaced(self, pod: Pod, policies: Mapping[str, Policy]) -> Replaced | None:
        """The running pod whose place a waiting one is to take."""
        if pod.replaces is None:
            return None
        old = self.pods.get(named_by(pod))
        if old is not None and old.node_name and not old.terminal:
            why = forbidden(pod, old, self.policy_of(pod, policies), self._governed_by(old, policies))
            if why:
                return Replaced(old.key, flaw=why)
        there = [] if old is None else [each for each in self.running() if each.node_name == old.node_name]
        ports = Counter(port for each in there for port in each.pod_class.host_ports)
        return replaced_by(pod, self.pods, ports, Counter(each for pod in there for each in pod.pod_class.volumes))

    def lasting(self, policies: Mapping[str, Policy]) -> tuple[Lasting, ...]:
        """What of the room that running pods hold does not come free for gangs that wait."""
        sums = LastingSums(above=-(2**31))
        for pod in self.running():
            sums.add(pod, self._governed_by(pod, policies))
        return sums.found()

    def gangs(self, policies: Mapping[str, Policy]) -> tuple[dict[str, tuple[str, ...]], list[Gang]]:
        """Gangs that waiting pods belong to: their names by the pods' keys, and what they need."""
        book = GangBook()
        for group in self.pod_groups.values():
            book.put_group(group)
        for pod in self.pods.values():
            book.put(pod)
        governed = ((pod, self.policy_of(pod, policies).delivery) for pod in self.waiting())
        asked = [(pod, delivery) for pod, delivery in governed if not pod.left_alone(delivery)]
        labels = {node.name: dict(node.labels) for node in self.nodes.values()}
        names, gangs = book.of_waiting(asked, {}, lambda node, key: labels.get(node, {}).get(key, ""))
        return {pod.key: of_it for (pod, _), of_it in zip(asked, names, strict=True)}, gangs

    def neighbours(self) -> Neighbours:
        """The running pods as rules between pods see them."""
        return Neighbours.of(((pod.node_name, pod.kind) for pod in self.running()), self.namespaces)

    def in_force(self) -> dict[str, Policy]:
        """Policies by name, the built-in default among them; the first that matches a pod governs it."""
        return {policy.name: policy for policy in in_order([BUILT_IN, *self.policies.values()])}

    def policy_of(self, pod: Pod, policies: Mapping[str, Policy]) -> Policy:
        """The policy that governs a pod, of those in force; the built-in default where there is none."""
        return self._governed_by(pod, policies) or BUILT_IN

    def _governed_by(self, pod: Pod, policies: Mapping[str, Policy]) -> Policy | None:
        labels = self.namespaces.get(pod.namespace, ())
        found = governing(policies.values(), pod.scheduler_name, pod.labels, labels)
        return found[0] if found else None
