"""`thalweg uninstall` where it cannot begin; what it does is tried on a real API server (tests/e2e)."""

import json
from pathlib import Path

import pytest
from support.cli import thalweg
from support.operator import free_address


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of an API server that is not there."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://{free_address()}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def test_an_api_server_that_is_not_there(kubeconfig: Path) -> None:
    """One line and exit code 1, at once."""
    done = thalweg("uninstall", "--kubeconfig", kubeconfig, "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: GET /version: cannot connect to 127.0.0.1")
    assert "--force" not in done.stderr


def test_lists_and_patches_are_two_questions(kubeconfig: Path) -> None:
    """Each removes nothing, so neither asks for confirmation; together they are refused."""
    for words in (("--list",), ("--patches", "default-scheduler")):
        done = thalweg("uninstall", "--kubeconfig", kubeconfig, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Remove" not in done.stderr
    done = thalweg("uninstall", "--kubeconfig", kubeconfig, "--list", "--patches", "default-scheduler")
    assert done.returncode == 2
    assert "give --list or --patches, not both" in done.stderr


def test_patches_for_no_scheduler_remove_nothing(kubeconfig: Path) -> None:
    """As `--patches "$SCHEDULER"` with a variable that is not set: it is no order to uninstall."""
    done = thalweg("uninstall", "--kubeconfig", kubeconfig, "--yes", "--patches", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--patches: name the scheduler" in done.stderr


@pytest.mark.parametrize("command", ["run", "uninstall"])
@pytest.mark.parametrize("lease", ["thalweg", "/thalweg", "kube-system/", "a/b/c", "Kube/x"])
def test_a_lease_that_is_no_name(kubeconfig: Path, command: str, lease: str) -> None:
    """The option is named, and what it takes."""
    done = thalweg(command, "--kubeconfig", kubeconfig, "--lease", lease)
    assert done.returncode == 2
    assert f'"{lease}" is not NAMESPACE/NAME' in done.stderr
