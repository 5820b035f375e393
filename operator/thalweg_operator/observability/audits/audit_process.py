"""One audit in a process of its own, which ends with it: a saved state in, a record out.

An audit may take seconds and a gigabyte. Neither rounds nor the event loop wait for it, and its memory is free again
afterwards. ``auditor`` starts this module with ``python -m``.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

import msgspec

from flowcore.questions.audit.answer_audit import AuditQuery, answer_audit
from flowcore.questions.audit.regret_record import record_of
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.saved import read_state
from thalweg_cost_models import find_models
from thalweg_operator.planning.worker.process_limits import limit_memory

#: Everything else on the machine comes first.
_NICE: Final = 19


def main(arguments: list[str]) -> None:
    """Audits what comes on standard input.

    Args:
        arguments: limits of memory in bytes and of CPU time in seconds.
    """
    memory, seconds = map(int, arguments)
    limit_memory(memory)
    # The first limit ends it by a signal of its own, by which it is told from other ends.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    # A library that prints must not disturb the record.
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        scenario = read_state(line.decode() for line in sys.stdin.buffer)
        context = AnswerContext(scenario.moment, find_models().usable)
        record = record_of(answer_audit(scenario, AuditQuery(), context), scenario.moment)
    except MemoryError:
        sys.exit("the audit needs more memory than its process may use")
    sink.write(msgspec.msgpack.encode(record))
    sink.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
