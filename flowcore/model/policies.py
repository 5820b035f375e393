"""FlowSchedulingPolicy as the core reads it: what it governs, how it delivers, what it pays for.

Which pods of a cluster a policy governs is decided here, so that the operator and ``plan`` agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from flowcore.model.constraints import Constraint
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.gang_parents import DEFAULT_CONTROLLERS, GangController, ParentRule
from flowcore.model.networks import NetworkRules, NetworkSpec
from flowcore.model.selectors import Labels, LabelSelector

#: The scheduler that pods name to be placed by Thalweg without any policy.
SCHEDULER_NAME = "thalweg"
#: The profile of kube-scheduler that pods name to be placed by it as Thalweg plans (``thalweg scheduler-config``).
STEERED_NAME = "thalweg-steered"
#: Our scheduling gate; other gates belong to others.
GATE = "scheduling.thalweg/plan"
#: Our mark of pods that kube-scheduler asks its extender about: an extended resource, of which they ask for none.
MARK = "scheduling.thalweg/steered"
#: Annotation with the node that we nominated, written with the nomination: it tells ours from those of others.
PLANNED = "scheduling.thalweg/nominated"
#: Annotation that changes when kube-scheduler is to look at the pod again.
WOKEN = "scheduling.thalweg/woken"
#: Annotation of a running pod: "false": it is never moved to another node.
EVICTABLE = "scheduling.thalweg/evictable"
#: What people write already to keep a pod where it runs: Cluster Autoscaler and Karpenter then evict it not either.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
#: The same of a node: these two evict pods only to remove or replace it.
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
#: All annotations by which people keep running pods where they are.
KEEPING = (EVICTABLE, SAFE_TO_EVICT, DO_NOT_DISRUPT, SCALE_DOWN_DISABLED)
#: Annotation of a running pod: when its work was last saved, as RFC 3339 says. What it did before is not lost.
CHECKPOINTED_AT = "scheduling.thalweg/checkpointed-at"
#: Annotation of a pod: a value of DuringExecution that counts in place of its policy's.
DURING_EXECUTION = "scheduling.thalweg/during-execution"
#: Annotation of a new pod that names the running one, of the same namespace, whose place it is to take.
REPLACES = "scheduling.thalweg/replaces"


class Delivery(StrEnum):
    """How a plan reaches the cluster."""

    #: Plan and report, never act.
    OBSERVE = "Observe"
    #: Thalweg binds the pods itself.
    BINDER = "Binder"
    #: kube-scheduler binds them, steered by nominations and its extender.
    EXTENDER = "Extender"

    @property
    def acts(self) -> bool:
        """Whether anybody carries the plan out."""
        return self is not Delivery.OBSERVE

    @property
    def through_kube_scheduler(self) -> bool:
        """Whether kube-scheduler binds the pods, and judges by itself what we do not."""
        return self is Delivery.EXTENDER

    @property
    def binds(self) -> bool:
        """Whether we bind the pods, and give their claims what they lack before."""
        return self is Delivery.BINDER


class Steering(StrEnum):
    """How firmly kube-scheduler is steered, delivery Extender."""

    #: The planned node or none.
    REQUIRE = "Require"
    #: The planned node; where that does not hold, kube-scheduler chooses, with the plan's costs as scores.
    PREFER = "Prefer"


class WaitingMode(StrEnum):
    """Where pods without a planned node wait, delivery Extender."""

    #: Held, and behind our gate while many wait. Pods of gangs are held if they are in PodGroups of Kubernetes itself,
    #: else behind our gate.
    AUTO = "Auto"
    #: In kube-scheduler's queue; each attempt at them is answered with no node.
    HOLD = "Hold"
    #: Behind a scheduling gate of ours, unseen by kube-scheduler.
    GATE = "Gate"


class PartialBind(StrEnum):
    """What becomes of a gang if some of its pods have a node and the others find none in time."""

    #: What is missing is planned again with every round, for as long as it takes.
    REPLAN = "Replan"
    #: Those that have a node are evicted, so that the gang is absent until it is whole.
    EVICT = "Evict"


class AllowedVictims(StrEnum):
    """Which pods' places a pod may take by its annotation (REPLACES); always those of governed pods only."""

    #: Pods of its own controller: the same uid in the owner reference.
    SAME_CONTROLLER = "SameController"
    #: Any pod of its namespace that a policy governs which acts.
    GOVERNED = "Governed"


