"""Our filters against kube-scheduler's own, verdict by verdict."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from support.draw import ASPECTS, Case, cases_for
from support.profiles import batch_seed, examples
from support.verdicts import assert_same
from thalweg_controlplane import Oracle

from flowcore.api import node_features
from flowcore.cluster import node_matching
from flowcore.model import resources
from flowcore.model.inter_pod_constraints import AffinityTerm
from flowcore.model.nodes import Taint
from flowcore.model.pods import HostPort, Toleration
from flowcore.model.selector_index import EVERYWHERE
from flowcore.model.selectors import Requirement
from flowcore.model.volumes import Disk
from flowcore.rules.filters import (
    node_name,
    node_unschedulable,
    node_volume_limits,
    volume_binding,
    volume_zone,
)
from flowcore.rules.filters.node_ports import HeldPorts
from flowcore.rules.topology import spread

WHOLE = "the default profile"
#: Verdicts compared for each filter in a run, at least.
ENOUGH, MANY = 1_000, 100_000
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


@pytest.mark.parametrize("name", [*ASPECTS, WHOLE])
def test_every_verdict_is_kube_schedulers(oracle: Oracle, compared: dict[str, Counter[str]], name: str) -> None:
    """Each pod may go to each node or not exactly as kube-scheduler has it, in its words."""
    counts = compared[name] = compare(oracle, name, ENOUGH)
    check(counts, ENOUGH)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*ASPECTS, WHOLE])
def test_a_great_many_verdicts_are_kube_schedulers(
    oracle: Oracle, compared: dict[str, Counter[str]], name: str
) -> None:
    """The same over a hundred thousand verdicts a filter."""
    counts = compared[f"{name}, long"] = compare(oracle, name, MANY)
    check(counts, MANY)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_args, **_more: answer


def _by_key(tolerations: Collection[Toleration], taint: Taint) -> bool:
    return any(toleration.key == taint.key for toleration in tolerations)


#: What is put in the place of what, for each filter.
def _same_address(held: HeldPorts, others: Iterable[HostPort]) -> bool:
    return any(other.ip in held._addresses.get((other.protocol, other.port), ()) for other in others)


SABOTAGE = {
    "NodeName": (node_name, "rejections", _always(())),
    "NodeUnschedulable": (node_unschedulable, "tolerates", _always(False)),
    "TaintToleration": (node_matching, "tolerates", _by_key),
    "NodeAffinity": (Requirement, "is_valid", True),
    "NodePorts": (HeldPorts, "clashes", _same_address),
    "NodeResourcesFit": (resources, "raise_to", lambda total, floor: total.update(floor)),
    "PodTopologySpread": (spread, "included", lambda _constraint, _pod, table: table.unreadable),
    "InterPodAffinity": (AffinityTerm, "scope", EVERYWHERE),
    "VolumeRestrictions": (Disk, "conflicts", lambda self, other: (self.plugin, self.key) == (other.plugin, other.key)),
    "NodeVolumeLimits": (node_volume_limits, "not_for_pod", _always("")),
    "VolumeBinding": (volume_binding, "_may_hold", lambda volume, claim: volume.size >= (claim.size or 0)),
    "VolumeZone": (volume_zone, "_TODAY", {key: key for key in volume_zone._TODAY}),
    "NodeDeclaredFeatures": (node_features, "RESTART_ALL", "RestartAllContainers"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASPECTS)
def test_a_wrong_filter_is_found_out(oracle: Oracle, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The comparison can fail: each filter, spoiled a little, disagrees within the same draws."""
    monkeypatch.setattr(*SABOTAGE[name])
    with pytest.raises(AssertionError, match=r"ours .*kube-scheduler's"):
        compare(oracle, name, SPOILED, [Phase.generate])


def test_a_difference_shrinks_to_what_matters(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node, one pod that holds the port, one that wants it, and nothing else."""
    monkeypatch.setattr(*SABOTAGE["NodePorts"])
    with pytest.raises(AssertionError) as found:
        compare(oracle, "NodePorts", ENOUGH)
    case = json.loads(str(found.value).partition("tests/oracle/cases/:")[2])
    assert [len(case[part]) for part in ("nodes", "pods", "pending")] == [1, 1, 1]
    assert len(case["pending"][0]["spec"]["containers"]) == 1
