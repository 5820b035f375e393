"""What a view can be asked: by name of the operation, its query and the function that answers it.

An operation is served at ``/api/v1/NAME``. Its query arrives as the parameters of a GET or as the JSON body of a POST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal

import msgspec

from flowcore.model.errors import ModelError
from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.diagnosis.answers import WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext, sees_all
from flowcore.questions.scenario.network_flow import NetworkQuery, answer_network
from flowcore.questions.scenario.plan_listing import PlanQuery, answer_plan
from thalweg_view.compute_process.messages import Need, OperationShape
from thalweg_view.pictures.flow import FlowQuery, answer_flow
from thalweg_view.pictures.gangs import answer_gangs
from thalweg_view.pictures.nodes import NodesQuery, answer_nodes
from thalweg_view.pictures.one_pod import PodQuery, answer_pod
from thalweg_view.pictures.overview import answer_overview
from thalweg_view.pictures.pending import PendingQuery, answer_pending
from thalweg_view.pictures.policies import answer_policies, answer_queues
from thalweg_view.pictures.regret import RegretQuery, answer_regret
from thalweg_view.pictures.shapes import RoundQuery
from thalweg_view.pictures.timeline import RoundsQuery, answer_rounds
from thalweg_view.status import StatusQuery, answer_status
from thalweg_view.view_data import ViewData

Answer = Callable[[ViewData, Any, AnswerContext], msgspec.Struct]


@dataclass(frozen=True, slots=True)
class Operation:
    """One question.

    Attributes:
        query: type of the query; a query of a GET has fields of simple types only.
        answer: pure function; raises ``ModelError`` for a query that cannot be answered (status 400), and
            ``UnknownName`` for a name that is not known or not to be seen (status 404).
        method: of the request.
        needs: kinds that the caller must be allowed to list.
        segments: fields of the query that follow the name in the path.
        more_needs: see ``OperationShape``.
    """

    query: type[msgspec.Struct]
    answer: Answer
    method: Literal["GET", "POST"] = "GET"
    needs: frozenset[Need] = frozenset()
    segments: tuple[str, ...] = ()
    more_needs: tuple[tuple[str, str, Need], ...] = ()

    @property
    def shape(self) -> OperationShape:
        """What the server must know of it: it does not import what computes."""
        fields = tuple(field.encode_name for field in msgspec.structs.fields(self.query))
        return OperationShape(self.method, self.needs, self.segments, fields, self.more_needs)


def of_scenario(answer: Callable[[Scenario, Any, AnswerContext], msgspec.Struct]) -> Answer:
    """An answer that reads the scenario alone; recorded rounds have none that could be planned again."""

    @wraps(answer)
    def answered(data: ViewData, query: Any, context: AnswerContext) -> msgspec.Struct:
        if data.source.kind == "record":
            raise ModelError("", "recorded rounds cannot be planned again: ask a dump or a running operator")
        return answer(data.scenario, query, context)

    return answered


def of_dump(answer: Callable[[Scenario, Any, AnswerContext], msgspec.Struct]) -> Answer:
    """An answer that takes a processor for a while, and names pods of all namespaces: to the owner of a dump alone."""

    @wraps(answer)
    def answered(data: ViewData, query: Any, context: AnswerContext) -> msgspec.Struct:
        if data.source.kind != "dump" or context.sees is not sees_all:
            raise ModelError("", "only a dump is audited here; for a cluster run `thalweg audit`")
        return answer(data.scenario, query, context)

    return answered


OPERATIONS: Final[Mapping[str, Operation]] = {
    "overview": Operation(RoundQuery, answer_overview),
    "flow": Operation(
        FlowQuery,
        answer_flow,
        needs=frozenset({"nodes", "policies"}),
        more_needs=(("of", "queue", "queues"),),
    ),
    "nodes": Operation(NodesQuery, answer_nodes, needs=frozenset({"nodes"})),
    "pending": Operation(PendingQuery, answer_pending),
    "gangs": Operation(RoundQuery, answer_gangs),
    "policies": Operation(RoundQuery, answer_policies, needs=frozenset({"policies"})),
    "queues": Operation(RoundQuery, answer_queues, needs=frozenset({"queues"})),
    "plan": Operation(PlanQuery, of_scenario(answer_plan)),
    "why": Operation(WhyQuery, of_scenario(answer_why), method="POST"),
    "status": Operation(StatusQuery, answer_status, needs=frozenset({"policies", "queues"})),
    "rounds": Operation(RoundsQuery, answer_rounds),
    "audit": Operation(AuditQuery, of_dump(answer_audit), needs=frozenset({"nodes"})),
    "regret": Operation(RegretQuery, answer_regret, needs=frozenset({"nodes"})),
    "pods": Operation(PodQuery, answer_pod, segments=("namespace", "name")),
    "headroom": Operation(HeadroomQuery, of_scenario(answer_headroom), "POST", needs=frozenset({"nodes"})),
    "network": Operation(NetworkQuery, of_scenario(answer_network), needs=frozenset({"nodes", "policies"})),
    "what-if": Operation(WhatIfQuery, of_scenario(answer_what_if), "POST", needs=frozenset({"nodes"})),
}
