"""What must hold of cluster and ledger after every event, counted anew from what they hold."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest.mock import patch

from support.recount import check_recount
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Bind, CountPlacement, Departure, Effect, Evict, Nominate, RequestRound
from thalweg_operator.reservations.events import (
    Event,
    PlanMade,
    PlannedPlacement,
    PodPut,
    PodRemoved,
    SchedulerAnswered,
)
from thalweg_operator.reservations.ledger import ledger as ledger_module
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import TRANSITIONS, Phase, check_transition
from thalweg_operator.reservations.ledger.victim_record import Stage
from thalweg_operator.reservations.steering.records.counted_pods import CountedPods
from thalweg_operator.reservations.steering.records.nomination_records import KeptTable
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims.moves import MOVES
from thalweg_operator.reservations.victims.replacements import place_key
from thalweg_operator.reservations.victims.victims import is_whole
from thalweg_operator.shell import Shell

from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.inter_pod_constraints import EACH_NODE
from flowcore.model.pod_index import AffinityMatch, PodIndex, PodMatch, SpreadMatch, incoming_term_matches
from flowcore.rules.topology.domain_limits import limit_match

Transition = tuple[Phase | None, Phase | None]


@dataclass
class StepRecord:
    """One step: the test sets its effects."""

    effects: list[Effect] = field(default_factory=list)
    taken: list[Transition] = field(default_factory=list)


class _StatePickler(pickle.Pickler):
    """Leaves out what only remembers answers."""

    def persistent_id(self, obj: object) -> str | None:
        """See Pickler."""
        return type(obj).__name__ if isinstance(obj, PolicyIndex | PodIndex | CountedPods | KeptTable) else None

    def reducer_override(self, obj: object) -> Any:
        """See Pickler. States of gangs are computed when somebody asks, and kept."""
        if not isinstance(obj, GangRegistry):
            return NotImplemented
        kept = {name: value for name, value in vars(obj).items() if name != "_states"}
        return object, (), kept


class LedgerChecks:
    """See the module.

    Attributes:
        taken: all transitions so far, of all ledgers.
        shifts: answers to kube-scheduler by how many reservations went to other nodes.
    """

    taken: ClassVar[Counter[Transition]] = Counter()
    shifts: ClassVar[Counter[int]] = Counter()
    #: Pods that got a place without a round.
    priced: ClassVar[int] = 0

    def __init__(self, state: State) -> None:
        self._state, self._cluster, self._ledger = state, state.cluster, state.ledger
        self._groups: dict[str, list[PlannedPlacement]] = {}
        self._ids_before_plan: set[int] = set()

    @contextmanager
    def step(self, event: Event) -> Iterator[StepRecord]:
        """Around one step: everything is checked when it is over."""
        before = {each.id: each for each in self._ledger.reservations.values()}
        record = StepRecord()
        if isinstance(event, PlanMade):
            self._plan_begins(event, before)

        def note(pod: str, old: Phase | None, new: Phase | None) -> None:
            check_transition(pod, old, new)
            record.taken.append((old, new))

        with patch.object(ledger_module, "check_transition", note):
            yield record
        LedgerChecks.taken.update(record.taken)
        self._check_transitions(before, record)
        self.check()
        self._check_effects(record.effects)
        if isinstance(event, SchedulerAnswered):
            self._check_shifts(before, event)
        if isinstance(event, PlanMade):
            self._check_groups(event, record.effects)
        if isinstance(event, PodPut | PodRemoved):
            self._check_bound_after_victims(before, record.effects)
        priced = [each.outcome for each in record.effects if isinstance(each, CountPlacement)].count("priced")
        LedgerChecks.priced += priced
        if priced or isinstance(event, PlanMade):
            for each in self._ledger.reservations.values():
                if each.id not in before:
                    self._check_not_overcommitted(each)
                    if priced:
                        self._check_nobody_keeps_away(each)
                        self._check_rules(each)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Around what may read and must not write."""
        before = self._snapshot()
        yield
        assert self._snapshot() == before

    def _snapshot(self) -> bytes:
        state = io.BytesIO()
        _StatePickler(state).dump(self._state)
        return state.getvalue()

    def check(self) -> None:
        """All that holds between two events."""
        check_recount(self._cluster, self._ledger)
        self._check_reservations()

    # --- no pod twice ---

    def _check_reservations(self) -> None:
        reservations, waiting = self._ledger.reservations, self._cluster.waiting
        assert self._ledger.in_vain._priorities.keys() <= waiting.keys() - reservations.keys()
        for key, each in reservations.items():
            assert each.pod.key == key
            if each.phase is Phase.AWAITING_REPLACEMENT:
                assert each.owner is not Owner.OTHERS
                assert key in self._state.moves.awaited
                assert key not in self._cluster.pods
            else:
                assert key not in self._state.moves.awaited
                assert key in waiting, f"{key} is reserved and does not wait"
                assert waiting[key].uid == each.pod.uid, f"{key} is reserved for another pod of this name"
            assert each.phase in (Phase.AWAITING_VICTIM, Phase.AWAITING_REPLACEMENT) or not each.victims
            assert each.phase in (Phase.AWAITING_VICTIM, Phase.HELD) or not each.waiting_group
            assert (each.phase is Phase.FOREIGN) == (each.owner is Owner.OTHERS)
            assert each.phase not in (Phase.PREPARING, Phase.BINDING, Phase.PAUSED) or each.owner is Owner.BINDER
        assert len({each.id for each in reservations.values()}) == len(reservations)
        assert self._state.moves.awaited.keys() <= reservations.keys()

    # --- no transition outside the table ---

    def _check_transitions(self, before: dict[int, Reservation], record: StepRecord) -> None:
        assert set(record.taken) <= set(TRANSITIONS)
        after = {each.id: each for each in self._ledger.reservations.values()}
        for number in before.keys() | after.keys():
            old = before[number].phase if number in before else None
            new = after[number].phase if number in after else None
            if old is not new:
                assert _leads(record.taken, old, new), f"from {old} to {new} by no transition of this step"

    # --- effects ---

    def _check_effects(self, effects: list[Effect]) -> None:
        bound = Counter(each.pod.uid for each in effects if isinstance(each, Bind))
        assert all(count == 1 for count in bound.values()), "a pod is bound twice in one step"
        for each in effects:
            if isinstance(each, Bind | Nominate):
                reservation = self._ledger.reservations.get(each.pod.key)
                if reservation is None:
                    continue  # it ended in the same step; the write will not be wanted
                assert reservation.node == each.node
                owner = Owner.BINDER if isinstance(each, Bind) else Owner.STEERING
                assert reservation.owner is owner or reservation.phase in (Phase.AWAITING_VICTIM, Phase.PREPARING)
            if isinstance(each, Bind):
                policy = self._cluster.policies.of(each.pod, self._cluster.namespaces)
                assert policy is not None
                assert delivery_of(policy).owner is Owner.BINDER

    # --- no gang in part handed on ---

    def _plan_begins(self, event: PlanMade, before: dict[int, Reservation]) -> None:
        if event.first:
            self._groups = {}
            self._ids_before_plan = {number for number, each in before.items() if each.phase is not Phase.HELD}
        for placement in event.placements:
            if placement.atomic_group and not placement.optional:
                self._groups.setdefault(placement.atomic_group, []).append(placement)

    def _check_groups(self, event: PlanMade, effects: list[Effect]) -> None:
        required = {each.pod.uid for members in self._groups.values() for each in members}
        if not event.last:
            assert not any(isinstance(each, Bind | Nominate) and each.pod.uid in required for each in effects)
            return
        for name, members in self._groups.items():
            handed = [each.pod.key for each in members if self._is_handed_on(each)]
            assert len(handed) in (0, len(members)), f"of {name} only {handed} of {len(members)} pods are handed on"

    def _is_handed_on(self, placement: PlannedPlacement) -> bool:
        reservation = self._ledger.reservations.get(placement.pod.key)
        return (
            reservation is not None
            and reservation.id not in self._ids_before_plan
            and reservation.node == placement.node
            and reservation.owner is delivery_of(placement.policy).owner
        )

    # --- nobody in vain ---

    def check_eviction(self, write: Evict) -> None:
        """Who is evicted for others leaves for pods with reservations, whose groups are whole, and ranks below them."""
        if write.departure is Departure.PARTIAL_GANG:
            return
        ledger, key = self._ledger, write.pod.key
        if key in self._state.moves.without_place:
            return
        record = ledger.victims[key]
        assert record.pod.uid == write.pod.uid
        if write.departure in MOVES and record.to:
            place = ledger.reservations.get(place_key(write.pod))
            assert place is not None, f"{key} is moved, and its replacement has no place"
            assert place.phase is Phase.AWAITING_REPLACEMENT, f"{key} is moved before its replacement has room"
        if record.for_pods == {place_key(write.pod)}:
            return  # it leaves by itself
        waiting = [ledger.reservations[key] for key in record.for_pods]
        assert waiting, f"{key} leaves for nobody"
        assert any(is_whole(ledger, each) for each in waiting), f"{key} leaves for a part of a gang"
        if write.departure is Departure.PREEMPTION:
            priority = write.pod.pod_class.priority
            assert any(each.pod.pod_class.priority > priority for each in waiting), "of no lower priority"
        if write.departure is not Departure.REPLACEMENT:
            groups = [ledger.members_of(each) for each in waiting]
            # Where several leave for a group, the API server would evict each other one, or it leaves already.
            assert any(
                all(
                    ledger.victims[key].stage in (Stage.CHECKED, Stage.ASKED) or ledger.victims[key].pod.deleting
                    for each in group
                    for key in each.victims
                )
                for group in groups
            ), f"{key} leaves, and others of its group may have to stay"

    def _check_shifts(self, before: dict[int, Reservation], event: SchedulerAnswered) -> None:
        """A pod that was let through has its reservation where it goes; another one that gave it its place keeps one.

        Whoever shifts to a node fits there, and anti-affinity keeps nobody away whom it does not keep off its place.
        """
        shifted = [each for each in self._ledger.reservations.values() if each.node != before[each.id].node]
        LedgerChecks.shifts[len(shifted)] += 1
        asked = self._ledger.reservations.get(event.extender_pod.key)
        if asked is not None and asked.owner is Owner.STEERING and event.outcome == "steered":
            assert [asked.node] == list(event.passed)
        for each in shifted:
            self._check_not_overcommitted(each)
            assert set(each.pod.pod_class.node_selector) <= set(self._cluster.nodes[each.node].labels)
        nodes_before = {before[each.id].node for each in shifted}
        for each in shifted:
            if each.node not in nodes_before and each.pod.constraints is not None:
                for term in each.pod.constraints.anti_affinity:
                    there = self._cluster.occupancy.pod_index.matching_pods(AffinityMatch((term,))).by_node
                    itself = incoming_term_matches(term, each.pod.signature, self._cluster.namespaces)
                    assert there.get(each.node, 0) == itself

    def _check_bound_after_victims(self, before: dict[int, Reservation], effects: list[Effect]) -> None:
        """Who is bound as soon as its victims have left has its room, and nobody more urgent waits without a place."""
        for each in effects:
            reservation = self._ledger.reservations.get(each.pod.key) if isinstance(each, Bind) else None
            known = None if reservation is None else before.get(reservation.id)
            if reservation is None or known is None or known.phase is not Phase.AWAITING_VICTIM:
                continue
            assert reservation.pod.gang is None
            self._check_not_overcommitted(reservation)
            self._check_nobody_keeps_away(reservation)
            for key, other in self._cluster.waiting.items():
                if key not in self._ledger.reservations:
                    assert other.pod_class.priority <= reservation.pod.pod_class.priority

    def _check_nobody_keeps_away(self, reservation: Reservation) -> None:
        """The anti-affinity of no pod there speaks of who gets a place without a round."""
        reserved = [(each.pod, each.node) for each in self._ledger.reservations.values()]
        bound = [(each, each.node_name) for each in self._cluster.pods.values() if not each.terminal]
        there = [
            each
            for each, node in (*reserved, *bound)
            if node == reservation.node and each.constraints is not None and each.key != reservation.pod.key
        ]
        for each in there:
            for term in each.constraints.anti_affinity if each.constraints is not None else ():
                assert not incoming_term_matches(term, reservation.pod.signature, self._cluster.namespaces)

    def _check_rules(self, reservation: Reservation) -> None:
        """The rules of who gets a place without a round hold there, beside all that is there or reserved: counted anew.

        Nodes that a spread leaves out are those without its label alone: no pod of these worlds is choosy.
        """
        pod, nodes, namespaces = reservation.pod, self._cluster.nodes, self._cluster.namespaces
        policy = self._cluster.policies.of(pod, namespaces)
        rules = None if policy is None else with_policy_constraints(pod.signature, policy).constraints
        if rules is None:
            return
        index = self._cluster.occupancy.pod_index
        others = Counter({(kind, node): count for kind, node, count in index.counts()})
        others[pod.signature, reservation.node] -= 1

        def by_domain(match: PodMatch, key: str) -> Counter[str]:
            """Pods by the value of a label of their nodes; by node for EACH_NODE, all as one for no key."""
            found: Counter[str] = Counter()
            for (kind, name), count in others.items():
                if name in nodes and match.includes(kind, namespaces):
                    labels = {**dict(nodes[name].labels), "": "", EACH_NODE: name}
                    if key in labels:
                        found[labels[key]] += count
            return found

        here = {**dict(nodes[reservation.node].labels), "": "", EACH_NODE: reservation.node}
        for term in rules.anti_affinity:
            assert not by_domain(AffinityMatch((term,)), term.topology_key)[here.get(term.topology_key, "")]
        for term in rules.affinity:
            near = by_domain(AffinityMatch(rules.affinity), term.topology_key)
            assert term.topology_key in here
            assert near[here[term.topology_key]] or not near.total()
        for spread in rules.spread:
            counts = by_domain(SpreadMatch(pod.namespace, spread.selector), spread.topology_key)
            domains = {dict(node.labels).get(spread.topology_key) for node in nodes.values()} - {None}
            least = min((counts[domain] for domain in domains if domain is not None), default=0)
            least = 0 if len(domains) < spread.min_domains else least
            itself = spread.selector is not None and spread.selector.matches(pod.signature.labels)
            assert counts[here[spread.topology_key]] + itself - least <= spread.max_skew
        for limit in rules.limits:
            match = limit_match(limit)
            itself = match.includes(pod.signature, namespaces)
            assert by_domain(match, limit.topology_key)[here[limit.topology_key]] + itself <= limit.max_pods

    def _check_not_overcommitted(self, reservation: Reservation) -> None:
        """What a plan reserves fits with all that is there."""
        node, ledger = reservation.node, self._ledger
        free, taken = dict(self._cluster.nodes[node].allocatable), ledger.usage_without_awaiting(node)
        # Once all victims have left.
        for each in ledger.awaiting_on(node):
            taken.change(each.pod.pod_class.requests, each.pod.pod_class, 1)
        for key in {key for each in ledger.awaiting_on(node) for key in each.victims}:
            victim = self._cluster.pods[key]
            if victim.node_name == node:
                taken.change(victim.usage, victim.pod_class, -1)
        devices = reservation.pod.pod_class.devices
        by_devices = set() if devices is None else {name for name in devices.extended_resources if not free.get(name)}
        for name in dict(reservation.pod.pod_class.requests).keys() - by_devices:
            assert taken.amounts[name] <= free.get(name, 0), f"{node} gives {taken.amounts[name]} of {name}"
        assert all(taken.ports[port] == 1 for port in reservation.pod.pod_class.host_ports)


class CheckedShell(Shell):
    """A shell whose steps are checked.

    Attributes:
        step_effects: of the last step.
        checked: a test that checks for itself, in hundreds of thousands of steps, may turn this off.
    """

    checked = True

    def __init__(
        self,
        state: State,
        request_round: Callable[[RequestRound], None],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(state, request_round, clock)
        self.checks, self.step_effects = LedgerChecks(state), list[Effect]()

    def apply(self, event: Event) -> None:
        """See Shell."""
        self.step_effects = []
        if not self.checked:
            super().apply(event)
            return
        with self.checks.step(event) as step:
            super().apply(event)
            step.effects = self.step_effects

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """See Shell."""
        self.step_effects = list(effects)
        super().carry_out(effects)


def _leads(taken: list[Transition], old: Phase | None, new: Phase | None) -> bool:
    """Whether these transitions lead from one phase to the other."""
    reached = {old}
    for _ in taken:
        reached |= {after for before, after in taken if before in reached}
    return new in reached
