"""Answers for programs: JSON in one line, or YAML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
import yaml

from thalweg.terminal.printable import printable_json, printable_lines


def print_document(value: Any, output: str) -> None:
    """Prints a value of plain types, structs or dataclasses.

    Args:
        output: "json" or "yaml".
    """
    encoded = msgspec.json.encode(value)
    if output == "json":
        click.echo(printable_json(encoded))
    else:
        click.echo(yaml_of([msgspec.json.decode(encoded)]), nl=False)


def yaml_of(values: Sequence[Any]) -> str:
    """Documents of YAML. If a text has a character that is not printable, all that is not ASCII is escaped."""
    text = yaml.safe_dump_all(values, sort_keys=False, allow_unicode=True)
    return text if printable_lines(text) == text else yaml.safe_dump_all(values, sort_keys=False, allow_unicode=False)