class PreemptionMode(StrEnum):
    """Whether running pods are evicted for waiting ones that fit nowhere else."""

    #: No pod is evicted.
    NEVER = "Never"
    #: Pods of strictly lower priority are, as kube-scheduler does.
    LOWER_PRIORITY = "LowerPriority"


class VictimOrder(StrEnum):
    """Which pods leave for a waiting one, of those that may. Their highest priority is always as low as possible."""

    #: kube-scheduler's order: the lowest sum of priorities, the fewest, those that started last.
    KUBE_SCHEDULER = "KubeScheduler"
    #: Those that lose the least work (planning/evictions/moves/move_prices.py).
    LEAST_LOST_WORK = "LeastLostWork"


class ReschedulingMode(StrEnum):
    """Whether running pods are moved to other nodes."""

    #: No pod is moved.
    OFF = "Off"
    #: Moves are planned and shown, and not carried out.
    PROPOSE = "Propose"
    #: Moves are planned and carried out.
    ACT = "Act"


class ReschedulingReason(StrEnum):
    """Why running pods of a policy are moved."""

    #: A waiting pod fits on no node otherwise.
    WAITING_PODS = "WaitingPods"
    #: A rule that the pod requires does not hold any more (``DuringExecution`` says which pods leave for that).
    BROKEN_RULES = "BrokenRules"
    #: Another node costs less, by more than the price of the move.
    GAIN = "Gain"


class LostWork(StrEnum):
    """Whether the work that a pod loses by a move has a price."""

    #: What it did since its start or its last checkpoint is lost.
    COUNT = "Count"
    #: A move loses nothing: its replacement goes on.
    IGNORE = "Ignore"


class DuringExecution(StrEnum):
    """What becomes of a running pod when a rule that it requires of its node does not hold any more."""

    #: Nothing, as in Kubernetes.
    IGNORE = "Ignore"
    #: It leaves once room for its replacement is reserved on a node where its rules hold.
    REPLACE = "Replace"
    #: It leaves, whether there is such a node or not.
    EVICT = "Evict"


class LastingRule(StrEnum):
    """A rule that Kubernetes reads only as it places a pod, and that a policy has hold while the pod runs too."""

    #: Topology spread constraints with DoNotSchedule.
    TOPOLOGY_SPREAD = "TopologySpread"
    #: NoSchedule taints that people or their tools have put on nodes.
    TAINTS = "Taints"
    #: The policy's own constraints.
    CONSTRAINTS = "Constraints"


class PodsToComeMode(StrEnum):
    """Whether a gang waits for room of pods that its controller makes once it runs."""

    IGNORE = "Ignore"
    MUST_FIT = "MustFit"


class GangPolicy(msgspec.Struct, frozen=True):
    """How a policy deals with gangs.

    Attributes:
        timeout: seconds that a gang may be there in part before ``on_partial_bind`` says what becomes of it.
        hold_room_after: seconds that a gang waits before room that comes free is kept for it, where it is dearer to
            leave than others; so that small pods do not take it bit by bit for ever. 0: never.
        waiting: where its pods wait, delivery Extender.
        hold_room_for: seconds that room is kept at most before the gang rests; the rests grow. 0: room is never kept.
        hold_room_share: hundredths of what all nodes have of a resource that are kept at most.
        controllers: whose pods are gangs without an annotation.
        parents: more kinds of such controllers.
        pods_to_come: whether a gang waits for room of pods that its controller makes once it runs.
    """

    timeout: int = 600
    on_partial_bind: PartialBind = PartialBind.REPLAN
    hold_room_after: int = 600
    waiting: WaitingMode = WaitingMode.AUTO
    hold_room_for: int = 600
    hold_room_share: int = 75
    controllers: tuple[GangController, ...] = DEFAULT_CONTROLLERS
    parents: tuple[ParentRule, ...] = ()
    pods_to_come: PodsToComeMode = PodsToComeMode.IGNORE


class PreemptionPolicy(msgspec.Struct, frozen=True):
    """Whom the governed pods may preempt.

    Attributes:
        after: seconds that a pod waits before it preempts, so that an autoscaler can bring a node first.
        victims: which pods leave.
    """

    mode: PreemptionMode = PreemptionMode.LOWER_PRIORITY
    after: int = 0
    victims: VictimOrder = VictimOrder.KUBE_SCHEDULER


