"""Small modules with one reason to exist: a larger file or class needs a decision that says why."""

import ast

from support.repository import PACKAGES, ROOT, python_files

MAX_LINES, MAX_METHODS = 400, 25
#: Files and classes ("path:Class") that may be larger, with the number of the decision that says why.
LARGER: dict[str, str] = {}


def _too_large() -> set[str]:
    found = set()
    for path in python_files(*PACKAGES):
        source, name = path.read_text(), str(path.relative_to(ROOT))
        if source.count("\n") > MAX_LINES:
            found.add(name)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
                if methods > MAX_METHODS:
                    found.add(f"{name}:{node.name}")
    return found


def test_files_and_classes_are_small() -> None:
    """At most 400 lines and 25 methods, but for those that a decision speaks of; that list has no other entries."""
    assert _too_large() == set(LARGER)
    decisions = {path.name.partition("-")[0] for path in (ROOT / "docs").rglob("decisions/*.md")}
    assert set(LARGER.values()) <= decisions
