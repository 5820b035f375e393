"""Sections of the page of figures are written anew one by one."""

import performance
import pytest
from harness.errors import BenchError

CONDITIONS = {
    "date": "2026-01-02 03:04 UTC",
    "thalweg": "0.1.0 abc",
    "processor": "p",
    "kubernetes": "v1",
    "python": "3",
    "busy with other work": "7%",
    "cores": "2 for everything",
}
QUESTIONS = [{"conditions": CONDITIONS, "rows": [{"nodes": 10, "question": "why", "plan": 1.0, "seconds": 2.0}]}]
TEMPLATE = "# Performance\n## Questions\nNew words.\n\n{table questions}\n## Gangs\n{table gangs}\n"
WRITTEN = "# Performance\n## Questions\nOld words.\n## Gangs\nOld figures.\n### More\nMore.\n"


def test_only_what_was_measured_is_written_anew() -> None:
    """With words and figures, and with the commit of the run; all else stays as it is."""
    page = performance.with_sections(WRITTEN, TEMPLATE, {"questions": QUESTIONS})
    assert "New words." in page
    assert "| 10 | why | 1.0 | 2.0 |" in page
    assert "7 %) thalweg 0.1.0 abc" in page
    assert "Old words." not in page
    assert page.endswith("## Gangs\nOld figures.\n### More\nMore.\n")


def test_a_heading_may_name_the_cores() -> None:
    """It is found under the words that it gets."""
    page = performance.with_sections(
        WRITTEN.replace("## Questions", "## Questions on 2 cores"),
        TEMPLATE.replace("## Questions", "## Questions on {cores} cores"),
        {"questions": QUESTIONS},
    )
    assert page.count("## Questions on 2 cores") == 1
    assert "Old words." not in page


def test_a_section_that_is_missing_is_an_error() -> None:
    """Nothing is lost unseen."""
    with pytest.raises(BenchError, match="no section ## Questions"):
        performance.with_sections("# Performance\n", TEMPLATE, {"questions": QUESTIONS})


def test_a_table_without_a_run_says_so() -> None:
    """Old figures beside new words would be taken for new ones."""
    both = TEMPLATE.replace("{table questions}", "{table questions}\n\n{table gangs}")
    page = performance.with_sections(WRITTEN, both, {"questions": QUESTIONS, "gangs": []})
    assert "Not measured at this commit.\n## Gangs" in page
