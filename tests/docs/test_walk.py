"""docs/explanation/how-a-pod-gets-its-node.md follows the code: its names exist, and its indented steps are calls."""

import inspect
import re
from pathlib import Path
from typing import Any

import click
import pytest
from support.named_objects import names_in, resolved

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "how-a-pod-gets-its-node.md"
TEXT = PAGE.read_text()
NAMES = names_in(TEXT)


def steps() -> list[tuple[str, str]]:
    """Caller and callee of each indented step."""
    found, above = [], list[str]()
    for line in TEXT.splitlines():
        step = re.match(r"^( *)- `([\w.]+)`", line)
        if step is None:
            above = above if line.startswith(" ") else []
            continue
        depth = len(step[1]) // 2
        above = [*above[:depth], step[2]]
        if depth:
            found.append((above[depth - 1], above[depth]))
    return found


def source(found: Any) -> str:
    """The code of a function, a class or a command."""
    return inspect.getsource(found.callback if isinstance(found, click.Command) else found)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name: str) -> None:
    """Renamed or moved functions must be renamed on the page too."""
    assert resolved(name) is not None


@pytest.mark.parametrize(("caller", "callee"), steps())
def test_every_step_calls_the_next(caller: str, callee: str) -> None:
    """The code of the upper step uses the name of the lower one."""
    assert re.search(rf"\b{callee.rpartition('.')[2]}\b", source(resolved(caller))), f"{caller} does not call {callee}"


def test_the_page_has_three_walks() -> None:
    """The tests above have something to test."""
    assert TEXT.count("\n## ") == 3
    assert len(NAMES) > 60
    assert len(steps()) > 40