class ReschedulingPolicy(msgspec.Struct, frozen=True):
    """Whether and how many governed pods are moved.

    Attributes:
        min_age: seconds that a pod must have run before it is moved.
        per_round, per_hour: most moves in one round, and in one hour.
        per_node, per_namespace, per_owner: most pods that leave one node, namespace or controller in one round, those
            included whose replacement has no node yet.
        reasons: what pods are moved for.
        min_gain: a move for gain gains at least so much more than it costs; at least 1.
        startup, lost_work: what a move costs (planning/evictions/moves/move_prices.py); ``startup`` in seconds.
    """

    mode: ReschedulingMode = ReschedulingMode.OFF
    min_age: int = 600
    per_round: int = 50
    per_hour: int = 200
    per_node: int = 10
    per_namespace: int = 30
    per_owner: int = 10
    reasons: tuple[ReschedulingReason, ...] = (ReschedulingReason.WAITING_PODS, ReschedulingReason.BROKEN_RULES)
    min_gain: int = 100
    startup: int = 30
    lost_work: LostWork = LostWork.COUNT

    def moves_for(self, reason: ReschedulingReason, modes: Collection[ReschedulingMode]) -> bool:
        """Whether pods are moved for a reason, where policies of these modes move theirs."""
        return self.mode in modes and reason in self.reasons


class Selects(msgspec.Struct, frozen=True):
    """Which pods a policy governs; all that is given must match. Nothing given selects nothing.

    Attributes:
        scheduler_names: (): whichever pods name; no policy of a cluster says so.
    """

    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    pods: LabelSelector | None = None
    namespaces: LabelSelector | None = None
    nothing: bool = False

    def matches(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod is governed."""
        if self.nothing or (self.scheduler_names and scheduler_name not in self.scheduler_names):
            return False
        if self.pods is not None and not self.pods.matches(labels):
            return False
        return self.namespaces is None or self.namespaces.matches(namespace_labels)


class Policy(msgspec.Struct, frozen=True):
    """One accepted policy."""

    name: str
    precedence: int = 0
    selects: Selects = Selects()
    delivery: Delivery = Delivery.BINDER
    steering: Steering = Steering.REQUIRE
    waiting: WaitingMode = WaitingMode.AUTO
    cost: CostPolicy = CostPolicy()
    unscheduled: UnscheduledPrice = UnscheduledPrice()
    gangs: GangPolicy = GangPolicy()
    constraints: tuple[Constraint, ...] = ()
    victims: AllowedVictims = AllowedVictims.SAME_CONTROLLER
    preemption: PreemptionPolicy = PreemptionPolicy()
    rescheduling: ReschedulingPolicy = ReschedulingPolicy()
    during_execution: DuringExecution = DuringExecution.IGNORE
    lasting_rules: tuple[LastingRule, ...] = ()
    network: NetworkSpec | None = None
    #: What a round makes of it, where single pods can keep to it.
    network_rules: NetworkRules | None = None

    def draws(self, models: Collection[str]) -> bool:
        """Whether a network decides about its pods; ``models``: names of the cost models that draw one."""
        return self.network is not None or self.cost.model in models

    @property
    def has_rules(self) -> bool:
        """Whether it keeps pods from nodes by what else runs there: its constraints, and required default spread."""
        return bool(self.constraints or self.cost.default_spread.required)


#: In force for pods that name the scheduler ``thalweg`` and that no policy governs.
#: The name cannot be a Kubernetes object's, so it never collides with one.
BUILT_IN = Policy(name="(built-in)", precedence=-(2**31))

#: In force for pods that another scheduler binds and no policy governs: questions plan them, and nobody acts for them.
#: Where an operator only observes it governs all pods without a policy: before ``BUILT_IN``, after all others.
OBSERVED = Policy(name="(observed)", precedence=-(2**31) + 1, selects=Selects(()), delivery=Delivery.OBSERVE)


def only_observed(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """The policies of an operator that only observes: each has delivery Observe, and every pod has one."""
    return (*(msgspec.structs.replace(policy, delivery=Delivery.OBSERVE) for policy in policies), OBSERVED)


def by_precedence(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Highest precedence first, then by name; the built-in default last."""
    return tuple(sorted(policies, key=lambda p: (-p.precedence, p.name)))


def governing(
    policies: Iterable[Policy], scheduler_name: str, labels: Labels, namespace_labels: Labels
) -> list[Policy]:
    """All policies that match a pod, in the given order: the first governs, the others lost."""
    return [p for p in policies if p.selects.matches(scheduler_name, labels, namespace_labels)]
