"""Collects thousands of tests with less work: hooks of pytest.

No hooks of tests/conftest.py: pytest does not call those for the folders in tests/.
"""

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is collected stays: the garbage collector never looks at it, and it looks less often.

    Else it would go through all tests and all that they import again and again.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Each process begins elsewhere in a folder.

    In a new clone they compile what they import: together, where else each would compile all at the same time.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and "PYTEST_XDIST_WORKER" in os.environ:
        number, count = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = len(report.result) * number // count
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same order in each process all the same."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.parts)
