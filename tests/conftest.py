"""Settings of all tests: hypothesis' profiles, the marker `fast`, and the order of the files.

Four processes run the tests, a file at a time each. The control plane is built before they start, where progress can
be seen, and files of tests that compute alternate with those that wait for a control plane.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test
from support.controlplane import build_in_sight
from support.profiles import is_exploring, register_profiles

register_profiles()
# Tests start hundreds of processes. Where Python may keep no bytecode, as in many images, each would compile anew all
# that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The API servers, etcds and commands of the tests, which are Go's, collect garbage later: a sixth less CPU time for
# about 100 MB more each.
os.environ.setdefault("GOGC", "200")

#: Folders of tests that may be `fast`: they need neither a control plane nor a whole run of a command.
_FAST = {"core", "docs", "extender", "house", "operator"}
#: Their files that take more than five seconds: they wait for sockets and processes, or compare thousands of cases.
_LONG = {
    "core/test_ageing.py",
    "core/test_holding.py",
    "extender/test_listener.py",
    "operator/test_cost_models.py",
    "operator/test_dead_api.py",
    "operator/test_memory.py",
    "operator/test_reflector.py",
    "operator/test_sick_api.py",
    "operator/test_sick_policies.py",
    "operator/test_unknown_pods.py",
    "operator/test_verdict_cache.py",
    "operator/test_worker_limits.py",
    "operator/test_write_queue.py",
}
#: Folders of tests that want the control plane's executables.
_REAL = {"chart", "cli", "controlplane", "e2e", "faults", "oracle", "visible"}
#: Folders of tests that mostly wait for a control plane.
_WAITING = {"chart", "e2e", "faults", "visible"}
#: Folders among the others with files that take a minute or more. They come first.
_LONGEST = {"install", "browser", "controlplane", "oracle", "cli"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of single tests."""
    parser.addoption("--soak-minutes", type=float, default=0.5, help="how long tests/faults/test_soak.py churns")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the processes start: what they print is not shown."""
    if config.option.markexpr == "fast":
        return
    parts = {part for argument in config.args for part in Path(argument.split("::")[0]).parts}
    if parts & _REAL or Path(config.args[0]).resolve() in (config.rootpath, config.rootpath / "tests"):
        build_in_sight(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the fast tests, before `-m` chooses, and puts the files into an order."""
    for item in items:
        if _is_fast(item):
            item.add_marker("fast")
        if is_exploring():
            item.add_marker(pytest.mark.timeout(0))
    _alternate(items)


def _is_fast(item: pytest.Item) -> bool:
    """Whether a test belongs to the inner loop: it draws nothing, needs no control plane, and its file is not long."""
    path = item.path.relative_to(Path(__file__).parent)
    if path.parts[0] not in _FAST or path.as_posix() in _LONG or item.get_closest_marker("slow"):
        return False
    return not ("binaries" in getattr(item, "fixturenames", ()) or is_hypothesis_test(getattr(item, "obj", None)))


def _alternate(items: list[pytest.Item]) -> None:
    """Files that wait are spread evenly over those that compute; within a file the order stays.

    Of those that wait, files that want the same control plane follow each other: tests/e2e/conftest.py keeps one at a
    time. Before them come those that start their own, which take longest. Files that wait end a little before the
    others: at the end no process is alone with a long one.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    here = Path(__file__).parent
    waiting = [path for path in files if path.relative_to(here).parts[0] in _WAITING]
    others = [path for path in files if path not in waiting]
    waiting.sort(key=lambda path: ("e2e" in path.parts, _plane_of(files[path][0])))
    others.sort(key=lambda path: path.relative_to(here).parts[0] not in _LONGEST)
    places = {path: 0.9 * number / len(waiting) for number, path in enumerate(waiting)}
    places |= {path: number / len(others) for number, path in enumerate(others)}
    items[:] = [item for path in sorted(files, key=places.__getitem__) for item in files[path]]


def _plane_of(item: pytest.Item) -> tuple[bool, bool, str]:
    """What a file says about the control plane that it wants; last come those that nobody can use afterwards."""
    module = getattr(item, "module", None)
    options = sorted(getattr(module, "PLANE", {}).items())
    return hasattr(module, "BREAKS_PLANE"), hasattr(module, "STEERED"), str(options)
