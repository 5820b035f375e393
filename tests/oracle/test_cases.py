"""Cases on which we once differed from kube-scheduler, or that show where it is easy to."""

import json
from pathlib import Path

import pytest
from support.draw import Case
from support.minor_versions import EACH_VERSION
from support.verdicts import assert_same
from thalweg_controlplane import Oracle

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@EACH_VERSION
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_kept_case_stays_settled(oracle: Oracle, path: Path) -> None:
    """Verdicts and words are kube-scheduler's, with all filters together and with the one that the case is about."""
    kept = json.loads(path.read_text())
    only = kept.pop("filter")
    case = Case(**kept)
    assert_same(oracle, case)
    if only:
        assert_same(oracle, case, only)
