"""The worker process: requests in, plans out.

OR-Tools holds the GIL for a whole solve, and filters and costs are arithmetic too. So all of a round runs here, and the
operator's event loop never waits for it. ``client`` starts this module with ``python -m``.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from flowcore.api import Interner
from flowcore.costs import MODELS, CostModel
from flowcore.model.amount_text import short_bytes
from flowcore.model.cost_policy import KnownModels
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.resources import Amounts
from thalweg_cost_models import find_models
from thalweg_operator.planning.reports import record
from thalweg_operator.planning.worker.messages import (
    LENGTH,
    Greeting,
    RoundRequest,
    failed_reply,
    join_request,
    reply_encoder,
    request_decoder,
)
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.process_limits import RoundExpired, limit_memory, time_limit
from thalweg_operator.planning.worker.replica import Replica


def send_greeting(sink: BinaryIO, known: KnownModels) -> None:
    """Tells the operator that the worker is ready, and its cost models."""
    body = reply_encoder.encode(Greeting(list(known.names), dict(known.problems), sorted(known.networks)))
    sink.write(LENGTH.pack(len(body)) + body)
    sink.flush()


def serve(
    source: BinaryIO,
    sink: BinaryIO,
    records: Path | None = None,
    models: Mapping[str, CostModel] = MODELS,
    memory: int = 0,
) -> None:
    """Answers requests until the source ends. A round that fails is answered with its problem.

    Args:
        records: folder for the record of each round, for a replay; None: rounds are not recorded.
        memory: bytes that this process may use; 0: no limit.
    """
    replica, sharing = Replica(), _Sharing()
    writers: dict[Path, record.RecordWriter] = {}
    parts: list[RoundRequest] = []
    while True:
        header = source.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return
        parts.append(sharing.share(request_decoder.decode(source.read(LENGTH.unpack(header)[0]))))
        if parts[-1].has_more:
            continue
        request = join_request(parts)
        parts = []
        if request.reset:
            replica = Replica()
        try:
            with time_limit(request.deadline):
                reply = run_request(replica, request, models)
            body = reply_encoder.encode(reply)
        except RoundExpired as error:
            reply = failed_reply(request, str(error), "timeout")
        except MemoryError:
            reply = failed_reply(request, f"the worker reached its memory limit of {short_bytes(memory)}", "memory")
        except Exception as error:  # noqa: BLE001 - the operator decides; this process goes on
            reply = failed_reply(request, repr(error))
        if reply.problem:
            body = reply_encoder.encode(reply)
        sink.write(LENGTH.pack(len(body)) + body)
        sink.flush()
        for folder in folders(request, records) if not reply.problem else ():
            with suppress(OSError):  # a full disk must not keep pods waiting
                writers.setdefault(folder, record.RecordWriter(folder)).write(replica.full_request(request), reply)
        reset = request.reset
        del request, reply, body  # of a large cluster much more than what the replica keeps of them
        _free_memory(reset=reset)


def _free_memory(*, reset: bool) -> None:
    """Frees what a round left behind: cycles with arrays as long as the nodes.

    Few objects are in them, so the collector would let many rounds pass. What a reset brings mostly stays, and is not
    looked at again. So this takes a millisecond, after the reply.
    """
    if reset:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    else:
        gc.collect(1)


def folders(request: RoundRequest, records: Path | None) -> set[Path]:
    """Folders in which the round is to be recorded."""
    return {*([] if records is None else [records]), *([Path(request.record_in)] if request.record_in else [])}


class _Sharing:
    """Makes equal names and labels of nodes the same object, in all requests of a worker.

    A decoded request has a new string for each time that a name is in it.
    """

    def __init__(self) -> None:
        self._intern = Interner()

    def share(self, message: RoundRequest) -> RoundRequest:
        """The same request, or part of one, with shared names."""
        intern, changes = self._intern, message.changes
        changes.nodes = [self._node(node) for node in changes.nodes]
        changes.usage = [self._usage(usage) for usage in changes.usage]
        message.pod_changes = [(of, {intern(node): by for node, by in on.items()}) for of, on in message.pod_changes]
        changes.reports = [msgspec.structs.replace(report, node=intern(report.node)) for report in changes.reports]
        return message

    def _node(self, node: Node) -> Node:
        intern = self._intern
        return msgspec.structs.replace(
            node,
            name=intern(node.name),
            labels=tuple(intern(pair) for pair in node.labels),
            taints=intern(node.taints),
            allocatable=intern(node.allocatable),
            features=intern(node.features),
        )

    def _usage(self, usage: NodeUsage) -> NodeUsage:
        amounts: Amounts = tuple((self._intern(name), amount) for name, amount in usage.amounts)
        return msgspec.structs.replace(usage, node=self._intern(usage.node), amounts=amounts)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the operator handles Ctrl-C and closes our input
    gc.set_threshold(100_000, 50, 100)
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # prints of plug-ins must not mix with replies
    allowed = int(sys.argv[1])
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    limit_memory(allowed)
    models = find_models()
    send_greeting(replies, models.known)
    serve(sys.stdin.buffer, replies, kept, models.usable, allowed)
