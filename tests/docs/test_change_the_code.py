"""docs/how-to/change-the-code.md names functions and tests that exist."""

import re

import pytest
from support.named_objects import names_in, resolved
from support.repository import ROOT

TEXT = (ROOT / "docs" / "how-to" / "change-the-code.md").read_text()
NAMES = names_in(TEXT)
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name: str) -> None:
    """Renamed or moved functions must be renamed on the page too."""
    assert resolved(name) is not None


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_every_test_exists(file: str, name: str) -> None:
    """So that the page's promise of what fails holds."""
    assert f"def {name}(" in (ROOT / file).read_text()


def test_the_page_has_nine_changes() -> None:
    """The tests above have something to test."""
    assert TEXT.count("\n## ") == 9
    assert len(NAMES) > 30
    assert len(TESTS) >= 3
