"""The cluster as the operator knows it: nodes, pods, what is taken, what waits, what is on its way.

Fed by reflectors, read by rounds. One event loop owns it, so nothing here locks. A pod holds room on a node when
it is bound there and not terminal, or when a reservation says that it is on its way; a deleting pod holds its room
until it is gone, as kube-scheduler has it. A nomination is a reservation, whoever wrote it: that is how reservations
come back after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from flowcore.filters.newer import Newer
from flowcore.filters.node_ports import clash
from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.gang_book import GangBook
from flowcore.model.gang_telling import Telling
from flowcore.model.gang_terms import GangKey, PodGroup
from flowcore.model.gangs import Gang
from flowcore.model.guidance import UNSEEN
from flowcore.model.neighbours import Kind, Neighbours
from flowcore.model.nodes import Node, Report
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import Delivery
from flowcore.model.replacing import named_by, replaced_by
from flowcore.model.resources import PODS, Amounts
from flowcore.model.selectors import Labels, value_of
from flowcore.model.snapshot import Replaced, assumed_amounts
from flowcore.model.volumes import ClaimVolume, Disk, StorageKey, StorageObject, Volumes
from thalweg_operator.beside import Beside
from thalweg_operator.stored import StorageBook

#: Namespace, labels and scheduler name of a pod: all that policies select by.
Governed = tuple[str, Labels, str]


class By(Enum):
    """Whose a reservation is."""

    #: A binding of ours is on its way.
    BINDER = "binder"
    #: We nominate, kube-scheduler binds.
    STEERING = "steering"
    #: Somebody else nominated: kube-scheduler for one that preempted, an autoscaler.
    OTHERS = "others"


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """A pod that is expected on a node and not yet seen bound; every later round counts it.

    Attributes:
        awaits: the pod whose place it takes, while that one is there: what both need at most is counted.
        generation: of the state, when it was planned there; for those that await another.
    """

    pod: Pod
    node: str
    by: By = By.BINDER
    awaits: Pod | None = None
    generation: int = 0

    @property
    def beside(self) -> Amounts | None:
        """Room that is not counted for it: another holds it still."""
        return None if self.awaits is None else self.awaits.usage


@dataclass(slots=True)
class NodeUse:
    """What is taken on one node; sums of Python integers, so that nothing overflows."""

    amounts: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    ports: Counter[HostPort] = field(default_factory=Counter)
    volumes: Counter[ClaimVolume | Disk] = field(default_factory=Counter)

    def change(self, usage: Amounts, pod_class: PodClass, sign: int, beside: Amounts | None = None) -> None:
        """Adds (sign 1) or removes (sign -1) one pod.

        Args:
            beside: what a pod takes that is counted already, and leaves when this one comes.
        """
        cpu, memory = assumed_amounts(usage)
        if beside is None:
            self.pods += sign
        else:
            there, (old_cpu, old_memory) = dict(beside), assumed_amounts(beside)
            usage = tuple((name, max(0, amount - there.get(name, 0))) for name, amount in usage)
            cpu, memory = max(0, cpu - old_cpu), max(0, memory - old_memory)
        for name, amount in usage:
            self.amounts[name] += sign * amount
        self.cpu += sign * cpu
        self.memory += sign * memory
        for port in pod_class.host_ports:
            self.ports[port] += sign
            if not self.ports[port]:
                del self.ports[port]
        for volume in pod_class.volumes:
            self.volumes[volume] += sign
            if not self.volumes[volume]:
                del self.volumes[volume]

    def copy(self) -> NodeUse:
        """One that may change by itself."""
        counters = (self.amounts.copy(), self.pods, self.cpu, self.memory, self.ports.copy(), self.volumes.copy())
        return NodeUse(*counters)

    @property
    def empty(self) -> bool:
        """Whether no pod is there."""
        return self.pods == 0


@dataclass(slots=True)
class Population:
    """Pods of one kind: how many have a node, how many wait."""

    placed: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """What a worker is to be told.

    Attributes:
        uses: for nodes that are known.
        namespaces: their labels, None for those that are gone.
        neighbours: by how many pods of each kind on each node there are more, or fewer.
        reports: of nodes whose report changed; ``nodes`` come without.
        storage, storage_gone: storage objects that came or changed, and those that went.
    """

    nodes: list[Node]
    gone: list[str]
    uses: dict[str, NodeUse]
    namespaces: dict[str, Labels | None]
    neighbours: dict[tuple[Kind, str], int]
    reports: dict[str, Report]
    storage: list[StorageObject]
    storage_gone: list[StorageKey]


class ClusterState:
    """See the module.

    Attributes:
        generation: rises with every change that scheduling can see.
        neighbours: pods that hold room, as rules between pods see them.
        waiting: pods without a node, those that a DeviceClass leaves to kube-scheduler marked so.
        gangs: which pods belong together.
        newer: what changed since the last ``take_changes``.
        on_change: called after each change that may let a round place more.
        successors: pods that are to leave, by key, and the key of the one that takes the place of each.
        kept: keys of pods whose place is kept for them since another has left it; a round is to look at it once more.
        on_steered: called with the key of a pod after it changed, where it is or was nominated, has a reservation, or
            was last held because our watch had not shown it.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.namespaces: dict[str, Labels] = {}
        self.waiting: dict[str, Pod] = {}
        self.reservations: dict[str, Reservation] = {}
        self.successors: dict[str, str] = {}
        self.kept: set[str] = set()
        self.populations: dict[Governed, Population] = {}
        self.storage = StorageBook()
        self.device_classes: dict[str, DeviceClass] = {}
        self.neighbours = Neighbours()
        self.gangs = GangBook()
        self.newer = Newer()
        self.generation = 0
        self.on_change: Callable[[], None] = lambda: None
        self.on_steered: Callable[[str], None] = lambda _key: None
        self._reserved: dict[str, set[str]] = {}
        self.beside = Beside()
        #: Keys of pods whose reservation is about to end: they are not on their way any more.
        self.ending: set[str] = set()
        self._uses: dict[str, NodeUse] = {}
        self._node_changed: dict[str, int] = {}
        self._dirty_nodes: set[str] = set()
        self._dirty_uses: set[str] = set()
        #: Waiting pods that others may make a place good for.
        self._looking: set[str] = set()
        #: Pods that waiting ones name as those whose place they take, and how many do.
        self._named: Counter[str] = Counter()
        self._dirty_reports: set[str] = set()
        self._dirty_namespaces: set[str] = set()
        self._dirty_kinds: dict[tuple[Kind, str], int] = {}
        #: Extended resource -> the DeviceClass that backs it.
        self._backed: dict[str, str] = {}

    # --- nodes ---

    def upsert_node(self, node: Node) -> None:
        """Takes a new or changed node; heartbeats and conditions change nothing here, reports no verdict."""
        before = self.nodes.get(node.name)
        if before == node:
            return
        self.nodes[node.name] = node
        if before is None or before.report != node.report:
            self._dirty_reports.add(node.name)
        if before is None or before.without_report != node.without_report:
            self._touch_node(node.name, before)

    def delete_node(self, name: str) -> None:
        """A node is gone. What ran there keeps its place in the books until its pods go too."""
        before = self.nodes.pop(name, None)
        if before is not None:
            self._touch_node(name, before)

    def _touch_node(self, name: str, before: Node | None) -> None:
        self.generation += 1
        if name in self.nodes:
            self._node_changed[name] = self.generation
        else:
            self._node_changed.pop(name, None)
        self._dirty_nodes.add(name)
        self._dirty_uses.add(name)
        self.newer.nodes.setdefault(name, before)
        self.on_change()

    def node_changed_since(self, name: str, generation: int) -> bool:
        """Whether the node object changed, came or went after ``generation``."""
        return name not in self.nodes or self._node_changed.get(name, 0) > generation

    # --- pods ---

    def upsert_pod(self, pod: Pod) -> None:
        """Takes a new or changed pod."""
        key = pod.key
        old = self.pods.get(key)
        reservation = self.reservations.get(key)
        if reservation is not None and (reservation.pod.uid != pod.uid or pod.node_name or pod.terminal):
            self._drop_reservation(key)
            if pod.node_name != reservation.node or pod.terminal:
                self.on_change()  # room came free
        self.beside.seen(key, "" if pod.node_name or pod.terminal else pod.uid)
        if key in self.successors and not self._awaited(pod):
            self._vacate(key)
        self.pods[key] = pod
        self._move(old, pod)
        joined = self.gangs.put(pod)
        self._set_waiting(key, pod)
        if reservation is not None or pod.nominated or (old is not None and old.nominated):
            self._follow_nomination(pod)
            self.on_steered(key)
        elif UNSEEN in pod.told:
            self.on_steered(key)
        if key in self._named and (None if old is None else _held(old)) != _held(pod):
            self.on_change()  # its place may be taken now, or need not be any more
        as_planned = reservation is not None and (reservation.node, reservation.pod.kind) == (pod.node_name, pod.kind)
        if self._looking and not as_planned and _met(pod) and (old is None or _met(old) != _met(pod)):
            self.on_change()  # one that others wait for may have come
        elif joined and (reservation is None or reservation.node != pod.node_name):
            self.on_change()  # its gang is nearer to what it needs, or farther from it

    def delete_pod(self, key: str) -> None:
        """A pod is gone."""
        if key in self.successors:
            self._vacate(key)
        old = self.pods.pop(key, None)
        if self.gangs.drop(key):
            self.on_change()
        self.beside.seen(key)
        if key in self.reservations:
            self._drop_reservation(key)
            self.on_steered(key)
            self.on_change()  # room came free
        if old is not None:
            self._move(old, None)
        self._looking.discard(key)
        self._wait_no_more(key)

    def _wait_no_more(self, key: str) -> None:
        before = self.waiting.pop(key, None)
        if before is not None:
            self.storage.want(before, -1)
            self._name(before, -1)
            self.generation += 1

    def _name(self, pod: Pod, by: int) -> None:
        key = named_by(pod)
        if key:
            self._named[key] += by
            if not self._named[key]:
                del self._named[key]

    def _set_waiting(self, key: str, pod: Pod) -> None:
        rules = pod.rules
        if pod.node_name or pod.terminal or rules is None or not (rules.affinity or rules.spread):
            self._looking.discard(key)
        else:
            self._looking.add(key)
        if pod.node_name or pod.terminal:
            self._wait_no_more(key)
            return
        pod = with_devices(pod, self._backed)
        before = self.waiting.get(key)
        if before is not None:
            self.storage.want(before, -1)
            self._name(before, -1)
        self.storage.want(pod, 1)
        self._name(pod, 1)
        self.waiting[key] = pod
        # What we write ourselves comes back as a change and starts no round, but for a gate that opens without a plan.
        opened = before is not None and before.gated and not pod.gated and key not in self.reservations
        if before is None or opened or _as_planned(before) != _as_planned(pod):
            self.generation += 1
            self.on_change()

    def _move(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _counted(old) == _counted(new):
            return  # most updates are a kubelet's status reports
        if old is not None:
            self._count(old, -1)
            if _held(old) is not None:
                self._use(old.node_name, old.usage, old.pod_class, -1)
                self._meet(self._kind(old), old.node_name, -1)
        if new is not None:
            self._count(new, 1)
            if _held(new) is not None:
                self._use(new.node_name, new.usage, new.pod_class, 1)
                self._meet(self._kind(new), new.node_name, 1)
        if old is not None and _held(old) is not None and _held(old) != (None if new is None else _held(new)):
            self.on_change()  # room came free

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.terminal:
            return
        governed = (pod.namespace, pod.labels, pod.scheduler_name)
        population = self.populations.get(governed)
        if population is None:
            population = self.populations[governed] = Population()
        if pod.node_name:
            population.placed += sign
        else:
            population.waiting += sign
        if not population.placed and not population.waiting:
            del self.populations[governed]

    def _use(self, node: str, usage: Amounts, pod_class: PodClass, sign: int, beside: Amounts | None = None) -> None:
        use = self._uses.get(node)
        if use is None:
            use = self._uses[node] = NodeUse()
        use.change(usage, pod_class, sign, beside)
        if use.empty:
            del self._uses[node]
        self._dirty_uses.add(node)
        self.generation += 1

    def _meet(self, kind: Kind, node: str, by: int, *, planned: bool = False) -> None:
        self.neighbours.change(kind, node, by)
        if not planned:
            self.newer.pods.change(kind, node, by)
        at = (kind, node)
        self._dirty_kinds[at] = self._dirty_kinds.get(at, 0) + by
        if not self._dirty_kinds[at]:
            del self._dirty_kinds[at]

    # --- namespaces ---

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Takes a namespace's labels; None: it is gone."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.neighbours.set_namespace(name, labels)
        self.newer.pods.set_namespace(name, labels)
        self.beside.set_namespace(name, labels)
        self.newer.namespaces = True
        self._dirty_namespaces.add(name)
        self.generation += 1
        self.on_change()

    # --- storage and devices ---

    def upsert_storage(self, each: StorageObject) -> None:
        """Takes a new or changed storage object."""
        if self.storage.put(each):
            self.generation += 1
            if self.storage.helps(each, gone=False):
                self.on_change()

    def delete_storage(self, key: StorageKey) -> None:
        """A storage object is gone."""
        before = self.storage.drop(key)
        if before is not None:
            self.generation += 1
            if self.storage.helps(before, gone=True):
                self.on_change()

    def set_device_class(self, name: str, device_class: DeviceClass | None) -> None:
        """Takes a DeviceClass; None: it is gone. Pods that wait with what it backs are another's to place, or ours."""
        if device_class is None:
            self.device_classes.pop(name, None)
        else:
            self.device_classes[name] = device_class
        backed = device_resources(self.device_classes.values())
        if backed != self._backed:
            self._backed = backed
            for key in list(self.waiting):
                self._set_waiting(key, self.pods[key])

    # --- gangs ---

    def upsert_pod_group(self, group: PodGroup) -> None:
        """Takes a new or changed PodGroup."""
        if self.gangs.put_group(group):
            self.generation += 1
            self.on_change()

    def delete_pod_group(self, key: GangKey) -> None:
        """A PodGroup is gone."""
        if self.gangs.drop_group(key):
            self.generation += 1
            self.on_change()

    def gangs_of(self, asked: Sequence[tuple[Pod, Delivery]]) -> tuple[list[tuple[str, ...]], list[Gang]]:
        """For each of these waiting pods the names of its gangs, and these gangs (see GangBook.of_waiting)."""
        return self.gangs.of_waiting(asked, self.coming(), self._domain)

    def telling_gangs(self, asked: Sequence[tuple[Pod, Delivery]]) -> Telling:
        """The same in steps, for whoever has others to give a turn to."""
        return Telling(self.gangs, asked, self.coming(), self._domain)

    def coming(self) -> dict[str, str]:
        """Keys of gangs' pods that are on their way to a node, and the node."""
        return {
            key: each.node
            for key, each in self.reservations.items()
            if each.pod.gang is not None and key not in self.ending
        }

    def _domain(self, node: str, label: str) -> str:
        known = self.nodes.get(node)
        return "" if known is None else value_of(known.labels, label) or ""

    # --- reservations ---

    def reserve(self, pod: Pod, node: str, by: By = By.BINDER) -> bool:
        """Takes room for a planned pod if it still waits, has none yet, and fits what is free now.

        Only amounts and ports are checked: whether the node object is still the one that was planned with, whether
        rules between pods still hold, is the caller's to ask (``node_changed_since``, ``newer``). For the binder, after
        which nobody checks, what kube-scheduler may be placing counts too (``contended``).

        One that takes the place of another may have that one's room, but nobody else gets any of it; it is not to be
        bound before that one has left (``awaits``). A place that was kept for it is its own already.
        """
        current = self.waiting.get(pod.key)
        if current is None or current.uid != pod.uid or current.blocked or current.unjudged:
            return False
        there = self.reservations.get(pod.key)
        if there is not None:
            return self._confirm(there, current, node, by)
        old = self.pods.get(named_by(current))
        if old is not None and not old.terminal:
            if old.node_name != node or old.key in self.successors:
                return False  # as things stand no plan would have it go there
        else:
            old = None
        fewer = () if old is None else (old,)
        if not self._fits(current, node, fewer=fewer) or (by is By.BINDER and self.contended(current, node, fewer)):
            return False
        self._reserve(Reservation(current, node, by, awaits=old, generation=self.generation))
        return True

    def _confirm(self, there: Reservation, pod: Pod, node: str, by: By) -> bool:
        if pod.key not in self.kept:
            return False
        if (there.node, there.by, there.pod.pod_class, there.pod.kind) != (node, by, pod.pod_class, pod.kind):
            self.release(pod.key, pod.uid)  # planned anew, like any other
            return False
        if not self.holds(pod.key) or (by is By.BINDER and self.contended(pod, node, (there.pod,))):
            return False
        self.kept.discard(pod.key)
        return True

    def _reserve(self, reservation: Reservation) -> None:
        pod, node = reservation.pod, reservation.node
        self.reservations[pod.key] = reservation
        self._reserved.setdefault(node, set()).add(pod.key)
        self._use(node, pod.pod_class.requests, pod.pod_class, 1, reservation.beside)
        self._meet(pod.kind, node, 1, planned=reservation.by is not By.OTHERS)
        if reservation.awaits is not None:
            self._see_off(reservation.awaits.key, pod.key)
        if reservation.by is By.BINDER:
            self.beside.binds(pod.kind, node)

    def _follow_nomination(self, pod: Pod) -> None:
        key = pod.key
        reservation = self.reservations.get(key)
        others = pod.nominated if pod.nominated != pod.planned else ""
        if reservation is not None and reservation.by is By.OTHERS and reservation.node != others:
            self._drop_reservation(key)
            self.on_change()
            reservation = None
        if key not in self.waiting or not pod.nominated:
            return
        if others and reservation is not None and reservation.by is By.STEERING:
            self._drop_reservation(key)
            reservation = None
        if reservation is None:
            self._reserve(Reservation(pod, pod.nominated, By.OTHERS if others else By.STEERING))

    def swap(self, one: str, other: str) -> None:
        """Two pods that are alike change places: the same class and the same kind, so nothing is free that was not."""
        first, second = self.reservations[one], self.reservations[other]
        for key, before, after in ((one, first.node, second.node), (other, second.node, first.node)):
            self._reserved[before].discard(key)
            self._reserved[after].add(key)
            self.reservations[key] = msgspec.structs.replace(self.reservations[key], node=after)

    def holds(self, key: str) -> bool:
        """Whether the room of a reservation is still there: others may have taken it, or the node is gone.

        For one that awaits another: whether it will be there when that one has left.
        """
        held = self.reservations[key]
        if held.awaits is None:
            return self._fits(held.pod, held.node, fewer=[held.pod])
        use = self._uses[held.node].copy()
        use.change(held.pod.pod_class.requests, held.pod.pod_class, -1, held.beside)
        return self._fits(held.pod, held.node, fewer=[self.pods[held.awaits.key]], use=use)

    def replaced(self, pod: Pod) -> Replaced | None:
        """Whose place a waiting pod is to take; None: it is placed like any other."""
        if pod.key in self.kept:
            reservation = self.reservations[pod.key]
            what, use = reservation.pod, self._uses[reservation.node]
            return Replaced(
                key=named_by(pod),
                node=reservation.node,
                usage=what.pod_class.requests,
                host_ports=what.pod_class.host_ports,
                kind=what.kind,
                volumes=tuple(each for each in what.pod_class.volumes if use.volumes[each] < 2),
                left=True,
            )
        if pod.replaces is None:
            return None
        old = named_by(pod)
        if old in self.successors:
            return Replaced(flaw=f"{self.successors[old]} takes the place of {old} already")
        there = self.pods.get(old)
        use = (None if there is None else self._uses.get(there.node_name)) or NodeUse()
        return replaced_by(pod, self.pods, use.ports, use.volumes)

    def awaits(self, key: str) -> bool:
        """Whether another pod must leave before this one gets the place that is reserved for it."""
        reservation = self.reservations.get(key)
        return reservation is not None and reservation.awaits is not None

    def give_up_place(self, pod: Pod) -> None:
        """A round would not have a pod go to the place that was kept for it."""
        if pod.key in self.kept:
            self.release(pod.key, pod.uid)

    def _kind(self, pod: Pod) -> Kind:
        """One that is to leave counts as if it were being deleted: that is how kube-scheduler is about to see it."""
        return msgspec.structs.replace(pod.kind, leaving=True) if pod.key in self.successors else pod.kind

    def _see_off(self, key: str, by: str) -> None:
        """A pod that is there is to leave for another (``by``), or, with "", may stay. The plan knows."""
        pod = self.pods[key]
        self._meet(self._kind(pod), pod.node_name, -1, planned=True)
        if by:
            self.successors[key] = by
        else:
            del self.successors[key]
        self._meet(self._kind(pod), pod.node_name, 1, planned=True)

    def _awaited(self, pod: Pod) -> bool:
        old = self.reservations[self.successors[pod.key]].awaits
        return old is not None and (old.uid, old.node_name) == (pod.uid, pod.node_name) and not pod.terminal

    def _vacate(self, key: str) -> None:
        """A pod leaves, or has ended: its room is kept for the one that takes its place."""
        reservation = self.reservations[self.successors[key]]
        self._see_off(key, "")
        pod, node = reservation.pod, reservation.node
        self._use(node, pod.pod_class.requests, pod.pod_class, -1, reservation.beside)
        self._use(node, pod.pod_class.requests, pod.pod_class, 1)
        self.reservations[pod.key] = msgspec.structs.replace(reservation, awaits=None)
        self.kept.add(pod.key)
        self.on_change()

    def release(self, key: str, uid: str) -> None:
        """Gives the room of a reservation back: its binding did not happen."""
        reservation = self.reservations.get(key)
        if reservation is not None and reservation.pod.uid == uid:
            self._drop_reservation(key)
            self.on_change()

    def _drop_reservation(self, key: str) -> None:
        reservation = self.reservations.pop(key)
        self.ending.discard(key)
        self.kept.discard(key)
        there = self._reserved[reservation.node]
        there.discard(key)
        if not there:
            del self._reserved[reservation.node]
        if reservation.by is By.BINDER:
            self.beside.bound(reservation.pod.kind, reservation.node)
        if reservation.awaits is not None:
            self._see_off(reservation.awaits.key, "")
        pod_class = reservation.pod.pod_class
        self._use(reservation.node, pod_class.requests, pod_class, -1, reservation.beside)
        # Where the pod is now bound there, its own coming makes up for this.
        self._meet(reservation.pod.kind, reservation.node, -1)

    def _fits(
        self,
        pod: Pod,
        node_name: str,
        more: Sequence[Pod] = (),
        fewer: Sequence[Pod] = (),
        use: NodeUse | None = None,
    ) -> bool:
        """Whether a pod fits a node now (or with ``use`` there), with some more pods there and some fewer."""
        node = self.nodes.get(node_name)
        if node is None:
            return False
        use = use or self._uses.get(node_name) or NodeUse()
        allocatable = dict(node.allocatable)
        if use.pods + 1 + len(more) - len(fewer) > allocatable.get(PODS, 0):
            return False
        amounts = use.amounts
        if more or fewer:
            amounts = amounts.copy()
            for each in more:
                amounts.update(dict(each.pod_class.requests))
            for each in fewer:
                amounts.subtract(dict(each.usage if each.node_name else each.pod_class.requests))
        for name, amount in pod.pod_class.requests:
            if amount > allocatable.get(name, 0) - amounts[name]:
                return False
        if not pod.pod_class.host_ports:
            return True
        ports = use.ports.copy()
        ports.update(port for each in more for port in each.pod_class.host_ports)
        ports.subtract(port for each in fewer for port in each.pod_class.host_ports)
        return not clash(pod.pod_class.host_ports, [port for port, count in ports.items() if count > 0])

    def drop(self, pod: Pod, node: str) -> None:
        """A placement of the plan in hand is not carried out: others of the same plan may have counted on it."""
        self.newer.pods.change(pod.kind, node, -1)

    # --- for kube-scheduler's extender ---

    def crowded(self, pod: Pod, nodes: Sequence[str]) -> list[str]:
        """Those of the nodes that will not do for the pod once all that is on its way has come.

        kube-scheduler cannot know: of bindings of ours that its watch has not shown it yet, and of nominations that are
        being written. Nominations of a lower priority do not count, as with kube-scheduler itself. Beside bindings of
        ours, pods count that it has let through and we have not seen bound: it knows of those, but not of both. Rules
        between pods are weighed against the binder's pods alone: kube-scheduler checks nominated ones itself.
        """
        ours = self.beside.nodes
        near = [node for node in nodes if node in ours or node in self._reserved]
        full = [node for node in near if not self._fits_beside(pod, node, ours=node in ours)]
        return full + self.beside.forbidden(pod, nodes, self.nodes, self.neighbours)

    def _fits_beside(self, pod: Pod, node: str, *, ours: bool) -> bool:
        passing = self._passing(node, pod.key) if ours else ()
        if self._fits(pod, node, passing):
            return True
        yielding = [
            each.pod
            for each in (self.reservations[key] for key in self._reserved.get(node, ()))
            if each.pod.key == pod.key
            or (
                each.by is not By.BINDER
                and each.pod.pod_class.priority < pod.pod_class.priority
                and not self.beside.passes(each.pod.key)
            )
        ]
        return bool(yielding) and self._fits(pod, node, passing, yielding)

    def _passing(self, node: str, besides: str = "") -> list[Pod]:
        """Pods that may be on their way there, and are not counted by a reservation there."""
        counted = self._reserved.get(node, ())
        return [each for each in self.beside.passing(node) if each.key != besides and each.key not in counted]

    def contended(self, pod: Pod, node: str, fewer: Sequence[Pod] = ()) -> bool:
        """Whether the binder must wait: kube-scheduler may be placing pods there beside which this one would not do."""
        passing = self._passing(node)
        if passing and not self._fits(pod, node, passing, fewer):
            return True
        known = self.nodes.get(node)
        return known is not None and self.beside.opposes(pod, known, self.nodes, self.neighbours)

    # --- for rounds ---

    def plannable(self) -> list[Pod]:
        """Pods that wait without a reservation, or with a place that is kept for them, in a fixed order."""
        there, kept = self.reservations, self.kept
        return [pod for key, pod in sorted(self.waiting.items()) if key not in there or key in kept]

    def take_changes(self) -> Changes:
        """What changed since the last call."""
        storage, storage_gone = self.storage.take_changes()
        changes = Changes(
            nodes=[self.nodes[name].without_report for name in sorted(self._dirty_nodes) if name in self.nodes],
            gone=[name for name in sorted(self._dirty_nodes) if name not in self.nodes],
            uses={name: self._uses.get(name, NodeUse()) for name in sorted(self._dirty_uses) if name in self.nodes},
            namespaces={name: self.namespaces.get(name) for name in sorted(self._dirty_namespaces)},
            neighbours=self._dirty_kinds,
            reports={name: self.nodes[name].report for name in sorted(self._dirty_reports) if name in self.nodes},
            storage=storage,
            storage_gone=storage_gone,
        )
        self._dirty_nodes.clear()
        self._dirty_uses.clear()
        self._dirty_namespaces.clear()
        self._dirty_reports.clear()
        self._dirty_kinds = {}
        self.newer = Newer(Neighbours(self.namespaces))
        return changes

    def mark_all_dirty(self) -> None:
        """The next ``take_changes`` returns everything: the last receiver is gone."""
        self._dirty_nodes.update(self.nodes)
        self._dirty_uses.update(self.nodes)
        self._dirty_reports.update(self.nodes)
        self._dirty_namespaces.update(self.namespaces)
        self.storage.mark_all_dirty()
        self._dirty_kinds = {(kind, node): count for kind, node, count in self.neighbours.counts()}


def _held(pod: Pod) -> tuple[str, Amounts, tuple[HostPort, ...], Volumes] | None:
    if not pod.node_name or pod.terminal:
        return None
    return pod.node_name, pod.usage, pod.pod_class.host_ports, pod.pod_class.volumes


def _met(pod: Pod) -> tuple[str, Kind] | None:
    return None if _held(pod) is None else (pod.node_name, pod.kind)


def _governed(pod: Pod) -> tuple[Governed, bool, bool]:
    return (pod.namespace, pod.labels, pod.scheduler_name), bool(pod.node_name), pod.terminal


def _counted(pod: Pod) -> tuple[object, ...]:
    return _held(pod), _governed(pod), pod.deleting, pod.rules


def _as_planned(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, told="", tried=0.0, nominated="", planned="", gated=False)
