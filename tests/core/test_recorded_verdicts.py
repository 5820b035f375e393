"""Our filters against verdicts of kube-scheduler's own that are kept in a file."""

from collections import Counter

import pytest
from support.draw import ASPECTS
from support.recorded_verdicts import RecordedCase, read
from support.spoiled_filters import SPOILED_FILTERS
from support.verdicts import assert_agrees, differences

RECORDED: dict[str, list[RecordedCase]] = {name: [] for name in ("", *ASPECTS)}
for record in read():
    RECORDED[record.only].append(record)


@pytest.mark.parametrize("name", RECORDED, ids=lambda name: name or "the default profile")
def test_every_verdict_is_kube_schedulers(name: str) -> None:
    """Each pod may go to each node or not exactly as kube-scheduler had it, in its words."""
    counts = Counter[str]()
    for each in RECORDED[name]:
        counts.update(assert_agrees(each.theirs, each.case, name))
    assert min(counts["fits"], counts["rejected"]) >= 5


@pytest.mark.parametrize("name", ASPECTS)
def test_a_wrong_filter_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The comparison can fail: each filter, spoiled a little, disagrees."""
    monkeypatch.setattr(*SPOILED_FILTERS[name])
    assert any(differences(each.theirs, each.case, name)[0] for each in RECORDED[name])
