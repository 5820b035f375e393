"""What is remembered of nominations beside their reservations: pools, waves, permit groups, times and counts."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flowcore.model.pods import PodClass
from thalweg_operator.reservations.counted_pods import CountedPods
from thalweg_operator.reservations.permit_groups import PermitGroups
from thalweg_operator.reservations.place_pool import PlacePool
from thalweg_operator.reservations.planned_prices import PlannedPrices
from thalweg_operator.reservations.wave_queue import WaveQueue

#: Classes whose scores are kept, the newest.
_MAX_SCORES = 64
#: Prices that are kept in all, of the newest classes.
_MAX_PRICES = 2**22


@dataclass(slots=True)
class NominationBooks:
    """See the module. Times are seconds of the monotonic clock.

    Attributes:
        places: pods in phases QUEUED and RESERVED whose places equal pods may take.
        reserved: keys of the pods in phase RESERVED, the oldest first.
        checks: when to look at a nomination that may be lost, by the key of the pod.
        unseen_wakes: when to wake a pod that was held before our watch showed it, by key.
        scores: what the last plan's costs say of nodes, by class and policy.
        arrivals: by node, the number of the reservation that came there last.
        counted_pods: what rules of reserved pods count, put together when it is asked about.
        started: cluster and policies are known.
        last_question: when kube-scheduler last asked about a pod that it is to bind.
        hit_rate: of reserved pods that kube-scheduler asked about, the share with a planned node in the sample.
        last_sweep: when all nominations were last looked at.
        plan_count: plans so far.
    """

    places: PlacePool = field(default_factory=PlacePool)
    reserved: dict[str, None] = field(default_factory=dict)
    waves: WaveQueue = field(default_factory=WaveQueue)
    permit_groups: PermitGroups = field(default_factory=PermitGroups)
    checks: dict[str, float] = field(default_factory=dict)
    unseen_wakes: dict[str, float] = field(default_factory=dict)
    scores: dict[tuple[PodClass, str], bytes] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    counted_pods: CountedPods = field(default_factory=CountedPods)
    started: bool = False
    last_question: float = 0.0
    hit_rate: float = 1.0
    last_sweep: float = 0.0
    plan_count: int = 0
    _prices: dict[tuple[PodClass, str], PlannedPrices] = field(default_factory=dict)

    def is_withdrawing(self, atomic_group: str) -> bool:
        """Whether nominations of an atomic group are being withdrawn: until then its other pods are not planned."""
        return self.permit_groups.is_withdrawing(atomic_group)

    def put_scores(self, pod_class: PodClass, policy: str, scores: bytes) -> None:
        """Takes what the last plan's costs say of nodes, for pods of a class that a policy with ``Prefer`` governs."""
        self.scores.pop((pod_class, policy), None)
        self.scores[pod_class, policy] = scores
        if len(self.scores) > _MAX_SCORES:
            del self.scores[next(iter(self.scores))]

    def put_prices(self, pod_class: PodClass, policy: str, prices: PlannedPrices) -> None:
        """Takes what nodes cost one more pod of a class after the last plan."""
        self._prices.pop((pod_class, policy), None)
        self._prices[pod_class, policy] = prices
        while sum(len(each.above) for each in self._prices.values()) > _MAX_PRICES:
            del self._prices[next(iter(self._prices))]

    def price(self, prices: PlannedPrices, node: str) -> int | None:
        """What a node costs one more pod of a class; None: unknown, closed, or another pod came there since."""
        return prices.of(node) if self.arrivals.get(node, 0) <= prices.arrival else None

    def prices_for(self, pod_class: PodClass, policy: str) -> PlannedPrices | None:
        """What nodes cost one more pod of a class; None: unknown."""
        return self._prices.get((pod_class, policy))

    def keep_prices(self, classes: AbstractSet[PodClass]) -> None:
        """Forgets the prices of all other classes, and scores."""
        self.scores = {key: scores for key, scores in self.scores.items() if key[0] in classes}
        self._prices = {key: prices for key, prices in self._prices.items() if key[0] in classes}
        oldest = min((each.arrival for each in self._prices.values()), default=None)
        self.arrivals = {} if oldest is None else {on: at for on, at in self.arrivals.items() if at > oldest}

    def forget_place(self, key: str) -> None:
        """No equal pod takes the place of a pod any more."""
        self.places.remove(key)
        self.reserved.pop(key, None)
