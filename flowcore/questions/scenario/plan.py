"""Plans a scenario with the operator's planner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.running import FUTURE_CHECKPOINT, is_future_checkpoint
from flowcore.cluster.saved_state import AwaitedRoom
from flowcore.costs import MODELS, CostModel
from flowcore.model.amount_text import counted
from flowcore.model.policies import CHECKPOINTED_AT, Policy
from flowcore.planning.drawn_networks.model_networks import with_networks_of_models
from flowcore.planning.plan_document import PlanDocument, devices_left_out, whole_plan_document
from flowcore.planning.problem.result import Placement
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.saying import Guarded
from flowcore.questions.scenario.measured import measured_usage
from flowcore.questions.scenario.reading.missing_objects import missing_objects, pods_with_unknown_claims
from flowcore.questions.scenario.reading.nominations import KeptRoom, kept_rooms, with_kept_rooms
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario, acting, unchanged
from flowcore.rules.reasons.short_words import ROOM_CODES
from flowcore.rules.reasons.shortage import lacks_by_pod

_UNGOVERNED: Final = "no policy governs it"


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """A plan for a scenario.

    Attributes:
        before: the snapshot that was planned.
        policies: in force, by name, with the networks that their cost models draw.
        skipped: keys of pods that may not be planned, and the reason.
        gaps: sentences about missing objects that may change the plan; with any of them the plan is not certified.
        warnings: sentences about nodes and samples that are not measured (requests count there), about policies and
            constraints that do nothing, about checkpoints of running pods in the future, and about what could not be
            computed.
        awaiting: nominated pods whose room is kept until others have terminated there, by key; they are skipped.
    """

    result: RoundResult
    before: Snapshot
    policies: Mapping[str, Policy]
    skipped: dict[str, str]
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    awaiting: Mapping[str, AwaitedRoom] = field(default_factory=dict)

    @property
    def certified(self) -> bool:
        """Whether the plan is proven optimal for the cluster."""
        return self.result.certified and not self.gaps

    def document(self, seconds: float = 0.0) -> PlanDocument:
        """The plan as the only round of the scenario; ``seconds``: how long it took."""
        say = Guarded()
        document = whole_plan_document(self.result, self.policies, seconds, say)
        by_room = [(each.pod, each.reason) for each in self.result.unplaced if each.code in ROOM_CODES]
        document.lacks = say("What pods lack", lambda: lacks_by_pod(by_room, self.result.after), dict[str, str]())
        warnings = [*self.warnings, *say.missing.values()]
        if left_out := devices_left_out(self.result):
            pods = counted(left_out, "placed pod")
            warnings.append(
                f"the devices of {pods} are not listed: a plan has those of the first 2,000 pods with claims"
            )
        document.skipped, document.gaps, document.warnings = self.skipped, list(self.gaps), warnings
        return document


@dataclass(frozen=True, slots=True)
class PreparedScenario:
    """What a round reads of a scenario.

    Attributes:
        snapshot: the cluster, with the waiting pods that may be planned.
        policies: in force, by name, as the files have them.
        skipped: keys of pods that may not be planned, and the reason.
        gaps, warnings: see ``ScenarioPlan``.
        kept: rooms of nominated pods. The snapshot counts them, and no round plans these pods.
    """

    snapshot: Snapshot
    policies: Mapping[str, Policy]
    skipped: dict[str, str]
    gaps: tuple[str, ...]
    warnings: tuple[str, ...]
    kept: tuple[KeptRoom, ...] = ()


def prepare_scenario(
    scenario: Scenario, now: float, as_if: Callable[[Policy], Policy] = unchanged, *, only: Collection[str] = ()
) -> PreparedScenario:
    """What a round of all pending pods would read.

    Args:
        now: seconds since the epoch, for waiting times and ages.
        as_if: what each policy in force counts as.
        only: keys of the pods to plan; (): all.
    """
    governed = GovernedScenario(scenario, as_if)
    kept = kept_rooms(scenario, governed, now)
    nominated = {room.pod.key for room in kept}
    waiting = [pod for pod in scenario.waiting() if (not only or pod.key in only) and pod.key not in nominated]
    policies = {pod.key: governed.policy_of(pod) for pod in waiting}
    skipped = {pod.key: reason for pod in waiting if (reason := pod.skip_reason)}
    if scenario.complete:
        skipped |= {pod.key: _UNGOVERNED for pod in waiting if not governed.governs(pod)}
    planned = [pod for pod in waiting if pod.key not in skipped]
    skipped |= pods_with_unknown_claims(scenario, planned)
    measured = measured_usage(scenario, policies)
    round_input = governed.round_input(waiting, measured.of, unplanned=skipped)
    snapshot = to_snapshot(
        scenario.cluster,
        now=now,
        pending=tuple(round_input.pending),
        gangs=round_input.gangs,
        persistent_usage=round_input.persistent_usage,
        queues=round_input.queues,
        running=governed.running_pods(now, {pod.victim.key for pod in round_input.pending if pod.victim is not None}),
        measured=measured.loads,
    )
    future = (
        f"Pod {pod.key}: annotation {CHECKPOINTED_AT}: {FUTURE_CHECKPOINT}"
        for pod in scenario.running()
        if is_future_checkpoint(pod.checkpointed, now)
    )
    return PreparedScenario(
        with_kept_rooms(snapshot, kept),
        governed.policies,
        skipped,
        tuple(missing_objects(scenario, planned)),
        (*measured.warnings, *governed.policies_without_effect(), *future),
        tuple(room for room in kept if not only or room.pod.key in only),
    )


def plan_scenario(
    scenario: Scenario,
    now: float,
    models: Mapping[str, CostModel] = MODELS,
    *,
    reschedule: bool = False,
    only: Collection[str] = (),
) -> ScenarioPlan:
    """Plans every pending pod, and which running pods leave.

    Args:
        now: seconds since the epoch, for waiting times and ages.
        models: cost models by name; every model that a policy names must be there.
        reschedule: as if every policy had ``rescheduling: {mode: Act}``.
        only: keys of the pods to plan; (): all.
    """
    prepared = prepare_scenario(scenario, now, acting if reschedule else unchanged, only=only)
    say, policies = Guarded(), with_networks_of_models(prepared.policies, models, prepared.snapshot)
    result = run_round(prepared.snapshot, policies, models, say=say)
    settled = [Placement(room.pod, room.node, 0) for room in prepared.kept if not room.awaited]
    if settled:
        result = replace(result, placements=(*result.placements, *settled))
    awaiting = {room.pod.key: room for room in prepared.kept if room.awaited}
    return ScenarioPlan(
        result,
        prepared.snapshot,
        policies,
        prepared.skipped | {key: room.reason for key, room in awaiting.items()},
        prepared.gaps,
        (*prepared.warnings, *say.missing.values()),
        {key: AwaitedRoom(room.node, tuple(pod.key for pod in room.awaited)) for key, room in awaiting.items()},
    )
