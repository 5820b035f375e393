"""What is remembered of nominations beside their reservations: pools, waves, permit groups, times and counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.gang_spec import GangKey, GangRef
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.rules.rules_at_hand import RulesToRead
from thalweg_operator.reservations.ledger.records.arrivals import Arrivals
from thalweg_operator.reservations.ledger.reservation import NEVER
from thalweg_operator.reservations.steering.records.counted_pods import CountedPods
from thalweg_operator.reservations.steering.records.permit_groups import PermitGroups
from thalweg_operator.reservations.steering.records.place_pool import PlaceKey, PlacePool
from thalweg_operator.reservations.steering.records.plan_under_way import PlanUnderWay
from thalweg_operator.reservations.steering.records.planned_prices import PlannedPrices
from thalweg_operator.reservations.steering.records.waves import WaveQueue

#: Prices that are kept in all, of the newest classes.
_MAX_PRICES = 2**22


class KeptTable:
    """All nodes as arrays, brought up to date when somebody asks."""

    def __init__(self) -> None:
        self._table = NodeTable.of(())
        self._changed: set[str] = set()
        self._compared: tuple[Mapping[str, int], Mapping[str, int], bool] = {}, {}, True

    def changed(self, node: str) -> None:
        """A node came or changed."""
        self._changed.add(node)

    def removed(self, node: str) -> None:
        """A node went."""
        if node in self._table.index:
            self._changed.add(node)
        else:
            self._changed.discard(node)

    def of(self, nodes: Mapping[str, Node]) -> NodeTable:
        """The table of these nodes, which are all."""
        if self._changed:
            put = [nodes[name] for name in self._changed if name in nodes]
            gone = [name for name in self._changed if name not in nodes]
            self._table = self._table.updated(put, gone) if nodes else NodeTable.of(())
            self._changed.clear()
        return self._table

    def in_order(self, nodes: Mapping[str, Node], positions: Mapping[str, int]) -> NodeTable | None:
        """The same table if its nodes have these positions; None: nodes came or went since."""
        table = self.of(nodes)
        before, index, _ = self._compared
        if before is not positions or index is not table.index:
            self._compared = positions, table.index, positions == table.index
        return table if self._compared[2] else None


@dataclass(slots=True)
class NominationRecords:
    """Records of all nominations. Times are seconds of the monotonic clock.

    Attributes:
        places: pods in phases QUEUED and RESERVED whose places equal pods may take.
        announced: nominated pods of a wave, whose places equal pods of waves may take.
        reserved: keys of the pods in phase RESERVED, the oldest first.
        woken: keys of pods that were tried in vain, and are woken for another question.
        checks: when to look at a nomination that may be lost, by the key of the pod.
        node_changes: when a node came, or changed for the scheduler, by name; those that kube-scheduler may not have
            seen yet.
        unseen_wakes: when to wake a pod that was held before our watch showed it, by key.
        arrivals: in which order pods came to nodes.
        firm: classes and policies whose prices say what a round would do: no node changed since.
        changed: the last arrival as a node or a policy changed.
        lone_at: when a pod last got a place without a round.
        unasked: until when a pod without a round waits for kube-scheduler's first question, by key.
        counted_pods: what rules of reserved pods count, put together when it is asked about.
        under_way: the plan that is being made, or is made next.
        node_table: all nodes as arrays.
        rules_to_read: what rules of pods read that was not at hand for an answer.
        networks: names of the cost models that draw a network.
        started: cluster and policies are known.
        begun: uids of waiting pods whose gangs are bound in part, as this process found them; until its first plan.
        begun_until: how long answers to kube-scheduler wait for that plan.
        may_lack: gangs that may lack pods since this step, each as one of its pods names it.
        last_question: when kube-scheduler last asked about a pod that it is to bind.
        hit_rate: of reserved pods that kube-scheduler asked about, the share with a planned node in the sample.
        last_sweep, last_read: when all nominations were last looked at, and what a rule reads was last read.
        plan_count: plans so far.
        chain_count: chains of waves in them.
    """

    arrivals: Arrivals
    places: PlacePool = field(default_factory=PlacePool)
    announced: PlacePool = field(default_factory=PlacePool)
    reserved: dict[str, None] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)
    waves: WaveQueue = field(default_factory=WaveQueue)
    permit_groups: PermitGroups = field(default_factory=PermitGroups)
    checks: dict[str, float] = field(default_factory=dict)
    node_changes: dict[str, float] = field(default_factory=dict)
    unseen_wakes: dict[str, float] = field(default_factory=dict)
    firm: set[tuple[PodClass, str]] = field(default_factory=set)
    changed: int = -1
    lone_at: float = 0.0
    unasked: dict[str, float] = field(default_factory=dict)
    counted_pods: CountedPods = field(default_factory=CountedPods)
    under_way: PlanUnderWay = field(default_factory=PlanUnderWay)
    node_table: KeptTable = field(default_factory=KeptTable)
    rules_to_read: RulesToRead = field(default_factory=RulesToRead)
    networks: frozenset[str] = frozenset()
    started: bool = False
    begun: frozenset[str] = frozenset()
    begun_until: float = NEVER
    may_lack: dict[GangKey, GangRef] = field(default_factory=dict)
    last_question: float = 0.0
    hit_rate: float = 1.0
    last_sweep: float = 0.0
    last_read: float = 0.0
    plan_count: int = 0
    chain_count: int = 0
    _prices: dict[tuple[PodClass, str], PlannedPrices] = field(default_factory=dict)

    @property
    def is_as_planned(self) -> bool:
        """Whether no node and no policy changed since the plan in hand was asked for."""
        return self.changed < self.arrivals.plan

    def is_withdrawing(self, atomic_group: str) -> bool:
        """Whether nominations of an atomic group are being withdrawn: until then its other pods are not planned."""
        return self.permit_groups.is_withdrawing(atomic_group)

    def put_prices(self, pod_class: PodClass, policy: str, prices: PlannedPrices) -> None:
        """Takes what nodes cost one more pod of a class after the last plan."""
        key = pod_class, policy
        self._prices.pop(key, None)
        self._prices[key] = prices
        (self.firm.add if self.is_as_planned else self.firm.discard)(key)
        while sum(len(prices.codes) for prices in self._prices.values()) > _MAX_PRICES:
            del self._prices[next(iter(self._prices))]

    def forget_prices(self, pod_class: PodClass, policy: str) -> None:
        """The last plan had pods of a class, and no prices for one more."""
        self._prices.pop((pod_class, policy), None)
        self.firm.discard((pod_class, policy))

    def prices_changed(self) -> None:
        """No prices say what a round would do: another node may cost less now, or another policy is in force."""
        self.changed = self.arrivals.last
        self.firm.clear()

    @property
    def has_prices(self) -> bool:
        """Whether prices of any class are kept."""
        return bool(self._prices)

    def price(self, prices: PlannedPrices, node: str) -> int | None:
        """What a node costs one more pod of a class; None: unknown, closed, or another pod came there since."""
        return prices.of(node) if self.arrivals.since(node, prices.arrival) is None else None

    def prices_for(self, pod_class: PodClass, policy: str) -> PlannedPrices | None:
        """What nodes cost one more pod of a class; None: unknown."""
        return self._prices.get((pod_class, policy))

    def prices_of_like(self, pod_class: PodClass, policy: str) -> PlannedPrices | None:
        """The newest prices by which pods of a policy get nodes that want the same nodes as these; None: no such."""
        newest = (
            prices
            for (planned_class, name), prices in reversed(self._prices.items())
            if name == policy and prices.tolerance and _wants(planned_class) == _wants(pod_class)
        )
        return next(newest, None)

    def keep_prices(self, classes: AbstractSet[PodClass], since: float) -> None:
        """Forgets the prices of all other classes but for those made since then."""
        self._prices = {
            key: priced for key, priced in self._prices.items() if key[0] in classes or priced.made >= since
        }
        self.firm &= self._prices.keys()
        self.arrivals.forget_until(min((priced.arrival for priced in self._prices.values()), default=None))

    def place_key(self, key: str) -> PlaceKey | None:
        """By what equal pods may take the place of a pod; None: none does."""
        return self.places.place_key(key) or self.announced.place_key(key)

    def plan_asked(
        self,
        pods: Sequence[tuple[Pod, Policy]],
        looked_at: Collection[str],
        *,
        keeps_room: bool,
        helped: int,
        defers: bool = False,
    ) -> None:
        """A plan is asked for.

        Args:
            pods: that it is to place, each with its policy.
            looked_at: keys of the pods that came before it was decided which these are.
            keeps_room: whether room is kept for a gang.
            helped: see ``PlanUnderWay``.
            defers: whether pods that it could place wait for a later plan: what helped them is still to be used.
        """
        before = self.under_way
        came = [each for key, each in before.came.items() if key not in looked_at]
        # A plan that was never made leaves it to the next one. Without pods none is made: nothing helped who waits.
        was_helped = bool(pods) and (before.was_helped or helped != before.helped)
        known = before.helped if defers else helped
        self.under_way = PlanUnderWay(pods, came, keeps_room=keeps_room, helped=known, was_helped=was_helped)

    def planned(self, *, keeps_room: bool) -> None:
        """A plan was carried out: nobody waits for the first one any more. The next one is for who came meanwhile.

        Args:
            keeps_room: whether it keeps room for a gang.
        """
        self.begun, self.begun_until = frozenset(), NEVER
        came, helped = self.under_way.came.values(), self.under_way.helped
        self.under_way = PlanUnderWay((), came, keeps_room=keeps_room, helped=helped)

    def forget_place(self, key: str) -> None:
        """No equal pod takes the place of a pod any more."""
        self.places.remove(key)
        self.announced.remove(key)
        self.woken.discard(key)
        self.reserved.pop(key, None)


def _wants(pod_class: PodClass) -> tuple[object, ...]:
    """What says which nodes pods of a class may use and prefer, whoever runs there."""
    allowed = pod_class.node_selector, pod_class.required_affinity, pod_class.tolerations
    return *allowed, pod_class.preferred_affinity, pod_class.images, pod_class.data
