"""Commands under the names that they had: they work and say the new name, and no help lists them."""

import json
from pathlib import Path

import pytest
from support.cli import node, pod, thalweg
from thalweg.commands.old_names import OLD_NAMES
from thalweg.main import main

#: Words of an old command, and of the new one.
SAME = [
    (("simulate",), ("plan",)),
    (("explain",), ("why", "--nodes")),
    (("explain", "q"), ("why", "q", "--nodes")),
    (("top",), ("status",)),
]
NOW = {"simulate": "plan", "explain": "why --nodes", "top": "status --watch"}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("a", "1"), pod("p"), pod("q", "5")]}))
    return path


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(("old", "new"), SAME, ids=lambda words: words[0])
def test_an_old_name_does_what_the_new_one_does(
    old: tuple[str, ...], new: tuple[str, ...], output: str, dump: Path
) -> None:
    """The same on standard output, which programs read; the new name is on standard error, in one line."""
    before, now = (thalweg(*words, "-f", dump, "-o", output) for words in (old, new))
    assert (before.returncode, now.returncode, now.stderr) == (0, 0, "")
    assert _timeless(before.stdout) == _timeless(now.stdout)
    assert before.stderr.startswith(f"Note: thalweg {old[0]} is now thalweg {new[0]}")
    assert before.stderr.count("\n") == 1


def _timeless(text: str) -> object:
    return {**found, "seconds": 0} if text[:1] == "{" and "seconds" in (found := json.loads(text)) else text


@pytest.mark.parametrize(("old", "now"), NOW.items())
def test_an_old_names_help_and_errors_are_those_of_the_new_one(old: str, now: str) -> None:
    """Who reads them learns the new name; an option that the user did not give is not blamed."""
    new = now.split(maxsplit=1)[0]
    shown = " ".join(thalweg(old, "--help").stdout.split())
    assert f"thalweg {old} is now thalweg {now}" in shown
    assert f"thalweg {new} [OPTIONS] " in shown
    done = thalweg(old, "--no-such-option")
    assert done.returncode == 2
    assert f"thalweg {new} --help' for help." in done.stderr
    done = thalweg(old, "--server", "https://view.example", "--server-ca", "none")
    assert done.returncode == 2
    assert "--direct" not in done.stderr
    assert "--nodes asks" not in done.stderr


def test_simulate_lists_one_namespace_if_asked(dump: Path) -> None:
    """It has the pods of all namespaces unless one is named."""
    answer = json.loads(thalweg("simulate", "-f", dump, "-n", "other", "-o", "json").stdout)
    assert answer["waiting"] == []


def test_no_help_lists_old_names() -> None:
    """Each of them has a case here."""
    listed = thalweg("--help").stdout
    for command in OLD_NAMES:
        assert main.commands[str(command.name)] is command
        assert f"\n  {command.name} " not in listed
        assert f"thalweg {command.name} " not in listed
    assert {old[0] for old, _ in SAME} == {command.name for command in OLD_NAMES}
