"""The keys of each `-o json`: scripts read them, so they stay, and the page has what commands print."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import json_answers
import pytest
from support.cli import node, pod, thalweg
from support.repository import ROOT

PAGE = (ROOT / "docs/reference/json-output.md").read_text()


def test_keys_stay() -> None:
    """Whoever takes a key away, or calls it something else, breaks scripts: CHANGELOG says so, and then this file."""
    known, stored = set(json_answers.lines()), set(json_answers.STORED.read_text().splitlines())
    assert stored - known == set(), f"keys are gone that scripts may read; if that is meant: {json_answers.STORED}"
    assert known - stored == set(), "run: python docs/generate.py"


def documented(command: str) -> dict[str, str]:
    """Path -> type of each key of a command, as the page has them."""
    part = PAGE.split(f"### thalweg {command}\n")[1].split("\n### ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", part, re.MULTILINE))


def paths(value: Any, kinds: dict[str, str], path: str = "") -> Iterator[str]:
    """The paths of all keys of a value; names of objects by name are NAME."""
    if kinds.get(path, "") in ("any", "list of any", "any by name", "object by name"):
        return
    if isinstance(value, list):
        for each in value:
            yield from paths(each, kinds, f"{path}[]")
    elif isinstance(value, dict) and kinds.get(path, "").endswith("by name"):
        for each in value.values():
            yield from paths(each, kinds, f"{path}.NAME")
    elif isinstance(value, dict):
        for name, each in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from paths(each, kinds, here)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pod that is preempted, one that waits, a gang that lacks room, and one behind a gate."""
    gang = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "2"}
    train = [pod(f"t{at}", "3", metadata={"name": f"t{at}", "namespace": "ml", "annotations": gang}) for at in range(2)]
    objects = [
        node("a"),
        node("b", "1"),
        pod("low", "4", nodeName="a", priority=0, status={"phase": "Running"}),
        pod("urgent", "4", priority=9),
        pod("large", "9"),
        pod("gated", schedulingGates=[{"name": "example.com/wait"}]),
        *train,
    ]
    path = tmp_path_factory.mktemp("dump") / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plan", ("plan",)),
        ("plan", ("plan", "--compare", "--nodes")),
        ("why", ("why", "large")),
        ("why POD --nodes", ("why", "large", "--nodes")),
        ("why --nodes", ("why", "--nodes")),
        ("what-if", ("what-if", "--drain", "b")),
        ("headroom", ("headroom", "--cpu", "1")),
        ("network", ("network",)),
        ("status", ("status", "--pods")),
        ("audit", ("audit",)),
        ("audit --apply", ("audit", "--apply", "WaitingPods", "--dry-run")),
    ],
)
def test_the_page_has_what_commands_print(command: str, words: tuple[str, ...], dump: Path) -> None:
    """No key is printed that the page lacks."""
    done = thalweg(*words, "-f", dump, "-o", "json")
    assert done.returncode == 0, done.stderr
    kinds = documented(command)
    printed = set(paths(json.loads(done.stdout), kinds))
    assert printed - kinds.keys() == set()
    assert printed
