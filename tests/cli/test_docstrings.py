"""Docstrings name parameters and attributes that exist: a rename that forgets them is found here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "flowcore",
    "thalweg_cost_models",
    "operator/thalweg_operator",
    "extender/thalweg_extender",
    "controlplane",
    "view",
    "cli/thalweg",
)
#: Bases that add no attributes of their own.
BARE = {"msgspec.Struct", "Protocol", "NamedTuple", "Enum", "Exception"}
_ENTRY = re.compile(r"^    ([a-z_]\w*(?:, [a-z_]\w*)*):(?:\s|$)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def entries(docstring: str, section: str) -> set[str]:
    """Names that a section of a docstring describes."""
    found: set[str] = set()
    inside = False
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            inside = line == f"{section}:"
        elif inside and (match := _ENTRY.match(line)):
            found.update(match.group(1).split(", "))
    return found


def parameters(function: Function) -> set[str]:
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    return {each.arg for each in named}


def attributes(node: ast.ClassDef) -> set[str]:
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    found |= {
        name.id
        for each in node.body
        if isinstance(each, ast.Assign)
        for name in each.targets
        if isinstance(name, ast.Name)
    }
    found |= {each.name for each in node.body if isinstance(each, Function)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            found.add(each.attr)
    return found


def wrong_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            unknown = entries(ast.get_docstring(node) or "", "Args") - parameters(node)
        elif isinstance(node, ast.ClassDef):
            text = ast.get_docstring(node) or ""
            inits = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
            accepted = set().union(*map(parameters, inits)) | attributes(node)
            unknown = (
                entries(text, "Attributes") - attributes(node) if set(map(ast.unparse, node.bases)) <= BARE else set()
            )
            unknown |= entries(text, "Args") - accepted
        else:
            continue
        for name in sorted(unknown):
            yield f"line {node.lineno}: {node.name} has no {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_what_exists(package: str) -> None:
    """Every name under Args is a parameter, every name under Attributes an attribute."""
    wrong = [
        f"{path.relative_to(ROOT)} {each}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for each in wrong_names(ast.parse(path.read_text()))
    ]
    assert not wrong, "\n".join(wrong)
