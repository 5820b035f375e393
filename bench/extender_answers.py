"""How fast the extender answers kube-scheduler.

    python bench/extender_answers.py
    python bench/extender_answers.py --names 5000 --requests 2000 -o json

A server process with a guide that knows what to say, and a client that asks as Go's does: one connection that is kept,
one request after the other. So the guide costs nothing here, and what is measured is reading requests, making answers
and HTTP. Own time runs from the whole body read to the answer made; the round trip is seen by the client, which shares
the machine.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

import click
import msgspec
from harness.conditions import conditions
from harness.tables import console, print_conditions
from rich.table import Table
from thalweg_extender import FilterOutcome, listening

from flowcore.model.advice import Advice, ExtenderPod

_TAKEN = 500
_WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of pod and one size of request; milliseconds."""

    verb: str
    pod: str
    names: int
    taken: int
    body_kb: float
    answer_kb: float
    own_p50: float
    own_p99: float
    trip_p50: float
    trip_p99: float


class _FixedAdvice:
    """The guide: what to say follows from the pod's name."""

    def __init__(self, names: Sequence[str]) -> None:
        taken = frozenset(names[1 :: max(1, len(names) // _TAKEN)][:_TAKEN])
        scores = {name: at % 11 for at, name in enumerate(names)}
        self._guidance = {
            "held": Advice(managed=True, hold=True),
            "held, taken": Advice(managed=True, hold=True, infeasible_nodes=taken),
            "steered": Advice(managed=True, node=names[-1], hold=True),
            "preferring": Advice(managed=True, scores=scores),
            "unmanaged": Advice(),
            "unmanaged, taken": Advice(infeasible_nodes=taken),
        }

    def unavailable(self) -> str:
        return ""

    def planned_at_once(self, asked: ExtenderPod, names: Sequence[str]) -> bool:  # noqa: ARG002
        return True

    async def until_planned(self, asked: ExtenderPod, names: Sequence[str]) -> None:
        """There is nothing to wait for."""

    def advise(self, asked: ExtenderPod, names: Sequence[str]) -> Advice:  # noqa: ARG002
        return self._guidance[asked.name]

    def answered(self, asked: ExtenderPod, advice: Advice, outcome: FilterOutcome, passed: Sequence[str]) -> None:
        """Nothing is reserved."""


async def _serve(pipe: Connection, names: Sequence[str]) -> None:
    """Serves until asked to stop; before, each message asks for the times since the last."""
    times: list[float] = []

    def on_answer(_verb: str, _outcome: str, seconds: float) -> None:
        times.append(seconds)

    async with listening("127.0.0.1", 0, _FixedAdvice(names), on_answer=on_answer) as port:
        pipe.send(port)
        while await asyncio.to_thread(pipe.recv):
            pipe.send(times[:])
            times.clear()


def _server(pipe: Connection, names: Sequence[str]) -> None:
    asyncio.run(_serve(pipe, names))


def _body(pod: str, names: Sequence[str]) -> bytes:
    """A request with a pod of the usual size, 3 kB of JSON."""
    spec = {"schedulerName": "steered", "containers": [{"name": "main", "image": "example.invalid/web", "env": [
        {"name": f"SETTING_{i}", "value": "a value as long as usual"} for i in range(40)]}]}  # fmt: skip
    whole = {"metadata": {"name": pod, "namespace": "bench", "uid": "u", "labels": {"app": "bench"}}, "spec": spec}
    return json.dumps({"Pod": whole, "Nodes": None, "NodeNames": list(names)}, separators=(",", ":")).encode()


def _measure(
    connection: http.client.HTTPConnection, pipe: Connection, case: tuple[str, str], names: Sequence[str], requests: int
) -> Row:
    verb, pod = case
    body, trips, size = _body(pod, names), [], 0
    for at in range(_WARM_UP + requests):
        if at == _WARM_UP:
            pipe.send(True)
            pipe.recv()
        started = time.perf_counter()
        connection.request("POST", f"/extender/{verb}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        size = len(response.read())
        if at >= _WARM_UP:
            trips.append(time.perf_counter() - started)
        assert response.status == 200
    pipe.send(True)
    own = pipe.recv()
    assert len(own) == requests
    taken = min(_TAKEN, len(names) - 1) if pod.endswith("taken") else 0
    quantiles = (_ms(own, 0.5), _ms(own, 0.99), _ms(trips, 0.5), _ms(trips, 0.99))
    return Row(verb, pod.partition(",")[0], len(names), taken, len(body) / 1000, size / 1000, *quantiles)


def _ms(seconds: Sequence[float], share: float) -> float:
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


CASES = (
    ("filter", "held"),
    ("filter", "held, taken"),
    ("filter", "steered"),
    ("filter", "unmanaged"),
    ("filter", "unmanaged, taken"),
    ("prioritize", "preferring"),
)


def measure(count: int, requests: int) -> list[Row]:
    """All cases with requests of so many names, against one server."""
    names = [f"node-{i:05}.pool-{i % 7}.cluster.example.invalid" for i in range(count)]
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_server, args=(theirs, names), daemon=True)
    process.start()
    connection = http.client.HTTPConnection("127.0.0.1", ours.recv())
    try:
        return [_measure(connection, ours, case, names, requests) for case in CASES]
    finally:
        connection.close()
        ours.send(False)
        process.join()


def _print(rows: Sequence[Row]) -> None:
    table = Table(title="The extender's answers; milliseconds")
    for name in ("verb", "pod"):
        table.add_column(name)
    for name in ("names", "taken", "body kB", "answer kB", "own p50", "own p99", "round trip p50", "round trip p99"):
        table.add_column(name, justify="right")
    for row in rows:
        sizes = (f"{row.body_kb:.1f}", f"{row.answer_kb:.1f}")
        times = (f"{each:.2f}" for each in (row.own_p50, row.own_p99, row.trip_p50, row.trip_p99))
        table.add_row(row.verb, row.pod, str(row.names), str(row.taken), *sizes, *times)
    console.print(table)


@click.command()
@click.option("--names", "counts", default="100,1000,5000", show_default=True, help="Node names in a request.")
@click.option("--requests", default=1000, show_default=True, type=click.IntRange(min=1), help="Of each kind.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(counts: str, requests: int, output: str) -> None:
    """Measures own time and round trip of held, steered and unmanaged pods."""
    found = conditions() | {"cores": f"{os.cpu_count()} for server and client"}
    rows = [row for count in counts.split(",") for row in measure(int(count), requests)]
    if output == "json":
        sys.stdout.buffer.write(
            msgspec.json.encode({"conditions": found, "rows": [asdict(row) for row in rows]}) + b"\n"
        )
        return
    _print(rows)
    print_conditions(found)


if __name__ == "__main__":
    main()
