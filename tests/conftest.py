"""Settings of all tests: the two tiers, hypothesis' profiles, and the order of the files.

The default tier is what `python -m pytest` runs. `-m slow` runs the other one: the folders of `_SLOW`, single tests
that are marked slow, and the property tests of all other folders once more, with all their examples.

Some processes run the tests, a file at a time each. The control plane is built before they start, where progress can be
seen, and files of tests that compute alternate with those that wait for a control plane.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test
from support.controlplane import build_in_sight
from support.profiles import FULL, QUICK, is_exploring, register_profiles

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
_REAL = {"chart", "controlplane", "e2e", "faults", "install", "oracle", "smoke"}
#: Folders of tests that mostly wait for a control plane.
_WAITING = {"chart", "e2e", "faults", "visible"}
#: Folders among the others with files that take a minute or more. They come first, in this order.
_LONGEST = ("smoke", "install", "browser", "controlplane", "oracle")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of single tests."""
    parser.addoption("--soak-minutes", type=float, default=0.5, help="how long tests/faults/test_soak.py churns")


def pytest_configure(config: pytest.Config) -> None:
    """Before modules are imported: they ask how many examples to draw. `--hypothesis-profile` is heeded after this."""
    register_profiles(FULL if _is_slow_tier(config) else QUICK)


def _is_slow_tier(config: pytest.Config) -> bool:
    """Whether `-m` chooses slow tests."""
    chosen: str = config.option.markexpr
    return "slow" in chosen and "not slow" not in chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the processes start: what they print is not shown."""
    parts = {part for argument in config.args for part in Path(argument.split("::")[0]).parts}
    if parts & _REAL or Path(config.args[0]).resolve() in (config.rootpath, config.rootpath / "tests"):
        build_in_sight(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the slow tests, before `-m` chooses, and puts the files into an order."""
    for item in items:
        draws = is_hypothesis_test(getattr(item, "obj", None))
        if _folder(item.path) in _SLOW or (draws and _is_slow_tier(config)):
            item.add_marker("slow")
        if is_exploring():
            item.add_marker(pytest.mark.timeout(0))
    _alternate(items)


def _folder(path: Path) -> str:
    """The folder of tests/ that a file is in."""
    return path.relative_to(Path(__file__).parent).parts[0]


def _alternate(items: list[pytest.Item]) -> None:
    """Files that wait are spread evenly over those that compute; within a file the order stays.

    Of those that wait, files that want the same control plane follow each other: tests/e2e/conftest.py keeps one at a
    time. Before them come those that start their own, which take longest. Files that wait end a little before the
    others: at the end no process is alone with a long one.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if _folder(path) in _WAITING]
    others = [path for path in files if path not in waiting]
    waiting.sort(key=lambda path: ("e2e" in path.parts, _plane_of(files[path][0])))
    others.sort(key=lambda path: [_folder(path) == each for each in _LONGEST], reverse=True)
    places = {path: 0.9 * number / len(waiting) for number, path in enumerate(waiting)}
    places |= {path: number / len(others) for number, path in enumerate(others)}
    items[:] = [item for path in sorted(files, key=places.__getitem__) for item in files[path]]


def _plane_of(item: pytest.Item) -> tuple[bool, bool, str]:
    """What a file says about the control plane that it wants; last come those that nobody can use afterwards."""
    module = getattr(item, "module", None)
    options = sorted(getattr(module, "PLANE", {}).items())
    return hasattr(module, "BREAKS_PLANE"), hasattr(module, "STEERED"), str(options)
