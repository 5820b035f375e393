"""The Kubernetes objects in files, as ``kubectl get ... -o json`` or ``-o yaml`` prints them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from flowcore.api.nesting import without_depth
from flowcore.questions.scenario.reading.objects import json_type
from thalweg.terminal.progress import progress

#: Values that aliases of a document of YAML may stand for, beside those that are written.
_MOST_BY_ALIASES: Final = 1_000_000
#: How deep lists of objects may be in each other. kubectl writes one, and those who join its answers one more.
_DEEPEST_LIST: Final = 10


class DumpError(Exception):
    """A file cannot be read; the message names the file, the object and the field."""


class _AliasError(Exception):
    """Aliases of a document stand for too much."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: what looks like a date stays a string."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Makes the values of a document, unless its aliases stand for too many."""
        _check_aliases(node)
        return super().construct_document(node)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _check_aliases(root: yaml.Node) -> None:
    """Counts the values of a document, those that aliases stand for again each time.

    Raises:
        _AliasError: they are too many, or one is in itself.
    """
    sizes, opened = dict[int, int](), {id(root)}
    stack = [(root, iter(_inner(root)))]
    while stack:
        node, left = stack[-1]
        inner = next((each for each in left if id(each) not in sizes), None)
        if inner is None:
            stack.pop()
            opened.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in _inner(node))
        elif id(inner) in opened:
            raise _AliasError("a value contains itself by an alias")
        else:
            opened.add(id(inner))
            stack.append((inner, iter(_inner(inner))))
    if sizes[id(root)] - len(sizes) > _MOST_BY_ALIASES:
        raise _AliasError(f"its aliases stand for more than {_MOST_BY_ALIASES:,} values")


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


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
        except _AliasError as error:
            raise DumpError(f"{shown}: {error}") from error
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


def _flatten(
    document: Any, where: str, on_list: Callable[[dict[str, Any]], None], depth: int = 0
) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise DumpError(f"{where}: expected a Kubernetes object, got {json_type(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str | None):
        raise DumpError(f"{where}: kind: expected a string, got {json_type(kind)}")
    if not kind:
        raise DumpError(f"{where}: kind: required value; give the output of kubectl get -o json or -o yaml")
    if not kind.endswith("List"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise DumpError(f"{where}: {kind}: items: expected a list, got {json_type(items)}")
    if depth == _DEEPEST_LIST:
        raise DumpError(f"{where}: {kind}: a list in so many others is no dump")
    on_list(document)
    # The items of typed lists (PodList) have neither kind nor apiVersion, those of a List have both.
    of_items = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "")}
    for index, item in enumerate(items):
        which = f"{where}: {kind}: items[{index}]"
        if not isinstance(item, dict):
            raise DumpError(f"{which}: expected an object, got {json_type(item)}")
        named = item if "kind" in item or not of_items["kind"] else of_items | item
        yield from _flatten(named, which if named.get("kind") else _with_name(which, item), on_list, depth + 1)


def _with_name(where: str, item: dict[str, Any]) -> str:
    """The place of an item whose kind is not known, with its name if it has one."""
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{where} ({name})" if isinstance(name, str) and name else where
