"""The verdicts that tests/core compares without an oracle are still the oracle's."""

from dataclasses import replace

from support.recorded_verdicts import read
from support.verdicts import judged
from thalweg_controlplane import Oracle


def test_the_file_says_what_kube_scheduler_says(oracle: Oracle) -> None:
    """Asked again about each case; if it answers otherwise, `python tests/record_verdicts.py` writes the file anew."""
    for each in read():
        again = replace(each, theirs=judged(oracle, each.case, each.only))
        assert again.to_json() == each.to_json()
