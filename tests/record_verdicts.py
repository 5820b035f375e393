"""Asks kube-scheduler's filters about drawn clusters and keeps the verdicts: `python tests/record_verdicts.py`.

The cases of tests/oracle/cases come first. Then there are about a hundred verdicts for each filter and for the default
profile: as many pods that fit as pods that do not, and some that a wrong version of the filter gets wrong.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from support.draw import ASPECTS, Case, cases_for
from support.recorded_verdicts import PATH, RecordedCase, write
from support.spoiled_filters import SPOILED_FILTERS
from support.verdicts import Judged, differences, judged
from thalweg_controlplane import Oracle, find_or_build

#: Verdicts of each filter, at least, and cases among them that its wrong version gets wrong.
_ENOUGH, _FOUND_OUT = 100, 2
_BATCHES, _DRAWN = 60, 50
#: Characters of a case. Larger ones say no more.
_LARGE = 6_000


def main() -> None:
    """Writes the file."""
    with Oracle(find_or_build(print)) as oracle:
        records = [*_settled(oracle), *(each for name in ("", *ASPECTS) for each in _drawn(oracle, name))]
    write(records)
    verdicts = sum(len(nodes) for each in records for nodes in each.theirs.values())
    print(f"{PATH}: {verdicts} verdicts on {len(records)} cases")  # noqa: T201


def _settled(oracle: Oracle) -> Iterator[RecordedCase]:
    for path in sorted((Path(__file__).parent / "oracle/cases").glob("*.json")):
        kept = json.loads(path.read_text())
        only = kept.pop("filter")
        case = Case(**kept)
        for name in dict.fromkeys(("", only)):
            yield RecordedCase(case, name, judged(oracle, case, name))


def _drawn(oracle: Oracle, name: str) -> list[RecordedCase]:
    """Cases of one filter, or of the default profile."""
    chosen: list[RecordedCase] = []
    counts, found_out = Counter[bool](), 0
    for batch in range(_BATCHES):

        @seed(batch)
        @settings(max_examples=_DRAWN, phases=[Phase.generate], database=None, deadline=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=cases_for([name] if name else ASPECTS))
        def choose(case: Case) -> None:
            nonlocal found_out
            if len(json.dumps(case.to_json())) > _LARGE:
                return
            theirs = judged(oracle, case, name)
            kinds = Counter(verdict.fits for nodes in theirs.values() for verdict in nodes.values())
            tells = found_out < _FOUND_OUT and name in SPOILED_FILTERS and _is_found_out(theirs, case, name)
            is_rarer = kinds[counts[False] >= counts[True]] > 0
            if tells or (counts.total() < _ENOUGH and is_rarer):
                chosen.append(RecordedCase(case, name, theirs))
                counts.update(kinds)
                found_out += tells

        choose()
        if counts.total() >= _ENOUGH and (found_out >= _FOUND_OUT or name not in SPOILED_FILTERS):
            break
    print(f"{name or 'the default profile'}: {counts.total()} verdicts, {counts[True]} fit", flush=True)  # noqa: T201
    return chosen


def _is_found_out(theirs: Judged, case: Case, name: str) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*SPOILED_FILTERS[name])
        return bool(differences(theirs, case, name)[0])


if __name__ == "__main__":
    main()
