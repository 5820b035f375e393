"""What a question is asked of: a dump in files, a live cluster's objects, or its operator.

Answers are the same values either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import click

from thalweg.terminal.telling import tell_warning

if TYPE_CHECKING:  # help must be instant
    import msgspec

    from flowcore.questions.scenario import Scenario
    from flowcore.questions.scenario.context import AnswerContext
    from thalweg.option_types import NamespacedName

_Query = TypeVar("_Query", bound="msgspec.Struct")
_Answer = TypeVar("_Answer", bound="msgspec.Struct")

#: Kinds that a target may name, by every name that kubectl has for them.
_KINDS = {
    name: kind
    for kind, names in {
        "pod": ("pod", "pods", "po"),
        "gang": ("gang", "gangs", "podgroup", "podgroups"),
        "deployment": ("deployment", "deployments", "deploy"),
        "job": ("job", "jobs"),
        "statefulset": ("statefulset", "statefulsets", "sts"),
        "daemonset": ("daemonset", "daemonsets", "ds"),
        "replicaset": ("replicaset", "replicasets", "rs"),
    }.items()
    for name in names
}


class SourceError(Exception):
    """A question has no answer; the message says why, in one sentence, and what to do."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the command line says of the source.

    Attributes:
        files: of a dump; empty: a live cluster is asked.
        direct: plan here from what the API server lists; False: the operator answers where it has a view.
        kubeconfig, context: of the live cluster; None: as kubectl chooses them.
        namespace: of names without a namespace; "": that of the context, and ``default`` for a dump.
        server: URL of the view; "": the API server's proxy leads to its Service.
        server_ca: file of the CA that signed the certificate of ``server``; None: the machine's CAs.
        service: the view's Service; None: the one with the chart's labels in the chart's usual namespace.
        service_account: in whose name the operator is asked; None: see ``ViewToken``.
        token_file: file of a token to show to the operator; None: one is made.
        now: when a dump was made, in seconds since the epoch; None: as its objects say.
    """

    files: tuple[str, ...] = ()
    direct: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = ""
    server: str = ""
    server_ca: Path | None = None
    service: NamespacedName | None = None
    service_account: NamespacedName | None = None
    token_file: Path | None = None
    now: float | None = None


@dataclass(frozen=True, slots=True)
class SourceOperation(Generic[_Query, _Answer]):
    """Something that can be asked.

    Attributes:
        operation: its name at the operator: ``/api/v1/NAME``.
        answer_type: type of its answer.
        compute: answers it for a dump; raises ``ModelError``.
        method: POST sends the query as JSON, GET as parameters.
    """

    operation: str
    answer_type: type[_Answer]
    compute: Callable[[Scenario, _Query, AnswerContext], _Answer]
    method: Literal["GET", "POST"] = "POST"


class Source(Protocol):
    """A dump, a cluster or an operator."""

    @property
    def namespace(self) -> str:
        """Namespace of names without one."""

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """The answer.

        Raises:
            SourceError: there is none.
            ModelError: the question names something that is not there, or contradicts itself.
        """

    async def scenario(self) -> Scenario:
        """The whole cluster.

        Raises:
            SourceError: it cannot be had.
        """

    async def pods(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Pods as the API server has them, in this order.

        Args:
            keys: ``namespace/name`` of each.

        Raises:
            SourceError: one of them cannot be had.
        """


def target_of(text: str, namespace: str) -> str:
    """What a question is about, with its namespace: ``namespace/pod`` or ``kind/namespace/name``.

    Args:
        text: ``POD``, ``NAMESPACE/POD``, ``KIND/NAME`` as kubectl has it, or ``KIND/NAMESPACE/NAME``.
        namespace: of names without one.
    """
    first, *rest = text.split("/")
    kind = _KINDS.get(first.lower())
    if not rest:
        return f"{namespace}/{first}"
    if kind is None:
        return text
    named = "/".join(rest if len(rest) > 1 else [namespace, *rest])
    return named if kind == "pod" else f"{kind}/{named}"


def warn(sentences: Iterable[str]) -> None:
    """Prints warnings of a source and its answers on standard error, each once in a run of a command."""
    context = click.get_current_context(silent=True)
    said: set[str] = set() if context is None else context.meta.setdefault(__name__, set())
    for sentence in sentences:
        if sentence not in said:
            said.add(sentence)
            tell_warning(sentence)
