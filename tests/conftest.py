"""Settings of all tests: the two tiers, hypothesis' profiles, and the order of the files.

The default tier is what `python -m pytest` runs. `-m slow` runs the other one: the folders of `_SLOW`, single tests
that are marked slow, and the tests of all other folders that draw once more, with all their draws.

Some processes run the tests. Each takes a group of files at a time: those that want the same control plane, so that it
is started once and none stands idle beside another one like it; every other file alone. The control plane is built
before the processes start, where progress can be seen. Groups that compute alternate with those that wait.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test
from support import collecting
from support.controlplane import build_in_sight
from support.file_groups import GroupScheduling, group_of
from support.profiles import FULL, QUICK, is_exploring, is_quick, register_profiles

# Tests start hundreds of processes. Where Python may keep no bytecode, as in many images, each would compile anew all
# that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The API servers, etcds and commands of the tests, which are Go's, collect garbage later: a sixth less CPU time for
# about 100 MB more each.
os.environ.setdefault("GOGC", "200")

#: Folders of tests that are all slow.
_SLOW = {"bench", "browser", "chart", "controlplane", "e2e", "faults", "install", "oracle", "visible"}
#: Folders of tests that want the control plane's executables.
_REAL = {"chart", "controlplane", "e2e", "faults", "install", "oracle", "release", "smoke"}
#: Folders of tests that mostly wait for a control plane.
_WAITING = {"chart", "e2e", "faults", "visible"}
#: Fixtures for which a tool is built from source where it is missing. No test's limit of seconds is about that.
_BUILT = {"binaries", "executable", "helm", "kubectl", "promtool"}
#: Folders among the others with files that take a minute or more. They come first, in this order.
_LONGEST = ("smoke", "install", "browser", "controlplane", "oracle")
#: Files that take some minutes in the slow tier. They come before all others: no process is alone with one at the end.
_LONG_FILES = {
    "core/test_shares_over_time.py",
    "e2e/test_upstream_suites.py",
    "operator/test_histories.py",
    "operator/test_memory.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of single tests."""
    parser.addoption("--soak-minutes", type=float, default=0.5, help="how long tests/faults/test_soak.py churns")


def pytest_configure(config: pytest.Config) -> None:
    """Before modules are imported: they ask how many examples to draw. `--hypothesis-profile` is heeded after this."""
    register_profiles(FULL if _is_slow_tier(config) else QUICK)
    config.pluginmanager.register(collecting)
    _check_paths(config)


def _check_paths(config: pytest.Config) -> None:
    """Refuses a path that does not exist: with several processes pytest would run no test and print no error."""
    folder = config.invocation_params.dir
    for argument in () if config.option.pyargs else config.args:
        if not (folder / argument.split("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {argument}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Says why a run has no test: with several processes pytest itself says nothing of a name that no test has."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not hasattr(session.config, "workerinput"):
        print(f"\nERROR: no test was found for {' '.join(session.config.args)}")  # noqa: T201


@pytest.fixture(autouse=True)
def _said_in_full(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in what is said of a plan is an error, but for tests that ask what it costs: those marked unsaid."""
    if request.node.get_closest_marker("unsaid") is None:
        from flowcore.planning.saying import Guarded

        monkeypatch.setattr(Guarded, "__call__", lambda _guard, _what, compute, _otherwise: compute())


def _is_slow_tier(config: pytest.Config) -> bool:
    """Whether `-m` chooses slow tests."""
    chosen: str = config.option.markexpr
    return "slow" in chosen and "not slow" not in chosen


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The default tier does not import a folder of slow tests that nobody named."""
    if collection_path.parent != Path(__file__).parent or collection_path.name not in _SLOW:
        return None
    named = any(collection_path.name in Path(argument).parts for argument in config.args)
    return True if "not slow" in config.option.markexpr.split(" and ") and not named else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the processes start: what they print is not shown."""
    parts = {part for argument in config.args for part in Path(argument.split("::")[0]).parts}
    if parts & _REAL or Path(config.args[0]).resolve() in (config.rootpath, config.rootpath / "tests"):
        build_in_sight(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Groups of files, not single ones."""
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the slow tests, before `-m` chooses, and puts the files into an order."""
    for item in items:
        # A module that asks `is_quick` draws more in the slow tier, too.
        draws = is_hypothesis_test(getattr(item, "obj", None)) or _asks_is_quick(item)
        draws_many = draws and _is_slow_tier(config)
        if _folder(item.path) in _SLOW or draws_many:
            item.add_marker("slow")
        if is_exploring():
            item.add_marker(pytest.mark.timeout(0))
        elif draws_many or _BUILT & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(3600))
    _alternate(items)


def _asks_is_quick(item: pytest.Item) -> bool:
    return getattr(getattr(item, "module", None), "is_quick", None) is is_quick


def _folder(path: Path) -> str:
    """The folder of tests/ that a file is in."""
    return path.relative_to(Path(__file__).parent).parts[0]


def _alternate(items: list[pytest.Item]) -> None:
    """Groups that wait are spread evenly over those that compute; within a group the order stays.

    Of those that wait, groups of many tests come first. Groups that wait end a little before the others: at the end no
    process is alone with a long one.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group_of(item.path), []).append(item)
    folders = {group: _folder(tests[0].path) for group, tests in groups.items()}
    waiting = [group for group in groups if folders[group] in _WAITING]
    others = [group for group in groups if folders[group] not in _WAITING]
    root = Path(__file__).parent
    long = {group for group, tests in groups.items() if tests[0].path.relative_to(root).as_posix() in _LONG_FILES}
    waiting.sort(key=lambda group: (group not in long, -len(groups[group])))
    others.sort(key=lambda group: (group in long, [folders[group] == each for each in _LONGEST]), reverse=True)
    places = {group: 0.9 * number / len(waiting) for number, group in enumerate(waiting)}
    places |= {group: number / len(others) for number, group in enumerate(others)}
    items[:] = [item for group in sorted(groups, key=places.__getitem__) for item in groups[group]]
