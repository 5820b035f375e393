"""Settings of all tests: what hypothesis draws is the same in every run, so that a failure is everybody's.

Two processes run the tests, a file at a time each. The control plane is built before they start, where progress can be
seen, and files of tests that compute alternate with those that wait for a control plane.
"""

from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.controlplane import build_in_sight

settings.register_profile(
    "same-every-run",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
settings.load_profile("same-every-run")

#: Folders of tests that want the control plane's executables.
_REAL = {"cli", "controlplane", "e2e", "oracle"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the processes start: what they print is not shown."""
    parts = {part for argument in config.args for part in Path(argument.split("::")[0]).parts}
    if parts & _REAL or Path(config.args[0]).resolve() in (config.rootpath, config.rootpath / "tests"):
        build_in_sight(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file that computes, one that waits, and so on; within a file the order stays."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if "e2e" in path.parts]
    others = [path for path in files if "e2e" not in path.parts]
    # The long ones among the others, against the oracle, come last by name and would be alone at the end.
    pairs = zip_longest(waiting, reversed(others))
    items[:] = [item for pair in pairs for path in pair if path is not None for item in files[path]]
