"""The cluster as last seen: nodes, pods, namespaces, Services, storage, device classes, PodGroups, with indexes.

Events tell it what changed. It knows nothing of plans. Each mutator returns what its caller may want to act on; nobody
is called back. A bound pod holds room on its node until it is terminal or gone; a deleting pod
holds its room too, as in kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from flowcore.api.base import Interner
from flowcore.cluster.arrays.device_objects import ClaimKey, DeviceObjects
from flowcore.cluster.changes import ClusterChanges, NodeChange, PodChange, TakenChanges
from flowcore.cluster.hyper_nodes.hyper_node_tree import HyperNodeTree
from flowcore.cluster.indexes.budget_index import BudgetIndex
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.numa_index import NumaIndex
from flowcore.cluster.indexes.parent_gangs import ParentGangs
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.cluster.indexes.queue_index import QueueIndex
from flowcore.cluster.indexes.storage_index import StorageIndex
from flowcore.cluster.occupancy import Occupancy
from flowcore.cluster.pod_groups.group_claims import claiming_group, with_group
from flowcore.cluster.pod_groups.group_priority import GroupPriority, changes_priority
from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.device_gates import DeviceGates
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_parents import GangParent, ParentKey, VolcanoJob
from flowcore.model.gang_spec import GangKey, GangSpec, PodGroup
from flowcore.model.hyper_nodes import HyperNode
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort, Pod
from flowcore.model.policies import DuringExecution, Policy
from flowcore.model.resource_claims import ClaimingGroup, ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.model.resources import Amounts
from flowcore.model.selectors import Labels, domain_value
from flowcore.model.services import Service, ServiceIndex
from flowcore.model.tainted_slices import TaintedSlices
from flowcore.model.volumes import StorageKey, StorageObject, Volumes


@dataclass(slots=True)
class _RuleDependentPods:
    """Keys of waiting pods whose rules other pods may satisfy by coming. Pods that no policy governs are in no plan.

    Attributes:
        keys: of all of them.
        by_node_labels: whether the pod may match by labels that it gets when it is bound.
        of_namespace: keys of the waiting pods with such rules, governed or not, by namespace.
    """

    keys: set[str] = field(default_factory=set)
    by_node_labels: set[str] = field(default_factory=set)
    of_namespace: dict[str, set[str]] = field(default_factory=dict)

    def put(self, pod: Pod, *, governed: bool, spread: bool) -> None:
        """Takes a waiting pod.

        Args:
            governed: whether a policy may govern it.
            spread: whether a policy may have a required spread for it.
        """
        key, rules = pod.key, pod.constraints
        if not spread and (rules is None or not (rules.affinity or rules.spread)):
            self.drop(key)
            return
        self.of_namespace.setdefault(pod.namespace, set()).add(key)
        (self.keys.add if governed else self.keys.discard)(key)
        by_node_labels = governed and rules is not None and rules.reads_node_labels
        (self.by_node_labels.add if by_node_labels else self.by_node_labels.discard)(key)

    def drop(self, key: str) -> None:
        """A pod waits no more, or has no such rules."""
        namespace = key.partition("/")[0]
        of_namespace = self.of_namespace.get(namespace)
        if of_namespace is None or key not in of_namespace:
            return
        of_namespace.discard(key)
        if not of_namespace:
            del self.of_namespace[namespace]
        self.keys.discard(key)
        self.by_node_labels.discard(key)


_WATCHED = frozenset(DuringExecution) - {DuringExecution.IGNORE}
#: Namespace, labels and scheduler name of a pod: all that policies select by.
Governed = tuple[str, Labels, str]


@dataclass(slots=True)
class Population:
    """Pods of one kind: how many have a node, how many wait."""

    placed: int = 0
    waiting: int = 0


class Cluster:
    """The cluster as last seen, with its indexes. Put and remove methods change it.

    Attributes:
        policies: those in force.
        waiting: pods without a node, with a claim for extended resources that a DeviceClass backs (``as_waiting``).
        leaving: keys of bound pods that count as if they were being deleted (see ``set_leaving``).
        terminating: keys of pods that are being deleted and still hold room, by node.
        populations: how many pods there are of each kind that policies tell apart.
        budgets: PodDisruptionBudgets, and which pods they protect.
        queues: FlowQueues, and which pods count for them.
        bound_priorities: how many pods with a node have each priority.
        watched_pods: how many pods with a node say themselves that they must not stay where their rules are broken.
        gangs: which pods belong together.
        parent_gangs: which pods are in a gang by their controller.
        volcano_jobs: Jobs of Volcano, by namespace and name.
        occupancy: what is taken on each node.
        devices: DeviceClasses, and the slices and claims that allocations of devices read.
        hyper_nodes: HyperNodes; ``nodes`` have labels for those that they are in.
        tainted_slices: slices as they are published, and the rules that taint devices of them.
        device_gates: the feature gates that these are read with; set before the first of them comes.
        version: of the API server, by which pods and storage objects are read; set before the first of them comes.
        numa: reports on NUMA zones, and pods that they may not show.
    """

    def __init__(self, own_namespace: str = "") -> None:
        """``own_namespace``: Thalweg's, for the policies; "" where it runs in no namespace of the cluster."""
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.namespaces: dict[str, Labels] = {}
        self.policies = PolicyIndex(own_namespace=own_namespace)
        self.waiting: dict[str, Pod] = {}
        self.leaving: set[str] = set()
        self.terminating: dict[str, set[str]] = {}
        self.populations: dict[Governed, Population] = {}
        self.storage = StorageIndex()
        self.devices = DeviceObjects()
        self.hyper_nodes = HyperNodeTree()
        self.tainted_slices = TaintedSlices()
        self.device_gates = DeviceGates()
        self.version = KubernetesVersion()
        self.budgets = BudgetIndex()
        self.queues = QueueIndex()
        self.bound_priorities: Counter[int] = Counter()
        #: Keys of waiting pods by priority; None: they are to be sorted anew.
        self._waiting_by_priority: dict[int, set[str]] | None = {}
        self.watched_pods = 0
        self.gangs = GangRegistry()
        self.parent_gangs = ParentGangs(self.policies, self.gangs.parents)
        self.volcano_jobs: dict[tuple[str, str], VolcanoJob] = {}
        #: Pods as they are written, by the gang that they name: ``pods`` has them with what their group says of them.
        self._as_written: dict[GangKey, dict[str, Pod]] = {}
        self._intern = Interner()
        self.occupancy = Occupancy()
        self.numa = NumaIndex()
        self._node_versions: dict[str, int] = {}
        self._dirty_nodes: set[str] = set()
        self._dirty_reports: set[str] = set()
        self._dirty_namespaces: set[str] = set()
        self._dirty_services: set[str] = set()
        self._rule_dependent = _RuleDependentPods()
        #: Pods that waiting ones name as those whose place they take, and how many do.
        self._named_victims: Counter[str] = Counter()
        #: Extended resource -> the DeviceClass that backs it.
        self._backing_class: dict[str, str] = {}
        #: Keys of waiting pods that claim devices.
        self._claiming: set[str] = set()
        self._claims_known = True

    @property
    def generation(self) -> int:
        """Rises with every change that scheduling can see."""
        return self.occupancy.generation

    @property
    def services(self) -> ServiceIndex:
        """Services, by which pods without a controller are spread."""
        return self.occupancy.pod_index.services

    def domain(self, node: str, label: str) -> str:
        """A node's value of a label, or of several (``domain_value``); "" where it has none."""
        known = self.nodes.get(node)
        return "" if known is None else domain_value(known.labels, label) or ""

    # --- nodes ---

    def put_node(self, node: Node) -> NodeChange | None:
        """Takes a new or changed node; None: scheduling sees no change (heartbeats, conditions, reports)."""
        before = self.nodes.get(node.name)
        node = self.hyper_nodes.put_node(node)
        if before == node:
            return None
        self.nodes[node.name] = node
        if before is None or before.report != node.report:
            self._dirty_reports.add(node.name)
        if before is None or before.without_report != node.without_report:
            return self._touch_node(node.name, before)
        return None

    def remove_node(self, name: str) -> NodeChange | None:
        """A node is gone. Its pods stay counted until they go too."""
        before = self.nodes.pop(name, None)
        self.hyper_nodes.drop_node(name)
        return None if before is None else self._touch_node(name, before)

    def set_hyper_node(self, name: str, hyper_node: HyperNode | None) -> bool:
        """Takes a HyperNode; None: it is gone. Returns whether a waiting pod may be placed otherwise now."""
        if self.hyper_nodes.objects.get(name) == hyper_node:
            return False  # its status alone changed
        changed = False
        for node_name in self.hyper_nodes.put(name, hyper_node):
            before, node = self.nodes[node_name], self.hyper_nodes.labelled(node_name)
            if node.labels != before.labels:
                self.nodes[node_name] = node
                self._touch_node(node_name, before)
                changed = True
        return self.gangs.set_tiers(self.hyper_nodes.numbered()) or changed

    def _touch_node(self, name: str, before: Node | None) -> NodeChange:
        self.occupancy.generation += 1
        if name in self.nodes:
            self._node_versions[name] = self.generation
        else:
            self._node_versions.pop(name, None)
        self._dirty_nodes.add(name)
        self.occupancy.mark_dirty(name)
        return NodeChange(name, before)

    def node_changed_since(self, name: str, generation: int) -> bool:
        """Whether the node object changed, came or went after ``generation``."""
        return name not in self.nodes or self._node_versions.get(name, 0) > generation

    def lacks_room(self, resize: Pod) -> bool:
        """Whether the node of a deferred resize has less of what it asks for than is taken there."""
        name = resize.pod_class.node_name
        has = dict(self.nodes[name].allocatable) if name in self.nodes else {}
        amounts = self.occupancy.usage_of(name).amounts
        return bool(has) and any(amounts[resource] > has.get(resource, 0) for resource, _ in resize.grows)

    # --- pods ---

    def put_pod(self, pod: Pod, reserved: PodSignature | None = None, *, as_given: bool = False) -> PodChange:
        """Takes a new or changed pod.

        Args:
            reserved: a reservation that has ended counted the pod on its node by this signature, and it still counts so
                for the rules between pods. None: none did.
            as_given: whether its priority and preemption policy count whatever its group says, until that changes.
        """
        pod = self.version.as_scheduled(pod)
        key = pod.key
        pod, parents = self.parent_gangs.put(pod, self.namespaces)
        old = self.pods.get(key)
        self._note_written(old, pod)
        pod = self._with_group_claims(pod if as_given else self._as_member(pod))
        self.pods[key] = pod
        counts_anew, room_freed, left, came = self._recount(old, pod, reserved)
        gang_changed = self.gangs.put(pod)
        gang_changed |= self._regang_pods_of(parents)
        self.numa.put_pod(old, pod)
        waiting_changed, gate_opened = self._set_waiting(key, pod)
        return PodChange(
            old,
            pod,
            left,
            came,
            room_freed,
            gang_changed,
            waiting_changed,
            gate_opened,
            victim_changed=key in self._named_victims and (None if old is None else _room(old)) != _room(pod),
            affects_waiting=bool(self._rule_dependent.keys) and counts_anew,
            node_labels_matter=bool(self._rule_dependent.by_node_labels),
        )

    def remove_pod(self, key: str) -> PodChange:
        """A pod is gone."""
        old = self.pods.pop(key, None)
        self._note_written(old, None)
        gang_changed = self.gangs.drop(key)
        if old is not None:
            self.numa.drop_pod(old)
            gang_changed |= self._regang_pods_of(self.parent_gangs.drop(old))
        _, room_freed, left, came = self._recount(old, None, None)
        self._rule_dependent.drop(key)
        self._stop_waiting(key)
        return PodChange(old, None, left, came, room_freed, gang_changed)

    def as_written(self, key: str) -> Pod | None:
        """A pod with its own priority, also where that of its group counts; None: there is none."""
        pod = self.pods.get(key)
        return pod if pod is None or pod.gang is None else self._as_written[pod.gang.key][key]

    def runs_pod_of(self, gang: GangKey) -> bool:
        """Whether a pod that names a gang has a node and has not ended."""
        return any(pod.node_name and not pod.terminal for pod in self._as_written.get(gang, {}).values())

    def _note_written(self, old: Pod | None, new: Pod | None) -> None:
        before, now = (None if pod is None or pod.gang is None else pod.gang.key for pod in (old, new))
        if before is not None and old is not None and before != now:
            of_gang = self._as_written[before]
            del of_gang[old.key]
            if not of_gang:
                del self._as_written[before]
        if now is not None and new is not None:
            self._as_written.setdefault(now, {})[new.key] = new

    def _as_member(self, pod: Pod) -> Pod:
        """A pod with the priority of its group, if that has one."""
        group = self.gangs.groups.get(pod.gang.key) if pod.gang is not None else None
        if group is None:
            return pod
        return GroupPriority(group.spec, self._intern).of(pod)

    def _with_group_claims(self, pod: Pod) -> Pod:
        """A pod whose claims know its PodGroup, if that may share claims with it."""
        if pod.gang is None or pod.pod_class.devices is None:
            return pod
        return with_group(pod, self._claiming_group(pod.gang.key))

    def _claiming_group(self, key: GangKey) -> ClaimingGroup | None:
        """A PodGroup as the claims of its pods see it; None: it shares none."""
        return claiming_group(key, self.gangs.groups.get(key)) if self.device_gates.has_group_claims else None

    def set_leaving(self, key: str, *, leaving: bool) -> None:
        """A bound pod counts for the rules between pods as if it were being deleted, or does so no longer."""
        pod = self.pods[key]
        self.occupancy.change_pods(self.counted_signature(pod), pod.node_name, -1)
        (self.leaving.add if leaving else self.leaving.discard)(key)
        self.occupancy.change_pods(self.counted_signature(pod), pod.node_name, 1)

    def as_waiting(self, pod: Pod) -> Pod:
        """A pod as it is among those that wait, or would be if it waited: DeviceClasses say what of it is devices."""
        return with_devices(pod, self._backing_class, claims_known=self._claims_known)

    def counted_signature(self, pod: Pod) -> PodSignature:
        """The signature that a bound pod counts with."""
        if pod.key in self.leaving:
            return msgspec.structs.replace(pod.signature, deleting=True)
        return pod.signature

    def _stop_waiting(self, key: str) -> None:
        self._claiming.discard(key)
        before = self.waiting.pop(key, None)
        if before is not None:
            self.storage.track_claims(before, -1)
            self._count_victim(before, -1)
            self._sort_out(before)
            self.occupancy.generation += 1

    def may_be_governed(self, pod: Pod) -> bool:
        """Whether a policy governs a pod, or may: that of a namespace which is not known yet is open."""
        return pod.namespace not in self.namespaces or self.policies.of(pod, self.namespaces) is not None

    def _judge_rule_dependent(self, keys: Iterable[str]) -> None:
        """Other policies may govern waiting pods with rules between pods."""
        for key in keys:
            self._judge(self.waiting[key])

    def _judge(self, pod: Pod) -> None:
        """Whether a waiting pod's rules may be met by pods that come."""
        spread = any(policy.cost.default_spread.required for policy in self.policies.ordered)
        self._rule_dependent.put(pod, governed=self.may_be_governed(pod), spread=spread)

    @property
    def waiting_by_priority(self) -> Mapping[int, AbstractSet[str]]:
        """Keys of ``waiting`` by priority. Most often it is there already, however many wait."""
        if self._waiting_by_priority is None:
            self._waiting_by_priority = {}
            for pod in self.waiting.values():
                self._sort_in(pod)
        return self._waiting_by_priority

    def _sort_in(self, pod: Pod) -> None:
        if self._waiting_by_priority is not None:
            self._waiting_by_priority.setdefault(pod.pod_class.priority, set()).add(pod.key)

    def _sort_out(self, pod: Pod) -> None:
        if self._waiting_by_priority is not None:
            keys = self._waiting_by_priority[pod.pod_class.priority]
            keys.remove(pod.key)
            if not keys:
                del self._waiting_by_priority[pod.pod_class.priority]

    def _count_victim(self, pod: Pod, by: int) -> None:
        key = victim_key(pod)
        if key:
            self._named_victims[key] += by
            if not self._named_victims[key]:
                del self._named_victims[key]

    def _set_waiting(self, key: str, pod: Pod) -> tuple[bool, bool]:
        """Updates ``waiting``. Returns whether the pod waits with other needs, and whether its gate opened."""
        pod = pod.waiting_resize
        if pod.node_name or pod.terminal:
            self._rule_dependent.drop(key)
            self._stop_waiting(key)
            return False, False
        self._judge(pod)
        pod = self.as_waiting(pod)
        (self._claiming.discard if pod.pod_class.devices is None else self._claiming.add)(key)
        before = self.waiting.get(key)
        if before is not None:
            self.storage.track_claims(before, -1)
            self._count_victim(before, -1)
            self._sort_out(before)
        self.storage.track_claims(pod, 1)
        self._count_victim(pod, 1)
        self.waiting[key] = pod
        self._sort_in(pod)
        # Our own writes come back as changes. They are no news for a round, but for a gate that opens.
        changed = before is None or as_planned(before) != as_planned(pod)
        opened = before is not None and before.gated and not pod.gated
        if changed:
            self.occupancy.generation += 1
        return changed, opened

    def _recount(
        self, old: Pod | None, new: Pod | None, reserved: PodSignature | None
    ) -> tuple[bool, bool, tuple[PodSignature, str] | None, tuple[PodSignature, str] | None]:
        """Moves a pod in all sums. Returns whether it counts anew for rules, whether room came free, and what moved."""
        if old is not None and new is not None and reserved is None and _counted(old) == _counted(new):
            return False, False, None, None  # most updates are a kubelet's status reports
        left = came = None
        occupancy = self.occupancy
        held_before = None if old is None else _room(old)
        if old is not None:
            self._count(old, -1)
            self._note_terminating(old, -1)
            if held_before is not None:
                occupancy.change_usage(old.node_name, old.usage, old.pod_class, -1)
                left = (self.counted_signature(old), old.node_name)
                occupancy.change_pods(*left, -1)
        held_now = None if new is None else _room(new)
        if new is not None:
            self._count(new, 1)
            self._note_terminating(new, 1)
            if held_now is not None:
                occupancy.change_usage(new.node_name, new.usage, new.pod_class, 1)
                came = (self.counted_signature(new), new.node_name)
                if reserved is None:
                    occupancy.change_pods(*came, 1)
                else:
                    occupancy.exchange_pods(reserved, *came)
        counts_anew = held_now is not None
        if old is not None and new is not None and held_before is not None and counts_anew:
            counts_anew = (new.node_name, new.signature) != (old.node_name, old.signature)
        return counts_anew, held_before is not None and held_before != held_now, left, came

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.terminal:
            return
        governed = (pod.namespace, pod.labels, pod.scheduler_name)
        population = self.populations.get(governed)
        if population is None:
            population = self.populations[governed] = Population()
        if pod.node_name:
            population.placed += sign
            self.budgets.count_pod(pod, sign)
            self._count_priority(pod, sign)
            self.watched_pods += sign * (pod.during_execution in _WATCHED)
        else:
            population.waiting += sign
        if not population.placed and not population.waiting:
            del self.populations[governed]

    def _note_terminating(self, pod: Pod, sign: int) -> None:
        if not pod.deleting or not pod.node_name or pod.terminal:
            return
        keys = self.terminating.setdefault(pod.node_name, set())
        (keys.add if sign > 0 else keys.discard)(pod.key)
        if not keys:
            del self.terminating[pod.node_name]

    def _count_priority(self, pod: Pod, sign: int) -> None:
        priority = pod.pod_class.priority
        self.bound_priorities[priority] += sign
        if not self.bound_priorities[priority]:
            del self.bound_priorities[priority]

    # --- namespaces, storage, devices, gangs ---

    def set_namespace(self, name: str, labels: Labels | None) -> bool:
        """Takes a namespace's labels; None: it is gone. Whether that is a change."""
        before = self.namespaces.get(name)
        if before == labels:
            return False
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.occupancy.pod_index.set_namespace(name, labels)
        self._judge_rule_dependent([*self._rule_dependent.of_namespace.get(name, ())])
        self._dirty_namespaces.add(name)
        self.occupancy.generation += 1
        if self.parent_gangs.policies.tell_apart(before or (), labels or ()):  # a look at all pods takes long
            self.regang_pods(name)
        return True

    def put_storage(self, stored: StorageObject) -> bool:
        """Takes a new or changed storage object. Returns whether a waiting pod may be placed now."""
        stored = self.version.as_stored(stored)
        if not self.storage.put(stored):
            return False
        self.occupancy.generation += 1
        return self.storage.may_unblock(stored, gone=False)

    def remove_storage(self, key: StorageKey) -> bool:
        """Drops a storage object. Returns whether a waiting pod may be placed now."""
        before = self.storage.drop(key)
        if before is None:
            return False
        self.occupancy.generation += 1
        return self.storage.may_unblock(before, gone=True)

    def set_device_class(self, name: str, device_class: DeviceClass | None) -> bool:
        """Takes a DeviceClass; None: it is gone. Whether pods wait with other needs now, or may be placed."""
        if not self.devices.set_class(name, device_class):
            return False
        self.occupancy.generation += 1
        classes = self.devices.classes.values() if self.device_gates.has_extended_resources else ()
        backing = device_resources(classes)
        if backing == self._backing_class:
            return bool(self._claiming)
        self._backing_class = backing
        changes = [self._set_waiting(key, self.pods[key])[0] for key in list(self.waiting)]
        return bool(self._claiming) or any(changes)

    def set_resource_slice(self, name: str, resource_slice: ResourceSlice | None) -> bool:
        """Takes a ResourceSlice; None: it is gone. Returns whether a waiting pod may be placed now."""
        if resource_slice is not None:
            resource_slice = self.device_gates.as_read(resource_slice)
        self.tainted_slices.set_slice(name, resource_slice)
        return self._taint_slice(name)

    def set_device_taint_rule(self, name: str, rule: DeviceTaintRule | None) -> bool:
        """Takes a DeviceTaintRule; None: it is gone. Returns whether a waiting pod may be placed now."""
        if rule is not None:
            rule = self.version.as_tainting(rule) if self.device_gates.has_taint_rules else None
        changes = [self._taint_slice(each) for each in self.tainted_slices.set_rule(name, rule)]
        return any(changes)

    def _taint_slice(self, name: str) -> bool:
        """Passes a slice on with its taints as they are now. Returns whether a waiting pod may be placed now."""
        changed = self.devices.set_slice(name, self.tainted_slices.tainted(name))
        self.occupancy.generation += changed
        return changed and bool(self._claiming)

    def set_resource_claim(self, key: ClaimKey, claim: ResourceClaim | None) -> bool:
        """Takes a ResourceClaim; None: it is gone. Returns whether a waiting pod may be placed now."""
        before = self.devices.claims.get(key)
        if claim is not None:
            claim = self.device_gates.as_claimed(claim)
        if not self.devices.set_claim(key, claim):
            return False
        self.occupancy.generation += 1
        # A claim that gets its devices leaves no more to others.
        takes = before is not None and before.allocation is None and claim is not None and claim.allocation is not None
        return bool(self._claiming) and not takes

    def set_claims_known(self, *, known: bool) -> bool:
        """Whether all that devices are judged by can be read; while not, pods that claim devices are not planned.

        Returns:
            Whether pods wait with other needs now.
        """
        if known == self._claims_known:
            return False
        self._claims_known = known
        changes = [self._set_waiting(key, self.pods[key])[0] for key in list(self._claiming)]
        return any(changes)

    def set_disruption_budget(self, key: str, budget: DisruptionBudget | None) -> bool:
        """Takes a PodDisruptionBudget; None: it is gone. Whether more pods with a node may be evicted now."""
        return self.budgets.set(key, budget)

    def set_service(self, key: str, service: Service | None) -> bool:
        """Takes a Service; None: it is gone. No pod may be placed now that could not before: it is a preference."""
        if self.services.put(key, service):
            self.occupancy.generation += 1
            self._dirty_services.add(key)
        return False

    def put_pod_group(self, group: PodGroup) -> bool:
        """Takes a new or changed PodGroup. Returns whether pods wait for it, or others may wait for its pods."""
        return self._change_group(lambda: self.gangs.put_group(group), group.key)

    def remove_pod_group(self, key: GangKey) -> bool:
        """Drops a PodGroup. Returns whether pods wait for it, or others may wait for its pods."""
        return self._change_group(lambda: self.gangs.drop_group(key), key)

    def _change_group(self, change: Callable[[], bool], key: GangKey) -> bool:
        """Has a change of a PodGroup made; its pods, which may be there already, get what is theirs."""
        urgency, claiming = self._urgency(key), self._claiming_group(key)
        changed = change()
        now = self._urgency(key)
        if self._claiming_group(key) != claiming:
            changed |= self._follow_group(key)
        elif changes_priority(now, urgency):  # its pods may be there before the group, and after it
            changed |= self._give_priority(key, GroupPriority(now, self._intern))
        self.occupancy.generation += changed
        return changed

    def _urgency(self, key: GangKey) -> GangSpec:
        group = self.gangs.groups.get(key)
        return GangSpec() if group is None else group.spec

    def _give_priority(self, key: GangKey, group_priority: GroupPriority) -> bool:
        """Gives the pods of a PodGroup its priority; returns whether any pod has a new one.

        Only the priority and the preemption policy change, so little is done for each pod: there may be very many.
        """
        changed = waits = False
        for name, written in self._as_written.get(key, {}).items():
            old, pod = self.pods[name], self._with_group_claims(group_priority.of(written))
            new_priority = pod.pod_class.priority != old.pod_class.priority
            if not new_priority and pod.preempts == old.preempts:
                continue
            changed |= new_priority
            self.gangs.exchange(pod)
            self.numa.put_pod(old, pod)
            if pod.node_name and not pod.terminal:
                self._count_priority(old, -1)
                self._count_priority(pod, 1)
            waits |= self._exchange(pod)
        if waits:
            self._waiting_by_priority = None
        self.occupancy.generation += waits
        return changed

    def _exchange(self, pod: Pod) -> bool:
        """Replaces a pod by one that takes and claims the same; returns whether it waits."""
        key = pod.key
        self.pods[key] = pod
        if key not in self.waiting:
            return False
        self.waiting[key] = self.as_waiting(pod.waiting_resize if pod.grows else pod)
        return True

    def _follow_group(self, key: GangKey) -> bool:
        """Its pods may have come before the group, or stay after it.

        Returns:
            Whether some of them have another priority, or another claim is shared with them.
        """
        pods = self._as_written.get(key, {})
        before = {name: _of_group(self.pods[name]) for name in pods}
        for pod in list(pods.values()):
            self.put_pod(pod)
        return any(_of_group(self.pods[name]) != said for name, said in before.items())

    def set_gang_parent(self, key: ParentKey, parent: GangParent | None) -> bool:
        """Takes a controller that makes gangs; None: it is gone. Returns whether pods wait for it."""
        before, making = self.gangs.parents.get(key), self.parent_gangs.making(key)
        changed = self.gangs.set_parent(key, parent)
        came = (parent is not None) - (before is not None)
        if came and self.parent_gangs.count_parent(key, came):
            changed |= self._regang(self.parent_gangs.naming([key.kind]))
        elif self.parent_gangs.making(key) != making:
            changed |= self._regang_pods_of([key])
        self.occupancy.generation += changed
        return changed

    def set_volcano_job(self, key: tuple[str, str], job: VolcanoJob | None) -> bool:
        """Takes a Job of Volcano; None: it is gone. No pods wait for it: its PodGroup says what they need."""
        if job is None:
            self.volcano_jobs.pop(key, None)
        else:
            self.volcano_jobs[key] = job
        return False

    def follow_parents(self, kinds: frozenset[str], gone: frozenset[ParentKey] = frozenset()) -> bool:
        """Says of which kinds the parents are known or about to be; returns whether pods wait otherwise now.

        Args:
            gone: parents of these kinds that do not exist, as far as can be known.
        """
        known, self.parent_gangs.followed = self.parent_gangs.followed, kinds
        before, self.parent_gangs.gone = self.parent_gangs.gone, gone
        if known is None:  # until now parents that are not known made no gangs
            return self._regang(self.parent_gangs.candidates())
        changed = self._regang(self.parent_gangs.naming(sorted(known ^ kinds)))
        return self._regang_pods_of(before ^ gone) or changed

    def govern_gangs(self, policies: PolicyIndex) -> None:
        """Has these policies, of a plan to be made, decide which pods are in the gangs of their controllers."""
        self.parent_gangs.policies = policies
        self.regang_pods()

    def replace_policies(self, policies: Iterable[Policy]) -> bool:
        """Puts these policies in force in place of those before; returns whether that changes anything."""
        changed = self.policies.replace(policies)
        if changed:
            self._judge_rule_dependent(self.waiting)
            self.regang_pods()
        return changed

    def regang_pods(self, namespace: str | None = None) -> bool:
        """Puts pods into the gangs of their controllers anew: policies have changed, or labels of a namespace.

        Args:
            namespace: all pods of this one; None: the pods about which policies that changed may decide.

        Returns:
            Whether pods wait otherwise now.
        """
        if namespace is not None:
            return self._regang(self.parent_gangs.candidates(namespace))
        return self._regang(self.parent_gangs.read_policies(self.pods, self.namespaces))

    def _regang_pods_of(self, parents: Iterable[ParentKey]) -> bool:
        """Puts the pods of these parents into their gangs anew; returns whether pods wait otherwise now.

        What decides about each pod alone has not changed, so a parent with many pods takes little time.
        """
        changed = False
        for parent in parents:
            for key in self.parent_gangs.pods_of(parent):
                changed |= self._put_in_gang(self.parent_gangs.put_again(self.pods[key]))
        self.occupancy.generation += changed
        return changed

    def _regang(self, keys: Collection[str]) -> bool:
        """Decides about each of these pods anew; returns whether pods wait otherwise now."""
        changed = False
        for key in keys:
            pod, parents = self.parent_gangs.put(self.pods[key], self.namespaces)
            changed |= self._put_in_gang(pod)
            changed |= self._regang_pods_of(parents)
        self.occupancy.generation += changed
        return changed

    def _put_in_gang(self, pod: Pod) -> bool:
        """Takes a pod that may be in another gang now; returns whether it waits otherwise."""
        before = self.pods[pod.key]
        if pod is before:
            return False
        self._note_written(before, pod)
        changed = self.gangs.put(pod)
        return self._exchange(pod) or changed

    # --- for workers ---

    def take_changes(self, *, pods: bool = True) -> TakenChanges:
        """What changed since the last call.

        Args:
            pods: False: without pods, whose changes are not followed until the next call.
        """
        if not pods:
            self.occupancy.mark_pods_dirty()
        storage, removed_storage = self.storage.take_changes()
        objects = self.services.objects
        changes = ClusterChanges(
            nodes=[self.nodes[name].without_report for name in sorted(self._dirty_nodes) if name in self.nodes],
            removed_nodes=[name for name in sorted(self._dirty_nodes) if name not in self.nodes],
            namespaces={name: self.namespaces.get(name) for name in sorted(self._dirty_namespaces)},
            pod_deltas=list(self.occupancy.take_pod_deltas().items()) if pods else [],
            storage=storage,
            removed_storage=removed_storage,
            services=[objects[key] for key in sorted(self._dirty_services) if key in objects],
            removed_services=[key for key in sorted(self._dirty_services) if key not in objects],
        )
        self.devices.take_changes(changes)
        taken = TakenChanges(
            changes,
            usage=(
                self.occupancy.usage_of(name).to_usage(name)
                for name in self.occupancy.take_dirty_nodes()
                if name in self.nodes
            ),
            reports=((name, self.nodes[name].report) for name in sorted(self._dirty_reports) if name in self.nodes),
        )
        self._dirty_nodes.clear()
        self._dirty_namespaces.clear()
        self._dirty_services.clear()
        self._dirty_reports.clear()
        return taken

    def mark_all_dirty(self) -> None:
        """The next ``take_changes`` returns everything: the last receiver is gone."""
        self._dirty_nodes.update(self.nodes)
        for name in self.nodes:
            self.occupancy.mark_dirty(name)
        self._dirty_reports.update(self.nodes)
        self._dirty_namespaces.update(self.namespaces)
        self._dirty_services.update(key for key, service in self.services.objects.items() if service.selector)
        self.storage.mark_all_dirty()
        self.devices.mark_all_dirty()
        self.occupancy.mark_pods_dirty()


def _of_group(pod: Pod) -> tuple[int, ClaimingGroup | None]:
    """What a pod has of its group that rounds see."""
    devices = pod.pod_class.devices
    return pod.pod_class.priority, None if devices is None else devices.group


def _room(pod: Pod) -> tuple[str, Amounts, tuple[HostPort, ...], Volumes] | None:
    """Where and what a pod holds; None: nothing."""
    if not pod.node_name or pod.terminal:
        return None
    return pod.node_name, pod.usage, pod.pod_class.host_ports, pod.pod_class.volumes


def _counted(pod: Pod) -> tuple[object, ...]:
    governed = pod.namespace, pod.labels, pod.scheduler_name, bool(pod.node_name), pod.terminal
    return _room(pod), governed, pod.deleting, pod.constraints, pod.pod_class.priority, pod.during_execution


def as_planned(pod: Pod) -> Pod:
    """A pod as rounds see it: without what is written on it about its waiting."""
    return msgspec.structs.replace(
        pod,
        unschedulable_message="",
        unschedulable_reason="",
        unschedulable_since=0.0,
        resource_version="",
        nominated_node="",
        planned_node="",
        gated=False,
    )
