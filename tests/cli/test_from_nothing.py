"""Commands in a process that has imported nothing yet; other tests fork them from one that has (support/cli.py)."""

import json
from typing import Any

import pytest
from support.cli import node, pod, thalweg, thalweg_from_nothing

DUMP = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a", "1"), pod("p"), pod("q")]})


@pytest.mark.parametrize(
    "words",
    [("why", "--nodes"), ("plan",), ("why", "q"), ("what-if", "--drain", "a"), ("headroom",)],
    ids=lambda words: words[0],
)
def test_the_answer_is_the_same(words: tuple[str, ...]) -> None:
    """Each imports all that it needs itself."""
    arguments = [*words, "-f", "-", "-o", "json"]
    done = thalweg_from_nothing(*arguments, stdin=DUMP)
    forked = thalweg(*arguments, stdin=DUMP)
    assert (done.returncode, done.stderr) == (0, "")
    assert _without_time(done.stdout) == _without_time(forked.stdout)


def _without_time(answer: str) -> Any:
    found = json.loads(answer)
    return {**found, "seconds": 0} if "seconds" in found else found
