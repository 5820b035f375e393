"""Answers for programs: JSON in one line, or YAML."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import yaml


def print_document(value: Any, output: str) -> None:
    """Prints a value of plain types, structs or dataclasses.

    Args:
        output: "json" or "yaml".
    """
    encoded = msgspec.json.encode(value)
    if output == "json":
        click.echo(encoded)
    else:
        click.echo(yaml.safe_dump(msgspec.json.decode(encoded), sort_keys=False, allow_unicode=True), nl=False)
