"""The commands that the pages show: options of ours exist, and kubectl is asked for what the page means."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.cli import thalweg
from thalweg.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "charts/thalweg/templates/NOTES.txt", *sorted((ROOT / "docs").rglob("*.md"))]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("*.md"))
SOURCES = "\n".join(
    path.read_text() for folder in ("operator", "extender", "cli", "flowcore") for path in (ROOT / folder).rglob("*.py")
)


def shown(name: str) -> Iterator[tuple[Path, str]]:
    """Lines of blocks and pieces of code that call a program, without their comments."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for block in re.findall(r"^ *```sh\n(.*?)^ *```|`([^`\n]+)`", text, re.MULTILINE | re.DOTALL):
            for line in "\n".join(block).splitlines():
                for part in re.split(r"[;&|]+|\$\(| # |  #", line):
                    if re.match(rf"^\s*(\S*/)?{name} ", part):
                        yield page, part.strip()


def test_our_options_exist() -> None:
    """Each --option that a page gives to a command of ours is one of that command's."""
    wrong, commands = [], set()
    for page, line in shown("thalweg"):
        words = line.split()
        command = main.commands.get(words[1]) if isinstance(main, click.Group) else None
        if command is None:
            if not words[1].startswith("-") and words[1].isalpha() and words[1].islower():
                wrong.append((page.name, line))
            continue
        commands.add(words[1])
        options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        given = [word.partition("=")[0].rstrip(".,") for word in words[2:] if word.startswith("--")]
        wrong += [(page.name, line) for option in given if option not in options]
    assert wrong == []
    assert commands >= {"run", "doctor", "uninstall", "scheduler-config", "certificates", "why"}


def test_kubectl_looks_at_all_replicas_and_asks_about_subresources() -> None:
    """`logs` and `port-forward` of a Deployment pick any one replica, and `can-i VERB KIND/X` means a name X."""
    lines = [line for _, line in shown("kubectl")]
    assert len(lines) > 40
    assert [line for line in lines if re.search(r"(logs|port-forward) \S*deploy", line)] == []
    assert [line for line in lines if " logs " in line and " -l " in line and "--tail" not in line] == []
    assert [line for line in lines if re.search(r"can-i \w+ \w+/", line)] == []


@pytest.mark.parametrize("page", RUNBOOKS, ids=[page.stem for page in RUNBOOKS])
def test_runbooks_look_for_words_that_are_written(page: Path) -> None:
    """What a runbook looks for in a log or in Events is a text of the code."""
    looked_for = re.findall(r"(?:logs|events) .* grep (?:-E |-\w+ )*'([^']+)'", page.read_text())
    words = [word for pattern in looked_for for word in pattern.split("|")]
    assert [word for word in words if word not in SOURCES] == []


STRICT = [page for page in RUNBOOKS if "strict" in page.read_text()]


@pytest.mark.parametrize("page", STRICT, ids=[page.stem for page in STRICT])
def test_runbooks_say_what_a_strict_extender_stops(page: Path) -> None:
    """Every pod of that kube-scheduler, as the file says that `scheduler-config` writes; and how to get out."""
    text = page.read_text()
    assert re.search(r"places \**no pod", text)
    assert "get-out-first" in text or "## Get out first" in text


def test_the_way_out_names_what_is_there() -> None:
    """The file of the page that connects kube-scheduler, and the line that `scheduler-config` writes."""
    way = (ROOT / "docs/runbooks/ThalwegNoLeader.md").read_text().split("## Get out first")[1].split("\n## ")[0]
    connect = (ROOT / "docs/how-to/connect-kube-scheduler.md").read_text()
    (file,) = re.findall(r"`(/etc/kubernetes/thalweg/\S+)`", way)
    assert f"--config={file}" in connect
    written = thalweg("scheduler-config", "--url", "http://127.0.0.1:1")
    assert "    ignorable: false" in written.stdout.splitlines()
    assert "NO pod of any profile is scheduled" in written.stdout
