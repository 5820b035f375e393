"""A public name has one meaning: who reads it in an import knows which thing it is. A local says what it holds."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from support.repository import PACKAGES, python_files

#: How many modules may have the same file name: mostly one kind of thing as object, as value and as picture or command.
MAX_MODULES = 3

#: Names of classes that stand more than once, and why.
SAME_CLASS: dict[str, str] = {
    "Pod": "a pod in the core, and what the extender and the command line decode of one",
}

#: File names that stand more often than ``MAX_MODULES``, and why.
SAME_FILE: dict[str, str] = {
    "constraints": "of policies: read, as values, counted in domains, and shown by the demo",
    "errors": "what a package raises, in each package",
    "gangs": "read, as values, as a reason to wait, and as a picture",
    "state": "what a part reads and changes while it decides, in each part",
}

#: Names of variables and parameters that say nothing of what they hold.
EMPTY_NAMES = frozenset({"at", "found", "mine", "one", "other", "ours", "theirs", "there"})

#: Names that will do in a comprehension or a lambda, where the noun stands beside them.
SHORT_LIVED_NAMES = frozenset({"each"})

_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def public_classes(paths: Iterable[Path]) -> Mapping[str, list[Path]]:
    """Name of a public class at the top of a module -> the modules."""
    classes: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(path)
    return classes


def repeated(names: Mapping[str, list[Path]], most: int) -> set[str]:
    """Names that stand more often than this."""
    return {name for name, paths in names.items() if len(paths) > most}


def test_a_public_class_has_its_name_alone() -> None:
    """A second class of a name needs an entry that says why both may have it, and entries do not outlive their use."""
    assert repeated(public_classes(python_files(*PACKAGES)), 1) == set(SAME_CLASS)


def test_few_modules_have_the_same_file_name() -> None:
    """Names such as ``limits`` say nothing outside their folder."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in python_files(*PACKAGES):
        if path.stem not in ("__init__", "__main__"):
            files[path.stem].append(path)
    assert repeated(files, MAX_MODULES) == set(SAME_FILE)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ("class Outcome: ...", {"Outcome"}),
        ("class _Outcome: ...", set[str]()),
        ("def f():\n    class Outcome: ...", set[str]()),
    ],
)
def test_only_public_classes_of_modules_count(tmp_path: Path, other: str, names: set[str]) -> None:
    """A class that its module keeps for itself may be called like others."""
    for number, text in enumerate(("class Outcome: ...", other)):
        (tmp_path / f"module_{number}.py").write_text(text)
    assert repeated(public_classes(tmp_path.glob("*.py")), 1) == names


def empty_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable or parameter whose name says nothing."""
    short_lived = {
        id(node)
        for short in ast.walk(tree)
        if isinstance(short, _COMPREHENSION | ast.Lambda)
        for node in ast.walk(short)
        if isinstance(node, ast.Name | ast.arg)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                if name in EMPTY_NAMES or (name in SHORT_LIVED_NAMES and id(node) not in short_lived):
                    yield node.lineno, name


def test_a_local_says_what_it_holds() -> None:
    """A pod, a node, a row or a demand has that name, also as a loop's variable."""
    empty = [
        f"{path}:{line}: {name}"
        for path in python_files(*PACKAGES)
        for line, name in empty_names(ast.parse(path.read_text()))
    ]
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = f()", ["found"]),
        ("for at, pod in pods: ...", ["at"]),
        ("def f(other): ...", ["other"]),
        ("for each in pods: ...", ["each"]),
        ("x = [each.name for each in pods]", []),
        ("x = sorted(pods, key=lambda each: each.name)", []),
        ("x = [at for at in rows]", ["at"]),
        ("x.found = f(other=1)", []),
    ],
)
def test_names_that_say_nothing_are_seen(source: str, names: list[str]) -> None:
    """``each`` will do where its noun stands beside it; attributes and keywords belong to the thing that has them."""
    assert [name for _, name in empty_names(ast.parse(source))] == names
