"""The table of methods names the methods that there are."""

import ast
from pathlib import Path

from flowcore.planning.methods.table import METHODS

ROOT = Path(__file__).parents[2]
#: Functions that name the method of a plan by their first text.
_NAMING = {"completed", "_placed", "_admit", "candidate"}


def _named(path: Path) -> set[str]:
    """Texts that a module names plans by."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        stated = [keyword.value for keyword in node.keywords if keyword.arg == "method"]
        stated += node.args if called in _NAMING else []
        for value in stated:
            names |= {
                text.value for text in ast.walk(value) if isinstance(text, ast.Constant) and isinstance(text.value, str)
            }
    return names


def test_each_method_is_in_the_table() -> None:
    """By the name that its plans carry; a method that is gone is not."""
    names = set[str]()
    for path in (ROOT / "flowcore" / "planning" / "methods").glob("*.py"):
        names |= _named(path)
    assert names == set(METHODS)


def test_the_metric_names_each_method() -> None:
    """``thalweg_rounds_total`` counts rounds by it."""
    row = next(
        line
        for line in (ROOT / "docs" / "reference" / "metrics.md").read_text().splitlines()
        if line.startswith("| `thalweg_rounds_total` | `method` |")
    )
    assert all(f"`{method}`" in row for method in METHODS)
