"""The world of the tests of steering: three nodes, one policy, and plans that are made by hand."""

from collections.abc import Sequence
from typing import Any

from support.fake_cluster.cluster import FakeCluster
from thalweg_operator.delivery.nominator import write_kind
from thalweg_operator.reservations.effects import CountNomination, Log, WriteCondition
from thalweg_operator.reservations.events import Answer, GateUnneeded, PodsUnplaced, UnplacedPod
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.steering import plans as nomination_plans
from thalweg_operator.reservations.steering.nominations import ReservedPlacement
from thalweg_operator.reservations.steering.records.waves import UNORDERED

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME, Policy

NODES = ("a", "b", "c")
CLASS = PodClass(requests=(("cpu", 100),))


def steering(name: str = "steered", **spec: Any) -> Policy:
    """A policy that steers all pods, but for what this says of it as in an object."""
    return parse_policy(name, {"selects": {"podSelector": {}}, "delivery": "Extender", **spec}, BUILT_IN_MODELS)


class SteeredCluster(FakeCluster):
    """See the module."""

    def __init__(self, **policy: Any) -> None:
        nodes = [Node(name, allocatable=(("cpu", 300), ("pods", 10))) for name in NODES]
        super().__init__(nodes, [steering(**policy)])

    def start(self, *, policies_first: bool = False) -> None:
        """See ApiServer. kube-scheduler knows the nodes as well."""
        super().start(policies_first=policies_first)
        self.state.shell.state.nominations.node_changes.clear()

    def set_policy(self, **policy: Any) -> None:
        """The policy changes."""
        self.set_policies([steering(**policy)])

    def look_after(self) -> None:
        """What is due is done."""
        self.state.look_after()

    def pod(self, name: str = "p", uid: str = "u", **fields: Any) -> Pod:
        """A small pod that kube-scheduler binds is created."""
        return self.create_pod(name, uid, **{"pod_class": CLASS, "scheduler_name": STEERED_NAME, **fields})

    # --- plans ---

    def plan_pod(self, key: str, node: str, wave: int = 0) -> bool:
        """A plan has a node for a pod; whether there is room."""
        pod = self.state.waiting.get(key)
        if pod is None or not self.state.reserve(pod, node, Owner.STEERING):
            return False
        self.add_plan([ReservedPlacement(pod, node, (1, wave) if wave else UNORDERED)])
        return True

    def add_plan(self, planned: Sequence[ReservedPlacement]) -> None:
        """Placements that have their reservations are handed on, as at the end of a plan."""
        state = self.shell.state
        state.now, state.effects = self.now, []
        nomination_plans.add_plan(state, planned)
        self.shell.carry_out(state.effects)

    def set_free(self, pod: Pod) -> None:
        """The plan has no node for a pod of ``Prefer``."""
        policy = self.cluster.policies.of(pod, self.cluster.namespaces)
        assert policy is not None
        self.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", "Unschedulable")]))

    def open(self, pod: Pod) -> None:
        """Nothing would come of the pod's waiting behind our gate."""
        self.apply(GateUnneeded(pod))

    def bind(self, key: str, node: str) -> bool:
        """The binder takes room for a pod of its own, as a round that delivers does."""
        pod = self.state.waiting[key]
        return not self.state.conflicts_in_flight(pod, node) and self.state.reserve(pod, node)

    # --- writes, and what became of nominations ---

    def refuse(self, at: int, problem: str) -> None:
        """The API server refuses a write in line."""
        self.send(at, Answer.REFUSED, reason=problem)

    @property
    def in_line(self) -> list[tuple[str, str]]:
        """Each write in line: its kind, and the name of its pod."""
        return [(write_kind(write), write.pod.name) for write in self.writes]  # type: ignore[arg-type]

    @property
    def wanted(self) -> list[tuple[str, str]]:
        """Likewise, of those that are wanted."""
        return [each for each, write in zip(self.in_line, self.writes, strict=True) if self.is_wanted(write)]

    @property
    def write_kinds(self) -> list[str]:
        """Of the writes in line that are wanted."""
        return [kind for kind, _ in self.wanted]

    def count(self, outcome: str) -> int:
        """How many nominations ended so."""
        return sum(isinstance(each, CountNomination) and each.outcome == outcome for each in self.effects)

    @property
    def rejected(self) -> list[tuple[str, str]]:
        """Pods, and nodes that kube-scheduler's filters refused them."""
        refused = (each for each in self.effects if isinstance(each, Log) and each.event == "nomination refused")
        return [(fields["pod"], fields["node"]) for fields in (dict(each.fields) for each in refused)]

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Pods that were told why they wait, and why."""
        return [(each.pod.key, each.reason) for each in self.effects if isinstance(each, WriteCondition)]
