"""No module imports itself by way of others, in no package: what a file needs can be read before it."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.repository import PACKAGES, python_files


def _name(path: Path) -> str:
    """The module of a file, as its package is imported."""
    parts, folder = [] if path.stem == "__init__" else [path.stem], path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _imports(path: Path, modules: frozenset[str]) -> Iterator[str]:
    """Modules of ours that a file imports anywhere: within functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in modules or node.module in modules:
                    yield name if name in modules else node.module


def circle(files: dict[str, Path]) -> list[str]:
    """Modules that import each other in a circle; none: there is no circle."""
    modules = frozenset(files)
    # A package's own file may name what is in it: importing that file is no use of these modules.
    graph = {name: set(_imports(path, modules)) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_there_is_no_circle() -> None:
    """Imports under TYPE_CHECKING count: they hold together what should be apart."""
    files = {_name(path): path for path in python_files(*PACKAGES)}
    assert len(files) > 500
    assert not circle(files)


@pytest.mark.parametrize("back", ["import pack.a", "if TYPE_CHECKING:\n    from pack.a import x", "from pack import a"])
def test_a_circle_is_found(tmp_path: Path, back: str) -> None:
    """Also one that no interpreter would stumble over."""
    package = tmp_path / "pack"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from pack.b import y",
        "b": f"from typing import TYPE_CHECKING\n{back}",
    }.items():
        (package / f"{name}.py").write_text(text)
    assert set(circle({_name(path): path for path in package.glob("*.py")})) == {"pack.a", "pack.b"}
