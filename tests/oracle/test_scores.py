"""Our raw preferences against kube-scheduler's own scores, before either is scaled."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, seed, settings
from support.draw import SCORES, SOFT, Case, cases
from support.minor_versions import EACH_VERSION, share
from support.profiles import at_least, batch_seed, examples
from support.verdicts import snapshot_of, verdicts_from_cache
from thalweg_controlplane import Oracle

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.costs import image_locality
from flowcore.model.pods import Toleration
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.rules.filters import node_affinity, taint_toleration
from flowcore.rules.topology import soft_affinity, soft_spread, spread

#: Scores compared for each plugin, at least (ten times as many while exploring), and before a spoiled one is found out.
ENOUGH, SPOILED = 10_000, 3_000
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def _spread(pod: PendingPod, cluster: Snapshot) -> Int64s | None:
    everywhere = np.ones(len(cluster.table.nodes), dtype=np.bool_)
    found = soft_spread.spread_score(pod.pod_class, pod.signature, cluster.pod_index, cluster.table, everywhere)
    return None if found is None else found.score


OURS: dict[str, Callable[[PendingPod, Snapshot], Int64s | None]] = {
    "NodeAffinity": lambda pod, cluster: node_affinity.preference(pod.pod_class, cluster.table),
    "TaintToleration": lambda pod, cluster: taint_toleration.untolerated_preferences(pod.pod_class, cluster.table),
    "InterPodAffinity": lambda pod, cluster: soft_affinity.affinity_weights(
        pod.signature, cluster.pod_index, cluster.table
    ),
    "PodTopologySpread": _spread,
    "ImageLocality": lambda pod, cluster: image_locality.locality(pod.pod_class, cluster.reports, cluster.table),
}


def compare(oracle: Oracle, name: str, enough: int, phases: Any = PHASES) -> Counter[str]:
    """Draws and compares until there are enough scores; the first difference is shrunk and raised."""
    counts: Counter[str] = Counter()
    for batch in range(1_000):

        @seed(batch_seed(batch))
        @settings(max_examples=examples(100), phases=phases, report_multiple_bugs=False)
        @given(case=cases(frozenset({name, SOFT})))
        def agree(case: Case) -> None:
            theirs = oracle.score([name], case.nodes, verdicts_from_cache(case), case.pending, case.namespaces)[name]
            cluster = snapshot_of(case)
            for pod in cluster.pending:
                if pod.key not in theirs:
                    counts["refused"] += 1  # something in it cannot be parsed
                    continue
                found = OURS[name](pod, cluster)
                ours = [0] * len(cluster.table.nodes) if found is None else found.tolist()
                scores = [theirs[pod.key][node.name] for node in cluster.table.nodes]
                assert ours == scores, f"{pod.key}: ours {ours}, kube-scheduler's {scores}, {case}"
                counts.update("some" if score else "none" for score in scores)

        agree()
        if counts["some"] + counts["none"] >= enough:
            break
    return counts


def check(counts: Counter[str], enough: int) -> None:
    """There were enough scores of each kind to mean something."""
    assert counts["some"] > enough / 50, counts
    assert counts["none"] > enough / 50, counts


@EACH_VERSION
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_kube_schedulers(oracle: Oracle, name: str) -> None:
    """Each node is worth to each pod exactly what kube-scheduler's plugin says, before it is scaled."""
    enough = at_least(share(oracle, ENOUGH))
    check(compare(oracle, name, enough), enough)


SABOTAGE = {
    "NodeAffinity": (NodeSelectorTerm, "selects_nothing", False),
    "TaintToleration": (Toleration, "effect", ""),
    "InterPodAffinity": (
        soft_affinity,
        "_weights_by_node",
        lambda wish, _pods, table: np.sign(wish.weight) * len(table.nodes),
    ),
    "PodTopologySpread": (spread, "included", lambda _constraint, _pod, table: ~table.unreadable),
    "ImageLocality": (image_locality, "_LEAST_SIZE", 0),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_wrong_score_is_found_out(oracle: Oracle, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The comparison can fail: each score, spoiled a little, differs within the same draws."""
    monkeypatch.setattr(*SABOTAGE[name])
    with pytest.raises(AssertionError, match=r"ours .*kube-scheduler's"):
        compare(oracle, name, SPOILED, [Phase.generate])
