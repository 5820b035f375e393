"""A hook for a conftest.py: a failing test shows what the operators said meanwhile."""

from typing import Any

import pytest
from support.operator import STARTED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A failing test shows what the operator said meanwhile."""
    report = yield
    for operator in STARTED:
        said = operator.new_log()
        if report.failed:
            report.sections.append((f"operator, during {report.when}", said[-8000:]))
    return report
