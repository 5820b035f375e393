"""One word for one thing: no name and no sentence falls back to a word that the code gave up."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import PACKAGES, ROOT, pages, python_files
from support.retired_words import NAMES, PARTS, PROSE

#: The tables themselves, and these tests.
_OURSELVES = {ROOT / "tests/support/retired_words.py", Path(__file__)}
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_RETIRED_PARTS = {word: instead for words, instead in PARTS.items() for word in words.split()}
_RETIRED_PROSE = re.compile("|".join(rf"(?P<p{at}>\b(?:{words})\b)" for at, words in enumerate(PROSE)), re.IGNORECASE)
_INSTEAD = tuple(PROSE.values())
#: Finds some text in each text that has a retired word, in a tenth of the time.
_SUSPECT = re.compile("|".join(PROSE))


def files() -> list[Path]:
    """All Python of the repository: packages, benches and tests."""
    return [path for path in python_files(*PACKAGES, "bench", "tests") if path not in _OURSELVES]


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Names, attributes, parameters, keywords, functions and classes with their lines; no imports of others' names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("test_"):
                    yield node.lineno, name
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and the names of tests, with their first lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


@functools.cache
def retired_name(name: str) -> str:
    """What to write instead of an identifier; empty for a good one."""
    bare = name.lstrip("_")
    if bare in NAMES:
        return NAMES[bare]
    return next((_RETIRED_PARTS[word] for each in _WORD.findall(bare) if (word := each.lower()) in _RETIRED_PARTS), "")


def retired_prose(text: str) -> Iterator[tuple[str, str]]:
    """Retired words of a text, and what to write instead."""
    for match in _RETIRED_PROSE.finditer(text):
        assert match.lastgroup is not None
        yield match.group(), _INSTEAD[int(match.lastgroup[1:])]


def complaint(path: Path, line: int, word: str, instead: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: `{word}`: write {instead}"


def test_no_identifier_is_retired() -> None:
    """Neither a name within a module nor the module's own."""
    found = []
    for path in files():
        modules = [(1, part) for part in path.relative_to(ROOT).with_suffix("").parts]
        text = path.read_text()
        # Reading names takes long, and most files have no such word anywhere.
        suspect = any(map(retired_name, set(_IDENTIFIER.findall(text))))
        for line, name in [*modules, *(identifiers(text) if suspect else ())]:
            if instead := retired_name(name):
                found.append(complaint(path, line, name, instead))
    assert not found, "\n".join(found)


def test_no_sentence_uses_a_retired_word() -> None:
    """Of comments, docstrings, names of tests, and pages."""
    found = []
    for path in [*files(), *pages()]:
        text = path.read_text()
        if not _SUSPECT.search(text.replace("_", " ").lower()):
            continue  # reading comments and docstrings takes long
        lines = sentences(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)
        for line, sentence in lines:
            found += [complaint(path, line, word, instead) for word, instead in retired_prose(sentence)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class _Tolls: pass", ["_Tolls"]),
        ("def by_tolls(toll): return TOLL_BYTES", ["by_tolls", "toll", "TOLL_BYTES"]),
        ("x.neighbours = f(neighbours=1)", ["neighbours", "neighbours"]),
        ("import a as keeper", ["keeper"]),
        ("class Room: pass", ["Room"]),
        ("left_alone = 1", ["left_alone"]),
        ("tolled = roomy = Rooms = left_alone_again = LargeNeighbourhoodSearch", []),
    ],
)
def test_names_of_all_kinds_are_read(source: str, names: list[str]) -> None:
    """Whole names by `NAMES`; words within names by `PARTS`, whatever the case and the underscores."""
    assert sorted(name for _, name in identifiers(source) if retired_name(name)) == sorted(names)


def test_sentences_are_read_wherever_they_stand() -> None:
    """In comments, docstrings and names of tests, not in strings: these may be texts of others."""
    source = 'def test_a_hitch():\n    """The Keeper."""\n    x = "hitch"  # the how manyth\n'
    words = [word for _, text in sentences(source) for word, _ in retired_prose(text)]
    assert words == [
        "how manyth",
        "Keeper",
        "hitch",
    ]
