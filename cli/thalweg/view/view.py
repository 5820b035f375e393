"""``thalweg view``: a dump or recorded rounds as a web page, for this machine only."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import click
from thalweg_operator.planning.reports.record import OlderRecord, UnreadableRecord, read_record, record_paths
from thalweg_operator.planning.worker.messages import RoundRequest
from thalweg_view.callers.access import OneToken
from thalweg_view.errors import ViewError
from thalweg_view.web.page_files import NOT_GATHERED, read_page
from thalweg_view.web.serving import serving

from flowcore.model.policies import BUILT_IN
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import Scenario, plan_scenario
from flowcore.questions.scenario.reading.saved import state_of
from thalweg.dumps.files import DumpError, display_name
from thalweg.dumps.reader import read_dump
from thalweg.terminal.progress import planning
from thalweg.terminal.telling import tell_error, tell_warning
from thalweg_cost_models import find_models

_LOOPBACK: Final = "127.0.0.1"
#: Seconds that one answer may take: nobody but the person who waits for it is held up.
_DEADLINE: Final = 600.0
#: Lines of the state that are made at a time.
_LINES: Final = 1000


class FixedSource:
    """A ``ViewSource`` that does not change.

    Args:
        rounds: the oldest first.
    """

    def __init__(
        self, kind: Literal["dump", "record"], name: str, scenario: Scenario, rounds: Sequence[PlanDocument]
    ) -> None:
        self.kind, self.name, self.version = kind, name, version("thalweg")
        self._scenario, self._rounds = scenario, rounds

    def unavailable(self) -> str:
        """Why no question can be answered now; "": it can."""
        return ""

    async def state(self) -> AsyncIterator[bytes]:
        """The saved state in pieces of whole lines."""
        lines = state_of(self._scenario)
        while piece := b"".join(islice(lines, _LINES)):
            yield piece
            await asyncio.sleep(0)

    def on_round(self, listener: Callable[[PlanDocument], None]) -> None:
        """Calls the listener with each round, known ones included."""
        for plan in self._rounds:
            listener(plan)


def dump_source(scenario: Scenario, name: str) -> FixedSource:
    """A dump and its plan. Warnings go to standard error."""
    now, began = scenario.moment, time.perf_counter()
    with planning(scenario), redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the address
        planned = plan_scenario(scenario, now, find_models().usable)
    for warning in (*scenario.warnings, *planned.warnings, *planned.gaps):
        tell_warning(warning)
    return FixedSource("dump", name, scenario, [planned.document(time.perf_counter() - began)])


def record_source(folder: Path) -> FixedSource:
    """The rounds of the last run that is recorded in a folder. Records of older versions count as earlier runs.

    Raises:
        UnreadableRecord: there is none that can be read, or a file is no record or of a newer version.
    """
    paths = record_paths(folder)
    if not paths:
        raise UnreadableRecord(f"{folder}: contains no record; `thalweg run --record {folder}` writes them")
    rounds: list[PlanDocument] = []
    request: RoundRequest | None = None
    older: OlderRecord | None = None
    for path in paths:
        try:
            record = read_record(path)
        except OlderRecord as error:
            older = error
            continue
        request = record.request
        if rounds and rounds[-1].number >= request.number:
            rounds.clear()  # an earlier run of the operator: its rounds have the same numbers
        rounds.append(record.plan())
    if older is not None and not rounds:
        raise older
    if len(rounds) < len(paths):
        tell_warning(f"{len(paths) - len(rounds)} records of earlier runs are not shown")
    return FixedSource("record", str(folder), Scenario() if request is None else _objects(request), rounds)


def _objects(request: RoundRequest) -> Scenario:
    """What a record tells of objects. It has no running pods by name, so nothing can be planned with it."""
    scenario = Scenario(complete=True)
    for node in request.changes.nodes:
        scenario.cluster.put_node(node)
    for name, labels in request.changes.namespaces.items():
        scenario.cluster.set_namespace(name, labels)
    for queue in request.queues:
        scenario.cluster.queues.put(queue.name, queue)
    scenario.policies = {policy.name: policy for policy in request.policies if policy.name != BUILT_IN.name}
    return scenario


def run_view(files: tuple[str, ...], record: Path | None, port: int, now: float | None, *, opens: bool) -> None:
    """Serves until Ctrl-C.

    Exit code 2: the files cannot be read. Exit code 1: the page is missing, or the port is in use.
    """
    try:
        make = _reader(files, record, now)
        if not read_page():
            tell_error(NOT_GATHERED)
            sys.exit(1)
        asyncio.run(_serve(make(), port, opens=opens))
    except (DumpError, UnreadableRecord) as error:
        tell_error(error)
        sys.exit(2)
    except ViewError as error:
        tell_error(error)
        sys.exit(1)


def _reader(files: tuple[str, ...], record: Path | None, now: float | None) -> Callable[[], FixedSource]:
    """Reads what is shown; a dump is planned by the function that is returned.

    Args:
        now: of a dump; see ``read_dump``.

    Raises:
        DumpError: the files cannot be read.
        UnreadableRecord: the records cannot be read.
    """
    if record is not None:
        source = record_source(record)
        return lambda: source
    scenario = read_dump(files, now)
    return lambda: dump_source(scenario, ", ".join(display_name(name) for name in files))


async def _serve(source: FixedSource, port: int, *, opens: bool) -> None:
    token = secrets.token_urlsafe(32)
    async with serving(_LOOPBACK, port, source, OneToken(token), deadline=_DEADLINE) as chosen:
        # A browser does not send what stands behind the #.
        url = f"http://{_LOOPBACK}:{chosen}/#token={token}"
        click.echo(url)
        click.echo("Whoever has this address may look, from this machine. Ctrl-C stops the view.", err=True)
        if opens:
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()
