"""Codes of reasons: one of a fixed set, and the filter that the nearest nodes fail at."""

from hypothesis import given, settings
from support.draw import Case, crowded_cases
from support.profiles import examples
from support.verdicts import snapshot_of

from flowcore.planning.round import run_round
from flowcore.rules.filters import Verdicts, run_filters
from flowcore.rules.filters.registry import IN_ORDER
from flowcore.rules.reasons.codes import CODES, NO_NODES
from flowcore.rules.verdicts import group

FILTERS = {each.name for each in IN_ORDER}


def furthest(verdicts: Verdicts) -> str:
    """Node by node: each fails at the first filter that rejects it; the last of these filters."""
    places = [
        next(
            place
            for place, (_, rejections) in enumerate(verdicts.by_filter)
            if any(rejection.nodes[at] for rejection in rejections)
        )
        for at in range(len(verdicts.table.nodes))
    ]
    return verdicts.by_filter[max(places)][0] if places else NO_NODES


@settings(max_examples=examples(60))
@given(crowded_cases())
def test_each_unplaced_pod_has_a_code(case: Case) -> None:
    """One of the set. A filter's name is that of the filter at which the nodes fail that pass the most filters."""
    result = run_round(snapshot_of(case, place_blocked=False))
    codes = {unplaced.pod.key: unplaced.code for unplaced in result.unplaced}
    assert set(codes.values()) <= CODES
    for each in group([unplaced.pod for unplaced in result.unplaced], result.after.pod_index):
        verdicts = run_filters(each.pod_class, result.after, each.signature)
        if verdicts.fits.any():
            continue
        for pod in each.pods:
            if codes[pod.key] in FILTERS | {NO_NODES}:
                assert codes[pod.key] == furthest(verdicts)
