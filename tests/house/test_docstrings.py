"""Docstrings say what a thing is, by names that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import PACKAGES, python_files

#: Symbols of the formulas of cost models.
_SYMBOLS = {"room_cpu", "room_mem", "u_cpu", "u_mem"}
_QUOTED_NAME = re.compile(r"``([a-z_][a-z0-9_]*)``")
_NO_SUBJECT = re.compile(r"(?:Of )?(?:those|these|them|as many|so many)\b", re.IGNORECASE)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Each docstring as the constant that it is."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            match node.body[0]:
                case ast.Expr(value=ast.Constant() as constant):
                    yield constant


def names_in(tree: ast.AST) -> set[str]:
    """Names that a module defines or uses, and the words of its texts that are no docstrings."""
    names = {"with"}
    documentation = set(map(id, docstrings(tree)))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.alias(name=name):
                names.update(name.split("."))
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                names.update(re.findall(r"\w+", text))
    return names


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.AST]:
    return {path: ast.parse(path.read_text()) for path in python_files(*PACKAGES)}


def test_quoted_names_exist(trees: dict[Path, ast.AST]) -> None:
    """A docstring that names a function, a parameter or a module goes stale when that is renamed."""
    known = _SYMBOLS.union(*map(names_in, trees.values()), *({*path.with_suffix("").parts} for path in trees))
    stale = [
        f"{path}:{docstring.lineno}: ``{name}``"
        for path, tree in trees.items()
        for docstring in docstrings(tree)
        for name in _QUOTED_NAME.findall(str(docstring.value))
        if name not in known
    ]
    assert not stale, "\n".join(stale)


def test_no_docstring_only_points_elsewhere(trees: dict[Path, ast.AST]) -> None:
    """Who reads a class or a function wants one sentence on the spot."""
    pointers = [
        f"{path}:{docstring.lineno}: {docstring.value!r}"
        for path, tree in trees.items()
        for docstring in docstrings(tree)
        if str(docstring.value).startswith("See ")
    ]
    assert not pointers, "\n".join(pointers)


def test_a_docstring_names_its_subject(trees: dict[Path, ast.AST]) -> None:
    """Who reads one beside a name wants the noun: nodes, pods, tries, not "those" or "so many"."""
    pronouns = [
        f"{path}:{docstring.lineno}: {docstring.value!r}"
        for path, tree in trees.items()
        for docstring in docstrings(tree)
        if _NO_SUBJECT.match(str(docstring.value))
    ]
    assert not pronouns, "\n".join(pronouns)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('"""``gone``"""\ndef here(size): ...', {"here", "size", "with"}),
        ('x.limit = f(count=1)\ntext = "two words"', {"x", "limit", "f", "count", "text", "two", "words", "with"}),
    ],
)
def test_docstrings_define_no_names(source: str, names: set[str]) -> None:
    """Else each docstring would vouch for its own names."""
    assert names_in(ast.parse(source)) == names
