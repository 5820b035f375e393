"""Writes the status of each policy: conditions, pod counts and its last round, when it is due (due.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import structlog

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.policy_coverage import PolicyCoverage, PolicyCoverages, without_effect
from flowcore.model.constraint_limits import reasons_nothing_fits
from flowcore.model.cost_policy import Utilisation
from flowcore.model.policies import Policy, ReschedulingMode, WaitingMode
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import MERGE_PATCH, ApiClient, api_path
from thalweg_operator.api.writes.events import timestamp
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.delivery.status.due import WrittenStatus, is_due
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.planning.reports.round_reports import ProposedEviction, RoundReports
from thalweg_operator.policies import auto_waiting
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.policies.store import PolicyRecord, PolicyStore
from thalweg_operator.usage.report import NOT_POLLED
from thalweg_operator.yielding import yielding

_log = structlog.get_logger()
_EVERY = 1.0
#: Between tries after the API server refused a status.
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: Lengths of the lists in ``status.rescheduling``, as in the CRD.
_MAX_PROPOSALS, _MAX_FOR_PODS = 20, 10


OnWritten: TypeAlias = Callable[[PolicyRecord, dict[str, Any] | None, dict[str, Any]], None]


class PolicyStatus:
    """Writes the status of FlowSchedulingPolicies."""

    def __init__(
        self,
        api_client: ApiClient,
        cluster: Cluster,
        policies: PolicyStore,
        reports: RoundReports,
        gate_admission: GateAdmission,
        usage_condition: Callable[[], tuple[str, str, str]] = lambda: NOT_POLLED,
        on_written: OnWritten = lambda _record, _before, _status: None,
    ) -> None:
        """A writer of statuses.

        Args:
            usage_condition: status, reason and message of the condition UsageMeasured.
            on_written: called with each status that was written and the one before.
        """
        self._on_written, self._usage_condition = on_written, usage_condition
        self._api_client, self._cluster, self._policies, self._reports = api_client, cluster, policies, reports
        self._gate_admission = gate_admission
        #: By uid.
        self._written: dict[str, WrittenStatus] = {}
        self._condition_since: dict[tuple[str, str], tuple[str, str]] = {}

    async def run(self) -> None:
        """Writes until cancelled."""
        failures = 0
        refused: set[str] = set()
        while True:
            await asyncio.sleep(_EVERY)
            records = self._policies.records
            self._prune(records)
            if not records:
                continue
            counts = await self._counts()
            refused.intersection_update(each.name for each in records)
            # A status that was refused is tried last, so that it does not block the others.
            for record in sorted(records, key=lambda record: record.name in refused):
                if not await self._write(record, _coverage(record, counts)):
                    refused.add(record.name)
                    failures += 1
                    await asyncio.sleep(_BACKOFF.pause(failures))
                    break
                refused.discard(record.name)
            else:
                failures = 0

    def _prune(self, records: list[PolicyRecord]) -> None:
        """Forgets policies that are gone."""
        uids = {standing.uid for standing in records}
        self._written = {uid: each for uid, each in self._written.items() if uid in uids}
        self._condition_since = {key: each for key, each in self._condition_since.items() if key[0] in uids}

    async def _counts(self) -> PolicyCoverages:
        counts, namespaces = PolicyCoverages(self._cluster.policies), self._cluster.namespaces
        async for (namespace, labels, scheduler), population in yielding(list(self._cluster.populations.items())):
            known = namespaces.get(namespace, ())
            counts.add(namespace, labels, scheduler, known, population.placed, population.waiting)
        return counts

    async def _write(self, record: PolicyRecord, counts: PolicyCoverage) -> bool:
        """Writes one status; returns whether the API server takes writes, so that others need not be tried if not."""
        status, written = self._status(record, counts), self._written.get(record.uid)
        now = asyncio.get_running_loop().time()
        if not is_due(written, status, now):
            return True
        body = msgspec.json.encode({"metadata": {"uid": record.uid}, "status": status})
        path = api_path(POLICIES_PATH, record.name, "status")
        try:
            await self._api_client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            before = None if written is None else written.status
            self._on_written(record, before, status)
            _log_proposals(record, before, status)
            self._written[record.uid] = WrittenStatus(status, now)
        except Refused as error:
            if error.status == 404:
                self._policies.forget(record.name, record.uid)
            elif error.status != 409:  # 409: another object of the same name by now; its event is on the way
                problem = f"{record.name}: {error.reason}"
                self._api_client.outages.failed("policy status", str(error.status), problem, transient=error.starting)
                return False
        except ConnectionLost:
            return False  # the connection logs it
        self._api_client.outages.recovered("policy status")
        return True

    def _status(self, record: PolicyRecord, counts: PolicyCoverage) -> dict[str, Any]:
        if not record.problem:
            accepted = ("True", "Valid", "The policy is valid.")
        else:
            accepted = ("False", "Invalid", record.problem)
        if record.in_force is None:
            ready = ("False", "NeverAccepted", "No version of this policy was valid yet; it governs nothing.")
        elif record.problem:
            text = f"Generation {record.in_force_generation}, the last valid one, stays in force."
            ready = ("True", "LastGoodInForce", text)
        elif (problem := self._gate_admission.problems.get(record.name)) and self._gate_admission.marks:
            text = f"kube-scheduler does not ask about new pods, and places them without a plan: {problem}"
            ready = ("False", "NotAskedAbout", text)
        elif problem:
            gates = record.in_force.waiting is WaitingMode.GATE or record.name in self._gate_admission.gating
            whose = "pods" if gates else "pods of gangs"
            text = f"In force, but new {whose} are held in kube-scheduler's queue, not gated: {problem}"
            ready = ("True", "HeldNotGated", text)
        elif counts.overridden or counts.left_out:
            text = "In force."
            if counts.overridden:
                text += f" {counts.overridden} of the pods it selects are governed by policies that come first, "
                text += f"such as {counts.overridden_by}."
            if counts.left_out:
                where = " and ".join(sorted(counts.left_out_namespaces))
                text += f" {counts.left_out} of the pods it selects are in {where} and left to kube-scheduler."
            ready = ("True", "InForce", text)
        elif record.in_force.selects.nothing:
            ready = ("False", "SelectsNothing", "spec.selects is empty: the policy governs no pods.")
        else:
            ready = ("True", "InForce", "In force.")
        conditions = [self._condition(record, "Accepted", *accepted), self._condition(record, "Ready", *ready)]
        if record.in_force is not None:
            conditions.append(self._condition(record, "Effective", *_effective(record.in_force, counts)))
        if record.in_force is not None and self._may_contradict(record.uid, record.in_force):
            conditions.append(self._condition(record, "Consistent", *self._consistent(record.uid, record.in_force)))
        if record.in_force is not None and auto_waiting.decides(record.in_force):
            said = auto_waiting.describe(record.in_force, self._gate_admission.gating)
            conditions.append(self._condition(record, "Held", *said))
        if record.in_force is not None and record.in_force.cost.utilisation is not Utilisation.REQUESTED:
            conditions.append(self._condition(record, "UsageMeasured", *self._usage_condition()))
        if record.ignored:
            said = "False", "IgnoredFields", f"{'; '.join(record.ignored)}."
            conditions.append(self._condition(record, "UpToDate", *said))
        status: dict[str, Any] = {
            "observedGeneration": record.generation,
            "conditions": conditions,
            "pods": {
                "governed": counts.governed,
                "placed": counts.placed,
                "waiting": counts.waiting,
            },
        }
        status["rescheduling"] = self._rescheduling(record)
        report = self._reports.reports.get(record.uid)
        if report is not None:
            status["lastRound"] = {
                "number": report.number,
                "finished": timestamp(report.finished),
                "placed": report.placed,
                "waiting": report.waiting,
                "cost": report.cost,
                "gap": f"{report.gap:.1%}",
                "certified": report.certified,
            }
        return status

    def _rescheduling(self, record: PolicyRecord) -> dict[str, Any] | None:
        """What the policy proposes; None, which removes the field: it does not propose moves."""
        if record.in_force is None or record.in_force.rescheduling.mode is not ReschedulingMode.PROPOSE:
            return None
        proposals = self._reports.proposals.get(record.uid, [])
        return {"count": len(proposals), "proposals": [_proposal(each) for each in proposals[:_MAX_PROPOSALS]]}

    def _may_contradict(self, uid: str, policy: Policy) -> bool:
        """Whether the policy has constraints, or the network of its cost model was refused since the operator began."""
        said = (uid, "Consistent") in self._condition_since
        return bool(policy.constraints) or uid in self._reports.contradictions or said

    def _consistent(self, uid: str, policy: Policy) -> tuple[str, str, str]:
        """Condition Consistent: from the constraints, and from the last round with this version of the policy."""
        asked, contradictions = self._reports.contradictions.get(uid, (None, []))
        sentences = [sentence for each in policy.constraints for sentence in reasons_nothing_fits(each, policy)]
        sentences += contradictions if asked == policy else []
        if not sentences:
            return "True", "NoContradiction", "The policy rules no waiting pod out."
        text = "; ".join(dict.fromkeys(sentences))
        return "False", "Contradiction", f"The pods concerned wait: {text}."

    def _condition(self, record: PolicyRecord, kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
        since = self._condition_since.get((record.uid, kind))
        if since is None or since[0] != value:
            since = self._condition_since[(record.uid, kind)] = (value, timestamp())
        return {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "observedGeneration": record.generation,
            "lastTransitionTime": since[1],
        }


def _coverage(record: PolicyRecord, counts: PolicyCoverages) -> PolicyCoverage:
    return PolicyCoverage() if record.in_force is None else counts.of(record.in_force)


def _effective(policy: Policy, coverage: PolicyCoverage) -> tuple[str, str, str]:
    """Condition Effective: whether the policy and each of its constraints do anything for the pods that there are."""
    idle = list(without_effect(policy, coverage))
    if not idle:
        return "True", "GovernsPods", "It governs pods, and each of its constraints rules some of them."
    text = "; ".join(sentence for _, sentence in idle)
    return "False", idle[0][0], f"{text[0].upper()}{text[1:]}."


def _log_proposals(record: PolicyRecord, before: dict[str, Any] | None, status: dict[str, Any]) -> None:
    proposed = status["rescheduling"]
    if proposed is not None and proposed["count"] and (before is None or before["rescheduling"] != proposed):
        pods = [proposal["pod"] for proposal in proposed["proposals"]]
        _log.info("moves proposed", policy=record.name, count=proposed["count"], pods=pods)


def _proposal(proposal: ProposedEviction) -> dict[str, Any]:
    shown: dict[str, Any] = {"pod": proposal.pod, "node": proposal.node, "kind": proposal.kind}
    if proposal.to:
        shown["to"] = proposal.to
    if proposal.gain:
        shown["gain"] = proposal.gain
    if proposal.for_pods:
        shown["for"] = proposal.for_pods[:_MAX_FOR_PODS]
    return shown
