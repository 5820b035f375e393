"""The Kubernetes objects in files, as ``kubectl get ... -o json`` or ``-o yaml`` prints them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from flowcore.api.nesting import without_depth
from flowcore.questions.scenario.reading.objects import json_type
from thalweg.terminal.progress import progress


class DumpError(Exception):
    """A file cannot be read; the message names the file, the object and the field."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: what looks like a date stays a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def display_name(name: str) -> str:
    """The name of a file in messages."""
    return "standard input" if name == "-" else name


def read_text(name: str) -> str:
    """The text of a file.

    Args:
        name: path of the file; ``-``: standard input.

    Raises:
        DumpError: the file cannot be read.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise DumpError(f"{display_name(name)}: cannot be read: {reason}") from error


def _no_list(_list: dict[str, Any]) -> None:
    """Reads nothing of a list but its items."""


def parse_objects(
    text: str, shown: str, on_list: Callable[[dict[str, Any]], None] = _no_list
) -> Iterator[dict[str, Any]]:
    """The objects of a text; lists are flattened. Each object has a kind; nothing else is checked.

    Args:
        text: JSON or YAML.
        shown: name of the file for messages.
        on_list: called with each list before its items come.

    Raises:
        DumpError: the text contains no objects.
    """
    documents: list[Any]
    try:
        documents = [_parse_json(text)]
    except msgspec.DecodeError as not_json:
        if text.lstrip()[:1] in ("{", "["):
            raise DumpError(f"{shown}: not valid JSON: {not_json}") from not_json
        try:
            documents = _parse_yaml(text, shown)
        except yaml.YAMLError as error:
            said = " ".join(str(error).split()).replace(' in "<file>", line', " in line")  # a parser knows no name
            raise DumpError(f"{shown}: not valid YAML: {said}") from error
        except RecursionError as error:
            raise DumpError(f"{shown}: nested too deeply") from error
    except RecursionError as error:
        raise DumpError(f"{shown}: nested too deeply") from error
    object_count = 0
    for number, document in enumerate(documents, start=1):
        where = f"{shown}: document {number}" if len(documents) > 1 else shown
        if document is None:
            continue
        object_count += 1
        yield from _flatten(document, where, on_list)
    if not object_count:
        raise DumpError(f"{shown}: contains no object")


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:  # what is nested so deep is read by nobody, such as parameters for a driver
        return msgspec.json.decode(without_depth(text.encode()))


def _parse_yaml(text: str, shown: str) -> list[Any]:
    """All documents. A megabyte takes seconds, so a terminal shows how far it is."""
    with progress(f"reading {shown}", len(text)) as told:
        return list(yaml.load_all(_Watched(text, told), Loader=_Loader))


class _Watched(io.StringIO):
    """A text that tells how much of it was read. Most of the time goes into reading, the rest into making objects."""

    def __init__(self, text: str, told: Callable[[float], None]) -> None:
        super().__init__(text)
        self._told = told

    def read(self, size: int | None = -1, /) -> str:
        self._told(self.tell())
        return super().read(size)


def _flatten(document: Any, where: str, on_list: Callable[[dict[str, Any]], None]) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise DumpError(f"{where}: expected a Kubernetes object, got {json_type(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise DumpError(f"{where}: kind: required value; give the output of kubectl get -o json or -o yaml")
    if not kind.endswith("List"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise DumpError(f"{where}: {kind}: items: expected a list, got {json_type(items)}")
    on_list(document)
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise DumpError(f"{where}: {kind}: items[{index}]: expected an object, got {json_type(item)}")
        if not isinstance(item.get("kind", ""), str):
            raise DumpError(f"{where}: {kind}: items[{index}].kind: expected a string, got {json_type(item['kind'])}")
        # The items of typed lists (PodList) have neither kind nor apiVersion.
        type_of_items = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
        yield item if "kind" in item else type_of_items | item
