"""Asks a question of the command line's source and prints the answer, once or whenever it changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
import msgspec

from flowcore.model.errors import ModelError
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.moment import moment_text
from thalweg.dumps.files import DumpError
from thalweg.sources.dump_source import DumpSource
from thalweg.sources.source import Source, SourceError, SourceOperation, SourceOptions, warn
from thalweg.terminal.documents import print_document
from thalweg.terminal.logs import set_up_logging
from thalweg.terminal.telling import tell_error

_Answer = TypeVar("_Answer", bound=msgspec.Struct)

#: Seconds between two questions of --watch: the operator makes no newer state in less.
WATCH_INTERVAL = 2.0


@asynccontextmanager
async def opened(options: SourceOptions) -> AsyncIterator[Source]:
    """The source that the options name.

    Raises:
        SourceError: it cannot be used.
    """
    if options.files:
        yield DumpSource(options.files, options.namespace or "default", options.now)
        return
    from thalweg.sources.cluster_source import cluster_source  # noqa: PLC0415 - a dump needs no client

    set_up_logging("text", "critical")  # the client logs what the command says in one line
    async with cluster_source(options) as source:
        yield source


def tell(
    options: SourceOptions,
    question: SourceOperation[Any, _Answer],
    query: Callable[[str], msgspec.Struct | Sequence[msgspec.Struct]],
    show: Callable[[_Answer], None],
    *,
    output: str,
    watch: bool = False,
) -> None:
    """Asks and prints. Where there is no answer: one line of error, and exit code 2.

    Args:
        options: the source.
        question: what is asked.
        query: from the namespace of names without one to the query, or to several.
        show: prints an answer for people.
        output: ``json`` or ``yaml`` prints the answer so instead; of several queries an array of their answers.
            Of ``name`` what ``show`` prints is all.
        watch: print again whenever the answer changes, until Ctrl-C.
    """

    def put(answers: Sequence[_Answer], *, again: bool) -> None:
        for answer in answers:
            warn(getattr(answer, "warnings", ()))
        if output in ("json", "yaml"):
            if again and output == "yaml":
                click.echo("---")
            print_document(answers if len(answers) > 1 else answers[0], output)
            return
        for number, answer in enumerate(answers):
            if (number or again) and output != "name":
                click.echo()
            show(answer)
            if output != "name" and not options.files and (now := getattr(answer, "now", "")):
                click.echo(f"as of {now}")

    async def ask() -> None:
        async with opened(options) as source:
            asked, last = query(source.namespace), list[_Answer]()
            queries = [asked] if isinstance(asked, msgspec.Struct) else asked
            while True:
                answers = [await source.ask(question, each) for each in queries]
                if list(map(_timeless, answers)) != list(map(_timeless, last)):
                    put(answers, again=bool(last))
                    last = answers
                if not watch:
                    return
                await asyncio.sleep(WATCH_INTERVAL)

    run(ask())


def read_scenario(options: SourceOptions) -> Scenario:
    """The whole cluster of the source. Where it cannot be had: one line of error, and exit code 2."""
    scenarios: list[Scenario] = []

    async def read() -> None:
        async with opened(options) as source:
            scenarios.append(await source.scenario())

    run(read())
    if not options.files:
        click.echo(f"as of {moment_text(scenarios[0].moment)}", err=True)
    return scenarios[0]


def _timeless(answer: _Answer) -> _Answer:
    """An answer without its moment, which differs for each question."""
    return msgspec.structs.replace(answer, now="") if hasattr(answer, "now") else answer


def run(asked: Coroutine[Any, Any, None]) -> None:
    """Runs a command of a source. An error gives one line and exit code 2, Ctrl-C exit code 130."""
    try:
        asyncio.run(asked)
    except (SourceError, DumpError, ModelError) as error:
        tell_error(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
