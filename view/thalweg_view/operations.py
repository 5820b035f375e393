"""What a view can be asked: by name of the operation, its query and the function that answers it.

An operation is served at ``/api/v1/NAME``. Its query arrives as the parameters of a GET or as the JSON body of a POST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from flowcore.scenario import Scenario
from flowcore.scenario.context import AnswerContext
from thalweg_view.view_data import ViewData

Answer = Callable[[ViewData, Any, AnswerContext], msgspec.Struct]
#: Kinds that a caller must be allowed to list in the whole cluster.
Need = Literal["nodes", "policies", "queues"]


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
    """

    query: type[msgspec.Struct]
    answer: Answer
    method: Literal["GET", "POST"] = "GET"
    needs: frozenset[Need] = frozenset()
    segments: tuple[str, ...] = ()


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of an operation that asks for nothing in particular."""


def of_scenario(answer: Callable[[Scenario, Any, AnswerContext], msgspec.Struct]) -> Answer:
    """An answer that reads the scenario alone."""
    return lambda data, query, context: answer(data.scenario, query, context)


OPERATIONS: Final[Mapping[str, Operation]] = {}
