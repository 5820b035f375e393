"""Options that limit the memory of a process."""

from __future__ import annotations

import click
from thalweg_operator.planning.worker.process_limits import LEAST_MEMORY

from flowcore.model.amount_text import short_bytes
from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos, whole_from_nanos


def memory_limit(text: str, option: str) -> int:
    """Bytes of an option for a process's memory.

    Raises:
        click.BadParameter: it is no quantity, or too little.
    """
    try:
        memory = whole_from_nanos(nanos(text))
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    if memory and memory < LEAST_MEMORY:
        problem = f'"{text}" is too little: give at least {short_bytes(LEAST_MEMORY)}, or 0 for no limit'
        raise click.BadParameter(problem, param_hint=option)
    return memory
