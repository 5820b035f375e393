"""Who carries out which effect."""

from __future__ import annotations

import structlog

from thalweg_operator.delivery.binder import Binder
from thalweg_operator.delivery.claims.device_claims import DeviceClaimWriter
from thalweg_operator.delivery.claims.volume_claims import VolumeClaimWriter
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.delivery.nominator import Nominator
from thalweg_operator.delivery.status.group_status import GroupStatus
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.reservations.effects import (
    Allocate,
    Bind,
    BindClaim,
    ClearNomination,
    CountHeld,
    CountMove,
    CountNomination,
    CountPlacement,
    Evict,
    Log,
    Nominate,
    OpenGate,
    ReconcileGates,
    ReleaseClaims,
    WakePod,
    WriteCondition,
)
from thalweg_operator.shell import Handlers

_log = structlog.get_logger()


def handlers(
    binder: Binder,
    device_claims: DeviceClaimWriter,
    volume_claims: VolumeClaimWriter,
    nominator: Nominator,
    evictor: Evictor,
    condition_writer: ConditionWriter,
    group_status: GroupStatus,
    gate_admission: GateAdmission,
    metrics: Metrics,
) -> Handlers:
    """For each type of effect what carries it out."""

    def tell(effect: WriteCondition) -> None:
        condition_writer.put(effect)
        group_status.put(effect)

    return {
        Bind: binder.put,
        Allocate: device_claims.put,
        ReleaseClaims: device_claims.put,
        BindClaim: volume_claims.put,
        Nominate: nominator.put,
        ClearNomination: nominator.put,
        OpenGate: nominator.put,
        WakePod: nominator.put,
        Evict: evictor.put,
        WriteCondition: tell,
        ReconcileGates: lambda _effect: gate_admission.trigger(),
        CountMove: lambda effect: metrics.moves.labels(effect.outcome).inc(),
        CountPlacement: lambda effect: metrics.placements.labels(effect.outcome).inc(),
        CountNomination: lambda effect: metrics.steered.labels(effect.outcome).inc(),
        CountHeld: lambda effect: metrics.held.labels(effect.cause).inc(),
        Log: lambda effect: _log.info(effect.event, **dict(effect.fields)),
    }
