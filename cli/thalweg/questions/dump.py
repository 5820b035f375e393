"""``thalweg dump``: the objects of a cluster that plans depend on, as one JSON list."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from flowcore.api.gang_parents import rules_in
from flowcore.api.read_fields import read_fields, read_parent_fields
from flowcore.model.amount_text import counted
from flowcore.model.errors import ModelError
from flowcore.questions.scenario.reading.moment import DUMPED, moment_text
from flowcore.questions.scenario.reading.objects import name_of
from thalweg.sources.asking import run
from thalweg.sources.cluster_source import listed_objects
from thalweg.sources.source import SourceError, SourceOptions
from thalweg.terminal.printable import printable_json
from thalweg.terminal.telling import tell_warning

_HEAD: Final = b'{"apiVersion":"v1","kind":"List","metadata":%b,"items":[\n'
_END: Final = b"\n]}\n"


def run_dump(source: SourceOptions, *, redact: bool) -> None:
    """Lists the objects, then writes them: an API server that fails half-way leaves no half of a dump."""

    async def write() -> None:
        metadata = {"annotations": {DUMPED: moment_text(round(time.time()))}}
        listing = await listed_objects(source)
        warnings = listing.warnings
        items = listing.objects
        if redact:
            items = list(_redacted(items, warnings))
        for warning in warnings:
            tell_warning(warning)
        try:
            _write(metadata, items)
        except BrokenPipeError:
            raise  # `thalweg dump | head` has read enough
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write would fail again
            raise SourceError(f"the dump cannot be written: {error.strerror}") from error
        click.echo(f"{counted(len(items), 'object')} written", err=True)

    run(write())


def _write(metadata: dict[str, Any], items: list[dict[str, Any]]) -> None:
    out = sys.stdout.buffer
    out.write(_HEAD % msgspec.json.encode(metadata))
    for number, item in enumerate(items):
        out.write(b",\n" if number else b"")
        out.write(printable_json(msgspec.json.encode(item)))
    out.write(_END)
    out.flush()


def _redacted(items: list[dict[str, Any]], warnings: list[str]) -> Iterator[dict[str, Any]]:
    """The objects with the fields that plans read. An object that does not match its kind is left out and named."""
    rules = rules_in(items)
    for item in items:
        named = rules.get((item["apiVersion"], item["kind"]))
        try:
            yield read_fields(item) if named is None else read_parent_fields(item, named[1])
        except (msgspec.ValidationError, ModelError) as error:
            namespace, name = name_of(item)
            shown = f"{namespace}/{name}" if namespace else name
            warnings.append(f"{item['kind']} {shown} is left out, since --redact cannot read it: {error}")
