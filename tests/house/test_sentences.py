"""No code reads a sentence that people read: a field or a code beside it says the same."""

import ast
import re
from collections.abc import Iterator

import pytest
from support.repository import PACKAGES, ROOT, python_files

#: Names of what holds a sentence.
_SENTENCE = re.compile(r"(?:^|_)(?:reason|problem|message|sentence)$")
#: Ways to read a part of a text.
_READERS = frozenset(
    {"count", "endswith", "find", "index", "partition", "removeprefix", "rpartition", "split", "startswith"}
)

#: Functions that read sentences, and why.
ALLOWED = {
    "operator/thalweg_operator/delivery/evictor.py: _is_of_pod": "the API server's own sentence",
}


def _holds_sentence(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _SENTENCE.search(name) is not None


def _reads(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn()], comparators=[text]):
            return _holds_sentence(text)
        case ast.Call(func=ast.Attribute(value=_, attr="partition"), args=[ast.Constant(value="\n")]):
            return False  # the first line
        case ast.Call(func=ast.Attribute(value=text, attr=name)):
            return name in _READERS and _holds_sentence(text)
    return False


def readers(source: str) -> Iterator[str]:
    """The functions that read a part of a sentence."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_reads, ast.walk(function))):
            yield function.name


def test_no_code_reads_a_sentence() -> None:
    """Who words a reason better changes nothing else."""
    reading = {
        f"{path.relative_to(ROOT)}: {name}" for path in python_files(*PACKAGES) for name in readers(path.read_text())
    }
    assert reading == set(ALLOWED)


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ('"gates" in pod.blocked_reason', True),
        ('reason.startswith("it is held")', True),
        ('field, _, rest = topology.problem.partition(": ")', True),
        ('first = reason.partition("\\n")[0]', False),
        ('"x" in texts', False),
        ("reason in REASONS", False),
    ],
)
def test_what_reads_a_sentence(line: str, reads: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """To take the first line of several is none."""
    assert list(readers(f"def f():\n    {line}")) == (["f"] if reads else [])
