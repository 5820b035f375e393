"""The forge's workflow: it is well formed, what it calls exists, and it can do no more than it must."""

import re
import tomllib
from typing import Any

import pytest
import yaml
from support.repository import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS: dict[str, dict[Any, Any]] = {path.name: yaml.safe_load(path.read_text()) for path in FILES}
#: A file of the repository in a shell line of the workflow.
OURS = re.compile(r"(?:^|[\s\"'])((?:\.ci|tools|image|docs|view|bench)/[\w./-]+)")


def steps() -> list[dict[str, Any]]:
    """All steps of all jobs."""
    return [step for flow in WORKFLOWS.values() for job in flow["jobs"].values() for step in job["steps"]]


def commands() -> str:
    return "\n".join(step.get("run", "") for step in steps())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_are_well_formed(name: str) -> None:
    """Each job says where it runs and how long at most; each step runs a command or an action; needed jobs exist."""
    flow = WORKFLOWS[name]
    assert flow.keys() == {"name", True, "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    for job in flow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"] <= 90
        assert {job["needs"]} <= flow["jobs"].keys() if "needs" in job else True
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)


def test_every_script_that_it_calls_exists() -> None:
    """The scripts of the repository are called, and no file that is not there."""
    called = set(OURS.findall(commands()))
    assert called == {".ci/run", "tools/release.py", "tools/publish.py"}
    assert all((ROOT / name).is_file() for name in called)


def test_extras_that_it_installs_exist() -> None:
    """Pip only warns of an extra that a project does not have."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for group in re.findall(r"'\.\[(.*?)\]'", commands()) for extra in group.split(",")}
    assert named == {"release", "up"}
    assert named <= known.keys()


def test_actions_are_pinned() -> None:
    """By commit, with the version beside it: a tag can be moved."""
    used = re.findall(r"^\s*-? ?uses: (.*)$", "\n".join(path.read_text() for path in FILES), re.MULTILINE)
    assert len(used) == len([step for step in steps() if "uses" in step])
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_rights_are_few() -> None:
    """Only the job that releases may write, and no checkout leaves a login on the disk."""
    for flow in WORKFLOWS.values():
        assert flow["permissions"] == {"contents": "read"}
        for name, job in flow["jobs"].items():
            expected = {"contents": "write", "packages": "write"} if name == "release" else None
            assert job.get("permissions") == expected
    for step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_no_expression_is_part_of_a_command() -> None:
    """What others can name (a branch, a title) reaches a shell as a variable only."""
    assert "${{" not in commands()


def test_a_release_needs_a_tag_and_the_checks() -> None:
    """The registry's name comes from the repository: no owner is written down."""
    job = WORKFLOWS["release.yml"]["jobs"]["release"]
    assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert job["needs"] == "check"
    assert "GITHUB_REPOSITORY=$GITHUB_REPOSITORY" in commands()
    assert not re.search(r"ghcr\.io/", commands())
