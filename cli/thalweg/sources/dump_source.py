"""Questions about a cluster dump."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from flowcore.api.kinds import POD
from flowcore.cluster.saved_state import is_saved_state
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from thalweg.dumps.files import DumpError, display_name, parse_objects, read_text
from thalweg.dumps.reader import read_dump
from thalweg.sources.source import SourceError, SourceOperation, warn
from thalweg.terminal.progress import planning
from thalweg_cost_models import find_models

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


def answer_here(question: SourceOperation[Any, _Answer], scenario: Scenario, query: msgspec.Struct) -> _Answer:
    """Answers in this process, with the installed cost models.

    Raises:
        ModelError: the question names something that is not there, or contradicts itself.
    """
    with planning(scenario), redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the answer
        return question.compute(scenario, query, AnswerContext(scenario.moment, find_models().usable))


class DumpSource:
    """Answers from files, with the installed cost models. Warnings about the files go to standard error, once.

    Attributes:
        namespace: of names without a namespace.
    """

    def __init__(self, files: tuple[str, ...], namespace: str, moment: float | None = None) -> None:
        """``moment``: see ``read_dump``."""
        self._files, self.namespace, self._moment = files, namespace, moment

    async def ask(self, question: SourceOperation[Any, _Answer], query: msgspec.Struct) -> _Answer:
        """Answers a question."""
        warn(self._read.warnings)
        return answer_here(question, self._read, query)

    async def scenario(self) -> Scenario:
        """Reads the whole cluster."""
        return self._read

    async def pods(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The pods as the files have them."""
        wanted, by_key = set(keys), dict[str, dict[str, Any]]()
        try:
            for name, text in self._texts():
                for item in parse_objects(text, display_name(name)):
                    if item["kind"] != POD.kind:
                        continue
                    metadata = item.get("metadata") or {}
                    key = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
                    if key in wanted:
                        by_key[key] = item
        except DumpError as error:
            raise SourceError(str(error)) from error
        if missing := [key for key in keys if key not in by_key]:
            raise SourceError(
                f"pod {missing[0]} is in no file as an object of the API: give the output of thalweg dump"
            )
        return [by_key[key] for key in keys]

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The files again, with their names; saved states have no objects of the API."""
        if "-" in self._files:
            raise DumpError("the pods are read once more, and standard input can be read once: give the dump as a file")
        for name in self._files:
            text = read_text(name)
            if not is_saved_state(text):
                yield name, text

    @cached_property
    def _read(self) -> Scenario:
        try:
            return read_dump(self._files, self._moment)
        except DumpError as error:
            raise SourceError(str(error)) from error
