"""Policies and queues of an older version: they are taken, each field that left is named, and pods are planned."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.cli import by_pod, node, pod, to_yaml
from support.older_objects import OLDER_OBJECTS, kept_fields, told_of
from thalweg.dumps.policy_schema import checked_spec
from thalweg.main import main


@pytest.mark.parametrize("name", ["has-all", "has-none"])
def test_pods_of_an_older_policy_are_planned(tmp_path: Path, name: str) -> None:
    """With a warning for each field that left, and none for those that have the default which they had."""
    path = tmp_path / "dump.yaml"
    waiting: Any = pod("p", schedulerName="thalweg")
    waiting["metadata"]["labels"] = {"tier": name}
    path.write_text(to_yaml(node("a"), waiting, *OLDER_OBJECTS))
    done = CliRunner().invoke(main, ["plan", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    plan = by_pod(done.stdout)
    assert plan["placements"] == {"default/p": "a"}
    ignored = [each for each in plan["warnings"] if " is ignored since " in each]
    assert ignored == [f"{path}: FlowSchedulingPolicy has-all: {sentence}" for sentence in told_of("has-all")]


def test_older_objects_are_valid() -> None:
    """As they are stored: the schema still has each field that left, and they have each of these."""
    for each in OLDER_OBJECTS:
        assert checked_spec(each).keys() >= each["spec"].keys()
    assert [sentence.split(" is ignored since ")[0] for sentence in told_of("has-all")] == kept_fields()
    assert told_of("has-none") == []
