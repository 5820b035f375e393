"""An API server, a watch that lags, writes on their way, and the operator's ledger behind its real shell."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import msgspec
from support.fake_cluster.checks import CheckedShell
from support.fake_cluster.claims import ApiClaims, ClaimNotToBeHad, parts_of
from support.fake_cluster.driven_ledger import DrivenLedger
from support.fake_cluster.volumes import ApiVolumes
from thalweg_operator.delivery.extender_view import ExtenderView
from thalweg_operator.reservations.effects import (
    Allocate,
    Bind,
    BindClaim,
    ClearNomination,
    Effect,
    Evict,
    Nominate,
    OpenGate,
    ReleaseClaims,
    RequestRound,
    WakePod,
    Write,
)
from thalweg_operator.reservations.events import (
    Answer,
    Event,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    ObjectSet,
    PodPut,
    PodRemoved,
    PoliciesChanged,
    Synced,
    TimePassed,
    WriteAnswered,
)
from thalweg_operator.reservations.step.state import State

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.kinds import GROUPS_OF_PODS
from flowcore.model.gang_spec import GangKey, PodGroup
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.volumes import ClaimVolume

NAMESPACE = "ns"
_WRITES = get_args(Write)


class ApiServer:
    """See the module. After each event everything is checked (``support.fake_cluster.checks``).

    Attributes:
        api: pods as the API server has them, by key.
        nodes: likewise.
        pod_groups: PodGroups of Kubernetes, likewise.
        devices: likewise, with the claims to them.
        volumes: likewise.
        watch: events that the operator has not seen yet.
        writes: writes that are not answered for good.
        effects: all others since the operator started.
        state: the operator's ledger, to be asked and driven past the watch.
        view: what kube-scheduler's extender sees of it.
        put_write: takes each write; a test may have another take them.
    """

    def __init__(self, nodes: Iterable[Node], policies: Sequence[Policy]) -> None:
        self.now = 1_000.0
        self.api: dict[str, Pod] = {}
        self.nodes = {node.name: node for node in nodes}
        self.policies = tuple(policies)
        self.namespace_labels: tuple[tuple[str, str], ...] | None = (("team", "ml"),)
        self._uids = 0
        self.pod_groups: dict[GangKey, PodGroup] = {}
        self.devices, self.volumes = ApiClaims(self.publish), ApiVolumes(self.publish)
        self.start()

    def start(self, *, policies_first: bool = False) -> None:
        """As after a start of the operator: all that it learns is what the API server has.

        Args:
            policies_first: policies are known before the objects that they select.
        """
        self.watch: deque[Event] = deque()
        self.writes: list[Write] = []
        self.effects: list[Effect] = []
        self.put_write: Callable[[Any], object] = self.writes.append
        self.cluster = Cluster()
        self.shell = CheckedShell(State(self.cluster), lambda _: None, lambda: self.now)
        self.ledger = self.shell.ledger
        self.state, self.view = DrivenLedger.of(self.shell), ExtenderView(self.shell, lambda: "")
        self.shell.lead({kind: self._take for kind in get_args(Effect) if kind is not RequestRound})
        if policies_first:
            self.apply(PoliciesChanged(self.policies))
        for node in self.nodes.values():
            self.apply(NodePut(node))
        for event in (*self.devices.events(), *self.volumes.events()):
            self.apply(event)
        for key, group in self.pod_groups.items():
            self.apply(ObjectSet(GROUPS_OF_PODS, key, group))
        for pod in self.api.values():
            self.apply(PodPut(pod))
        if self.namespace_labels is not None:
            self.apply(NamespaceSet(NAMESPACE, self.namespace_labels))
        if not policies_first:
            self.apply(PoliciesChanged(self.policies))
        self.apply(Synced())

    def apply(self, event: Event) -> list[Effect]:
        """One step, and all that must hold after it."""
        self.shell.apply(event)
        return self.shell.step_effects

    def _take(self, effect: Effect) -> None:
        if isinstance(effect, _WRITES):
            self.put_write(effect)
        else:
            self.effects.append(effect)

    # --- objects, and the watch ---

    def publish(self, event: Event) -> None:
        """The watch is going to show this."""
        self.watch.append(event)

    def put_pod(self, pod: Pod) -> None:
        """A pod is created or changed."""
        if self.api.get(pod.key) != pod:
            self.api[pod.key] = pod
            self.publish(PodPut(pod))

    def change_pod(self, key: str, **fields: Any) -> None:
        """A pod is changed, if it is there."""
        if key in self.api:
            self.put_pod(msgspec.structs.replace(self.api[key], **fields))

    def create_pod(self, name: str, uid: str = "", **fields: Any) -> Pod:
        """A pod is created; without a UID, with one of its own."""
        self._uids += 1
        pod = Pod(NAMESPACE, name, uid or f"u{self._uids}", **fields)
        self.put_pod(pod)
        return pod

    def remove_pod(self, key: str) -> None:
        """A pod goes."""
        if self.api.pop(key, None) is not None:
            self.publish(PodRemoved(key))

    def remove_deleting_pods(self) -> None:
        """Pods that are being deleted are gone, as kubelets have it."""
        for key in [key for key, pod in self.api.items() if pod.deleting]:
            self.remove_pod(key)

    def put_pod_group(self, group: PodGroup) -> None:
        """A PodGroup is created or changed."""
        self.pod_groups[group.key] = group
        self.publish(ObjectSet(GROUPS_OF_PODS, group.key, group))

    def put_node(self, node: Node) -> None:
        """A node comes or changes."""
        self.nodes[node.name] = node
        self.publish(NodePut(node))

    def remove_node(self, name: str) -> None:
        """A node goes."""
        if self.nodes.pop(name, None) is not None:
            self.publish(NodeRemoved(name))

    def set_namespace(self, labels: tuple[tuple[str, str], ...] | None) -> None:
        """The namespace's labels change; None: it goes."""
        self.namespace_labels = labels
        self.publish(NamespaceSet(NAMESPACE, labels))

    def show(self, count: int = 10_000) -> None:
        """The watch shows what happened: the next so many events."""
        while self.watch and count:
            self.apply(self.watch.popleft())
            count -= 1

    def set_policies(self, policies: Sequence[Policy]) -> None:
        """Other policies are accepted."""
        self.policies = tuple(policies)
        self.apply(PoliciesChanged(self.policies))

    def pass_time(self, seconds: float) -> None:
        """Time passes, and the ledger looks at its clock once."""
        self.now += seconds
        self.apply(TimePassed())

    # --- writes ---

    def is_wanted(self, write: Write) -> bool:
        """Whether a write is to be sent still."""
        return self.shell.is_wanted(write)

    def send(
        self,
        at: int,
        answer: Answer = Answer.DONE,
        *,
        reason: str = "no",
        lost: bool = False,
        shown_first: bool = False,
    ) -> None:
        """One write is sent, if it is wanted still.

        Args:
            answer: the API server's, where the write can be carried out.
            reason: of a refusal.
            lost: it is carried out, and the answer is lost: the write is tried again.
            shown_first: the watch shows what the write did before its answer comes.
        """
        write = self.writes.pop(at)
        if isinstance(write, Allocate | ReleaseClaims | BindClaim):
            self._send_claims(write, answer, reason, lost=lost, shown_first=shown_first)
            return
        uncertain = self._is_uncertain(write)
        if not uncertain and not self.is_wanted(write):
            self.apply(WriteAnswered(write, Answer.UNWANTED))
            return
        self._check_is_known(write)
        if isinstance(write, Bind):
            self.apply(WriteAnswered(write, Answer.UNCERTAIN))
        known = self.api.get(write.pod.key)
        if known is None or known.uid != write.pod.uid:
            # What was to be evicted is gone; nothing else can be written to a pod that is not there.
            gone = Answer.DONE if isinstance(write, Evict) else Answer.REFUSED
            self.apply(WriteAnswered(write, gone, "" if isinstance(write, Bind | Evict) else "not found"))
            return
        if isinstance(write, Bind) and known.node_name:
            bound = Answer.DONE if known.node_name == write.node else Answer.REFUSED
            self.apply(WriteAnswered(write, bound))
            return
        if answer in (Answer.REFUSED, Answer.RETRYING) and not lost:
            if answer is Answer.RETRYING or isinstance(write, OpenGate | ClearNomination):
                self.writes.append(write)  # it is needed, and tried again after a pause
                answer = Answer.RETRYING
            if not (answer is Answer.RETRYING and uncertain):
                self.apply(WriteAnswered(write, answer, reason))
            return
        self._carry_out(write)
        if shown_first:
            self.show()
        if lost:
            self.writes.append(write)
        else:
            self.apply(WriteAnswered(write, Answer.DONE))

    def _send_claims(
        self,
        write: Allocate | ReleaseClaims | BindClaim,
        answer: Answer,
        reason: str,
        *,
        lost: bool,
        shown_first: bool,
    ) -> None:
        """Device claims of a pod are written one by one. What is refused may be written in part."""
        if not self.is_wanted(write):
            self.apply(WriteAnswered(write, Answer.UNWANTED))
            return
        is_done = answer is Answer.DONE or lost
        if isinstance(write, ReleaseClaims):
            if is_done:
                self.devices.release(write)
            answer = Answer.DONE if is_done else Answer.RETRYING  # it is needed
        else:
            try:
                if isinstance(write, Allocate):
                    parts = len(parts_of(write))
                    self.devices.allocate(write, parts if is_done else parts // 2)
                elif is_done:
                    self.volumes.bind(write)
            except ClaimNotToBeHad as problem:
                answer, reason, lost = Answer.REFUSED, str(problem), False
        if shown_first:
            self.show()
        if lost or answer is Answer.RETRYING:
            self.writes.append(write)
        if not lost:
            self.apply(WriteAnswered(write, answer, "" if answer is Answer.DONE else reason))

    def _check_is_known(self, write: Write) -> None:
        """A nomination is written or cleared for a pod that waits, as far as the operator knows."""
        if isinstance(write, Nominate | ClearNomination):
            known = self.cluster.pods.get(write.pod.key)
            assert known is not None, "a write for a pod that is known to be gone"
            assert (known.uid, known.node_name) == (write.pod.uid, ""), "a write for a pod that is bound or another"

    def _is_uncertain(self, write: Write) -> bool:
        """Whether an earlier try of a binding may have been carried out: then it is tried until that is known."""
        reservation = self.ledger.reservations.get(write.pod.key)
        return isinstance(write, Bind) and reservation is not None and reservation.maybe_bound

    def _check_has_claims(self, write: Bind) -> None:
        """A pod that is bound by us has all of its claims, and nobody else has anything of their devices."""
        held = self.devices.held()
        reservation = self.ledger.reservations.get(write.pod.key)
        claims = () if reservation is None else reservation.device_claims
        told = next((planned.name for planned in claims if planned.requests), None)
        assert self.devices.told.get(write.pod.uid) == told, f"{write.pod.key} is bound, and names another claim"
        # Who binds may not know yet that the node is gone.
        if told is None and (node := self.nodes.get(write.node)) is not None:
            offered = dict(node.allocatable)
            assert all(offered.get(extended.resource) for extended in write.pod.extended), "bound without devices"
        for planned in claims:
            known = self.devices.claims[planned.key]
            is_reserved = planned.consumer(write.pod.uid) in known.reserved_for
            assert is_reserved, f"{write.pod.key} is bound without {planned.name}"
            assert known.allocation is not None
            assert not known.awaited, f"{write.pod.key} is bound, and its devices are not ready"
            assert all(held[each.device] == 1 for each in known.allocation.devices), "a device is had twice"
        for volume in write.pod.pod_class.volumes:
            if isinstance(volume, ClaimVolume):
                assert self.volumes.reaches(volume.key, write.node), f"{write.pod.key} is bound without {volume.name}"

    def _carry_out(self, write: Write) -> None:
        key = write.pod.key
        match write:
            case Bind():
                self._check_has_claims(write)
                self.change_pod(key, node_name=write.node, usage=self.api[key].pod_class.requests)
            case Nominate():
                self.change_pod(key, nominated_node=write.node, planned_node=write.node)
            case ClearNomination():
                self.change_pod(key, nominated_node="", planned_node="")
            case OpenGate():
                self.change_pod(key, gated=False)
            case WakePod():
                self.change_pod(key, unschedulable_message=f"{self.api[key].unschedulable_message} ")
            case Evict() if not write.dry_run:
                self.shell.checks.check_eviction(write)
                self.change_pod(key, deleting=True)
