"""What the first screen of README shows is what the commands print."""

import re

from support.cli import thalweg
from support.repository import ROOT

README = (ROOT / "README.md").read_text()


def shown_after(command: str) -> list[str]:
    """The lines of the block after the block with a command, without the spaces that end them."""
    found = re.search(rf"```sh\n[^`]*{re.escape(command)}[^`]*```\s+```\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README shows nothing after {command}"
    return [line.rstrip() for line in found[1].splitlines()]


def printed(*words: str) -> list[str]:
    """The lines that a command prints."""
    done = thalweg(*words)
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_the_gang() -> None:
    """It is the first scene of the demo."""
    lines, scene = printed("demo"), shown_after("thalweg demo")
    begin = lines.index(scene[0])
    assert lines[begin : begin + len(scene)] == scene
    assert lines[begin + len(scene)] == ""


def test_why_a_pod_waits() -> None:
    """It is of a typing error in a selector."""
    assert printed("why", "deployment/shop/cart", "-f", str(ROOT / "examples/typo.yaml")) == shown_after(
        "thalweg why deployment/shop/cart -f examples/typo.yaml"
    )


def test_the_first_screen_is_short() -> None:
    """Two outputs stand on the first 45 lines, after three sentences."""
    first = README.split("\n## ")[0]
    assert first.count("```sh") == 2
    assert len(first.splitlines()) <= 45
    sentences = first.split("```sh")[0].split("See it without")[0].removeprefix("# Thalweg").replace("*", "").strip()
    assert len(re.findall(r"\.(?:\s|$)", sentences)) == 3
