"""Our filters against kube-scheduler's own, verdict by verdict."""

import json
from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import Phase, given, seed, settings
from support.draw import ASPECTS, Case, cases_for
from support.minor_versions import EACH_VERSION, share
from support.profiles import at_least, batch_seed, examples
from support.spoiled_filters import SPOILED_FILTERS
from support.verdicts import assert_same
from thalweg_controlplane import Oracle

WHOLE = "the default profile"
#: Verdicts compared for each filter, at least; ten times as many while exploring.
ENOUGH = 10_000
#: A spoiled filter may be found out by rare cases only.
SPOILED = 5_000


#: Explaining a failure costs a minute of questions to the oracle and says little of a manifest.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def compare(oracle: Oracle, name: str, enough: int, phases: Collection[Phase] = PHASES) -> Counter[str]:
    """Draws and compares until there are enough verdicts; the first difference is shrunk and raised."""
    counts: Counter[str] = Counter()
    aspects = ASPECTS if name == WHOLE else [name]
    only = "" if name == WHOLE else name
    for batch in range(1_000):

        @seed(batch_seed(batch))
        @settings(max_examples=examples(100), phases=phases, report_multiple_bugs=False)
        @given(case=cases_for(aspects))
        def agree(case: Case) -> None:
            counts.update(assert_same(oracle, case, only))

        agree()
        if counts.total() >= enough:
            break
    return counts


def check(counts: Counter[str], enough: int) -> None:
    """There were enough verdicts, and enough of each kind to mean something."""
    assert counts.total() >= enough
    assert counts["fits"] > enough / 20
    assert counts["rejected"] > enough / 20


@EACH_VERSION
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*ASPECTS, WHOLE])
def test_every_verdict_is_kube_schedulers(oracle: Oracle, compared: dict[str, Counter[str]], name: str) -> None:
    """Each pod may go to each node or not exactly as kube-scheduler has it, in its words."""
    enough = at_least(share(oracle, ENOUGH))
    counts = compared[f"{oracle.minor_version}, {name}"] = compare(oracle, name, enough)
    check(counts, enough)


@pytest.mark.parametrize("name", ASPECTS)
def test_a_wrong_filter_is_found_out(oracle: Oracle, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The comparison can fail: each filter, spoiled a little, disagrees within the same draws."""
    monkeypatch.setattr(*SPOILED_FILTERS[name])
    with pytest.raises(AssertionError, match=r"ours .*kube-scheduler's"):
        compare(oracle, name, SPOILED, [Phase.generate])


def test_a_difference_shrinks_to_what_matters(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node, one pod that holds the port, one that wants it, and nothing else."""
    monkeypatch.setattr(*SPOILED_FILTERS["NodePorts"])
    with pytest.raises(AssertionError) as found:
        compare(oracle, "NodePorts", ENOUGH)
    case = json.loads(str(found.value).partition("tests/oracle/cases/:")[2])
    assert [len(case[part]) for part in ("nodes", "pods", "pending")] == [1, 1, 1]
    assert len(case["pending"][0]["spec"]["containers"]) == 1
